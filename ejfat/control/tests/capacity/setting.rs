//! Workers with queues, senders and reports in virtual time, which a controller divides events among.

use std::{collections::VecDeque, time::Duration};

use ejfat::Time;
use ejfat_control::{
    calendar::MemberId,
    capacity::{Alarm, Controller, Counters, DELAY, Joining, PlaneCounters, Report},
};
use simnet::Random;

pub(crate) const SLOTS: u32 = 512;
/// Time passes in steps, at the end of which each worker reports.
const STEPS: usize = 10;
const STEP: f64 = 1.0 / STEPS as f64;
/// Packets of an event, of which the controller is not told.
const PACKETS: u64 = 3;

/// How long the program of a worker takes for an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Service {
    Exponential,
    /// Evenly distributed times with a coefficient of variation of 0.3.
    Even,
}

/// What workers tell of themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReportKind {
    Dequeued,
    /// What E2SAR tells with `reportStats`.
    E2sar,
    Fill,
    /// Neither events nor a fill level.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    /// So many seconds of work.
    Seconds(f64),
    Events(u32),
    /// No bound. A fill level of 1 is so many, and a worker with more events sends no report, as with E2SAR.
    Unbounded(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) workers: u16,
    pub(crate) ratio: f64,
    pub(crate) load: f64,
    pub(crate) age: f64,
    pub(crate) service: Service,
    pub(crate) report_kind: ReportKind,
    pub(crate) queue: Queue,
    pub(crate) joining: Joining,
    /// Reports come together so many at a time, and this many seconds apart.
    pub(crate) burst: usize,
    pub(crate) period: f64,
    /// The part of the reports that are lost.
    pub(crate) lost_reports: f64,
    pub(crate) changes_at: usize,
    pub(crate) slots: u32,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            workers: 8,
            ratio: 20.0,
            load: 0.99,
            age: 0.2,
            service: Service::Exponential,
            report_kind: ReportKind::Dequeued,
            queue: Queue::Seconds(0.5),
            joining: Joining { weight: 1.0, least_factor: 0.0, greatest_factor: 0.0 },
            burst: 1,
            period: STEP,
            lost_reports: 0.0,
            changes_at: 40,
            slots: SLOTS,
        }
    }
}

/// A worker's program and its queue.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) rate: f64,
    pub(crate) report_kind: ReportKind,
    /// Whether it takes no events.
    pub(crate) stands: bool,
    /// How many events it counts for each that it has.
    pub(crate) invents: u64,
    /// The events at a fill level of 1, and whether there is no room for more.
    limit: f64,
    is_bounded: bool,
    depth: u32,
    /// When it has done the event that it took last.
    free_at: f64,
    counters: Counters,
    pub(crate) slots: u32,
    packets: u64,
    reports: VecDeque<(f64, Report)>,
}

impl Program {
    fn new(setting: &Setting) -> Self {
        Self {
            rate: 0.0,
            report_kind: setting.report_kind,
            stands: false,
            invents: 1,
            limit: 1.0,
            is_bounded: true,
            depth: 0,
            free_at: 0.0,
            counters: Counters::default(),
            slots: 0,
            packets: 0,
            reports: VecDeque::new(),
        }
    }

    pub(crate) fn set_rate(&mut self, rate: f64, queue: Queue) {
        self.rate = rate;
        self.limit = match queue {
            Queue::Seconds(seconds) => (seconds * rate).max(2.0),
            Queue::Events(events) | Queue::Unbounded(events) => f64::from(events),
        };
        self.is_bounded = !matches!(queue, Queue::Unbounded(_));
    }

    /// The worker begins again with an empty queue and counters at 0.
    pub(crate) fn restart(&mut self) {
        (self.depth, self.counters) = (0, Counters::default());
    }

    pub(crate) fn taken(&self) -> u64 {
        self.counters.dequeued
    }

    pub(crate) fn lost(&self) -> u64 {
        self.counters.enqueue_errors
    }

    fn run(&mut self, from: f64, to: f64, arrivals: f64, service: Service, random: &mut Random) {
        let exponential = |random: &mut Random| -(1.0 - unit(random)).ln();
        let mut arrival = from + exponential(random) / arrivals;
        loop {
            let start = self.free_at.max(from);
            if self.depth > 0 && !self.stands && start < to && start <= arrival {
                self.depth -= 1;
                self.counters.dequeued += 1;
                let work = match service {
                    Service::Exponential => exponential(random),
                    Service::Even => 1.0 + 0.3 * 12_f64.sqrt() * (unit(random) - 0.5),
                };
                self.free_at = start + work / self.rate;
            } else if arrival < to {
                self.packets += PACKETS;
                self.counters.received += 1;
                self.counters.reassembled += 1;
                if !self.is_bounded || f64::from(self.depth) < self.limit.floor() {
                    self.depth += 1;
                    self.free_at = self.free_at.max(if self.depth == 1 { arrival } else { 0.0 });
                } else {
                    self.counters.enqueue_errors += 1;
                }
                arrival += exponential(random) / arrivals;
            } else {
                return;
            }
        }
    }

    fn report(&self) -> Report {
        // A bounded queue may hold more than its limit just after that was lowered.
        let fill = f64::from(self.depth) / self.limit;
        let fill = if self.is_bounded { fill.min(1.0) } else { fill };
        let times = |count: u64| count * self.invents;
        let all = Counters {
            received: times(self.counters.received),
            reassembled: times(self.counters.reassembled),
            reassembly_errors: 0,
            enqueue_errors: times(self.counters.enqueue_errors),
            dequeued: times(self.counters.dequeued),
        };
        let counters = match self.report_kind {
            ReportKind::Dequeued => all,
            ReportKind::E2sar => Counters { received: 0, dequeued: 0, ..all },
            ReportKind::Fill | ReportKind::Nothing => Counters::default(),
        };
        let fill = if self.report_kind == ReportKind::Nothing { 0.0 } else { fill };
        Report { fill, control_signal: 0.0, is_ready: true, counters }
    }
}

