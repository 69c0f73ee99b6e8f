//! The registry: tokens, reservations, senders and worker sessions, and the requests that change them.
//!
//! A request is checked whole before anything changes. What it changes is in force at once, and is returned for the store; the
//! reply has to wait until the store has it. If the store fails, the registry is thrown away and restored from the store.
//!
//! What a worker reports, and when, is soft state: it is in no record. After a restart every session is as it was before for
//! [`LivenessTimes::first_state`](crate::config::LivenessTimes::first_state), unless the soft state is carried over.
//!
//! When a token is revoked, all below it are, and their rights end at once; events go on to flow. Reservations that were made
//! with one of them stay until they end or someone with the right frees them, and count against the nearest parent that is
//! left. Sessions stay as long as states come, which the reservation's token may send as well; else they end by silence.

mod authority;
mod reservations;
mod resting;
mod sessions;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use ejfat::{Time, lb::LbId};

use crate::{
    calendar::MemberId,
    config::{Config, ConfigError},
    durable::{Durable, Ending, Inconsistency, NoRoom},
    record::{AuditEntry, Change, Counter, EpochRecord, Key, Record, RecordError},
    request::{Accepted, Caller, Moment, Refusal, RefusalKind, Reply, Request},
    reservation::Reservation,
    session::{
        SessionId, WorkerSession,
        liveness::{Liveness, Readiness, WorkerState},
    },
    token::{Secret, Token, TokenHash},
};

use authority::Authority;
use resting::Resting;

/// The most sessions that one poll ends. The next polls end the others, so that the changes of many silent workers are
/// stored in small batches.
const MOST_SILENT: usize = 32;

/// Random bytes.
pub type RandomBytes<'a> = &'a mut dyn FnMut(&mut [u8]);

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Registry {
    config: Config,
    root: TokenHash,
    durable: Durable,
    soft: SoftState,
}

/// What is in no record: how sessions live, and which members' ids rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SoftState {
    sessions: BTreeMap<SessionId, Liveness>,
    resting: Resting,
}

/// Why a registry cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The configuration is not valid, or the root token is empty.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A stored key or value is not a record of this program, or is of a version that this program does not know.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The stored records need more room than the configuration gives, for example because a limit was lowered.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The stored records do not fit each other, for example because a record names another record that
    /// does not exist.
    #[error(transparent)]
    Inconsistency(#[from] Inconsistency),
}

/// What a request does.
struct Plan {
    reply: Reply,
    changes: Vec<Change>,
    /// A text for the audit log.
    what: Option<String>,
    state: Option<(SessionId, WorkerState)>,
}

impl Plan {
    fn read(reply: Reply) -> Self {
        Self { reply, changes: Vec::new(), what: None, state: None }
    }

    fn change(reply: Reply, changes: Vec<Change>, what: String) -> Self {
        Self { reply, what: (!changes.is_empty()).then_some(what), changes, state: None }
    }
}

impl Registry {
    /// A registry without any record. `root` is the text of the root token.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration cannot be served.
    pub fn new(config: Config, root: &str) -> Result<Self, ConfigError> {
        config.check()?;
        if root.is_empty() {
            return Err(ConfigError::NoRootToken);
        }
        Ok(Self {
            config,
            root: TokenHash::of(root),
            durable: Durable::default(),
            soft: SoftState::default(),
        })
    }

