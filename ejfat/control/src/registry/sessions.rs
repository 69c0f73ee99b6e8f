//! Requests about worker sessions.

use std::collections::{BTreeMap, BTreeSet};

use ejfat::{Time, lb::LbId};

use super::{
    Plan, RandomBytes, Registry,
    authority::{Authority, session_id},
};
use crate::{
    calendar::{MOST_MEMBER_ID, MemberId},
    durable::{Ending, MEMBER_COUNTERS},
    record::{Change, Counter, Record},
    request::{
        Deregister, Moment, Refusal, RefusalKind, Register, RegisteredWorker, Reply, SendState,
        SetSlotDemands, SlotDemand, WorkerStatus,
    },
    reservation::{Reservation, Strategy, shown},
    session::{
        SessionId, Worker, WorkerSession,
        liveness::{Readiness, WorkerState},
        slots::{SlotRange, TakenSlots},
    },
    token::{Permission, Right, Scope, Token, TokenKind, TokenLimits},
};

/// A session, for the audit log.
pub(super) fn described(session: &WorkerSession) -> String {
    let WorkerSession { id, reservation, worker, .. } = session;
    format!(
        "session {id} of reservation {reservation}, {} at {}:{}",
        shown(&worker.name),
        worker.address,
        worker.port
    )
}

