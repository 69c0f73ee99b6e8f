//! Limits of a reassembler.

use std::time::Duration;

use super::Numbering;
use crate::wire::Versions;

/// Says which events count for the limits of one sender: those of an address or those of a stream. Events of different
/// senders are different events, even under the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsBy {
    /// An address is one sender.
    #[default]
    Address,
    /// One data id of one address is one sender. This is for segments that come through a load balancer, which replaces
    /// the senders' addresses by its own.
    Stream,
}

/// The sum of the lengths of all events may be this many times [`Config::memory`]. A claimed length costs address
/// space, but no memory.
const CLAIMED: u64 = 16;

/// Limits and settings of a reassembler.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of event buffers, for open and complete events.
    pub slots: u32,
    /// The most open events. For one more, the sender with most open events loses the one that got no segment for
    /// longest. As long as senders that never completed an event have more than half of all, only these senders are
    /// considered.
    pub max_open: u32,
    /// The most open events of one sender. For one more, the sender loses its own one that got no segment for longest.
    /// All unknown senders count as one.
    pub max_open_per_source: u32,
    pub limits_by: LimitsBy,
    /// The longest event in bytes, at most `memory`.
    pub max_event: u32,
    /// The most memory in bytes that segments of events may touch, counted in whole pages. If it is full, the largest
    /// open event of the sender with most memory is evicted; the sender is chosen as for `max_open`.
    pub memory: u64,
    /// The bytes of a page of that memory, a power of two.
    pub page: u32,
    /// An event is given up if it got no segment for this time (E2SAR counts from the first segment). The name of an
    /// event that ended is remembered for this time, and for longer if segments have a tick.
    pub timeout: Duration,
    /// An event is given up if it has been open for this time, even if segments still arrive.
    pub lifetime: Duration,
    pub numbering: Numbering,
    /// The versions of RE headers that are accepted.
    pub versions: Versions,
    /// The most senders that are counted separately; all others count as unknown.
    pub max_sources: u32,
    /// The number of ended events whose late segments are recognised: this many complete ones, and this many others.
    pub remembered: u32,
    /// The number of bitmap blocks of 512 segments, for events whose segments arrive shuffled.
    pub chunks: u32,
    /// The seed of the hash tables. It should be random, so that no sender can choose names that collide.
    pub seed: u64,
}

impl Default for Config {
    /// Limits for events of up to 16 MiB and 1 GiB of memory.
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

/// Limits that are invalid or contradict each other.
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
    /// Returns the most that the sum of the lengths of all events may be, in bytes. If a new event does not fit, the
    /// longest open events of the sender with most bytes are evicted.
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
