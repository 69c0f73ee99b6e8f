//! The part of all events that each worker of a load balancer is to have, from what workers report and planes count.
//!
//! The controller measures capacities. It does not steer fill levels: a fill level is the sum of what came and was not
//! taken, and a controller that sums it again oscillates. A worker's capacity is the rate at which its program takes
//! events while it has a backlog; where the worker counts no events, that follows from the events that it gets and the
//! growth of its fill level. A worker without a backlog has at least the capacity for what it gets. Fill levels only
//! correct the shares a little.
//!
//! A worker that is overloaded beyond what it can report, as E2SAR's are with a fill level above 1, is silent; its
//! share then falls until it reports again. This works while the others can take its part: at high loads they become
//! overloaded in turn. A worker that counts nothing and stands still cannot be told from one that is slow.
//!
//! # Units
//! Workers count events and planes count packets. Capacities are in events per second, and a share is a capacity
//! divided by the rate of all events. That rate is the planes' packets per second times the events for each packet: the
//! middle one of the workers' ratios of events to packets over some 20 s, so that a few workers that lose or invent
//! events do not matter. As long as no worker has counted events, the senders' ticks stand for events, and packets if
//! there are no ticks. A wrong ratio changes all capacities alike, so it does not matter once all capacities are
//! measured.
//!
//! # Control signals
//! A worker that sends a control signal other than 0 is taken at its word: each second the signal is added to its
//! weight, where 1000 is the mean weight of all workers, as udplbd2 does. A weight at most doubles or halves within a
//! period, and stays positive.

mod bounds;
mod estimate;
mod report;
mod shares;
mod traffic;
mod worker;

use std::{collections::BTreeMap, time::Duration};

use ejfat::Time;

use self::{
    bounds::{bounds, loosen},
    estimate::Capacity,
    shares::{Claim, normalize, shares},
    traffic::{PERIODS, median},
    worker::{Work, Worker},
};
pub use self::{
    report::{Counters, Report},
    traffic::PlaneCounters,
    worker::Joining,
};
use crate::{
    calendar::{Demand, MemberId, parts, rounded},
    rate::seconds,
};

/// How old a worker's state usually is at most when its report comes.
pub const DELAY: Duration = Duration::from_millis(500);
/// The time from a decision until its calendar is in force.
const LEAD: Duration = Duration::from_millis(500);
/// The amount by which a fill level of 1 instead of 0 lowers a share. It has to be well below the time in which a queue
/// fills divided by the time until a change shows, or shares oscillate.
const GAIN: f64 = 0.05;
/// A new calendar is due if the slots of a member change by more than this fraction of its present slots, and by more
/// than [`HYSTERESIS_SLOTS`]. It is always due if a member is to get its first slots or to lose all of its slots.
const HYSTERESIS: f64 = 0.03;
/// This change of a member's slots is computed before rounding, so it may be below 1.
const HYSTERESIS_SLOTS: f64 = 0.6;
/// The fraction of its weight ([`Joining::weight`]) with which a newcomer begins, when it is ready for the first time.
const RAMP_FROM: f64 = 1.0 / 16.0;
/// This fraction doubles in each period of this length, until it is 1 or the newcomer's capacity is known.
const RAMP: Duration = Duration::from_secs(2);
/// The number of events in a full queue, for workers that do not count the events that their program takes. E2SAR's
/// queue has room for 1000 events.
const QUEUE: f64 = 1000.0;

/// How long counters have to disagree with the planes'.
const CONTRADICTS: Duration = Duration::from_secs(10);
/// A worker's events for each packet may differ from those of others by this factor.
const AGREES: f64 = 2.0;
/// An event has one packet at least; reports and counters of planes are not of the same time.
const POSSIBLE: f64 = 1.1;
/// The time within which fill levels show the rates.
const OBSERVED: Duration = Duration::from_secs(1);

/// Something that a person should look at. It is told in each period in which it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alarm {
    /// The worker has a backlog and takes no events. It gets one slot, by which it is found out when it takes some
    /// again.
    Stopped {
        /// The number of the worker in the tables of its load balancer.
        member: MemberId,
    },
    /// The planes sent packets to the worker, and neither its counters nor its fill level changed. The worker gets
    /// about an even share.
    StandsStill {
        /// The number of the worker in the tables of its load balancer.
        member: MemberId,
        /// The number of packets that the planes sent to the worker since its counters or its fill level last changed.
        /// The count also begins again after a period in which the planes sent no packets to the worker.
        packets: u64,
    },
    /// The worker counts far more or far fewer events for each packet than most workers do. A worker that counts more
    /// gets about an even share.
    Contradicts {
        /// The number of the worker in the tables of its load balancer.
        member: MemberId,
        /// The number of events that the worker counted, divided by the number of packets that the planes sent to it.
        ratio: f64,
        /// The ratio of events to packets that the controller uses for all workers. This is the median of the workers'
        /// ratios, without ratios above 1.1. If no worker has a ratio up to 1.1, the controller uses the ratio of ticks
        /// to packets, or 1 if the ticks are unknown.
        others: f64,
    },
    /// The least factors of all workers need more slots than the calendar has. The factors are lowered in proportion.
    LeastFactors,
    /// The greatest factors of all workers allow fewer slots than the calendar has. The factors are raised in
    /// proportion.
    GreatestFactors,
}

