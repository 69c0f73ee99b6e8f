//! One worker: its reports, and what follows from them.

use std::time::Duration;

use ejfat::Time;

use super::{Report, estimate::Estimate, report::dequeued, traffic::Sent};
use crate::rate::seconds;

/// The fill level above which a worker has a backlog. Workers with short queues and a few waiting events were without
/// any in between two reports too often at 0.02, so that their capacity was taken to be too low.
const BACKLOG: f64 = 0.05;
/// The fill level from which a queue counts as full.
const FULL: f64 = 0.98;
/// E2SAR sends no report while its fill level is above 1. No report for this time after a fill level above this one
/// counts so.
const SILENT: Duration = Duration::from_millis(500);
const FILLED: f64 = 0.5;
/// The number of seconds for which the share of a silent worker falls.
const LONGEST_SILENCE: f64 = 10.0;
/// Reports that come closer together than this were held up together, and are taken as one.
const TOGETHER: Duration = Duration::from_millis(20);
/// The usual seconds between reports.
const USUAL: f64 = 0.1;
/// Fill levels of reports that are further apart than this say nothing of what happened in between.
const APART: f64 = 0.5;
/// Reports that are further apart than this are not compared.
const TOO_FAR_APART: f64 = 30.0;
/// A worker was idle if it had no backlog for so long.
const IDLE: Duration = Duration::from_secs(1);
/// A worker to which packets were sent for so long, and of which nothing moved, tells nothing.
const STANDS_STILL: Duration = Duration::from_secs(5);
/// A worker that counts events, has a backlog and takes no event for this time gets only one slot, unless this is so
/// for all workers.
const STOPPED: Duration = Duration::from_secs(2);
/// A worker that sent no signal but 0 for so long is controlled by its counters again.
const SIGNALS_END: Duration = Duration::from_secs(10);
/// A signal changes a weight by this factor at most within a period, and a weight stays above this part of the mean
/// one.
const SIGNAL_FACTOR: f64 = 2.0;
const LEAST_SIGNALLED: f64 = 0.01;

/// What a worker asks for when it joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joining {
    /// The weight of the worker as long as its capacity is not known, above 0 and at most 1000. The weight 1 stands for
    /// an equal part of the events that workers with a known capacity leave, or for an even share if that is more.
    pub weight: f64,
    /// The least share of the worker, as a factor of an even share. It has to be finite and not negative. Even with a
    /// factor of 0 a worker that is ready has at least one slot.
    pub least_factor: f64,
    /// The greatest share of the worker, as a factor of an even share; 0 means no limit. It has to be finite, and
    /// either 0 or not below [`least_factor`](Joining::least_factor).
    pub greatest_factor: f64,
}

/// The report that the next one is compared with.
#[derive(Clone, Copy, Debug)]
struct Base {
    came: Time,
    report: Report,
    /// Whether it may have been held up, and the long time before it was not used. The time behind it is too short
    /// then, and not used either.
    is_late: bool,
}

/// What a worker's reports said of its work since the last time that this was used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Events taken, and seconds, while it had a backlog.
    pub(super) events: f64,
    pub(super) seconds: f64,
    /// By how much its fill level grew while it was neither empty nor full, and the seconds of that.
    pub(super) growth: f64,
    pub(super) growing: f64,
    /// Reports with a full queue, and others.
    pub(super) full: u32,
    pub(super) not_full: u32,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) joining: Joining,
    /// When it was ready for the first time.
    pub(super) begun: Option<Time>,
    /// The share that the worker had before the control plane was started again, where 1 is an even share. While this
    /// is set, the worker counts as ready without a report; it is cleared as soon as the worker is not ready.
    pub(super) restored: Option<f64>,
    pub(super) newest: Option<(Time, Report)>,
    base: Option<Base>,
    pub(super) work: Work,
    /// Whether it counts no events and has a fill level.
    pub(super) reports_fill_only: bool,
    pub(super) estimate: Estimate,
    /// When it last had a backlog.
    backlog: Time,
    /// When its program last took an event, or had none to take.
    consumed: Time,
    /// The events that it took in all, and the most that this ever was: where it is a difference of counters that were
    /// not read at the same time, it goes up and down a little.
    taken: f64,
    most_taken: f64,
    /// When a counter or the fill level last moved, or the planes sent it nothing.
    pub(super) moved: Time,
    /// The packets that were sent since then.
    pub(super) unmoved: u64,
    /// When its counters last agreed with the planes'.
    pub(super) agreed: Time,
    pub(super) sent: Sent,
    /// When it last sent a signal that is not 0.
    signalled: Option<Time>,
    /// The slots that it has.
    pub(super) present: u32,
    /// The share that it was to have in the newest period, before bounds.
    pub(super) share: f64,
}

impl Worker {
    pub(super) fn new(joining: Joining, now: Time) -> Self {
        Self {
            joining,
            begun: None,
            restored: None,
            newest: None,
            base: None,
            work: Work::default(),
            reports_fill_only: false,
            estimate: Estimate::default(),
            backlog: now,
            consumed: now,
            taken: 0.0,
            most_taken: 0.0,
            moved: now,
            unmoved: 0,
            agreed: now,
            sent: Sent::default(),
            signalled: None,
            present: 0,
            share: 0.0,
        }
    }

