//! Whether a worker lives, by the control plane's own clock: a worker whose clock is wrong lives, too.

use std::time::Duration;

use ejfat::Time;

use crate::{
    config::LivenessTimes,
    request::{Refusal, SendState},
    wall::WallTime,
};

/// What a worker told in its newest `SendState`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerState {
    /// The part of its queue that is full, from 0 to 1.
    pub fill_level: f32,
    /// The control signal of the worker's own controller, or 0 if the control plane decides the worker's share.
    pub control_signal: f32,
    /// True if the worker takes new events.
    pub is_ready: bool,
    /// The counters that the worker reported.
    pub counters: EventCounters,
}

/// What a worker counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounters {
    /// The number of events of which at least one segment arrived.
    pub events_received: u64,
    /// The number of events that became complete.
    pub events_reassembled: u64,
    /// The number of events that were given up before they were complete.
    pub reassembly_errors: u64,
    /// The number of events that the worker's program took.
    pub events_dequeued: u64,
    /// The number of complete events that were lost because there was no room for them.
    pub enqueue_errors: u64,
    /// The number of bytes of all segments that arrived.
    pub bytes_received: u64,
    /// The number of segments that arrived.
    pub packets_received: u64,
}

impl WorkerState {
    pub(crate) fn asked(request: &SendState) -> Result<Self, Refusal> {
        let SendState { fill_level, control_signal, is_ready, .. } = *request;
        if !(0.0..f32::INFINITY).contains(&fill_level) {
            return Err(Refusal::invalid(format!("the fill level {fill_level} is not a number from 0 to 1")));
        }
        // ESnet's control plane takes any level, so there are workers that report more than a full queue when it overflows.
        let fill_level = fill_level.min(1.0);
        if !control_signal.is_finite() {
            return Err(Refusal::invalid(format!(
                "the control signal {control_signal} is not a finite number"
            )));
        }
        let counter = |name: &str, value: i64| {
            u64::try_from(value)
                .map_err(|_| Refusal::invalid(format!("the counter {name} is negative: {value}")))
        };
        let counters = EventCounters {
            events_received: counter("totalEventsRecv", request.events_received)?,
            events_reassembled: counter("totalEventsReassembled", request.events_reassembled)?,
            reassembly_errors: counter("totalEventsReassemblyErr", request.reassembly_errors)?,
            events_dequeued: counter("totalEventsDequeued", request.events_dequeued)?,
            enqueue_errors: counter("totalEventEnqueueErr", request.enqueue_errors)?,
            bytes_received: counter("totalBytesRecv", request.bytes_received)?,
            packets_received: counter("totalPacketsRecv", request.packets_received)?,
        };
        Ok(Self { fill_level, control_signal, is_ready, counters })
    }
}

/// What is known of a session beside its records. It is lost in a restart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Liveness {
    /// The worker registered, and sent no state yet.
    Registered {
        /// The time at which the worker registered, by the control plane's clock.
        at: Time,
    },
    /// The session was there before a restart, and sent no state since.
    Restored {
        /// The time of the restart, by the control plane's clock.
        at: Time,
    },
    /// The worker's newest state.
    Reported {
        /// The time at which the newest state arrived, by the control plane's clock.
        at: Time,
        /// The time of day at which the newest state arrived.
        wall: WallTime,
        /// The newest state.
        state: WorkerState,
    },
}

/// Whether a worker may get events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It sent no state yet: no events.
    Registered,
    /// It gets events, if it got some before the restart.
    Restored,
    /// It gets events.
    Ready,
    /// It said that it is not ready: no new events.
    NotReady,
    /// It sent nothing for too long: no new events.
    Silent,
}

impl Liveness {
    /// Returns the readiness of the worker at the time `now`.
    pub fn readiness(&self, now: Time, times: &LivenessTimes) -> Readiness {
        match self {
            Self::Registered { .. } => Readiness::Registered,
            Self::Restored { at } if now < *at + times.first_state => Readiness::Restored,
            Self::Reported { at, state, .. } if now < *at + times.silent => {
                if state.is_ready {
                    Readiness::Ready
                } else {
                    Readiness::NotReady
                }
            }
            Self::Restored { .. } | Self::Reported { .. } => Readiness::Silent,
        }
    }

    /// When the session ends, if nothing more comes.
    pub fn ends(&self, times: &LivenessTimes) -> Time {
        match self {
            Self::Registered { at } => *at + times.first_state,
            Self::Restored { at } => *at + times.ended.max(times.first_state),
            Self::Reported { at, .. } => *at + times.ended.max(times.silent),
        }
    }

    /// When the readiness changes, if nothing more comes. `None`: only the session's end is left.
    pub fn turns(&self, now: Time, times: &LivenessTimes) -> Option<Time> {
        let after = |at: Time, time: Duration| Some(at + time).filter(|turns| now < *turns);
        match self {
            Self::Registered { .. } => None,
            Self::Restored { at } => after(*at, times.first_state),
            Self::Reported { at, .. } => after(*at, times.silent),
        }
    }

    /// The newest state, and when it came.
    pub fn state(&self) -> Option<(&WorkerState, WallTime)> {
        match self {
            Self::Reported { wall, state, .. } => Some((state, *wall)),
            Self::Registered { .. } | Self::Restored { .. } => None,
        }
    }
}