/// The decision of the controller at the end of a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The number of slots of each member that is to get events. Empty if no member is to get events.
    pub wanted: Vec<(MemberId, u32)>,
    /// True if the wanted slots differ enough from the present slots for a new calendar.
    pub is_due: bool,
    /// Each alarm that holds in this period. Empty if there is none.
    pub alarms: Vec<Alarm>,
}

/// Controls the shares of one load balancer's workers.
#[derive(Debug)]
pub struct Controller {
    /// The number of slots of a calendar, a power of two.
    slots: u32,
    /// How old a worker's state may be when its report comes.
    delay: Duration,
    workers: BTreeMap<MemberId, Worker>,
    /// When the newest period ended.
    period: Option<Time>,
    /// Events per second of all workers, in the newest period that had some.
    rate: f64,
    /// When fill levels were used last as the only sign of capacities.
    acted: Time,
    /// Whether a member has left that has slots.
    has_left: bool,
}

impl Controller {
    /// A controller without workers, of calendars with so many slots. `delay` is how old a worker's state may be when
    /// its report comes, usually [`DELAY`].
    pub fn new(slots: u32, delay: Duration) -> Self {
        let workers = BTreeMap::new();
        Self { slots, delay, workers, period: None, rate: 0.0, acted: Time::default(), has_left: false }
    }

    /// Adds a worker. It gets events once a report says that it is ready. Returns `false`, and does nothing, if the
    /// member has joined, or if there are as many members as slots.
    pub fn join(&mut self, member: MemberId, joining: Joining, now: Time) -> bool {
        let may_join = !self.workers.contains_key(&member) && self.workers.len() < self.slots as usize;
        if may_join {
            self.workers.insert(member, Worker::new(joining, now));
        }
        may_join
    }

    /// Forgets a worker. Returns whether it had joined.
    pub fn leave(&mut self, member: MemberId) -> bool {
        let left = self.workers.remove(&member);
        self.has_left |= left.as_ref().is_some_and(|worker| worker.present > 0);
        left.is_some()
    }

    /// Takes a report that came at `now`, which does not go back. It counts only if the member has joined.
    pub fn report(&mut self, member: MemberId, now: Time, report: &Report) {
        let measures_growth = now >= self.acted + self.delay + LEAD;
        if let Some(worker) = self.workers.get_mut(&member) {
            worker.report(now, report, measures_growth);
        }
    }

    /// Treats the member's worker as ready, although it has reported nothing since the control plane was started again.
    /// Until its capacity is known it gets `share`, where 1 is an even share of all members.
    pub fn restore(&mut self, member: MemberId, share: f64) {
        if let Some(worker) = self.workers.get_mut(&member) {
            worker.restored = Some(share);
        }
    }

    /// Takes it that the member's worker is not ready, until a report says that it is.
    pub fn suspend(&mut self, member: MemberId) {
        let Some(worker) = self.workers.get_mut(&member) else { return };
        worker.restored = None;
        if let Some((_, report)) = &mut worker.newest {
            report.is_ready = false;
        }
    }

    /// Says how many slots each member has from now on; others have none.
    pub fn published(&mut self, slots: &[(MemberId, u32)]) {
        self.has_left = false;
        self.workers.values_mut().for_each(|worker| worker.present = 0);
        for (member, count) in slots {
            if let Some(worker) = self.workers.get_mut(member) {
                worker.present = *count;
            }
        }
    }

    /// The slots of a calendar.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Ends a period, which should be one second long.
    pub fn next(&mut self, now: Time, planes: &PlaneCounters<'_>) -> Decision {
        let period =
            self.period.map_or(OBSERVED, |before| Duration::from_nanos(now.0.saturating_sub(before.0)));
        let period = period.max(Duration::from_millis(1));
        self.period = Some(now);
        let mut alarms = Vec::new();
        let ratio = self.count(now, planes, period, &mut alarms);
        let acts = now >= self.acted + self.delay + LEAD + OBSERVED;
        self.learn(now, ratio, period, acts);
        let (mut demands, running) = self.demands(now, ratio, &mut alarms);
        if demands.is_empty() {
            let is_due = self.has_left || self.workers.values().any(|worker| worker.present > 0);
            return Decision { wanted: Vec::new(), is_due, alarms };
        }
        loosen(self.slots, &mut demands, running, &mut alarms);
        let parts = parts(self.slots, &demands).expect("loosened bounds can be met");
        let is_due = self.is_due(&demands, &parts, acts);
        let slots = rounded(self.slots, &demands, parts);
        let mut wanted: Vec<_> = demands.iter().map(|demand| demand.member).zip(slots).collect();
        wanted.sort_unstable();
        if acts {
            self.acted = now;
        }
        Decision { wanted, is_due, alarms }
    }

