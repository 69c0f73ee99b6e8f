//! What of a registry is stored: records in memory, and how they depend on each other.
//!
//! Only `Durable::apply` changes it, by the changes that the store gets, so that what a store has always gives the same state.

mod room;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
};

use ejfat::lb::LbId;

use crate::{
    calendar::{MOST_MEMBER_ID, MemberId},
    config::MOST_AUDIT_DELETED,
    record::{AuditEntry, Change, Counter, EpochRecord, Key, Record},
    reservation::{Reservation, ReservationId, SenderAddress},
    session::{SessionId, WorkerSession, slots::TakenSlots},
    token::{Permission, TokenId, TokenKind, Tokens},
};

pub use room::NoRoom;

/// Counters of packets to members on ESnet's P4 data plane. The low 10 bits of a member's id choose its counter.
pub(crate) const MEMBER_COUNTERS: MemberId = 1 << 10;

/// All records, by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durable {
    pub(crate) tokens: Tokens,
    pub(crate) reservations: BTreeMap<LbId, Reservation>,
    pub(crate) senders: BTreeSet<SenderAddress>,
    pub(crate) sessions: BTreeMap<SessionId, WorkerSession>,
    /// The sessions of each load balancer. A session stays with its load balancer.
    of_lbs: BTreeSet<(LbId, SessionId)>,
    /// The same sessions with the address of each worker, which does not change either.
    of_addresses: BTreeSet<(LbId, IpAddr, SessionId)>,
    /// The ids of members of each load balancer.
    members: BTreeSet<(LbId, MemberId)>,
    /// How many members of all load balancers share each counter of ESnet's P4 data plane.
    counted: BTreeMap<MemberId, usize>,
    epochs: BTreeMap<LbId, EpochRecord>,
    next: BTreeMap<Counter, u64>,
    audit: BTreeMap<u64, AuditEntry>,
}

/// Records that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the records do not fit each other: {key} {why}; restore a backup")]
pub struct Inconsistency {
    /// The key of the first record that was found not to fit, as text such as `session/5`.
    pub key: String,
    /// The reason why the record does not fit, as the end of a sentence that begins with the key.
    pub why: String,
}

/// What is to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) reservations: BTreeSet<LbId>,
    pub(crate) sessions: BTreeSet<SessionId>,
    pub(crate) tokens: BTreeSet<TokenId>,
}

