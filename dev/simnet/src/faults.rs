//! What a link does to packets.

use std::ops::Range;

/// Probabilities are in parts per million, times in nanoseconds. The default is an instant, perfect link.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub latency: u64,
    /// Up to this much is added to the latency of each train of packets.
    pub jitter: u64,
    pub loss: u32,
    pub duplicate: u32,
    /// A reordered packet is late by up to `reorder_delay`.
    pub reorder: u32,
    pub reorder_delay: u64,
    /// One bit of the packet is flipped.
    pub corrupt: u32,
    pub bursts: Option<Bursts>,
    /// Every packet sent in these times is lost.
    pub blackouts: Vec<Range<u64>>,
    pub bottleneck: Option<Bottleneck>,
    /// From then on no packet is lost, repeated, reordered or damaged; blackouts and the bottleneck remain.
    pub until: u64,
}

/// Losses in bursts: a Gilbert-Elliott chain with a good state that loses nothing.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// Good to bad, per packet.
    pub enter: u32,
    /// Bad to good, per packet.
    pub leave: u32,
    /// Loss in the bad state.
    pub loss: u32,
}

/// A queue of `buffer` bytes that drains at `bytes_per_us` and drops what does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    pub bytes_per_us: u64,
    pub buffer: u64,
}

impl Faults {
    pub(crate) fn blacked_out(&self, now: u64) -> bool {
        self.blackouts.iter().any(|b| b.contains(&now))
    }

    /// Nothing but time happens to packets.
    pub fn harmless(&self) -> bool {
        let chances = [self.loss, self.duplicate, self.reorder, self.corrupt];
        chances == [0; 4] && self.bursts.is_none() && self.blackouts.is_empty() && self.bottleneck.is_none()
    }
}
