//! Times of day and lengths of time on the command line.

use std::time::{Duration, SystemTime};

use ejfat_cp::settings;
use prost_types::Timestamp;

/// When a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The reservation ends when this time has passed from now on.
    After(Duration),
    /// The reservation lasts until somebody frees it.
    Never,
}

/// Reads `never`, or a length of time.
pub(super) fn end(text: &str) -> Result<End, String> {
    if text == "never" { Ok(End::Never) } else { length(text).map(End::After) }
}

/// Reads a length of time as configurations have it: a number followed by ms, s, m, h or d.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    settings::length(text).ok_or_else(|| {
        format!("{text:?} is no length of time; write a number followed by ms, s, m, h or d, such as 90m")
    })
}

/// Returns the UNIX time of now.
fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the UNIX time of now in milliseconds.
pub(super) fn unix_ms() -> u64 {
    u64::try_from(unix().as_millis()).unwrap_or(u64::MAX)
}

fn timestamp(unix: Duration) -> Timestamp {
    let seconds = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: unix.subsec_nanos().try_into().unwrap_or(0) }
}

impl End {
    /// Returns the end as the API has it: UNIX time 0 stands for a reservation without an end.
    pub(super) fn timestamp(self) -> Timestamp {
        match self {
            Self::After(time) => timestamp(unix() + time),
            Self::Never => Timestamp::default(),
        }
    }
}

/// Returns the time of day that was this long ago.
pub(super) fn ago(time: Duration) -> Timestamp {
    timestamp(unix().saturating_sub(time))
}

/// Returns the time of day in UTC as text, or `never` for UNIX time 0 and `None`.
pub(super) fn text(at: Option<&Timestamp>) -> String {
    at.filter(|at| at.seconds > 0).map_or_else(|| "never".to_owned(), ToString::to_string)
}

/// Returns how many seconds ago a time was, or 0 if it is in the future.
pub(super) fn age(at: &Timestamp) -> f64 {
    (unix().as_secs_f64() - at.seconds as f64 - f64::from(at.nanos) * 1e-9).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_a_unit() {
        assert_eq!(length("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(length("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(length("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(end("never"), Ok(End::Never));
        for wrong in ["", "h", "2", "-1s", "99999999999d", "2ü"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}
