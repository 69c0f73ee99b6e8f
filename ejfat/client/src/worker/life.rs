//! The life cycle of a worker: a state machine without sockets and clocks, which decides the next step from answers and times.
//!
//! ```text
//! Joining ──Register──► In ──drain──► not ready, looks at its slots ──► Deregister ──► Over
//!    │                  │ ▲
//!    │ refused          │ │ the control plane answers again
//!    ▼                  ▼ │
//!  Over               Away ──session unknown──► Out ──Register──► In
//!                                                │
//!                                                │ reservation or token unknown
//!                                                ▼
//!                                               Over
//! ```
//!
//! All times count from the same moment, which the caller chooses. The caller reports the answer to a step
//! ([`Life::answered`]) before it asks for the next step ([`Life::next`]).

use std::time::Duration;

use crate::backoff::Backoff;

/// How long a first registration is repeated while another session has the worker's ports. That may be the worker's own earlier
/// session: after a crash the control plane soon ends it.
const TAKEN: Duration = Duration::from_secs(5);
/// After a session has lasted this long, the waits between tries begin with the shortest one again.
const SETTLED: Duration = Duration::from_secs(5);
/// How often a worker that drains asks whether it still has slots.
const LOOK: Duration = Duration::from_millis(200);
/// How long a worker goes on receiving after its last slot is gone: the tables are written ahead of time, and segments are still on
/// the network.
const LATE: Duration = Duration::from_millis(1200);
/// How long a worker that cannot ask for its slots goes on receiving: for one period of the control plane, and for the time by
/// which the tables are written ahead.
const BLIND: Duration = Duration::from_secs(3);

/// The next step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait until this time, or until the program wishes something else.
    Wait(Duration),
    Register,
    /// Report the state. With `may_be_ready` false, the worker is reported as not ready whatever its state says.
    SendState {
        may_be_ready: bool,
    },
    /// Ask how many slots the worker has.
    Look,
    Deregister,
    /// The worker has left, or cannot go on: there is nothing more to do.
    Over(Ending),
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepAnswer {
    /// The control plane did what the step asked for.
    Done,
    Slots(u32),
    /// The control plane does not know the session or its token; of a registration: the reservation, or its token.
    Unknown(String),
    /// Another session has the worker's ports.
    Taken(String),
    /// The control plane could not be reached, or had no room.
    Away(String),
    /// The control plane refused the call for another reason.
    Refused(String),
}

/// How a worker's life cycle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The first registration failed; the answer to it says why.
    Refused,
    /// The control plane does not know the reservation or the token any more, so no further registration can succeed.
    Gone,
    Left {
        /// Whether the load balancer sends nothing to it any more, as far as the worker could find out.
        drained: bool,
        /// Whether the control plane knows that the worker left.
        deregistered: bool,
    },
}

/// A message for the log: one when an outage begins, one when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The control plane cannot be reached or refuses states, for this reason.
    Lost(String),
    /// The control plane accepts states again, after this time.
    Back(Duration),
    /// The control plane did not know the session any more, and the worker has registered again.
    RegisteredAgain,
}

/// The state of the worker's registration at the control plane.
#[derive(Clone, Copy, Debug)]
enum RegistrationState {
    /// The worker is not registered yet. `since` is the time when the control plane first answered that another session
    /// has the ports.
    Joining {
        since: Option<Duration>,
        next: Duration,
    },
    /// The worker is registered since a time; the next state is due at `next`.
    In {
        since: Duration,
        next: Duration,
    },
    /// Registered, but the newest state was not accepted; `next` is the time of the next try.
    Away {
        next: Duration,
    },
    /// The control plane does not know the session; `next` is the time of the next registration.
    Out {
        next: Duration,
    },
    Over(Ending),
}

/// What the program asks of its worker.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Stay,
    Drain {
        deadline: Duration,
        /// When the control plane accepted the first state that is not ready.
        accepted: Option<Duration>,
        /// The time since which the worker has no slots.
        free: Option<Duration>,
        /// Whether the worker may ask for its slots.
        sees: bool,
        /// When the worker asks for its slots next.
        next_look: Duration,
    },
    /// Deregister at once.
    Leave {
        drained: bool,
    },
}

/// The life cycle of a worker of a control plane.
#[derive(Debug)]
pub(super) struct Life {
    /// The time from one state to the next.
    every: Duration,
    registration: RegistrationState,
    goal: Goal,
    backoff: Backoff,
    /// When the outage began that the log has a message of.
    outage: Option<Duration>,
}

impl Life {
    /// Returns the life cycle of a worker that is not registered yet. `every` is the time from one state to the next; `seed` is that
    /// of the random waits.
    pub(super) fn new(every: Duration, seed: u64) -> Self {
        let registration = RegistrationState::Joining { since: None, next: Duration::ZERO };
        Self { every, registration, goal: Goal::Stay, backoff: Backoff::new(seed), outage: None }
    }

    /// Begins to drain: the worker is reported as not ready, and it deregisters when nothing is sent to it any more, or after the time
    /// `within`.
    pub(super) fn drain(&mut self, now: Duration, within: Duration) {
        if matches!(self.goal, Goal::Stay) {
            let deadline = now + within;
            self.goal = Goal::Drain { deadline, accepted: None, free: None, sees: false, next_look: now };
            if let RegistrationState::In { next, .. } | RegistrationState::Away { next } =
                &mut self.registration
            {
                *next = now;
            }
        }
    }

    /// Lets the worker deregister at once.
    pub(super) fn leave(&mut self) {
        if !matches!(self.goal, Goal::Leave { .. }) {
            self.goal = Goal::Leave { drained: false };
        }
    }

