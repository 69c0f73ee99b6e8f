//! The workers of a load balancer: which of them get events, and how many slots they are to have.

use std::collections::BTreeSet;

use ejfat::Time;

use super::{Balancing, Need};
use crate::{
    calendar::{Demand, MemberId, counts},
    capacity::{Counters, Joining, Report},
    control::returning::Returning,
    durable::Durable,
    reservation::Strategy,
    session::{
        SessionId, Worker, WorkerSession,
        liveness::{Readiness, WorkerState},
    },
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) member: MemberId,
    pub(super) gets_events: bool,
    returning: Returning,
}

impl Balancing {
    /// Follows the sessions that there are, and whether they live.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        durable: &Durable,
        readiness: impl Fn(SessionId) -> Option<Readiness>,
    ) {
        let sessions: BTreeSet<_> = durable.sessions_of(self.lb).map(|session| session.id).collect();
        let ended: Vec<_> = self.workers.keys().filter(|id| !sessions.contains(id)).copied().collect();
        ended.into_iter().for_each(|id| self.end(id));
        for session in durable.sessions_of(self.lb) {
            self.follow_session(now, session, readiness(session.id));
        }
        self.divide_if_needed();
    }

    /// Follows whether a session that has not ended lives.
    pub(crate) fn follow_one(&mut self, now: Time, session: &WorkerSession, readiness: Option<Readiness>) {
        self.follow_session(now, session, readiness);
        self.divide_if_needed();
    }

    /// Follows the end of a session, if it is this load balancer's.
    pub(crate) fn leave(&mut self, session: SessionId) {
        self.end(session);
        self.divide_if_needed();
    }

    fn end(&mut self, session: SessionId) {
        if let Some(joined) = self.workers.remove(&session) {
            self.controller.leave(joined.member);
            self.without(joined.member);
        }
    }

    fn follow_session(&mut self, now: Time, session: &WorkerSession, readiness: Option<Readiness>) {
        let gets_events = self.gets_events(session, readiness);
        if !self.workers.contains_key(&session.id) {
            self.join(session, now);
            if gets_events && readiness == Some(Readiness::Restored) {
                self.controller.restore(session.member, self.of_even(session.member));
            }
        }
        self.set_readiness(now, session.member, session.id, gets_events);
    }

    fn gets_events(&self, session: &WorkerSession, readiness: Option<Readiness>) -> bool {
        match readiness {
            Some(Readiness::Ready) => true,
            Some(Readiness::Restored) => self.slots_of(session.member) > 0,
            _ => false,
        }
    }

    fn join(&mut self, session: &WorkerSession, now: Time) {
        let Worker { weight, min_factor, max_factor, .. } = session.worker;
        let joining = Joining {
            weight: f64::from(weight).clamp(1e-6, 1000.0),
            least_factor: min_factor.into(),
            greatest_factor: max_factor.into(),
        };
        // A worker beyond as many as there are slots has none.
        if self.controller.join(session.member, joining, now) {
            let returning = Returning::default();
            let joined = Joined { member: session.member, gets_events: false, returning };
            self.workers.insert(session.id, joined);
        }
    }

    fn set_readiness(&mut self, now: Time, member: MemberId, session: SessionId, gets_events: bool) {
        let Some(joined) = self.workers.get_mut(&session) else { return };
        let gets_events = gets_events && joined.returning.may(now);
        if !gets_events {
            // Its newest state may say that it is ready, although it has to wait.
            self.controller.suspend(member);
        }
        if joined.gets_events == gets_events {
            return;
        }
        joined.gets_events = gets_events;
        if gets_events {
            // It waits for the next period, unless nobody else gets the events.
            let is_first = self.wanted.iter().all(|(_, count)| *count == 0);
            if is_first || self.strategy != Strategy::Dynamic {
                self.has_to_divide = true;
            }
        } else {
            joined.returning.stop(now);
            self.without(member);
        }
    }

    fn slots_of(&self, member: MemberId) -> u32 {
        self.wanted.iter().find(|(of, _)| *of == member).map_or(0, |(_, count)| *count)
    }

    /// A member's share of the slots, where 1 is an even share of all members that have slots.
    fn of_even(&self, member: MemberId) -> f64 {
        let members = self.wanted.iter().filter(|(_, count)| *count > 0).count();
        f64::from(self.slots_of(member)) * members as f64 / f64::from(self.slots())
    }

    /// Takes a member's slots away at once, and divides them among the others by what these have.
    fn without(&mut self, member: MemberId) {
        if self.slots_of(member) > 0 || self.publisher.names(member) {
            self.has_to_divide = true;
        }
    }

    fn divide_if_needed(&mut self) {
        if std::mem::take(&mut self.has_to_divide) {
            self.divide();
        }
    }

    /// Divides all slots among the workers that get events, by what they have; evenly if none has any.
    fn divide(&mut self) {
        let slots = self.slots();
        let members: Vec<_> =
            self.workers.values().filter(|joined| joined.gets_events).map(|joined| joined.member).collect();
        let demands: Vec<_> = members
            .iter()
            .map(|&member| Demand { member, weight: self.slots_of(member).into(), least: 0, most: slots })
            .collect();
        let counts = counts(slots, &demands).unwrap_or_default();
        self.wanted = members.into_iter().zip(counts).collect();
        self.want(Need::Urgent);
    }

    /// Takes a state that a worker sent.
    pub(crate) fn report(&mut self, now: Time, session: SessionId, state: &WorkerState) {
        let Some(joined) = self.workers.get(&session) else { return };
        let of = &state.counters;
        let report = Report {
            fill: state.fill_level.into(),
            control_signal: state.control_signal.into(),
            is_ready: state.is_ready,
            counters: Counters {
                received: of.events_received,
                reassembled: of.events_reassembled,
                reassembly_errors: of.reassembly_errors,
                enqueue_errors: of.enqueue_errors,
                dequeued: of.events_dequeued,
            },
        };
        self.controller.report(joined.member, now, &report);
    }
}
