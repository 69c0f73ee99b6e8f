//! What a seed decides before anything runs.

use std::time::Duration;

use ejfat::{
    bridge::{self, BackPressure, EligibleWorkers},
    reassembly,
};
use simnet::Random;

use super::{
    super::{
        events::draw_config,
        plan::{MS, US},
    },
    behaviour::WorkerBehaviour,
};

/// The rule by which events are meant for workers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    Anybody,
    DataId,
    Member { of: u16 },
    Mixed { of: u16 },
    At(EligibleWorkers),
}

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) senders: usize,
    pub(super) behind_lb: bool,
    pub(super) reassembly: reassembly::Config,
    pub(super) dispatch: bridge::Config,
    pub(super) aim: Aim,
    pub(super) members: u16,
    /// The time (ns) between calls of the dispatcher's clock.
    pub(super) tick: u64,
    /// The workers, each with the time at which it subscribes.
    pub(super) behaviours: Vec<(u64, WorkerBehaviour)>,
}

impl Setting {
    pub(super) fn draw(r: &mut Random, seed: u64) -> Self {
        let (senders, behind_lb) = (r.range(1..=3) as usize, r.chance(300_000));
        let slots = r.pick(&[4, 64, 256]) as u32;
        let max_open = slots.div_ceil(r.range(1..=4) as u32);
        let members = r.range(1..=3) as u16;
        let most_data_id = senders as u16 - 1;
        let behaviours = (0..r.below(6)).map(|_| {
            let joins = r.pick(&[0, 0, 100 * US, 2 * MS]);
            (joins, WorkerBehaviour::draw(r, joins, most_data_id, members))
        });
        let behaviours = behaviours.collect();
        let dispatch = dispatch(r);
        let shortest = dispatch.hold.min(dispatch.stall).min(dispatch.silence);
        Self {
            senders,
            behind_lb,
            reassembly: draw_config(r, slots, max_open, behind_lb, seed),
            tick: (shortest.as_nanos() as u64 / 10).max(100 * US),
            dispatch,
            aim: r.pick(&[
                Aim::Anybody,
                Aim::DataId,
                Aim::Member { of: members },
                Aim::Mixed { of: members },
            ]),
            members,
            behaviours,
        }
    }
}

fn dispatch(r: &mut Random) -> bridge::Config {
    let mut time = |nanos: &[u64]| Duration::from_nanos(r.pick(nanos));
    let (hold, stall) = (time(&[200 * US, 5 * MS, 500 * MS]), time(&[MS, 20 * MS, 500 * MS]));
    let silence = time(&[500 * US, 10 * MS, 100 * MS]);
    bridge::Config {
        pressure: r.pick(&[BackPressure::Hold, BackPressure::DropNewest, BackPressure::DropOldest]),
        max_workers: r.pick(&[1, 3, 8, 8]),
        most_waiting: r.pick(&[0, 1, 4, 32, 256]),
        hold,
        redelivery_bytes: r.pick(&[0, 1 << 16, 1 << 30, 1 << 30]),
        max_redeliveries: r.pick(&[0, 1, 2, 2]) as u32,
        stall,
        silence,
        max_traces: r.pick(&[1, 1024, 1024]),
    }
}
