//! Settings of a session.

use std::time::Duration;

use mrsp::{
    host::HostConfig,
    immediate::Dialect,
    layout::{Choice, Rule},
    region::NaaAddress,
};
use verbs::{ConnParam, WaitMode};

use crate::{Error, overdue::Limits, variable};

/// The environment variable that says how many seconds a call, and session setup, may take.
pub const TIMEOUT_VARIABLE: &str = "NAA_TIMEOUT";

/// How long a call may take, however the program waits for its end. A call that takes longer ends with
/// [`Error::CallTimedOut`]. The session of such a call is over, because the accelerator may still write to the outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallTimeout {
    /// The time limit is `NAA_TIMEOUT`, in seconds; if `NAA_TIMEOUT` is not set, there is no limit.
    #[default]
    Environment,
    /// There is no time limit, and `NAA_TIMEOUT` is ignored.
    Never,
    /// The time limit is this time, and `NAA_TIMEOUT` is ignored.
    After(Duration),
}

impl CallTimeout {
    /// The longest time that `NAA_TIMEOUT` may say, a century, because the clock cannot count much longer times.
    pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// The time limit; `None` if there is no limit.
    ///
    /// # Errors
    /// [`Error::Environment`] if `NAA_TIMEOUT` is used and is not a valid time.
    pub fn limit(self) -> Result<Option<Duration>, Error> {
        match self {
            Self::Environment => timeout_from_env(),
            Self::Never => Ok(None),
            Self::After(limit) => Ok(Some(limit)),
        }
    }
}

/// The time that `NAA_TIMEOUT` says; `None` if the variable is not set, or empty.
///
/// # Errors
/// [`Error::Environment`] if `NAA_TIMEOUT` is not a valid time.
pub fn timeout_from_env() -> Result<Option<Duration>, Error> {
    let Some(text) = variable(TIMEOUT_VARIABLE)? else { return Ok(None) };
    let time = seconds(&text).ok_or_else(|| Error::Environment {
        name: TIMEOUT_VARIABLE,
        value: text,
        problem: "this is no time above 0 and up to a century; give seconds, such as 2.5, or unset it for calls without a \
                  limit"
            .into(),
    })?;
    Ok(Some(time))
}

/// Parses a number of seconds, more than 0 and at most [`CallTimeout::LONGEST`].
fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (!time.is_zero() && time <= CallTimeout::LONGEST).then_some(time)
}

/// Settings of a [`Session`](crate::Session). The defaults suit every accelerator known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The time limit of connecting and agreeing on regions. The default is what `NAA_TIMEOUT` says, and 10 s if
    /// `NAA_TIMEOUT` is not set.
    pub setup_timeout: Duration,
    /// The time limit of a call.
    pub call_timeout: CallTimeout,
    /// A call that takes longer than this time is reported by one warning. The warning names the accelerator and the
    /// function, and says whether the accelerator answers probes. `None`: calls are not reported.
    pub report_after: Option<Duration>,
    /// Whether waiting threads spin or sleep.
    pub wait: WaitMode,
    /// The time between liveness probes of the accelerator during a call. `None`: there are no probes, and the death of
    /// an accelerator during a call may go unnoticed for ever.
    pub probe_interval: Option<Duration>,
    /// With n, 1-31, an unacknowledged packet is given up after about eight times 4.096 us * 2^n; 17 means 4.3 s.
    pub ack_timeout: u8,
    /// How often an unacknowledged packet is sent again before the connection is given up, 0-7.
    pub retry_count: u8,
    /// The dialect by which the upper 24 bits of the accelerator's response immediates are read.
    pub dialect: Dialect,
    /// The accelerator address to ask for the first region.
    pub address_start: NaaAddress,
    /// The most regions, parameters and internal regions together. C servers crash with more than 31.
    pub max_regions: u8,
    /// How parameters lie in the accelerator's regions and get there. With an accelerator that supports no layouts, the
    /// layout is symmetric. [`Session::layout`](crate::Session::layout) says which layout is used.
    pub layout: Choice,
    /// The layout rule of [`Choice::Auto`]. `None`: the rule in `NAA_LAYOUT_RULE`, or the provider's default rule if
    /// `NAA_LAYOUT_RULE` is not set.
    pub layout_rule: Option<Rule>,
}

const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
const REPORT_AFTER: Duration = Duration::from_secs(10);

impl Default for SessionConfig {
    fn default() -> Self {
        let HostConfig { address_start, max_regions, dialect } = HostConfig::default();
        Self {
            // An invalid value is ignored here, and is an error when a session is set up.
            setup_timeout: timeout_from_env().ok().flatten().unwrap_or(SETUP_TIMEOUT),
            call_timeout: CallTimeout::default(),
            report_after: Some(REPORT_AFTER),
            wait: WaitMode::default(),
            probe_interval: Some(Duration::from_secs(1)),
            ack_timeout: 17,
            retry_count: 7,
            dialect,
            address_start,
            max_regions,
            layout: Choice::default(),
            layout_rule: None,
        }
    }
}

impl SessionConfig {
    pub(crate) fn host(&self) -> HostConfig {
        HostConfig { address_start: self.address_start, max_regions: self.max_regions, dialect: self.dialect }
    }

    pub(crate) fn limits(&self) -> Result<Limits, Error> {
        Ok(Limits { report_after: self.report_after, call_timeout: self.call_timeout.limit()? })
    }

    pub(crate) fn connection(&self, timeout: Duration) -> ConnParam {
        ConnParam {
            ack_timeout: Some(self.ack_timeout),
            connect_timeout: Some(timeout),
            retry_count: self.retry_count.min(7),
            // The C library uses the same value. With 7, the device would wait without limit for a peer that posts no
            // receive.
            rnr_retry_count: 6,
            ..ConnParam::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_more_than_none_and_at_most_a_century() {
        assert_eq!(seconds("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(seconds(" 60 "), Some(Duration::from_secs(60)));
        assert_eq!(seconds("3153600000"), Some(CallTimeout::LONGEST));
        for bad in ["", "0", "-1", "x", "5s", "1,5", "inf", "NaN", "3153600001", "1e19", "1e300"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
