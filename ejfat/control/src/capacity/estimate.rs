//! What is known of a worker's capacity.

use std::time::Duration;

use ejfat::Time;

/// Observations that disagree with what is known by more than so many standard deviations and a tenth begin a new
/// estimate.
const DISAGREEMENT: f64 = 4.0;
/// Events, and seconds, after which older ones count less.
const MOST_EVENTS: f64 = 4000.0;
const MOST_SECONDS: f64 = 20.0;
/// A worker that is nearly at its known capacity and was never seen to have a backlog for so long may be able to do
/// more.
const OLD: Duration = Duration::from_secs(5);
const NEARLY: f64 = 0.85;

/// A worker's capacity in events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Capacity {
    #[default]
    Unknown,
    /// It can take at least so many: no more came while it was idle.
    AtLeast(f64),
    /// So many it took while it had a backlog.
    Measured(f64),
}

impl Capacity {
    pub(super) fn rate(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::AtLeast(rate) | Self::Measured(rate) => Some(rate),
        }
    }
}

/// A capacity and the observations that it follows from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    pub(super) capacity: Capacity,
    events: f64,
    seconds: f64,
    measured: Time,
}

impl Estimate {
    /// Adds that the worker took `events` within `seconds` in which it had a backlog all the time.
    pub(super) fn observe(&mut self, now: Time, events: f64, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let events = events.max(0.0);
        if self.seconds > 0.0 {
            let expected = self.events / self.seconds * seconds;
            let bound = DISAGREEMENT * expected.sqrt() + 0.1 * expected;
            if seconds > 0.25 && (events - expected).abs() > bound {
                self.forget_observations();
            }
        }
        self.events += events;
        self.seconds += seconds;
        if seconds > 0.15 && self.seconds > 0.25 {
            // Half an event stands for none, so that no capacity is zero.
            self.capacity = Capacity::Measured(self.events.max(0.5) / self.seconds);
            self.measured = now;
        }
        let kept = (MOST_EVENTS / self.events.max(1.0)).min(MOST_SECONDS / self.seconds).min(1.0);
        self.events *= kept;
        self.seconds *= kept;
    }

    /// Adds that the worker certainly got `carried` events per second, and had no backlog.
    pub(super) fn carried_idle(&mut self, now: Time, carried: f64) {
        match self.capacity {
            Capacity::Measured(rate) | Capacity::AtLeast(rate) if carried > rate => {
                self.capacity = Capacity::AtLeast(carried);
                self.forget_observations();
            }
            Capacity::Measured(rate) if carried > NEARLY * rate && now > self.measured + OLD => {
                self.capacity = Capacity::AtLeast(rate);
            }
            _ => {}
        }
    }

    /// Adds that the worker could not take `carried` events per second, and that nothing else is known.
    pub(super) fn halve(&mut self, now: Time, carried: f64) {
        let rate = self.capacity.rate().unwrap_or(carried) / 2.0;
        self.forget_observations();
        self.capacity = Capacity::Measured(rate);
        self.measured = now;
    }

    fn forget_observations(&mut self) {
        (self.events, self.seconds) = (0.0, 0.0);
    }
}