    /// Whether the worker is registered and its newest state was accepted.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.registration, RegistrationState::In { .. })
    }

    /// Returns how the life cycle ended, or `None` if it has not.
    pub(super) fn ending(&self) -> Option<Ending> {
        match self.registration {
            RegistrationState::Over(ending) => Some(ending),
            _ => None,
        }
    }

    /// Returns the next step.
    pub(super) fn next(&mut self, now: Duration) -> Step {
        let has_session =
            matches!(self.registration, RegistrationState::In { .. } | RegistrationState::Away { .. });
        if let RegistrationState::Over(ending) = self.registration {
            return Step::Over(ending);
        }
        if !has_session && !matches!(self.goal, Goal::Stay) {
            return self.over(Ending::Left { drained: true, deregistered: true });
        }
        if let Goal::Drain { deadline, accepted, free, sees, .. } = self.goal {
            let drained = free.is_some_and(|at| now >= at + LATE)
                || (!sees && accepted.is_some_and(|at| now >= at + BLIND));
            if drained || now >= deadline {
                self.goal = Goal::Leave { drained };
            }
        }
        let state = Step::SendState { may_be_ready: matches!(self.goal, Goal::Stay) };
        let deadline = if let Goal::Drain { deadline, .. } = self.goal { deadline } else { Duration::MAX };
        let at = |next: Duration, step| if now >= next { step } else { Step::Wait(next.min(deadline)) };
        match (self.registration, self.goal) {
            (_, Goal::Leave { .. }) => Step::Deregister,
            (RegistrationState::In { next, .. }, Goal::Drain { accepted: Some(_), next_look, .. })
                if now < next =>
            {
                at(next.min(next_look), Step::Look)
            }
            (RegistrationState::In { next, .. } | RegistrationState::Away { next }, _) => at(next, state),
            (RegistrationState::Joining { next, .. } | RegistrationState::Out { next }, _) => {
                at(next, Step::Register)
            }
            (RegistrationState::Over(ending), _) => Step::Over(ending),
        }
    }

    /// Takes the answer to a step, and returns a message for the log if there is one.
    pub(super) fn answered(&mut self, now: Duration, step: Step, answer: &StepAnswer) -> Option<Notice> {
        match step {
            Step::Register => self.register_answered(now, answer),
            Step::SendState { .. } => self.state_answered(now, answer),
            Step::Look => {
                self.slots_answered(now, answer);
                None
            }
            Step::Deregister => {
                let drained = matches!(self.goal, Goal::Leave { drained: true });
                let deregistered = matches!(answer, StepAnswer::Done | StepAnswer::Unknown(_));
                self.over(Ending::Left { drained, deregistered });
                None
            }
            Step::Wait(_) | Step::Over(_) => None,
        }
    }

    fn over(&mut self, ending: Ending) -> Step {
        self.registration = RegistrationState::Over(ending);
        Step::Over(ending)
    }

    fn register_answered(&mut self, now: Duration, answer: &StepAnswer) -> Option<Notice> {
        match (self.registration, answer) {
            (before, StepAnswer::Done) => {
                let again = matches!(before, RegistrationState::Out { .. });
                self.registration = RegistrationState::In { since: now, next: now };
                self.outage = None;
                again.then_some(Notice::RegisteredAgain)
            }
            (RegistrationState::Joining { since, .. }, StepAnswer::Taken(_)) => {
                let since = since.unwrap_or(now);
                let next = now + self.backoff.wait();
                self.registration = RegistrationState::Joining { since: Some(since), next };
                if now >= since + TAKEN {
                    self.over(Ending::Refused);
                }
                None
            }
            (RegistrationState::Joining { .. }, _) => {
                self.over(Ending::Refused);
                None
            }
            (_, StepAnswer::Unknown(_)) => {
                self.over(Ending::Gone);
                None
            }
            (_, StepAnswer::Away(why) | StepAnswer::Refused(why) | StepAnswer::Taken(why)) => {
                self.registration = RegistrationState::Out { next: now + self.backoff.wait() };
                self.lost(now, why)
            }
            (_, StepAnswer::Slots(_)) => None,
        }
    }

    /// Returns a message for the log if the outage begins with this failure.
    fn lost(&mut self, now: Duration, why: &str) -> Option<Notice> {
        if self.outage.is_some() {
            return None;
        }
        self.outage = Some(now);
        Some(Notice::Lost(why.to_owned()))
    }

    fn state_answered(&mut self, now: Duration, answer: &StepAnswer) -> Option<Notice> {
        match answer {
            StepAnswer::Done => {
                let since = match self.registration {
                    RegistrationState::In { since, .. } => since,
                    _ => now,
                };
                if now >= since + SETTLED {
                    self.backoff.reset();
                }
                self.registration = RegistrationState::In { since, next: now + self.every };
                if let Goal::Drain { accepted, .. } = &mut self.goal {
                    accepted.get_or_insert(now);
                }
                self.outage.take().map(|began| Notice::Back(now.saturating_sub(began)))
            }
            StepAnswer::Unknown(_) => {
                self.registration = RegistrationState::Out { next: now + self.backoff.wait() };
                None
            }
            StepAnswer::Away(why) | StepAnswer::Refused(why) | StepAnswer::Taken(why) => {
                self.registration = RegistrationState::Away { next: now + self.backoff.wait() };
                self.lost(now, why)
            }
            StepAnswer::Slots(_) => None,
        }
    }

    fn slots_answered(&mut self, now: Duration, answer: &StepAnswer) {
        let Goal::Drain { free, sees, next_look, .. } = &mut self.goal else { return };
        *next_look = now + LOOK;
        match answer {
            StepAnswer::Slots(0) => {
                *sees = true;
                free.get_or_insert(now);
            }
            StepAnswer::Slots(_) => (*sees, *free) = (true, None),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