impl Registry {
    /// A worker whose address and ports a silent session of the reservation has takes its place: it is the same worker, which
    /// began anew.
    pub(super) fn register(
        &self,
        at: Moment,
        by: &Authority<'_>,
        register: &Register,
        random: RandomBytes<'_>,
    ) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&register.lb_id)?;
        let lb = reservation.lb;
        let worker = Worker::asked(register, self.config.addresses, by.peer)?;
        if !self.config.load_balancer(lb).is_some_and(|of| reservation.ip_family.takes(of, worker.address)) {
            return Err(Refusal::invalid(format!(
                "the reservation has no address of the worker's IP version: {}",
                worker.address
            )));
        }
        let replaced = self.replaced(at, lb, &worker)?;
        if self.durable.sessions.len() - replaced.len() >= usize::from(self.config.most_members) {
            let most = self.config.most_members;
            return Err(Refusal::exhausted(format!(
                "there are {most} workers at all load balancers, and room for no more"
            )));
        }
        // A worker without a slot would get nothing, and take the place of another load balancer's worker.
        if self.durable.count_sessions_of(lb) - replaced.len() >= self.config.slots as usize {
            let most = self.config.slots;
            return Err(Refusal::exhausted(format!(
                "the load balancer has a worker for each of its {most} slots, and room for no more"
            )));
        }
        let slots = self.demanded(lb, &register.slot_demands, &replaced)?;
        let member = self.free_member(at.now, lb, &replaced)?;
        let id = SessionId(self.durable.next(Counter::Session));
        let after =
            id.0.checked_add(1).ok_or_else(|| Refusal::exhausted("there are no more ids for sessions"))?;
        let token = self.next_token()?;
        let (secret, minted) = self.mint(random, |hash| Token {
            id: token,
            parent: by.id,
            kind: TokenKind::Session,
            name: format!("session {id}"),
            hash,
            permissions: vec![Permission { scope: Scope::Session(id), right: Right::Update }],
            limits: TokenLimits::default(),
            created: at.wall,
        })?;
        let session = WorkerSession {
            id,
            reservation: reservation.id,
            lb,
            token: Some(token),
            member,
            worker,
            slots,
            registered: at.wall,
        };
        let what = described(&session);
        let mut changes = self.durable.end(Ending { sessions: replaced, ..Ending::default() });
        changes.extend(minted);
        changes.push(Change::Put(Record::Next(Counter::Session, after)));
        changes.push(Change::Put(Record::Next(Counter::Member(lb), u64::from(member) + 1)));
        changes.push(Change::Put(Record::Session(session)));
        Ok(Plan::change(Reply::Registered(RegisteredWorker { token: secret, session: id }), changes, what))
    }

    /// The silent sessions that have an address and port of `worker`.
    fn replaced(&self, at: Moment, lb: LbId, worker: &Worker) -> Result<BTreeSet<SessionId>, Refusal> {
        let mut replaced = BTreeSet::new();
        let here = self.durable.sessions_at(lb, worker.address);
        for session in here.filter(|session| session.worker.overlaps(worker)) {
            if self.readiness(session.id, at.now) != Some(Readiness::Silent) {
                return Err(Refusal::new(
                    RefusalKind::AlreadyExists,
                    format!(
                        "{} has ports of this worker; deregister it, or choose other ports",
                        described(session)
                    ),
                ));
            }
            replaced.insert(session.id);
        }
        Ok(replaced)
    }

    /// The slots that a new session demands. They must not be slots of other sessions; those of `replaced` do not count.
    fn demanded(
        &self,
        lb: LbId,
        demands: &[SlotDemand],
        replaced: &BTreeSet<SessionId>,
    ) -> Result<Vec<SlotRange>, Refusal> {
        if demands.is_empty() {
            return Ok(Vec::new());
        }
        let mut taken = TakenSlots::new(self.config.slots);
        let others = self.durable.sessions_of(lb).filter(|session| !replaced.contains(&session.id));
        others.flat_map(|session| &session.slots).for_each(|range| {
            taken.take(*range);
        });
        Ok(taken.place(&[demands])?.into_iter().flatten().collect())
    }

    /// Returns an id for a new member. Ids are used in turn, also after a restart, so that the oldest are used again
    /// first. Ids that rest are skipped, and so are ids whose counter on ESnet's P4 belongs to another member, unless
    /// only such ids are left. If all ids rest, the one that has rested longest is used.
    fn free_member(&self, now: Time, lb: LbId, replaced: &BTreeSet<SessionId>) -> Result<MemberId, Refusal> {
        let is_used = |id: &MemberId| self.durable.has_member(lb, *id);
        let gone = |id: &MemberId| {
            let members = replaced.iter().filter_map(|session| self.durable.session(*session));
            members.filter(|session| session.member % MEMBER_COUNTERS == id % MEMBER_COUNTERS).count()
        };
        let from = (self.durable.next(Counter::Member(lb)) % (u64::from(MOST_MEMBER_ID) + 1)) as MemberId;
        let is_free = |id: &MemberId| !is_used(id) && !self.soft.resting.rests(lb, *id, now);
        let free = || (from..=MOST_MEMBER_ID).chain(0..from).filter(is_free);
        let found = free().find(|id| self.durable.counted_with(*id) == gone(id));
        let found = found.or_else(|| free().next());
        let found = found.or_else(|| self.soft.resting.longest(lb, |id| !is_used(&id)));
        found.ok_or_else(|| Refusal::exhausted("all members' ids of the load balancer are in use"))
    }

    pub(super) fn worker_status(&self, at: Moment, session: &WorkerSession) -> WorkerStatus {
        let liveness = self.soft.sessions.get(&session.id);
        WorkerStatus {
            session: session.id,
            member: session.member,
            worker: session.worker.clone(),
            slot_demands: session.slots.clone(),
            readiness: self.readiness(session.id, at.now).unwrap_or(Readiness::Silent),
            state: liveness.and_then(|liveness| liveness.state()).map(|(state, wall)| (*state, wall)),
        }
    }

    /// Replaces the slot demands of all sessions of a reservation. A dynamic reservation becomes static.
    pub(super) fn set_slot_demands(&self, demands: &SetSlotDemands) -> Result<Plan, Refusal> {
        let reservation = self.reservation(&demands.lb_id)?;
        let mut named = BTreeMap::new();
        for (at, (text, _)) in demands.sessions.iter().enumerate() {
            let id = session_id(text)?;
            if self.durable.session(id).is_none_or(|session| session.lb != reservation.lb) {
                return Err(no_session(id, reservation));
            }
            if named.insert(id, at).is_some() {
                return Err(Refusal::invalid(format!("session {id} is named twice")));
            }
        }
        let groups: Vec<_> = demands.sessions.iter().map(|(_, demands)| demands.as_slice()).collect();
        let placed = TakenSlots::new(self.config.slots).place(&groups)?;
        let wanted = |id| named.get(&id).and_then(|at| placed.get(*at)).cloned().unwrap_or_default();
        let sessions = self.durable.sessions_of(reservation.lb);
        let mut changes: Vec<_> = sessions
            .filter_map(|session| {
                let slots = wanted(session.id);
                let is_other = slots != session.slots;
                is_other.then(|| Change::Put(Record::Session(WorkerSession { slots, ..session.clone() })))
            })
            .collect();
        if reservation.strategy == Strategy::Dynamic {
            let strategy = Strategy::Static;
            changes.push(Change::Put(Record::Reservation(Reservation { strategy, ..reservation.clone() })));
        }
        Ok(Plan::change(Reply::Done, changes, super::reservations::described(reservation)))
    }

    pub(super) fn deregister(&self, deregister: &Deregister) -> Result<Plan, Refusal> {
        let session = self.session(&deregister.session_id)?;
        if !deregister.lb_id.is_empty() {
            let reservation = self.reservation(&deregister.lb_id)?;
            if reservation.lb != session.lb {
                return Err(no_session(session.id, reservation));
            }
        }
        let changes =
            self.durable.end(Ending { sessions: BTreeSet::from([session.id]), ..Ending::default() });
        Ok(Plan::change(Reply::Done, changes, described(session)))
    }

    pub(super) fn send_state(&self, request: &SendState) -> Result<Plan, Refusal> {
        let session = self.session(&request.session_id)?;
        let state = WorkerState::asked(request)?;
        Ok(Plan { state: Some((session.id, state)), ..Plan::read(Reply::Done) })
    }

    fn session(&self, id: &str) -> Result<&WorkerSession, Refusal> {
        let id = session_id(id)?;
        let found = self.durable.session(id);
        found.ok_or_else(|| Refusal::not_found(format!("there is no session {id}; it may have ended")))
    }
}

fn no_session(id: SessionId, reservation: &Reservation) -> Refusal {
    Refusal::not_found(format!("there is no session {id} of reservation {}", reservation.id))
}
