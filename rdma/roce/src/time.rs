//! The time of this crate, in nanoseconds since a starting point that the caller chooses.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A point in time: the number of nanoseconds since the caller's starting point. The times that a caller passes to one
/// object must not go backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns the number of nanoseconds since the caller's starting point.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Adds a duration. The sum saturates at the largest time.
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Returns the time since `earlier`, or zero if `earlier` is later than `self`.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
