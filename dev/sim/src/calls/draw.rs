//! What a seed decides about a session.

use mrsp::{Abilities, Layout, RegionFlags, accelerator::SessionLimits};
use simnet::Random;
use verbs::QpCap;

const IN: RegionFlags = RegionFlags::INPUT;
const OUT: RegionFlags = RegionFlags::OUTPUT;
const ONCE: RegionFlags = RegionFlags::SINGLE_SEND;

/// Elements of one request at most.
const MAX_SGE: u64 = 32;
/// Requests beside the WRITEs of a call.
const SPARE: u32 = 4;

/// Where a host's parameters lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    /// Each in a region of its own.
    Apart,
    /// In one region, as they lie on the accelerator, if that has one.
    Alike,
    /// In one region, the other way round than there.
    Reversed,
}

#[derive(Clone, Debug)]
pub(super) struct Talk {
    pub(super) layout: Layout,
    /// What the accelerator says it takes.
    pub(super) slots: u8,
    /// The host does not listen to that.
    pub(super) heedless: bool,
    pub(super) params: Vec<(RegionFlags, u32)>,
    pub(super) internals: Vec<u64>,
    pub(super) landing: Landing,
    /// The most elements of a scatter-gather list.
    pub(super) elements: u32,
    /// The longest WRITE of host and accelerator.
    pub(super) longest: [u64; 2],
    /// The most regions that the host asks for.
    pub(super) max_regions: u8,
    pub(super) calls: usize,
}

impl Talk {
    pub(super) fn draw(r: &mut Random) -> Self {
        let count = r.pick(&[1, 4, 12, 12, 40, 255]);
        let count = r.range(1..=count) as usize;
        let largest = r.pick(&[100, 1000, 4000, 40_000]).min(400_000 / count as u64);
        let layout = draw_layout(r, largest);
        Self {
            layout,
            slots: r.pick(&[255, 255, 255, 255, 255, 254, 10, 3, 0]),
            heedless: r.chance(100_000),
            params: (0..count).map(|_| draw_param(r, largest)).collect(),
            internals: (0..r.below(3)).map(|_| r.below(300)).collect(),
            landing: r.pick(&[Landing::Apart, Landing::Alike, Landing::Alike, Landing::Reversed]),
            elements: r.pick(&[1, 2, 3, 8, MAX_SGE as u32]),
            longest: [0, 1].map(|_| if r.chance(700_000) { 1 << 31 } else { r.range(500..=5000) }),
            max_regions: r.pick(&[31, 255]),
            calls: r.range(1..=8) as usize,
        }
    }

    pub(super) fn abilities(&self) -> Abilities {
        Abilities { slots: self.slots }
    }

    pub(super) fn limits(&self) -> SessionLimits {
        SessionLimits { max_regions: u8::MAX, max_slots: self.slots, ..SessionLimits::default() }
    }

    /// The accelerator takes the layout.
    pub(super) fn is_taken(&self) -> bool {
        self.params.len() <= usize::from(self.slots)
    }

    /// Queues for all WRITEs of a call, or of its answer.
    pub(super) fn cap(&self, node: usize, late_acks: bool) -> QpCap {
        let longest = self.longest[node];
        let writes = |&(_, size): &(RegionFlags, u32)| 1 + u64::from(size) / longest;
        let writes: u64 = self.params.iter().map(writes).sum();
        QpCap { max_send_wr: writes as u32 + SPARE, max_recv_wr: 2, max_sge: self.elements, late_acks }
    }
}

fn draw_layout(r: &mut Random, largest: u64) -> Layout {
    match r.below(8) {
        0 => Layout::Symmetric,
        1 => Layout::Asymmetric,
        2..5 => Layout::Gathered,
        _ => Layout::Packed {
            threshold: r.pick(&[0, 64, largest / 4, largest, 4 * largest, 16 * largest]) as u32,
        },
    }
}

fn draw_param(r: &mut Random, largest: u64) -> (RegionFlags, u32) {
    let flags = r.pick(&[IN, IN, OUT, OUT, IN | OUT, IN | OUT, ONCE, IN | ONCE | OUT, RegionFlags::NONE]);
    let size = match r.below(6) {
        0 => 0,
        1 => 1,
        2 => 64 * r.range(1..=4),
        3 => r.range(1..=200),
        _ => r.range(1..=largest),
    };
    (flags, size.min(largest) as u32)
}