    /// Ends the period of all counters. Returns the events for each packet.
    fn count(
        &mut self,
        now: Time,
        planes: &PlaneCounters<'_>,
        period: Duration,
        alarms: &mut Vec<Alarm>,
    ) -> f64 {
        let counters: BTreeMap<MemberId, u64> = planes.packets.iter().copied().collect();
        for (member, worker) in &mut self.workers {
            let packets = worker.sent.period(counters.get(member).copied(), period);
            if packets == 0 {
                worker.moved = now;
            }
            let since = seconds(worker.moved, now);
            worker.unmoved =
                if since < period.as_secs_f64() { 0 } else { worker.unmoved.saturating_add(packets) };
            if worker.stands_still(now, self.delay) {
                alarms.push(Alarm::StandsStill { member: *member, packets: worker.unmoved });
            }
        }
        let packets: f64 = self.workers.values().map(|worker| worker.sent.rate()).sum();
        let mut ratios: Vec<f64> = self
            .workers
            .values()
            .filter_map(|worker| worker.sent.ratio())
            .filter(|ratio| *ratio <= POSSIBLE)
            .collect();
        let has_ticks = planes.ticks.is_finite() && planes.ticks > 0.0;
        let by_ticks = || (has_ticks && packets > 0.0).then(|| planes.ticks / packets);
        let ratio = median(&mut ratios).or_else(by_ticks).unwrap_or(1.0);
        for (member, worker) in &mut self.workers {
            // A program may take far fewer events than come.
            let least = if worker.counts_arrivals() { ratio / AGREES } else { 0.0 };
            match worker.sent.ratio() {
                Some(own) if !(least..=ratio * AGREES).contains(&own) => {
                    if now >= worker.agreed + CONTRADICTS {
                        alarms.push(Alarm::Contradicts { member: *member, ratio: own, others: ratio });
                    }
                }
                _ => worker.agreed = now,
            }
        }
        if packets > 0.0 {
            self.rate = packets * ratio;
        }
        ratio
    }

    /// Turns what was reported since the last period into capacities.
    fn learn(&mut self, now: Time, ratio: f64, period: Duration, acts: bool) {
        // A report of the newest period may tell of the one before, and so on.
        let shown = (self.delay + OBSERVED).as_secs_f64() / period.as_secs_f64();
        let periods = (shown.ceil() as usize).clamp(1, PERIODS);
        for worker in self.workers.values_mut() {
            let Work { events, seconds, .. } = worker.work;
            (worker.work.events, worker.work.seconds) = (0.0, 0.0);
            worker.estimate.observe(now, events, seconds);
            if worker.is_idle(now) {
                worker.estimate.carried_idle(now, ratio * worker.sent.least_rate(periods));
            }
        }
        if acts {
            self.learn_from_fill(now, ratio);
        }
    }

    /// Turns the growth of fill levels into capacities of those workers that count nothing.
    fn learn_from_fill(&mut self, now: Time, ratio: f64) {
        let ready = || self.workers.values().filter(|worker| worker.is_ready());
        let is_full = |worker: &Worker| worker.work.full > 0 && worker.work.not_full == 0;
        let all_are_full = ready().all(is_full);
        let is_measured = |worker: &Worker| matches!(worker.estimate.capacity, Capacity::Measured(_));
        let all: f64 = ready().filter_map(|worker| worker.estimate.capacity.rate()).sum();
        let all_are_loaded = ready().all(is_measured) && all < 0.97 * self.rate;
        for worker in self.workers.values_mut() {
            let work = worker.work;
            if worker.reports_fill_only {
                let carried = ratio * worker.sent.rate();
                if work.growing > 0.0 {
                    let events = carried * work.growing - QUEUE * work.growth;
                    worker.estimate.observe(now, events, work.growing);
                } else if is_full(worker) && !all_are_full && !all_are_loaded {
                    worker.estimate.halve(now, carried);
                }
            }
            worker.work = Work { events: work.events, seconds: work.seconds, ..Work::default() };
        }
    }

