//! Settings of a session.

use std::time::Duration;

use mrsp::{
    host::HostConfig,
    immediate::Dialect,
    layout::{Choice, Rule},
    region::NaaAddress,
};
use verbs::{ConnParam, WaitMode};

/// Settings of a [`Session`](crate::Session). The defaults suit every accelerator known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Connecting and agreeing on regions must be done within this.
    pub setup_timeout: Duration,
    /// How waiting threads wait.
    pub wait: WaitMode,
    /// While a call runs the accelerator is asked for a sign of life this often. `None`: never, and the death of
    /// an accelerator during a call may go unnoticed for ever.
    pub probe_interval: Option<Duration>,
    /// An unacknowledged packet is given up after about eight times 4.096 us * 2^n, n in 1-31: 17 is 4.3 s.
    pub ack_timeout: u8,
    /// How often an unacknowledged packet is sent again before the connection is given up, 0-7.
    pub retry_count: u8,
    /// What the accelerator means by the upper bits of its answers.
    pub dialect: Dialect,
    /// Accelerator address asked for the first region.
    pub address_start: NaaAddress,
    /// Parameters and internal regions together. C servers do not survive more than 31.
    pub max_regions: u8,
    /// How parameters lie in the accelerator's regions and get there. One that knows no layouts gets the symmetric one:
    /// [`Session::layout`](crate::Session::layout) tells.
    pub layout: Choice,
    /// Of [`Choice::Auto`]; `None`: what `NAA_LAYOUT_RULE` says, and without it that of the provider.
    pub layout_rule: Option<Rule>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        let HostConfig { address_start, max_regions, dialect } = HostConfig::default();
        Self {
            setup_timeout: Duration::from_secs(10),
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

    pub(crate) fn connection(&self, timeout: Duration) -> ConnParam {
        ConnParam {
            ack_timeout: Some(self.ack_timeout),
            connect_timeout: Some(timeout),
            retry_count: self.retry_count.min(7),
            // As the C library's. 7 would wait for ever for a peer that posts no receive.
            rnr_retry_count: 6,
            ..ConnParam::default()
        }
    }
}
