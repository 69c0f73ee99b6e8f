//! The time of day as an argument.

use std::{fmt, ops::Add, time::Duration};

/// Milliseconds since 1970-01-01, UTC. Only ends of reservations and what people read depend on it: it may be set.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl Add<Duration> for WallTime {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