impl Durable {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(record) => self.put(record.clone()),
            Change::Delete(key) => self.delete(*key),
        }
    }

    pub(crate) fn put(&mut self, record: Record) {
        match record {
            Record::Token(token) => self.tokens.put(token),
            Record::Reservation(reservation) => drop(self.reservations.insert(reservation.lb, reservation)),
            Record::Sender(sender) => drop(self.senders.insert(sender)),
            Record::Session(session) => {
                self.forget_session(session.id);
                self.of_lbs.insert((session.lb, session.id));
                self.of_addresses.insert((session.lb, session.worker.address, session.id));
                self.members.insert((session.lb, session.member));
                *self.counted.entry(session.member % MEMBER_COUNTERS).or_default() += 1;
                self.sessions.insert(session.id, session);
            }
            Record::Epoch(epoch) => drop(self.epochs.insert(epoch.lb, epoch)),
            Record::Next(counter, next) => drop(self.next.insert(counter, next)),
            Record::Audit(number, entry) => drop(self.audit.insert(number, entry)),
        }
    }

    fn delete(&mut self, key: Key) {
        match key {
            Key::Token(id) => self.tokens.remove(id),
            Key::Reservation(lb) => drop(self.reservations.remove(&lb)),
            Key::Sender(sender) => drop(self.senders.remove(&sender)),
            Key::Session(id) => self.forget_session(id),
            Key::Epoch(lb) => drop(self.epochs.remove(&lb)),
            Key::Next(counter) => drop(self.next.remove(&counter)),
            Key::Audit(number) => drop(self.audit.remove(&number)),
        }
    }

    fn forget_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.of_lbs.remove(&(session.lb, id));
        self.of_addresses.remove(&(session.lb, session.worker.address, id));
        self.members.remove(&(session.lb, session.member));
        if let Entry::Occupied(mut counted) = self.counted.entry(session.member % MEMBER_COUNTERS) {
            *counted.get_mut() -= 1;
            if *counted.get() == 0 {
                counted.remove();
            }
        }
    }

    /// Every record.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let tokens = self.tokens.iter().cloned().map(Record::Token);
        let reservations = self.reservations.values().cloned().map(Record::Reservation);
        let senders = self.senders.iter().copied().map(Record::Sender);
        let sessions = self.sessions.values().cloned().map(Record::Session);
        let epochs = self.epochs.values().cloned().map(Record::Epoch);
        let next = self.next.iter().map(|(counter, next)| Record::Next(*counter, *next));
        let audit = self.audit.iter().map(|(number, entry)| Record::Audit(*number, entry.clone()));
        tokens.chain(reservations).chain(senders).chain(sessions).chain(epochs).chain(next).chain(audit)
    }

    /// Returns all tokens except the root token, which is never stored.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Returns all reservations, in ascending order of their load balancers.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.values()
    }

    /// Returns the reservation with the number `id`, or `None` if there is no reservation with this number.
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.values().find(|reservation| reservation.id == id)
    }

    /// Returns the worker sessions of all load balancers, in ascending order of the sessions' numbers.
    pub fn sessions(&self) -> impl Iterator<Item = &WorkerSession> {
        self.sessions.values()
    }

    /// Returns the worker session with the number `id`, or `None` if there is no worker session with this number.
    pub fn session(&self, id: SessionId) -> Option<&WorkerSession> {
        self.sessions.get(&id)
    }

    /// The sessions of a load balancer.
    pub fn sessions_of(&self, lb: LbId) -> impl Iterator<Item = &WorkerSession> {
        let all = (lb, SessionId(0))..=(lb, SessionId(u64::MAX));
        self.of_lbs.range(all).filter_map(|(_, id)| self.sessions.get(id))
    }

    pub(crate) fn count_sessions_of(&self, lb: LbId) -> usize {
        self.of_lbs.range((lb, SessionId(0))..=(lb, SessionId(u64::MAX))).count()
    }

    /// The sessions of a load balancer whose workers have this address.
    pub(crate) fn sessions_at(&self, lb: LbId, address: IpAddr) -> impl Iterator<Item = &WorkerSession> {
        let all = (lb, address, SessionId(0))..=(lb, address, SessionId(u64::MAX));
        self.of_addresses.range(all).filter_map(|(.., id)| self.sessions.get(id))
    }

    /// Whether a load balancer has a member with this id.
    pub(crate) fn has_member(&self, lb: LbId, member: MemberId) -> bool {
        self.members.contains(&(lb, member))
    }

    /// How many members of all load balancers share the counter that a member with this id has on ESnet's P4 data plane.
    pub(crate) fn counted_with(&self, member: MemberId) -> usize {
        self.counted.get(&(member % MEMBER_COUNTERS)).copied().unwrap_or(0)
    }

    /// The senders of a load balancer.
    pub fn senders_of(&self, lb: LbId) -> impl Iterator<Item = &SenderAddress> {
        self.senders.iter().filter(move |sender| sender.lb == lb)
    }

    /// The newest calendar of a load balancer.
    pub fn epoch(&self, lb: LbId) -> Option<&EpochRecord> {
        self.epochs.get(&lb)
    }

    /// The audit log with the entries' numbers, the oldest first.
    pub fn audit(&self) -> impl DoubleEndedIterator<Item = (u64, &AuditEntry)> {
        self.audit.iter().map(|(number, entry)| (*number, entry))
    }

    /// The number that is given next, 1 at first, and 0 of [`Counter::Member`].
    pub(crate) fn next(&self, counter: Counter) -> u64 {
        let first = u64::from(!matches!(counter, Counter::Member(_)));
        self.next.get(&counter).copied().unwrap_or(first)
    }

    /// The changes that put `entry` at the end of the audit log, and delete the oldest ones of more than `most`, a few at a time.
    pub(crate) fn log(&self, entry: AuditEntry, most: usize) -> Vec<Change> {
        let number = self.audit.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let surplus = (self.audit.len() + 1).saturating_sub(most).min(MOST_AUDIT_DELETED);
        let oldest = self.audit.keys().filter(|of| **of != number).take(surplus);
        let deleted = oldest.map(|number| Change::Delete(Key::Audit(*number)));
        [Change::Put(Record::Audit(number, entry))].into_iter().chain(deleted).collect()
    }

    /// The changes by which all of `ending` ends, and with it what depends on it: the senders and sessions of a reservation, the
    /// tokens that came with reservations and sessions, and all tokens below an ended one.
    ///
    /// A reservation or session whose token ends by itself stays as it is. A reservation whose owner ends counts against the
    /// nearest parent of the owner that is left.
    pub(crate) fn end(&self, mut ending: Ending) -> Vec<Change> {
        let of_ended = |session: &&WorkerSession| ending.reservations.contains(&session.lb);
        let sessions: Vec<_> = self.sessions.values().filter(of_ended).map(|session| session.id).collect();
        ending.sessions.extend(sessions);
        let with_reservations = ending.reservations.iter().filter_map(|lb| self.reservations.get(lb)?.token);
        let with_sessions = ending.sessions.iter().filter_map(|id| self.sessions.get(id)?.token);
        let roots: Vec<_> =
            with_reservations.chain(with_sessions).chain(ending.tokens.iter().copied()).collect();
        let tokens: BTreeSet<_> = roots.into_iter().flat_map(|id| self.tokens.subtree(id)).collect();

        let senders = self.senders.iter().filter(|sender| ending.reservations.contains(&sender.lb));
        let mut changes: Vec<_> = tokens.iter().map(|id| Change::Delete(Key::Token(*id))).collect();
        changes.extend(senders.map(|sender| Change::Delete(Key::Sender(*sender))));
        changes.extend(ending.sessions.iter().map(|id| Change::Delete(Key::Session(*id))));
        let epochs = ending.reservations.iter().filter(|lb| self.epochs.contains_key(lb));
        changes.extend(epochs.map(|lb| Change::Delete(Key::Epoch(*lb))));
        changes.extend(ending.reservations.iter().map(|lb| Change::Delete(Key::Reservation(*lb))));

        let is_ended = |token: Option<TokenId>| token.is_some_and(|token| tokens.contains(&token));
        let left = self.sessions.values().filter(|session| !ending.sessions.contains(&session.id));
        changes.extend(
            left.filter(|session| is_ended(session.token)).map(|session| {
                Change::Put(Record::Session(WorkerSession { token: None, ..session.clone() }))
            }),
        );
        let left = self.reservations.values().filter(|left| !ending.reservations.contains(&left.lb));
        let changed = left.filter(|left| is_ended(left.token) || is_ended(Some(left.owner)));
        changes.extend(changed.map(|reservation| {
            let mut line = self.tokens.line(reservation.owner).map(|token| token.id);
            let owner = line.find(|id| !tokens.contains(id)).unwrap_or(TokenId::ROOT);
            let token = reservation.token.filter(|token| !tokens.contains(token));
            Change::Put(Record::Reservation(Reservation { owner, token, ..reservation.clone() }))
        }));
        changes
    }

    /// Checks that the records fit each other, with so many slots of a calendar.
    pub(crate) fn check(&self, slots: u32) -> Result<(), Inconsistency> {
        self.check_tokens()?;
        self.check_reservations()?;
        self.check_sessions(slots)?;
        for sender in &self.senders {
            let reservation = self.reservations.get(&sender.lb);
            require(reservation.is_some(), Key::Sender(*sender), "is the sender of no reservation")?;
        }
        for lb in self.epochs.keys() {
            let reservation = self.reservations.get(lb);
            require(reservation.is_some(), Key::Epoch(*lb), "is the epoch of no reservation")?;
        }
        Ok(())
    }

    fn check_tokens(&self) -> Result<(), Inconsistency> {
        let mut hashes = BTreeSet::new();
        let with_reservations = self.reservations.values().filter_map(|of| of.token);
        let with_sessions = self.sessions.values().filter_map(|of| of.token);
        let named: BTreeSet<_> = with_reservations.chain(with_sessions).collect();
        for token in self.tokens.iter() {
            let key = Key::Token(token.id);
            let has_parent = token.parent == TokenId::ROOT || self.tokens.get(token.parent).is_some();
            require(token.id != TokenId::ROOT, key, "has the id of the root token")?;
            require(u64::from(token.id.0) < self.next(Counter::Token), key, "is not below next/token")?;
            require(token.parent < token.id, key, "has a parent that is not older")?;
            require(has_parent, key, "has a parent that is missing")?;
            require(hashes.insert(token.hash), key, "has the hash of another token")?;
            require(token.permissions.len() <= Permission::MOST, key, "has too many permissions")?;
            let is_named = token.kind == TokenKind::Created || named.contains(&token.id);
            require(is_named, key, "came with a reservation or session that is missing")?;
        }
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), Inconsistency> {
        let mut ids = BTreeSet::new();
        for reservation in self.reservations.values() {
            let key = Key::Reservation(reservation.lb);
            let has_owner =
                reservation.owner == TokenId::ROOT || self.tokens.get(reservation.owner).is_some();
            let kind = reservation.token.map(|token| self.tokens.get(token).map(|token| token.kind));
            let has_token = kind.is_none_or(|kind| kind == Some(TokenKind::Reservation));
            require(ids.insert(reservation.id), key, "has the id of another reservation")?;
            let is_counted = reservation.id.0 < self.next(Counter::Reservation);
            require(is_counted, key, "has an id that is not below next/reservation")?;
            require(has_owner, key, "has an owner that is missing")?;
            require(has_token, key, "has a token that is missing")?;
        }
        Ok(())
    }

    fn check_sessions(&self, slots: u32) -> Result<(), Inconsistency> {
        let mut members = BTreeSet::new();
        let mut demanded: BTreeMap<_, TakenSlots> = BTreeMap::new();
        for session in self.sessions.values() {
            let key = Key::Session(session.id);
            let reservation = self.reservations.get(&session.lb);
            let is_reserved = reservation.is_some_and(|reservation| reservation.id == session.reservation);
            let kind = session.token.map(|token| self.tokens.get(token).map(|token| token.kind));
            let has_token = kind.is_none_or(|kind| kind == Some(TokenKind::Session));
            require(session.id.0 < self.next(Counter::Session), key, "is not below next/session")?;
            require(is_reserved, key, "is of a reservation that is missing")?;
            require(has_token, key, "has a token that is missing")?;
            require(members.insert((session.lb, session.member)), key, "is a member that another one is")?;
            require(session.member <= MOST_MEMBER_ID, key, "is a member with an id that none has")?;
            let taken = demanded.entry(session.lb).or_insert_with(|| TakenSlots::new(slots));
            let fit = session.slots.iter().all(|range| taken.take(*range));
            require(fit, key, "has slot demands that are empty, overlap others or end beyond all slots")?;
        }
        Ok(())
    }
}

fn require(is_so: bool, key: Key, why: &str) -> Result<(), Inconsistency> {
    if is_so { Ok(()) } else { Err(Inconsistency { key: key.to_string(), why: why.to_owned() }) }
}
