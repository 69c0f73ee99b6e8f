//! Settings of a session.

use std::time::Duration;

use mrsp::{
    host::HostConfig,
    immediate::Dialect,
    layout::{LayoutChoice, LayoutRule},
    region::NaaAddress,
};
use verbs::{ConnParam, WaitMode};

use crate::{Error, overdue::CallTimes, variable};

/// The environment variable that has the time limit, in seconds, of a call and of session setup.
pub const TIMEOUT_VARIABLE: &str = "NAA_TIMEOUT";

/// The time limit of a call. A call that takes longer than its time limit ends with [`Error::CallTimedOut`], no matter
/// how the program waits for the end of the call. The session of a call that timed out is over, because the accelerator
/// may still write to the outputs.
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
    /// The longest time that `NAA_TIMEOUT` may contain. It is a century, because the clock cannot count much longer
    /// times. A longer `setup_timeout` is reduced to this time.
    pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// Returns the time limit, or `None` if there is no limit.
    ///
    /// # Errors
    /// Fails with [`Error::Environment`] if `self` is [`CallTimeout::Environment`] and `NAA_TIMEOUT` is not a valid
    /// time.
    pub fn limit(self) -> Result<Option<Duration>, Error> {
        match self {
            Self::Environment => timeout_from_env(),
            Self::Never => Ok(None),
            Self::After(limit) => Ok(Some(limit)),
        }
    }
}

/// Returns the time limit in `NAA_TIMEOUT`, or `None` if `NAA_TIMEOUT` is not set or is empty.
///
/// # Errors
/// Fails with [`Error::Environment`] if `NAA_TIMEOUT` is not a valid time.
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

/// Settings of a [`Session`](crate::Session).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The time limit of connecting and agreeing on regions. The default is the time in `NAA_TIMEOUT`, or 10 s if
    /// `NAA_TIMEOUT` is not set.
    pub setup_timeout: Duration,
    /// The time limit of a call.
    pub call_timeout: CallTimeout,
    /// A call that takes longer than `report_after` is reported by one warning, which names the accelerator and the
    /// function, and says whether the accelerator answers probes. If `report_after` is `None`, no warning is logged.
    pub report_after: Option<Duration>,
    /// The mode in which threads wait: by spinning, by sleeping, or by both.
    pub wait: WaitMode,
    /// The time between liveness probes of the accelerator during a call. If `probe_interval` is `None`, no probes are
    /// sent. It is then possible that the host never notices that an accelerator failed during a call.
    pub probe_interval: Option<Duration>,
    /// The ACK time-out is 4.096 us * 2^n, where n, from 1 to 31, is the value of this field. If `retry_count` is 7,
    /// the connection is given up after about eight ACK time-outs without an acknowledgement. Eight ACK time-outs are
    /// 4.3 s if `ack_timeout` is 17.
    pub ack_timeout: u8,
    /// The number of times, from 0 to 7, that an unacknowledged packet is sent again before the connection is given up.
    pub retry_count: u8,
    /// The dialect by which the upper 24 bits of the accelerator's response immediates are read.
    pub dialect: Dialect,
    /// The address on the accelerator that the host requests for the first region.
    pub address_start: NaaAddress,
    /// The maximum number of regions that a session may request, counting parameters and internal regions. Servers of
    /// NAAICE's C library crash if a session has more than 31 regions.
    pub max_regions: u8,
    /// The layout of the parameters in the accelerator's regions. If the accelerator supports no layouts, the layout is
    /// symmetric. [`Session::layout`](crate::Session::layout) returns the layout that is used.
    pub layout: LayoutChoice,
    /// The layout rule of [`LayoutChoice::Auto`]. If `layout_rule` is `None`, the environment variable
    /// `NAA_LAYOUT_RULE` gives the rule. If this variable is not set either, the provider's default rule is used.
    pub layout_rule: Option<LayoutRule>,
}

const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
const REPORT_AFTER: Duration = Duration::from_secs(10);

impl Default for SessionConfig {
    fn default() -> Self {
        let HostConfig { address_start, max_regions, dialect } = HostConfig::default();
        Self {
            // An invalid value of `NAA_TIMEOUT` is ignored here. If `call_timeout` is `CallTimeout::Environment`, the
            // setup of the session reads `NAA_TIMEOUT` again, and fails if the value is not valid.
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
            layout: LayoutChoice::default(),
            layout_rule: None,
        }
    }
}

impl SessionConfig {
    pub(crate) fn host(&self) -> HostConfig {
        HostConfig { address_start: self.address_start, max_regions: self.max_regions, dialect: self.dialect }
    }

    pub(crate) fn limits(&self) -> Result<CallTimes, Error> {
        Ok(CallTimes { report_after: self.report_after, call_timeout: self.call_timeout.limit()? })
    }

    pub(crate) fn connection(&self, timeout: Duration) -> ConnParam {
        ConnParam {
            ack_timeout: Some(self.ack_timeout),
            connect_timeout: Some(timeout.min(CallTimeout::LONGEST)),
            retry_count: self.retry_count.min(7),
            // NAAICE's C library also uses the value 6. With the value 7, the device would retry without limit if the
            // peer posts no receive.
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
