//! Times of day and lengths of time on the command line.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

/// When a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// So long from now.
    After(Duration),
    Never,
}

/// Reads `never`, or a number with s, m, h or d behind it.
pub(super) fn end(text: &str) -> Result<End, String> {
    if text == "never" { Ok(End::Never) } else { length(text).map(End::After) }
}

/// Reads a number with s, m, h or d behind it.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no length of time; write a number with s, m, h or d behind it");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        "d" => number.checked_mul(86_400),
        _ => None,
    };
    seconds.filter(|seconds| *seconds < 1 << 36).map(Duration::from_secs).ok_or_else(wrong)
}

fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn timestamp(unix: Duration) -> Timestamp {
    let seconds = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: unix.subsec_nanos().try_into().unwrap_or(0) }
}

impl End {
    /// Control planes take UNIX time 0 for a reservation without an end.
    pub(super) fn timestamp(self) -> Timestamp {
        match self {
            Self::After(time) => timestamp(unix() + time),
            Self::Never => Timestamp::default(),
        }
    }
}

/// So long ago.
pub(super) fn ago(time: Duration) -> Timestamp {
    timestamp(unix().saturating_sub(time))
}

/// The time of day in UTC, or `never` where UNIX time 0 or nothing stands for it.
pub(super) fn text(at: Option<&Timestamp>) -> String {
    at.filter(|at| at.seconds > 0).map_or_else(|| "never".to_owned(), ToString::to_string)
}

/// Seconds since then; none if it lies ahead.
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
        assert_eq!(end("never"), Ok(End::Never));
        for wrong in ["", "h", "2", "-1s", "99999999999d", "2ü"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}
