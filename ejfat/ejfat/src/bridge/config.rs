//! The limits of a dispatcher.

use std::time::Duration;

/// The back-pressure policy, which decides about events for which no worker has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackPressure {
    /// Complete events wait for room in a ring. If more than [`Config::most_waiting`] events wait, the bridge groups
    /// the waiting events by the workers that may get them ([`EligibleWorkers`](super::EligibleWorkers)). The newest
    /// event of the largest group is lost.
    #[default]
    Hold,
    /// No event waits for room in a ring. If no ring has room for an event when the event is complete, the event is
    /// lost.
    DropNewest,
    /// Complete events wait for room in a ring. If more than [`Config::most_waiting`] events wait, the bridge groups
    /// the waiting events by the workers that may get them ([`EligibleWorkers`](super::EligibleWorkers)). The oldest
    /// event of the largest group is lost.
    DropOldest,
}

impl BackPressure {
    /// Returns the name that command lines and reports use for the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::DropNewest => "drop-newest",
            Self::DropOldest => "drop-oldest",
        }
    }
}

/// The limits and settings of a dispatcher.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy for events for which no worker has room.
    pub pressure: BackPressure,
    /// The maximum number of workers that are subscribed at the same time.
    pub max_workers: u32,
    /// The maximum number of complete events that wait for room in a ring. If more than `most_waiting` events wait, the
    /// bridge groups the waiting events by the workers that may get them ([`EligibleWorkers`](super::EligibleWorkers)).
    /// One event of the largest group is lost. If the events for a slow worker are the largest group, the lost event is
    /// therefore an event for this worker, and not an event for another worker.
    pub most_waiting: u32,
    /// The longest time that a complete event waits for room. An event of an ended worker waits for at most the time
    /// `hold` to be delivered again.
    pub hold: Duration,
    /// The maximum number of bytes that all rings of ended workers together may have. The bridge keeps such a ring to
    /// deliver its events again. If all kept rings together have more than `redelivery_bytes` bytes, the bridge gives
    /// up the largest of these rings. The bridge keeps at most [`Config::max_workers`] rings of ended workers.
    pub redelivery_bytes: u64,
    /// The maximum number of times that an event is delivered again. The number of deliveries is limited because the
    /// event itself may make workers crash.
    pub max_redeliveries: u32,
    /// The stall time: a worker that has events and has released no event for this time counts as stalled until it
    /// releases an event. A stalled worker that still acknowledges WRITEs gets one event each time the stall time has
    /// passed. Some workers release an event only when the next event comes, and would otherwise stay stalled.
    pub stall: Duration,
    /// A worker counts as stalled if it has had unacknowledged WRITEs for at least this time, and has acknowledged no
    /// WRITE during this time.
    pub silence: Duration,
    /// The maximum number of event traces in the trace buffer. The dispatcher rounds this number up to a power of two.
    pub max_traces: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pressure: BackPressure::default(),
            max_workers: 64,
            most_waiting: 256,
            hold: Duration::from_secs(10),
            redelivery_bytes: 1 << 30,
            max_redeliveries: 2,
            stall: Duration::from_secs(5),
            silence: Duration::from_millis(500),
            max_traces: 1 << 16,
        }
    }
}
