//! Limits of a dispatcher.

use std::time::Duration;

/// What happens to events for which their workers have no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// Complete events wait, up to [`Config::most_waiting`]. An event that would be one more is lost.
    #[default]
    Hold,
    /// No event waits: an event without room when it is complete is lost.
    DropNewest,
    /// Complete events wait, up to [`Config::most_waiting`]. If there is one more, the oldest is lost.
    DropOldest,
}

impl Pressure {
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::DropNewest => "drop-newest",
            Self::DropOldest => "drop-oldest",
        }
    }
}

/// Limits and settings of a dispatcher.
#[derive(Clone, Debug)]
pub struct Config {
    pub pressure: Pressure,
    pub max_workers: u32,
    /// The most complete events that wait. If one more comes, the lost event is chosen among those of the target with
    /// most waiting events, so that a slow worker costs no events of other workers.
    pub most_waiting: u32,
    /// The longest time that a complete event waits for room, and that an event of an ended worker waits to be delivered again.
    pub hold: Duration,
    /// The most bytes of the rings of ended workers that are kept, all together. Beyond that the largest ring is given
    /// up. The number of these rings is at most [`Config::max_workers`].
    pub again_bytes: u64,
    /// The most times that an event is delivered again. The limit exists because the event itself may be what makes its
    /// workers end.
    pub most_again: u32,
    /// The stall time. A worker that has events and has released none for this time gets no more until it releases one.
    /// It gets a single event each time this time has passed since the last one, because it may keep an event until the
    /// next one comes.
    pub stall: Duration,
    /// The time after which a worker counts as stalled if it does not acknowledge what was written to it.
    pub silence: Duration,
    /// The number of events in the trace buffer.
    pub journal: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pressure: Pressure::default(),
            max_workers: 64,
            most_waiting: 256,
            hold: Duration::from_secs(10),
            again_bytes: 1 << 30,
            most_again: 2,
            stall: Duration::from_secs(5),
            silence: Duration::from_millis(500),
            journal: 1 << 16,
        }
    }
}
