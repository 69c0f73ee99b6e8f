//! What a seed draws: planes, senders and workers, and what goes wrong.

use ejfat_control::{plane::PlaneKind, reservation::Strategy};
use simnet::Random;

use super::{MS, S};

/// How the rate of a load balancer's senders goes on, after it was steady for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rates {
    #[default]
    Steady,
    /// The rate is less than twice as high from then on.
    Faster,
    /// Nothing is sent for some seconds; then ticks go on where they were.
    Pause,
    /// Nothing is sent for some seconds; ticks are a clock and have gone on.
    ClockPause,
    /// The rate is ten times as high from then on.
    TenTimes,
    /// The clock that ticks are made from is set back, or the counter begins again.
    Back,
    /// The clock that ticks are made from is set forward.
    Forward,
}

/// What happens to data planes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PlaneFault {
    #[default]
    None,
    /// Some answers take up to a second and a half.
    Late,
    /// It stops, and comes back without any tables.
    Dies,
    /// The connection to it ends, and packets go on to flow.
    Disconnects,
}

/// What becomes of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerOutcome {
    #[default]
    Stays,
    Dies,
    Leaves,
    /// It dies and registers again later, with the same address.
    Returns,
    /// It is not ready for some seconds.
    Pauses,
    /// It takes a fifth of the events from then on.
    Slows,
}

/// What the person who reserved a load balancer does during the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Deed {
    #[default]
    None,
    /// Frees the load balancer, and reserves it again later.
    Frees,
    /// Resets parts of the load balancer's state.
    Resets {
        sync: bool,
        epochs: bool,
        /// All senders are removed, and are added again later.
        senders: bool,
        /// All sessions end, and the workers register again.
        workers: bool,
    },
    /// Removes the first sender, and adds it again later.
    RemovesSender,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WorkerPlan {
    pub(super) lb: usize,
    /// Events per second that it can take.
    pub(super) capacity: f64,
    /// How many events it counts for each that it got.
    pub(super) counts: u64,
    pub(super) registers: u64,
    /// The slots that the worker demands: the first one and their number. `None` with a dynamic calendar, which takes no demands.
    pub(super) demands: Option<(u32, u32)>,
    pub(super) outcome: WorkerOutcome,
    pub(super) outcome_at: u64,
    pub(super) lasts: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StreamPlan {
    /// Events per second.
    pub(super) rate: f64,
    /// Ticks from event to event.
    pub(super) step: u64,
    pub(super) first_tick: u64,
    pub(super) segments: u32,
    /// Programs that send parts of each event, from addresses of their own.
    pub(super) senders: usize,
    pub(super) rates: Rates,
    pub(super) changes_at: u64,
    /// One sync in so many is lost, in parts of a million.
    pub(super) lost_syncs: u32,
    /// Somebody sends syncs with the address of a sender.
    pub(super) forges: bool,
    pub(super) strategy: Strategy,
    pub(super) deed: Deed,
    pub(super) deed_at: u64,
    pub(super) deed_lasts: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) ends: u64,
    /// Slots of a calendar.
    pub(super) slots: u32,
    pub(super) planes: Vec<PlaneKind>,
    pub(super) plane_fault: PlaneFault,
    pub(super) fault_at: u64,
    pub(super) fault_lasts: u64,
    /// Whether segments of one event go through several planes.
    pub(super) sprays: bool,
    pub(super) streams: Vec<StreamPlan>,
    pub(super) workers: Vec<WorkerPlan>,
    /// When the control plane dies and begins again from the store.
    pub(super) restarts_at: Option<u64>,
    /// How late workers' states come at most.
    pub(super) state_delay: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let r = &mut Random::new(seed, 60);
        let mut planes: Vec<_> = (0..r.range(1..=3)).map(|_| PlaneKind::Staged).collect();
        if r.chance(150_000) {
            planes = vec![PlaneKind::RuleByRule];
        } else if r.chance(150_000) {
            planes.push(PlaneKind::RuleByRule);
        }
        let plane_fault = match r.below(10) {
            0 => PlaneFault::Late,
            1 => PlaneFault::Dies,
            2 => PlaneFault::Disconnects,
            _ => PlaneFault::None,
        };
        let streams: Vec<_> = (0..r.range(1..=2)).map(|_| StreamPlan::draw(r)).collect();
        let mut workers = Vec::new();
        for (lb, stream) in streams.iter().enumerate() {
            for n in 0..r.range(1..=5) {
                let outcome = match r.below(7) {
                    // Somebody has to stay.
                    _ if n == 0 => WorkerOutcome::Stays,
                    0 => WorkerOutcome::Dies,
                    1 => WorkerOutcome::Leaves,
                    2 => WorkerOutcome::Returns,
                    3 => WorkerOutcome::Pauses,
                    4 => WorkerOutcome::Slows,
                    _ => WorkerOutcome::Stays,
                };
                let is_dynamic = stream.strategy == Strategy::Dynamic;
                let demands = r.chance(700_000).then(|| (12 * n as u32, r.range(1..=12) as u32));
                workers.push(WorkerPlan {
                    lb,
                    demands: demands.filter(|_| !is_dynamic),
                    capacity: r.pick(&[30.0, 100.0, 300.0, 1000.0]),
                    counts: r.pick(&[1, 1, 1, 1, 0, 3]),
                    registers: if n == 0 { 0 } else { r.range(0..=10) * S },
                    outcome,
                    outcome_at: r.range(11_000..=20_000) * MS,
                    lasts: r.range(3_000..=9_000) * MS,
                });
            }
        }
        Self {
            ends: 34 * S,
            slots: 64,
            planes,
            plane_fault,
            fault_at: r.range(9_000..=18_000) * MS,
            fault_lasts: r.range(50..=6_000) * MS,
            sprays: r.chance(500_000),
            streams,
            workers,
            restarts_at: r.chance(150_000).then(|| r.range(9_000..=20_000) * MS),
            state_delay: r.pick(&[20, 20, 300]) * MS,
        }
    }

    /// A slow worker, a newcomer, a death, and a clock that is set back.
    pub(super) fn to_draw() -> Self {
        let worker = |capacity: f64| WorkerPlan { capacity, counts: 1, ..WorkerPlan::default() };
        let workers = vec![
            worker(2000.0),
            WorkerPlan { outcome: WorkerOutcome::Dies, outcome_at: 50 * S, ..worker(2000.0) },
            WorkerPlan { outcome: WorkerOutcome::Slows, outcome_at: 15 * S, ..worker(1000.0) },
            WorkerPlan { registers: 32 * S, ..worker(2000.0) },
        ];
        let stream = StreamPlan {
            rate: 4000.0,
            step: 1,
            first_tick: 1 << 50,
            segments: 1,
            senders: 1,
            rates: Rates::Back,
            changes_at: 70 * S,
            ..StreamPlan::default()
        };
        Self {
            ends: 90 * S,
            slots: 512,
            planes: vec![PlaneKind::Staged],
            streams: vec![stream],
            workers,
            state_delay: 20 * MS,
            ..Self::default()
        }
    }

    /// Whether no event may be split: planes answer in time, the control plane lives, no rate is above what is allowed
    /// for, and nobody forges syncs where boundaries depend on them.
    pub(super) fn is_calm(&self) -> bool {
        let forges = self.streams.iter().any(|stream| stream.forges);
        let by_ticks = self.planes.iter().all(|kind| *kind == PlaneKind::Staged);
        self.plane_fault == PlaneFault::None
            && (by_ticks || !forges)
            && self.restarts_at.is_none()
            && self.streams.iter().all(StreamPlan::is_calm)
    }

    /// Whether a worker that is gone gets no events after a short time.
    pub(super) fn is_prompt(&self) -> bool {
        self.is_calm()
            && self.planes.iter().all(|kind| *kind == PlaneKind::Staged)
            && self.streams.iter().all(|stream| stream.rates == Rates::Steady)
    }
}

