//! Bounds of a reassembler.

use std::time::Duration;

use super::Numbering;
use crate::wire::Versions;

/// Whether one sender, for the limits, is an address or a stream. Events of different senders are different events, even
/// under the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsBy {
    /// An address is a sender.
    #[default]
    Address,
    /// One data id of one address is a sender. This is for segments that come through a load balancer, which replaces the
    /// senders' addresses by its own.
    Stream,
}

/// The lengths of all events together may be this many times [`Config::memory`]. A claimed length costs addresses, but no
/// memory.
const CLAIMED: u64 = 16;

/// What a reassembler takes and keeps.
#[derive(Clone, Debug)]
pub struct Config {
    /// Events in the caller's memory, open and complete ones.
    pub slots: u32,
    /// Open events; one more gives up the stalest of the sender that has most, of those that never got an event through
    /// as long as these have more than half.
    pub max_open: u32,
    /// Open events of one sender; one more gives up its stalest. Senders that are not known count as one.
    pub max_open_per_source: u32,
    pub limits_by: LimitsBy,
    /// The longest event, in bytes; at most `memory`.
    pub max_event: u32,
    /// The most memory that segments of events may touch, in bytes, in whole pages; the largest open
    /// event of the sender that has most makes room, chosen among senders in the same way.
    pub memory: u64,
    /// Bytes of a page of that memory, a power of two.
    pub page: u32,
    /// An event is given up when it got no segment for so long (E2SAR counts from the first segment). For as long, its
    /// name is remembered when it ended, and with the LB header's tick for longer.
    pub timeout: Duration,
    /// An event is given up when it is open for so long, however often it got a segment.
    pub lifetime: Duration,
    pub numbering: Numbering,
    /// Versions of RE headers that are accepted.
    pub versions: Versions,
    /// Senders that are told apart; further ones count as unknown.
    pub max_sources: u32,
    /// Events that ended of which late segments are recognised: so many complete ones, and so many others.
    pub remembered: u32,
    /// Blocks of 512 segments of events whose segments come shuffled.
    pub chunks: u32,
    /// Of the hash tables. Random, so that no sender can choose what collides.
    pub seed: u64,
}

impl Default for Config {
    /// For events of up to 16 MiB and 1 GiB of memory.
    fn default() -> Self {
        Self {
            slots: 1024,
            max_open: 512,
            max_open_per_source: 256,
            limits_by: LimitsBy::Address,
            max_event: 16 << 20,
            memory: 1 << 30,
            page: 4096,
            timeout: Duration::from_millis(500),
            lifetime: Duration::from_secs(20),
            numbering: Numbering::default(),
            versions: Versions::default(),
            max_sources: 256,
            remembered: 4096,
            chunks: 16_384,
            seed: 0,
        }
    }
}

/// Bounds that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{0} is 0; it must be at least 1")]
    Zero(&'static str),
    #[error("{max_open} open events do not fit into {slots} slots")]
    Slots { max_open: u32, slots: u32 },
    #[error("pages of {0} bytes are none; their size is a power of two")]
    Page(u32),
}

impl Config {
    /// The most that the lengths of all events together may be, in bytes. If a new event does not fit, the longest open events
    /// of the sender with most bytes are given up.
    pub fn max_claimed(&self) -> u64 {
        self.memory.saturating_mul(CLAIMED)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let fields = [
            ("slots", self.slots),
            ("max_open", self.max_open),
            ("max_open_per_source", self.max_open_per_source),
            ("max_event", self.max_event),
            ("max_sources", self.max_sources),
            ("remembered", self.remembered),
            ("chunks", self.chunks),
            ("page", self.page),
        ];
        if let Some((name, _)) = fields.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero(name));
        }
        if self.max_open > self.slots {
            return Err(ConfigError::Slots { max_open: self.max_open, slots: self.slots });
        }
        if !self.page.is_power_of_two() {
            return Err(ConfigError::Page(self.page));
        }
        Ok(())
    }
}