    /// Takes a report. `measures_growth` says whether the growth of the fill level belongs to the present rates.
    pub(super) fn report(&mut self, now: Time, report: &Report, measures_growth: bool) {
        if report.is_ready && self.begun.is_none() {
            (self.begun, self.moved, self.agreed) = (Some(now), now, now);
        }
        if report.counters.count() {
            self.reports_fill_only = false;
        } else if report.fill > 0.0 {
            self.reports_fill_only = true;
        }
        if report.control_signal != 0.0 {
            self.signalled = Some(now);
        }
        if report.fill > BACKLOG {
            self.backlog = now;
        } else {
            (self.consumed, self.most_taken) = (now, self.taken);
        }
        match self.base {
            Some(base) => self.compare(now, &base, report, measures_growth),
            None => self.begin(now, report, false),
        }
        self.newest = Some((now, *report));
    }

    fn begin(&mut self, now: Time, report: &Report, is_late: bool) {
        self.base = Some(Base { came: now, report: *report, is_late });
    }

    fn compare(&mut self, now: Time, base: &Base, report: &Report, measures_growth: bool) {
        let before = &base.report;
        if !report.counters.follow(&before.counters) {
            // The worker began again.
            (self.consumed, self.moved) = (now, now);
            return self.begin(now, report, false);
        }
        if now < base.came + TOGETHER {
            return;
        }
        if report.counters != before.counters || report.fill != before.fill {
            self.moved = now;
        }
        self.sent.add_arrived(report.counters.arrived().saturating_sub(before.counters.arrived()));
        let events = dequeued(before, report);
        self.taken += events;
        if self.taken >= self.most_taken + 0.5 {
            (self.most_taken, self.consumed) = (self.taken, now);
        }
        let seconds = seconds(base.came, now);
        // The further apart reports are, the fuller a queue has to be to have been so in between, too.
        let needed = (BACKLOG * seconds / USUAL).clamp(BACKLOG, FILLED);
        let has_backlog = before.fill.min(report.fill) > needed && seconds <= TOO_FAR_APART && !base.is_late;
        if has_backlog && report.counters.count() {
            self.work.events += events;
            self.work.seconds += seconds;
        }
        if measures_growth && seconds <= APART {
            let grows = |fill: f64| fill > BACKLOG && fill < FULL;
            if grows(before.fill) && grows(report.fill) {
                self.work.growth += report.fill - before.fill;
                self.work.growing += seconds;
            }
            let count = if report.fill > FULL { &mut self.work.full } else { &mut self.work.not_full };
            *count += 1;
        }
        let is_late = seconds > 2.0 * USUAL && !has_backlog && !base.is_late;
        self.begin(now, report, is_late);
    }

    pub(super) fn counts_arrivals(&self) -> bool {
        self.newest.is_some_and(|(_, report)| report.counters.count_arrivals())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.newest.map_or(self.restored.is_some(), |(_, report)| report.is_ready)
    }

    /// When a worker became silent whose last fill level was high. That means a fill level above 1.
    fn silent_since(&self, now: Time) -> Option<Time> {
        let (came, report) = self.newest?;
        (report.fill > FILLED && now > came + SILENT).then_some(came + SILENT)
    }

    /// The fill level of the newest report, or 1 where the worker's silence means that.
    pub(super) fn fill(&self, now: Time) -> f64 {
        match (self.silent_since(now), self.newest) {
            (Some(_), _) => 1.0,
            (None, Some((_, report))) => report.fill,
            (None, None) => 0.0,
        }
    }

    /// The part of its share that a silent worker gets, by which its queue becomes shorter and its reports come again.
    /// It is halved each second, because nobody knows what the worker can take now.
    pub(super) fn relief(&self, now: Time) -> f64 {
        let silent = self.silent_since(now).map(|since| seconds(since, now));
        silent.map_or(1.0, |seconds| (-1.0 - seconds).max(-LONGEST_SILENCE).exp2())
    }

    /// Whether its reports of the last second, of which there are some, say that it had no backlog.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.newest.is_some_and(|(came, _)| now <= came + IDLE) && now >= self.backlog + IDLE
    }

    /// Whether the planes send to it, and its reports do not show that. `delay` is how old its state may be.
    pub(super) fn stands_still(&self, now: Time, delay: Duration) -> bool {
        self.begun.is_some() && now >= self.moved + delay + STANDS_STILL
    }

    /// Whether it has a backlog, and its program took no event of it for long.
    pub(super) fn has_stopped(&self) -> bool {
        let counts = |report: &Report| report.counters.count() && report.fill > BACKLOG;
        self.newest.is_some_and(|(came, report)| counts(&report) && came >= self.consumed + STOPPED)
    }

    /// The part of all events that it wants by its control signal. `None` if it sends none.
    pub(super) fn signalled(&self, now: Time, even: f64) -> Option<f64> {
        let signalled = self.signalled.filter(|&at| now <= at + SIGNALS_END);
        let (_, report) = self.newest.filter(|_| signalled.is_some())?;
        let share = if self.share > 0.0 { self.share } else { even * self.joining.weight };
        let wanted = share + report.control_signal / 1000.0 * even;
        let bounded = wanted.clamp(share / SIGNAL_FACTOR, share * SIGNAL_FACTOR);
        Some(bounded.clamp(LEAST_SIGNALLED * even, 1.0))
    }
}
