//! Limits of a reassembler.

use std::time::Duration;

use super::Numbering;
use crate::wire::Versions;

/// The rule that decides which events belong to one sender. Each sender has its own limits, such as
/// [`Config::max_open_per_source`]. Events of different senders are different events, even if they have the same event
/// number and data id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsBy {
    /// All events from one address belong to one sender.
    #[default]
    Address,
    /// All events with one data id from one address belong to one sender. Limits by stream are for segments that come
    /// through a load balancer, because a load balancer replaces the senders' addresses by its own address.
    Stream,
}

/// The limit of the sum of the lengths of all open and complete events, as a multiple of [`Config::memory`]. The limit
/// is higher than the memory, because a new event takes address space for its whole length at once, but takes memory
/// only when its bytes arrive.
const CLAIMED: u64 = 16;

/// The limits and settings of a reassembler.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of event buffers. Each open event needs an event buffer. Each complete event needs one, too, until it
    /// is released.
    pub slots: u32,
    /// The maximum number of open events. If `max_open` events are open and another event begins, the sender with the
    /// most open events loses one event. It loses the event that got no segment for the longest time. If more than half
    /// of all open events belong to senders that never completed an event, only these senders can lose an event.
    pub max_open: u32,
    /// The maximum number of open events of one sender. When a sender with this number of open events opens another
    /// event, the sender loses its own event that got no segment for the longest time. The senders that are not counted
    /// separately, for example those beyond [`Config::max_sources`], have this limit together, like one sender.
    pub max_open_per_source: u32,
    /// The rule that decides which events belong to one sender. Each sender has its own limits, such as
    /// `max_open_per_source`.
    pub limits_by: LimitsBy,
    /// The length of the longest accepted event in bytes, at most `memory`.
    pub max_event: u32,
    /// The maximum total size in bytes of all pages into which segments are copied. The reassembler adds
    /// up the pages of all segments. It does not know which pages an earlier segment has used, so a page with bytes of
    /// two segments is counted twice. An event counts for at most the size of all its pages. If an arriving segment
    /// finds no room, the sender with the most memory loses its largest open event. The arriving segment is dropped
    /// instead if it belongs to this event, or if evicting this event would free too little memory. If more than half
    /// of the memory of all open events belongs to senders that never completed an event, only these senders can lose
    /// an event.
    pub memory: u64,
    /// The size of a page of `memory` in bytes, a power of two.
    pub page: u32,
    /// The time without a segment after which an event is given up. The time-out of E2SAR begins with the first segment
    /// of an event instead of the last segment. The reassembler drops late segments of an ended event. If the event or
    /// the late segment has no tick, the late segment is dropped only during the time `timeout` after the event's end.
    pub timeout: Duration,
    /// The time after which an open event is given up, even if segments still arrive.
    pub lifetime: Duration,
    /// Says whether a gap in the event numbers means that events are missing. Missing events are counted only with
    /// [`Numbering::Consecutive`].
    pub numbering: Numbering,
    /// The accepted versions of RE headers.
    pub versions: Versions,
    /// The maximum number of senders that are counted separately. If there are more than `max_sources` senders, the
    /// additional senders are unknown senders, which have common counters.
    pub max_sources: u32,
    /// The maximum number of remembered events of each of two kinds: complete events, and events that were given up. A
    /// late segment of a remembered event is dropped, and does not open the event again. [`Config::timeout`] describes
    /// an exception.
    pub remembered: u32,
    /// The number of bitmap blocks, which record the arrived bytes of events. All events share these blocks. A bitmap
    /// block has 512 bits, and belongs to one event while it is used. Each set bit says that one range of bytes of this
    /// event has arrived. An event needs bitmap blocks only if the bytes that have arrived form many separate ranges.
    pub chunks: u32,
    /// The seed of the hash tables. The seed should be random, so that no sender can choose event numbers whose hashes
    /// collide.
    pub seed: u64,
}

impl Default for Config {
    /// Returns limits for events of up to 16 MiB and for 1 GiB of memory.
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

/// The reason why limits are invalid or contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A field of [`Config`] that must be at least 1 is 0. The value is the name of the field.
    #[error("{0} is 0; it must be at least 1")]
    Zero(&'static str),
    /// [`Config::max_open`] is above [`Config::slots`].
    #[error("{max_open} open events do not fit into {slots} slots")]
    Slots {
        /// The value of [`Config::max_open`].
        max_open: u32,
        /// The value of [`Config::slots`].
        slots: u32,
    },
    /// [`Config::page`] is not a power of two. The value is the size of the page in bytes.
    #[error("pages of {0} bytes are none; their size is a power of two")]
    Page(u32),
}

impl Config {
    /// Returns the limit of the sum of the lengths of all open and complete events, in bytes. If a new event would
    /// exceed this limit, open events are evicted. The sender whose open events have the greatest total length loses
    /// its longest open events. If more than half of the total length of all open events belongs to senders that never
    /// completed an event, only these senders can be chosen. If the events of the chosen sender are not enough, another
    /// sender is chosen in the same way. If even 16 evictions would not be enough, no event is evicted, and the segment
    /// of the new event is dropped.
    pub fn max_claimed(&self) -> u64 {
        self.memory.saturating_mul(CLAIMED)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.memory == 0 {
            return Err(ConfigError::Zero("memory"));
        }
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