impl Deed {
    fn draw(r: &mut Random) -> Self {
        let mut flag = || r.chance(500_000);
        let resets = Self::Resets { sync: flag(), epochs: flag(), senders: flag(), workers: flag() };
        match r.below(10) {
            0 => Self::Frees,
            1 => resets,
            2 => Self::RemovesSender,
            _ => Self::None,
        }
    }

    /// Whether this deed may split no event. An operator who resets epochs is told which events the reset may split.
    fn is_calm(self) -> bool {
        !matches!(self, Self::Resets { epochs: true, .. })
    }
}

impl StreamPlan {
    /// Whether no event of this load balancer may be split. With an explicit calendar planes drop events of slots without a worker,
    /// and do not tell their ticks, so boundaries may be too low.
    fn is_calm(&self) -> bool {
        let calm = [Rates::Steady, Rates::Faster, Rates::Pause];
        calm.contains(&self.rates) && self.deed.is_calm() && self.strategy != Strategy::Explicit
    }

    fn draw(r: &mut Random) -> Self {
        let rates = match r.below(11) {
            0 => Rates::Faster,
            1 => Rates::Pause,
            2 => Rates::ClockPause,
            3 => Rates::TenTimes,
            4 => Rates::Back,
            5 => Rates::Forward,
            _ => Rates::Steady,
        };
        Self {
            rate: r.pick(&[20.0, 100.0, 200.0]),
            step: r.pick(&[1, 1, 1000, 2503]),
            first_tick: r.pick(&[0, 1, 1 << 20, 1 << 50]),
            segments: r.range(1..=3) as u32,
            senders: r.range(1..=2) as usize,
            rates,
            changes_at: r.range(12_000..=16_000) * MS,
            lost_syncs: r.pick(&[0, 100_000]),
            forges: r.chance(200_000),
            strategy: r.pick(&[Strategy::Dynamic, Strategy::Dynamic, Strategy::Static, Strategy::Explicit]),
            deed: Deed::draw(r),
            deed_at: r.range(11_000..=18_000) * MS,
            deed_lasts: r.range(300..=3_000) * MS,
        }
    }
}