    /// Returns what each ready worker is to get. Workers that have stopped come last; the number is how many workers
    /// come before them.
    fn demands(&mut self, now: Time, ratio: f64, alarms: &mut Vec<Alarm>) -> (Vec<Demand>, usize) {
        let ready: Vec<_> = self.workers.iter().filter(|(_, worker)| worker.is_ready()).collect();
        let (mut probes, mut running): (Vec<_>, Vec<_>) =
            ready.iter().copied().partition(|(_, worker)| worker.has_stopped());
        alarms.extend(probes.iter().map(|(member, _)| Alarm::Stopped { member: **member }));
        if running.is_empty() {
            // If all have stopped, none can take what another gives up.
            std::mem::swap(&mut probes, &mut running);
        }
        let known = || running.iter().filter_map(|(_, worker)| worker.estimate.capacity.rate());
        // Without counters of planes, the workers' capacities are known only in relation to each other.
        let rate = if self.rate > 0.0 { self.rate } else { known().sum::<f64>().max(1.0) };
        let even = 1.0 / running.len().max(1) as f64;
        let signalled: Vec<_> = running.iter().map(|(_, worker)| worker.signalled(now, even)).collect();
        let claim = |(worker, signalled): (&Worker, &Option<f64>)| {
            if let Some(part) = signalled {
                return Claim::Measured(*part);
            }
            // A worker whose counters cannot be true gets an even share, and not a share of what others leave.
            let counts_too_much = now >= worker.agreed + CONTRADICTS
                && worker.sent.ratio().is_some_and(|own| own > ratio * AGREES);
            if counts_too_much || worker.stands_still(now, self.delay) {
                return Claim::Measured(even);
            }
            match worker.estimate.capacity {
                Capacity::Measured(events) => Claim::Measured(events / rate),
                Capacity::AtLeast(events) => Claim::AtLeast(events / rate),
                Capacity::Unknown => {
                    let age = worker.begun.map_or(0.0, |begun| seconds(begun, now));
                    let ramp = RAMP_FROM * (age / RAMP.as_secs_f64()).exp2();
                    Claim::Unknown(worker.restored.unwrap_or(ramp.min(1.0) * worker.joining.weight))
                }
            }
        };
        let workers = running.iter().map(|(_, worker)| *worker);
        let mut parts = shares(&workers.clone().zip(&signalled).map(claim).collect::<Vec<_>>());
        let fills: Vec<_> = workers.map(|worker| worker.fill(now)).collect();
        let mean: f64 = fills.iter().zip(&parts).map(|(fill, part)| fill * part).sum();
        for (((_, worker), part), (fill, signalled)) in
            running.iter().zip(&mut parts).zip(fills.iter().zip(&signalled))
        {
            if signalled.is_none() {
                *part *= (-GAIN * (fill - mean)).exp() * worker.relief(now);
            }
        }
        normalize(&mut parts);
        let even_slots = f64::from(self.slots) / ready.len().max(1) as f64;
        let bounded = |((member, worker), weight): (&(&MemberId, &Worker), &f64)| {
            let Joining { least_factor, greatest_factor, .. } = worker.joining;
            let (least, most) = bounds(self.slots, even_slots, least_factor, greatest_factor);
            Demand { member: **member, weight: *weight, least, most }
        };
        let mut demands: Vec<_> = running.iter().zip(&parts).map(bounded).collect();
        demands.extend(probes.iter().map(|(member, _)| Demand {
            member: **member,
            weight: 0.0,
            least: 1,
            most: 1,
        }));
        for demand in &demands[..parts.len()] {
            if let Some(worker) = self.workers.get_mut(&demand.member) {
                worker.share = demand.weight;
            }
        }
        (demands, parts.len())
    }

    /// Whether these parts of all slots differ from the present slots by more than the hysteresis.
    fn is_due(&self, demands: &[Demand], parts: &[f64], acts: bool) -> bool {
        let present = |member: MemberId| self.workers[&member].present;
        let is_left_out = |(member, worker): (&MemberId, &Worker)| {
            worker.present > 0 && demands.iter().all(|demand| demand.member != *member)
        };
        let is_new = |demand: &Demand| present(demand.member) == 0;
        if self.has_left || demands.iter().any(is_new) || self.workers.iter().any(is_left_out) {
            return true;
        }
        // Fill levels show a new rate only after a while, and nothing else may change meanwhile.
        if !acts && self.workers.values().any(|worker| worker.is_ready() && worker.reports_fill_only) {
            return false;
        }
        demands.iter().zip(parts).any(|(demand, part)| {
            let present = f64::from(present(demand.member));
            let bound = (HYSTERESIS * present).max(HYSTERESIS_SLOTS);
            (part - present).abs() > bound
        })
    }
}
