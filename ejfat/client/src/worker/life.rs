//! What a worker does next: of answers and time, without a socket or a clock.
//!
//! ```text
//! Joining ──Register──► In ──drain──► not ready, looks at its slots ──► Deregister ──► Over
//!    │                  │ ▲
//!    │ refused          │ │ the control plane answers again
//!    ▼                  ▼ │
//!  Over               Away ──session unknown──► Out ──Register──► In
//! ```
//!
//! Times count from any moment; each answer comes before the next step is asked for.

use std::time::Duration;

use crate::backoff::Backoff;

/// So long a worker waits at its beginning for a session that has its ports to fall silent: its own, if it was killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// A session that lasts for so long was a good one: the next one may come at once.
const SETTLED: Duration = Duration::from_secs(5);
/// How often a worker that drains looks whether it still has slots.
const LOOK: Duration = Duration::from_millis(200);
/// After the last slot is gone, events still come: the tables are made for a time ahead, and segments are on their way.
const LATE: Duration = Duration::from_millis(1200);
/// So long slots may be a worker's that cannot look: a period of the control plane, and what its tables are ahead.
const BLIND: Duration = Duration::from_secs(3);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing until then, or until somebody wants something else.
    Wait(Duration),
    Register,
    /// Drains and leaves are not ready, whatever the program says.
    SendState {
        may_be_ready: bool,
    },
    /// Look how many slots the worker has.
    Look,
    Deregister,
    Over(Ending),
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Registered, told, deregistered.
    Done,
    Slots(u32),
    /// There is no such session any more, or its token is unknown.
    Unknown(String),
    /// Another session has the ports.
    Taken(String),
    /// Nobody answered.
    Away(String),
    /// Refused for another reason.
    Refused(String),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The first registration was refused; what was heard says why.
    Refused,
    Left {
        /// Nothing is sent to it any more, as far as one can know.
        drained: bool,
        deregistered: bool,
    },
}

/// What the log is told: once for each outage, and once at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Lost(String),
    /// The control plane answers again, after this time.
    Back(Duration),
    /// It had forgotten the session, so there is a new one.
    Again,
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    /// Not registered yet; given up if the ports are taken for too long.
    Joining {
        since: Option<Duration>,
        next: Duration,
    },
    /// Registered.
    In {
        since: Duration,
        next: Duration,
    },
    /// Registered, but nobody answers.
    Away {
        next: Duration,
    },
    /// The session is gone.
    Out {
        next: Duration,
    },
    Over(Ending),
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    Stay,
    Drain {
        deadline: Duration,
        told: Option<Duration>,
        free: Option<Duration>,
        sees: bool,
        next_look: Duration,
    },
    Leave {
        drained: bool,
    },
}

/// A worker's life with a control plane.
#[derive(Debug)]
pub(super) struct Life {
    every: Duration,
    standing: Standing,
    goal: Goal,
    backoff: Backoff,
    /// When the outage began that the log knows of.
    outage: Option<Duration>,
}

impl Life {
    /// `every`: from state to state. `seed`: of what chance decides.
    pub(super) fn new(every: Duration, seed: u64) -> Self {
        let standing = Standing::Joining { since: None, next: Duration::ZERO };
        Self { every, standing, goal: Goal::Stay, backoff: Backoff::new(seed), outage: None }
    }

    /// From now on it is not ready, and it leaves when nothing is sent to it any more, or at the deadline.
    pub(super) fn drain(&mut self, now: Duration, within: Duration) {
        if matches!(self.goal, Goal::Stay) {
            let deadline = now + within;
            self.goal = Goal::Drain { deadline, told: None, free: None, sees: false, next_look: now };
            if let Standing::In { next, .. } | Standing::Away { next } = &mut self.standing {
                *next = now;
            }
        }
    }

    /// It leaves at once.
    pub(super) fn leave(&mut self) {
        if !matches!(self.goal, Goal::Leave { .. }) {
            self.goal = Goal::Leave { drained: false };
        }
    }