    /// The registry of stored records, keys with values.
    ///
    /// # Errors
    /// [`RestoreError`] if the configuration cannot be served or has less room than what is stored takes, a record is none of this
    /// program, or records do not fit each other.
    pub fn restore<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        config: Config,
        root: &str,
        entries: impl IntoIterator<Item = (K, V)>,
        now: Time,
    ) -> Result<Self, RestoreError> {
        let mut registry = Self::new(config, root)?;
        for (key, value) in entries {
            registry.durable.put(Record::decode(key.as_ref(), value.as_ref())?);
        }
        registry.durable.check_room(&registry.config)?;
        registry.durable.check(registry.config.slots)?;
        let restored = |id: &SessionId| (*id, Liveness::Restored { at: now });
        registry.soft.sessions = registry.durable.sessions.keys().map(restored).collect();
        Ok(registry)
    }

    /// What is in no record, to carry it over to a registry that is restored in the same process.
    pub fn soft(&self) -> &SoftState {
        &self.soft
    }

    /// Takes over what is known of sessions that are there.
    pub fn carry_over(&mut self, soft: SoftState) {
        for (id, liveness) in soft.sessions {
            if let Some(known) = self.soft.sessions.get_mut(&id) {
                *known = liveness;
            }
        }
        self.soft.resting = soft.resting;
    }

    /// Checks that a caller shows a known token.
    ///
    /// # Errors
    /// [`Refusal`] if the caller shows no token, or an unknown one.
    pub fn check_caller(&self, caller: Caller<'_>) -> Result<(), Refusal> {
        self.authenticate(caller).map(drop)
    }

    /// Returns the configuration with which the registry was made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What is stored.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Carries out a request, or refuses it and changes nothing.
    ///
    /// # Errors
    /// [`Refusal`] if the caller has no right to it, or it cannot be done.
    pub fn request(
        &mut self,
        at: Moment,
        caller: Caller<'_>,
        request: &Request,
        random: RandomBytes<'_>,
    ) -> Result<Accepted, Refusal> {
        let authority = self.authenticate(caller)?;
        let by = authority.id;
        self.authorize(&authority, request)?;
        let Plan { reply, mut changes, what, state } = self.plan(at, &authority, request, random)?;
        if let Some(what) = what {
            let entry =
                AuditEntry { at: at.wall, by: Some(by), call: request.call().name().to_owned(), what };
            changes.extend(self.durable.log(entry, self.config.most_audit));
        }
        self.commit(at.now, &changes);
        if let Some((session, state)) = state {
            self.soft.sessions.insert(session, Liveness::Reported { at: at.now, wall: at.wall, state });
        }
        Ok(Accepted { reply, changes })
    }

    fn plan(
        &self,
        at: Moment,
        by: &Authority<'_>,
        request: &Request,
        random: RandomBytes<'_>,
    ) -> Result<Plan, Refusal> {
        match request {
            Request::Reserve(reserve) => self.reserve(at, by, reserve, random),
            Request::Get(name) => self.get(&name.lb_id),
            Request::Status(name) => self.status(at, &name.lb_id),
            Request::Free(name) => self.free(&name.lb_id),
            Request::Reset(reset) => self.reset(reset),
            Request::Extend(extend) => self.extend(at, by, extend),
            Request::AddSenders(senders) => self.add_senders(senders),
            Request::RemoveSenders(senders) => self.remove_senders(senders),
            Request::Register(register) => self.register(at, by, register, random),
            Request::SetSlotDemands(demands) => self.set_slot_demands(demands),
            Request::Deregister(deregister) => self.deregister(deregister),
            Request::SendState(state) => self.send_state(state),
            Request::Overview => Ok(self.overview(at, by)),
            Request::Timeseries => Ok(self.readable(by)),
            Request::Version => Ok(Plan::read(Reply::Done)),
            Request::CreateToken(create) => self.create_token(at, by, create, random),
            Request::ListTokenPermissions(selector) => self.token_details(by, selector),
            Request::ListChildTokens(selector) => self.child_tokens(by, selector),
            Request::RevokeToken(selector) => self.revoke(by, selector),
            Request::Chain(name) | Request::Unchain(name) | Request::GetChainGraph(name) => {
                self.reservation(&name.lb_id)?;
                Ok(Plan::read(Reply::Done))
            }
        }
    }

    /// Ends what is over: reservations by their end, sessions by silence. Returns the changes for the store, which are one batch:
    /// one reservation, or a few sessions. If more is over, [`Self::next_wakeup`] is not later than `at`.
    pub fn poll(&mut self, at: Moment) -> Vec<Change> {
        self.soft.resting.expire(at.now);
        let Some((ending, call, what)) = self.over(at) else { return Vec::new() };
        let entry = AuditEntry { at: at.wall, by: None, call: call.to_owned(), what };
        let mut changes = self.durable.end(ending);
        changes.extend(self.durable.log(entry, self.config.most_audit));
        self.commit(at.now, &changes);
        changes
    }

    /// What is over and ends next, and what the audit log says of it.
    fn over(&self, at: Moment) -> Option<(Ending, &'static str, String)> {
        let is_over = |of: &&Reservation| of.until.is_some_and(|until| until <= at.wall);
        if let Some(reservation) = self.durable.reservations.values().find(is_over) {
            let ending = Ending { reservations: BTreeSet::from([reservation.lb]), ..Ending::default() };
            return Some((ending, "ReservationExpired", reservations::described(reservation)));
        }
        let is_silent = |liveness: &Liveness| liveness.ends(&self.config.liveness) <= at.now;
        let silent = self.soft.sessions.iter().filter(|(_, liveness)| is_silent(liveness));
        let sessions: BTreeSet<_> = silent.map(|(id, _)| *id).take(MOST_SILENT).collect();
        let ended = sessions.iter().filter_map(|id| self.durable.sessions.get(id));
        let what = ended.map(sessions::described).collect::<Vec<_>>().join("; ");
        let ending = Ending { sessions, ..Ending::default() };
        (!ending.sessions.is_empty()).then_some((ending, "SessionSilent", what))
    }

    /// When [`Self::poll`] is to be called next, and the readiness of sessions to be looked at again. If something is over and has
    /// not ended, that is a time that has passed.
    pub fn next_wakeup(&self, at: Moment) -> Option<Time> {
        let times = &self.config.liveness;
        let sessions = self.soft.sessions.values();
        let sessions = sessions.map(|liveness| liveness.turns(at.now, times).unwrap_or(liveness.ends(times)));
        let reservations =
            self.durable.reservations.values().filter_map(|reservation| reservation.until).map(|until| {
                let left = until.0.saturating_sub(at.wall.0);
                at.now + std::time::Duration::from_millis(left)
            });
        sessions.chain(reservations).min()
    }

    /// Whether a session gets events. `None` if there is no such session.
    pub fn readiness(&self, session: SessionId, now: Time) -> Option<Readiness> {
        Some(self.soft.sessions.get(&session)?.readiness(now, &self.config.liveness))
    }

    /// What a session reported last. `None` if there is no such session.
    pub fn liveness(&self, session: SessionId) -> Option<&Liveness> {
        self.soft.sessions.get(&session)
    }

    /// Keeps a member's id from being given again for a while, as long as there are others, because its last epoch was used until
    /// now.
    pub fn rest_member(&mut self, lb: LbId, member: MemberId, now: Time) {
        self.soft.resting.rest(lb, member, now + self.config.liveness.member_rest);
    }

    /// The change by which a load balancer's newest calendar is stored; `None` if nobody has reserved it.
    pub fn record_epoch(&mut self, epoch: EpochRecord) -> Option<Change> {
        self.durable.reservations.contains_key(&epoch.lb).then(|| {
            let change = Change::Put(Record::Epoch(epoch));
            self.durable.apply(&change);
            change
        })
    }

    fn commit(&mut self, now: Time, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(Record::Session(session)) => {
                    self.soft.sessions.entry(session.id).or_insert(Liveness::Registered { at: now });
                }
                Change::Delete(Key::Session(id)) => self.forget(*id, now),
                _ => {}
            }
            self.durable.apply(change);
        }
    }

    /// Forgets how an ended session lived.
    fn forget(&mut self, id: SessionId, now: Time) {
        self.soft.sessions.remove(&id);
        if let Some(&WorkerSession { lb, member, .. }) = self.durable.sessions.get(&id) {
            self.rest_member(lb, member, now);
        }
    }

    /// A new token with the next id: its text, and the changes that put it in.
    fn mint(
        &self,
        random: RandomBytes<'_>,
        token: impl FnOnce(TokenHash) -> Token,
    ) -> Result<(Secret, [Change; 2]), Refusal> {
        let secret = Secret::generate(random);
        let hash = TokenHash::of(secret.as_str());
        if hash == self.root || self.durable.tokens.find(&hash).is_some() {
            return Err(Refusal::new(
                RefusalKind::FailedPrecondition,
                "the control plane's random numbers repeat",
            ));
        }
        let token = token(hash);
        let next = Record::Next(Counter::Token, u64::from(token.id.0) + 1);
        Ok((secret, [Change::Put(Record::Token(token)), Change::Put(next)]))
    }
}