/// A number from 0 on and below 1.
pub(crate) fn unit(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

pub(crate) struct Run {
    pub(crate) setting: Setting,
    pub(crate) programs: Vec<Program>,
    pub(crate) controller: Controller,
    pub(crate) random: Random,
    /// Events per second of all senders.
    pub(crate) events: f64,
    pub(crate) second: usize,
    /// Calendars that are not yet in force.
    staged: VecDeque<(f64, Vec<(MemberId, u32)>)>,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) calendars: u32,
}

pub(crate) fn time(seconds: f64) -> Time {
    Time(((100.0 + seconds) * 1e9) as u64)
}

impl Run {
    /// Workers whose rates are evenly spaced on a logarithmic scale, with a mean of 1000 events a second, in any order.
    pub(crate) fn new(setting: Setting, seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let last = f64::from(setting.workers.max(2) - 1);
        let mut rates: Vec<f64> =
            (0..setting.workers).map(|at| setting.ratio.powf(f64::from(at) / last)).collect();
        let scale = 1000.0 * rates.len() as f64 / rates.iter().sum::<f64>();
        rates.iter_mut().for_each(|rate| *rate *= scale);
        for at in (1..rates.len()).rev() {
            rates.swap(at, random.below(at as u64 + 1) as usize);
        }
        let delay = Duration::from_secs_f64(setting.age).max(DELAY);
        let mut run = Self {
            events: setting.load * rates.iter().sum::<f64>(),
            programs: Vec::new(),
            controller: Controller::new(setting.slots, delay),
            random,
            second: 0,
            staged: VecDeque::new(),
            alarms: Vec::new(),
            calendars: 0,
            setting,
        };
        rates.into_iter().for_each(|rate| run.join(rate));
        run
    }

    pub(crate) fn join(&mut self, rate: f64) {
        let member = self.programs.len() as MemberId;
        let now = time(self.second as f64);
        assert!(self.controller.join(member, self.setting.joining, now), "a new member");
        let mut program = Program::new(&self.setting);
        program.set_rate(rate, self.setting.queue);
        self.programs.push(program);
    }

    /// All rates move to other workers.
    fn change(&mut self) {
        let rates: Vec<_> = self.programs.iter().map(|program| program.rate).collect();
        let by = 1 + self.random.below(rates.len() as u64 - 1) as usize;
        for (at, program) in self.programs.iter_mut().enumerate() {
            program.set_rate(rates[(at + by) % rates.len()], self.setting.queue);
        }
    }

    pub(crate) fn second(&mut self) {
        if self.second == self.setting.changes_at {
            self.change();
        }
        for step in 0..STEPS {
            let from = self.second as f64 + step as f64 * STEP;
            self.step(from, from + STEP);
        }
        self.second += 1;
        let packets: Vec<_> =
            (0..).zip(&self.programs).map(|(member, program)| (member, program.packets)).collect();
        let now = self.second as f64;
        // Where workers count events, the rate of ticks is not needed.
        let ticks = if self.setting.report_kind == ReportKind::Fill { self.events } else { 0.0 };
        let planes = PlaneCounters { packets: &packets, ticks };
        let decision = self.controller.next(time(now), &planes);
        self.alarms = decision.alarms;
        if decision.is_due {
            self.calendars += 1;
            self.controller.published(&decision.wanted);
            self.staged.push_back((now + 0.5, decision.wanted));
        }
    }

    fn step(&mut self, from: f64, to: f64) {
        while self.staged.front().is_some_and(|(at, _)| *at <= from + STEP / 2.0) {
            let (_, slots) = self.staged.pop_front().expect("there is one");
            self.programs.iter_mut().for_each(|program| program.slots = 0);
            for (member, count) in slots {
                self.programs[usize::from(member)].slots = count;
            }
        }
        for member in 0..self.programs.len() {
            let program = &mut self.programs[member];
            let arrivals = self.events * f64::from(program.slots) / f64::from(self.setting.slots);
            program.run(from, to, arrivals, self.setting.service, &mut self.random);
            let report = program.report();
            // All reports of a burst but one are a step or more older than it.
            let step = (to / STEP).round() as usize;
            let steps = (self.setting.period / STEP).round() as usize;
            let wait = (steps - step % steps) % steps;
            if wait < self.setting.burst {
                program.reports.push_back((to + wait as f64 * STEP + self.setting.age, report));
            }
            while program.reports.front().is_some_and(|(at, _)| *at <= to + STEP / 2.0) {
                let (_, report) = program.reports.pop_front().expect("there is one");
                if report.fill <= 1.0 && unit(&mut self.random) >= self.setting.lost_reports {
                    self.controller.report(member as MemberId, time(to), &report);
                }
            }
        }
    }

    /// The slots by which the worker's events are as many as it can take.
    pub(crate) fn fitting(&self, member: usize) -> f64 {
        self.programs[member].rate / self.events * f64::from(self.setting.slots)
    }

    /// The slots of the worker in a calendar by capacities.
    pub(crate) fn fair(&self, member: usize) -> f64 {
        let all: f64 = self.programs.iter().map(|program| program.rate).sum();
        self.programs[member].rate / all * f64::from(self.setting.slots)
    }
}