    /// Whether the session is known to the control plane, as far as the worker knows.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.standing, Standing::In { .. })
    }

    /// How it ended, if it did.
    pub(super) fn ending(&self) -> Option<Ending> {
        match self.standing {
            Standing::Over(ending) => Some(ending),
            _ => None,
        }
    }

    pub(super) fn next(&mut self, now: Duration) -> Step {
        let has_session = matches!(self.standing, Standing::In { .. } | Standing::Away { .. });
        if let Standing::Over(ending) = self.standing {
            return Step::Over(ending);
        }
        if !has_session && !matches!(self.goal, Goal::Stay) {
            return self.over(Ending::Left { drained: true, deregistered: true });
        }
        if let Goal::Drain { deadline, told, free, sees, .. } = self.goal {
            let drained = free.is_some_and(|at| now >= at + LATE)
                || (!sees && told.is_some_and(|at| now >= at + BLIND));
            if drained || now >= deadline {
                self.goal = Goal::Leave { drained };
            }
        }
        let state = Step::SendState { may_be_ready: matches!(self.goal, Goal::Stay) };
        match (self.standing, self.goal) {
            (_, Goal::Leave { .. }) => Step::Deregister,
            (Standing::In { next, .. }, Goal::Drain { told: Some(_), deadline, next_look, .. }) => {
                if now >= next {
                    state
                } else if now >= next_look {
                    Step::Look
                } else {
                    Step::Wait(next.min(next_look).min(deadline))
                }
            }
            (Standing::In { next, .. } | Standing::Away { next }, Goal::Drain { deadline, .. }) => {
                if now >= next { state } else { Step::Wait(next.min(deadline)) }
            }
            (Standing::In { next, .. } | Standing::Away { next }, Goal::Stay) => {
                if now >= next {
                    state
                } else {
                    Step::Wait(next)
                }
            }
            (Standing::Joining { next, .. } | Standing::Out { next }, _) => {
                if now >= next {
                    Step::Register
                } else {
                    Step::Wait(next)
                }
            }
            (Standing::Over(ending), _) => Step::Over(ending),
        }
    }

    /// Takes what became of a step.
    pub(super) fn heard(&mut self, now: Duration, step: Step, heard: &Heard) -> Option<Notice> {
        match step {
            Step::Register => self.heard_of_register(now, heard),
            Step::SendState { .. } => self.heard_of_state(now, heard),
            Step::Look => {
                self.heard_of_slots(now, heard);
                None
            }
            Step::Deregister => {
                let drained = matches!(self.goal, Goal::Leave { drained: true });
                let deregistered = matches!(heard, Heard::Done | Heard::Unknown(_));
                self.over(Ending::Left { drained, deregistered });
                None
            }
            Step::Wait(_) | Step::Over(_) => None,
        }
    }

    fn over(&mut self, ending: Ending) -> Step {
        self.standing = Standing::Over(ending);
        Step::Over(ending)
    }

    fn heard_of_register(&mut self, now: Duration, heard: &Heard) -> Option<Notice> {
        match (self.standing, heard) {
            (standing, Heard::Done) => {
                let again = matches!(standing, Standing::Out { .. });
                self.standing = Standing::In { since: now, next: now };
                self.outage = None;
                again.then_some(Notice::Again)
            }
            (Standing::Joining { since, .. }, Heard::Taken(_)) => {
                let since = since.unwrap_or(now);
                let next = now + self.backoff.wait();
                self.standing = Standing::Joining { since: Some(since), next };
                if now >= since + PATIENCE {
                    self.over(Ending::Refused);
                }
                None
            }
            (Standing::Joining { .. }, _) => {
                self.over(Ending::Refused);
                None
            }
            (_, Heard::Away(why) | Heard::Refused(why) | Heard::Taken(why) | Heard::Unknown(why)) => {
                self.standing = Standing::Out { next: now + self.backoff.wait() };
                self.lost(now, why)
            }
            (_, Heard::Slots(_)) => None,
        }
    }

    /// For the log, if this is the outage's first.
    fn lost(&mut self, now: Duration, why: &str) -> Option<Notice> {
        if self.outage.is_some() {
            return None;
        }
        self.outage = Some(now);
        Some(Notice::Lost(why.to_owned()))
    }

    fn heard_of_state(&mut self, now: Duration, heard: &Heard) -> Option<Notice> {
        match heard {
            Heard::Done => {
                let since = match self.standing {
                    Standing::In { since, .. } => since,
                    _ => now,
                };
                if now >= since + SETTLED {
                    self.backoff.reset();
                }
                self.standing = Standing::In { since, next: now + self.every };
                if let Goal::Drain { told, .. } = &mut self.goal {
                    told.get_or_insert(now);
                }
                self.outage.take().map(|began| Notice::Back(now.saturating_sub(began)))
            }
            Heard::Unknown(_) => {
                self.standing = Standing::Out { next: now + self.backoff.wait() };
                None
            }
            Heard::Away(why) | Heard::Refused(why) | Heard::Taken(why) => {
                self.standing = Standing::Away { next: now + self.backoff.wait() };
                self.lost(now, why)
            }
            Heard::Slots(_) => None,
        }
    }

    fn heard_of_slots(&mut self, now: Duration, heard: &Heard) {
        let Goal::Drain { free, sees, next_look, .. } = &mut self.goal else { return };
        *next_look = now + LOOK;
        match heard {
            Heard::Slots(0) => {
                *sees = true;
                free.get_or_insert(now);
            }
            Heard::Slots(_) => (*sees, *free) = (true, None),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
