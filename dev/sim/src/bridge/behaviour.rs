//! What a worker is like, before it subscribes.

use std::ops::Range;

use ejfat::ring::{DeliveryMode, Filter, Geometry, Subscription, WorkerName};
use simnet::Random;

use super::{
    super::plan::{MS, US},
    wire::Delays,
};

/// What it does with what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Honest,
    /// Never gives anything back.
    Hoards,
    /// Credit words that can be no credit.
    WritesNonsense,
    /// Credit for slots that it was not given, did not read yet, gave back before, or will be given.
    Lies,
}

/// How its subscription ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Never,
    /// It stops, and is found dead later.
    Dies {
        at: u64,
        found: u64,
    },
    /// It goes on, but nothing passes any more; the bridge notices later.
    CutOff {
        at: u64,
        found: u64,
    },
    /// It says goodbye.
    Leaves {
        at: u64,
    },
}

impl End {
    pub(super) fn at(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Dies { at, .. } | Self::CutOff { at, .. } | Self::Leaves { at } => Some(at),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct WorkerBehaviour {
    pub(super) geometry: Geometry,
    pub(super) filter: Filter,
    pub(super) placing: DeliveryMode,
    /// Whether it asks for version 2 of the ring, in which events may be delivered again.
    pub(super) redelivery: bool,
    pub(super) manner: Manner,
    /// Between two events that it reads, at most.
    pub(super) pace: u64,
    /// How long it has an event, at most.
    pub(super) hold: u64,
    /// The time in which the worker does nothing.
    pub(super) stall: Range<u64>,
    pub(super) delays: Delays,
    /// The time from the subscription until the worker has its response.
    pub(super) ready: u64,
    pub(super) end: End,
    /// How long after its end the worker subscribes again, and how many times.
    pub(super) comes_again: (u64, u32),
}

/// The largest ring.
const MOST_BYTES: u32 = 512 << 10;

fn geometry(r: &mut Random) -> Geometry {
    let slots = r.pick(&[1, 2, 3, 8, 8, 64, 200]);
    let bytes = r.pick(&[64, 256, 4096, 4096, 1 << 16, 1 << 17]);
    let bytes = bytes.min(MOST_BYTES / slots).next_multiple_of(Geometry::UNIT);
    Geometry::new(slots, bytes).expect("small numbers, of whole cache lines")
}

impl WorkerBehaviour {
    pub(super) fn draw(r: &mut Random, now: u64, most_data_id: u16, members: u16) -> Self {
        let (lives, found) = (r.pick(&[US, MS, 20 * MS]), r.pick(&[US, 10 * MS, 100 * MS]));
        let at = now + r.below(lives);
        let found = at + r.below(found);
        let placing = r.pick(&DeliveryMode::ALL);
        let span = |r: &mut Random| {
            let from = now + r.below(10 * MS);
            from..from + r.pick(&[MS, 30 * MS, 200 * MS])
        };
        let data_id = r.below(u64::from(most_data_id) + 1) as u16;
        let filter = Filter {
            data_ids: if r.chance(500_000) { (0, u16::MAX) } else { (data_id, data_id) },
            member: r.chance(500_000).then(|| r.below(members.into()) as u16),
        };
        let end = match r.below(10) {
            0 | 1 => End::Dies { at, found },
            2 if placing != DeliveryMode::Shared => End::CutOff { at, found },
            3 => End::Leaves { at },
            _ => End::Never,
        };
        let manner = match r.below(10) {
            0 => Manner::Hoards,
            1 => Manner::WritesNonsense,
            2 => Manner::Lies,
            _ => Manner::Honest,
        };
        let most = if placing == DeliveryMode::Shared { 0 } else { r.pick(&[US, 20 * US, 2 * MS]) };
        let pause = if r.chance(150_000) { span(r) } else { 0..0 };
        Self {
            geometry: geometry(r),
            filter,
            placing,
            redelivery: r.chance(500_000),
            manner,
            pace: r.pick(&[0, US, 100 * US]),
            hold: r.pick(&[0, 10 * US, 2 * MS]),
            stall: if r.chance(250_000) { span(r) } else { 0..0 },
            delays: Delays { most, pause },
            ready: r.pick(&[0, 100 * US]),
            end,
            comes_again: (r.below(5 * MS), r.below(3) as u32),
        }
    }

    /// One that does everything well, for as long as there is somebody.
    pub(super) fn faultless() -> Self {
        Self {
            geometry: Geometry::new(2, 64).expect("it is a small one"),
            filter: Filter::default(),
            placing: DeliveryMode::Store,
            redelivery: true,
            manner: Manner::Honest,
            pace: 0,
            hold: 0,
            stall: 0..0,
            delays: Delays { most: US, pause: 0..0 },
            ready: 0,
            end: End::Never,
            comes_again: (0, 0),
        }
    }

    pub(super) fn subscription(&self) -> Subscription {
        let name = WorkerName::from("worker").expect("it is short");
        Subscription { geometry: self.geometry, filter: self.filter, name, redelivery: self.redelivery }
    }
}
