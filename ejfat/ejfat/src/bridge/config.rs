//! Bounds of a dispatcher.

use std::time::Duration;

/// What happens to events that find no room at their workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// Complete events wait, up to [`Config::most_waiting`]; one more is lost.
    #[default]
    Hold,
    /// Nothing waits: an event that finds no room when it is complete is lost.
    DropNewest,
    /// Complete events wait, up to [`Config::most_waiting`]; one more displaces the oldest.
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

/// What a dispatcher takes and keeps.
#[derive(Clone, Debug)]
pub struct Config {
    pub pressure: Pressure,
    pub max_workers: u32,
    /// Complete events that wait, at most. Where that is too many, one with the target of which most wait is lost, so that
    /// a slow worker costs no other's events.
    pub most_waiting: u32,
    /// The longest time that a complete event waits for room, and that an event of an ended worker waits to be delivered again.
    pub hold: Duration,
    /// The most bytes of the rings of ended workers that are kept, all together. Beyond that the largest ring is given up. At most
    /// [`Config::max_workers`] rings are kept.
    pub again_bytes: u64,
    /// How often an event is delivered again at most. The event itself may be what makes its workers end.
    pub most_again: u32,
    /// A worker that has events and gave none back for so long gets no more until it does, but for one event each time so
    /// long after the last one: it may keep that until another comes.
    pub stall: Duration,
    /// The same for a worker that does not acknowledge what was written to it.
    pub silence: Duration,
    /// Events that are remembered for traces.
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
