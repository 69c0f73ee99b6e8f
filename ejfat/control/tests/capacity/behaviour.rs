//! Newcomers, stopped and lying workers, lost reports, counters that begin again.

use ejfat_control::capacity::{Alarm, Controller, Counters, DELAY, Joining, PlaneCounters, Report};

use crate::setting::{Queue, ReportKind, Run, SLOTS, Service, Setting, time};

fn steady() -> Setting {
    Setting {
        workers: 8,
        ratio: 1.0,
        load: 0.9,
        changes_at: usize::MAX,
        service: Service::Even,
        ..Setting::default()
    }
}

const JOINING: Joining = Joining { weight: 1.0, least_factor: 0.0, greatest_factor: 0.0 };

fn run_until(run: &mut Run, second: usize) {
    while run.second < second {
        run.second();
    }
}

#[test]
fn a_newcomer_that_is_slow_loses_little_and_an_equal_one_has_its_share_soon() {
    for seed in 0..8 {
        let mut run = Run::new(Setting { load: 0.99, ..steady() }, seed);
        run_until(&mut run, 30);
        run.join(100.0);
        run_until(&mut run, 60);
        let slow = &run.programs[8];
        println!("seed {seed}: the slow one lost {} events and has {} slots", slow.lost(), slow.slots);
        assert!(slow.lost() <= 100, "seed {seed}: {}", slow.lost());
        assert!(f64::from(slow.slots) <= 1.1 * run.fitting(8) + 1.0, "seed {seed}: {}", slow.slots);

        let mut run = Run::new(Setting { load: 1.05, ..steady() }, seed);
        run_until(&mut run, 30);
        run.join(1000.0);
        run_until(&mut run, 40);
        let (has, fair) = (f64::from(run.programs[8].slots), run.fair(8));
        assert!(has >= 0.9 * fair - 1.0, "seed {seed}: {has} of {fair}");
        run_until(&mut run, 50);
        let has = f64::from(run.programs[8].slots);
        assert!((has - fair).abs() <= 0.1 * fair + 1.0, "seed {seed}: {has} of {fair}");
    }
}

#[test]
fn a_worker_that_stops_has_one_slot_and_gets_its_share_again_when_it_goes_on() {
    for (seed, report_kind) in (0..8).zip([ReportKind::Dequeued, ReportKind::E2sar].into_iter().cycle()) {
        let joining = Joining { least_factor: 0.5, greatest_factor: 2.0, ..JOINING };
        let setting = Setting { joining, load: 0.7, report_kind, queue: Queue::Events(1000), ..steady() };
        let mut run = Run::new(setting, seed);
        run_until(&mut run, 30);
        run.programs[3].stands = true;
        run_until(&mut run, 34);
        assert!(run.alarms.contains(&Alarm::Stopped { member: 3 }), "seed {seed}: {:?}", run.alarms);
        run.second();
        assert_eq!(run.programs[3].slots, 1, "seed {seed}");
        run_until(&mut run, 60);
        assert_eq!(run.programs[3].slots, 1, "seed {seed}");
        run.programs[3].stands = false;
        run_until(&mut run, 75);
        assert!(run.programs[3].slots >= 32, "seed {seed}: {}", run.programs[3].slots);
        assert!(run.alarms.is_empty(), "seed {seed}: {:?}", run.alarms);
    }
}

#[test]
fn if_all_workers_stop_each_keeps_a_share() {
    let mut run = Run::new(steady(), 1);
    run_until(&mut run, 20);
    run.programs.iter_mut().for_each(|program| program.stands = true);
    run_until(&mut run, 30);
    assert_eq!(run.programs.iter().map(|program| program.slots).sum::<u32>(), SLOTS);
    assert_eq!(run.alarms.iter().filter(|alarm| matches!(alarm, Alarm::Stopped { .. })).count(), 8);
}

#[test]
fn a_worker_that_tells_nothing_is_named_and_has_no_more_than_an_even_share() {
    for seed in 0..8 {
        let mut run = Run::new(Setting { ratio: 20.0, ..steady() }, seed);
        run.programs[2].report_kind = ReportKind::Nothing;
        run_until(&mut run, 40);
        let alarm =
            |alarm: &Alarm| matches!(alarm, Alarm::StandsStill { member: 2, packets } if *packets > 100);
        assert!(run.alarms.iter().any(alarm), "seed {seed}: {:?}", run.alarms);
        assert_eq!(run.alarms.len(), 1, "seed {seed}: {:?}", run.alarms);
        assert!(run.programs[2].slots <= 80, "seed {seed}: {}", run.programs[2].slots);
    }
}

#[test]
fn the_greatest_factor_bounds_a_worker_that_tells_nothing() {
    let joining = Joining { greatest_factor: 0.25, ..JOINING };
    let mut run = Run::new(steady(), 3);
    run.programs[2].report_kind = ReportKind::Nothing;
    assert!(run.controller.leave(2));
    assert!(run.controller.join(2, joining, time(0.0)));
    run_until(&mut run, 20);
    assert_eq!(run.programs[2].slots, 16);
}

/// A controller that so many members have joined.
fn joined(members: u16) -> Controller {
    let mut controller = Controller::new(SLOTS, DELAY);
    (0..members).for_each(|member| assert!(controller.join(member, JOINING, time(0.0))));
    controller
}

/// A load balancer of two workers, whose reports a test makes by hand.
struct ByHand {
    controller: Controller,
    packets: [u64; 2],
    events: [u64; 2],
    planes_tell: bool,
    at: f64,
}

impl ByHand {
    fn new() -> Self {
        let controller = joined(2);
        Self { controller, packets: [0; 2], events: [0; 2], planes_tell: true, at: 0.0 }
    }

    /// A second in which each worker gets 1000 packets. Returns slots and alarms.
    fn second(&mut self, events: [u64; 2], fills: [f64; 2], signals: [f64; 2]) -> (Vec<u32>, Vec<Alarm>) {
        for _ in 0..10 {
            self.at += 0.1;
            for member in 0..2 {
                self.packets[member] += 100;
                self.events[member] += events[member] / 10;
                let dequeued = self.events[member];
                let counters = Counters { received: dequeued, dequeued, ..Counters::default() };
                let (fill, control_signal) = (fills[member], signals[member]);
                let report = Report { fill, control_signal, is_ready: true, counters };
                self.controller.report(member as u16, time(self.at), &report);
            }
        }
        let packets = [(0, self.packets[0]), (1, self.packets[1])];
        let packets = if self.planes_tell { &packets[..] } else { &[] };
        let decision = self.controller.next(time(self.at), &PlaneCounters { packets, ticks: 0.0 });
        self.controller.published(&decision.wanted);
        (decision.wanted.into_iter().map(|(_, count)| count).collect(), decision.alarms)
    }
}

#[test]
fn a_worker_that_counts_more_events_than_came_is_named_and_not_believed() {
    let mut hand = ByHand::new();
    let mut last = (Vec::new(), Vec::new());
    for _ in 0..30 {
        last = hand.second([1000, 100_000], [0.3; 2], [0.0; 2]);
    }
    let (slots, alarms) = last;
    assert!(matches!(alarms[..], [Alarm::Contradicts { member: 1, .. }]), "{alarms:?}");
    assert!((250..=262).contains(&slots[1]), "{slots:?}");
}

#[test]
fn shares_hold_while_planes_tell_nothing_and_when_they_begin_again() {
    let mut hand = ByHand::new();
    for second in 0..90 {
        hand.planes_tell = !(20..50).contains(&second);
        if second == 70 {
            hand.packets = [0; 2];
        }
        let (slots, alarms) = hand.second([300, 900], [0.3; 2], [0.0; 2]);
        assert!(second < 20 || slots == [128, 384], "second {second}: {slots:?}");
        assert!(alarms.is_empty(), "second {second}: {alarms:?}");
    }
    let mut hand = ByHand { planes_tell: false, ..ByHand::new() };
    (0..20).for_each(|_| drop(hand.second([300, 900], [0.3; 2], [0.0; 2])));
    assert_eq!(hand.second([300, 900], [0.3; 2], [0.0; 2]).0, [128, 384], "planes that never told anything");
}

#[test]
fn one_of_many_that_counts_more_events_than_came_has_no_more_than_an_even_share() {
    let mut run = Run::new(Setting { ratio: 1.0, load: 0.8, ..steady() }, 5);
    run.programs[4].invents = 10;
    run_until(&mut run, 40);
    let named = |alarm: &Alarm| matches!(alarm, Alarm::Contradicts { member: 4, .. });
    assert!(run.alarms.iter().all(named) && !run.alarms.is_empty(), "{:?}", run.alarms);
    assert!(run.programs[4].slots <= 80, "{}", run.programs[4].slots);
}

#[test]
fn shares_hold_while_reports_are_lost_and_workers_begin_again() {
    for seed in 0..4 {
        let mut run = Run::new(Setting { ratio: 20.0, load: 1.2, lost_reports: 0.3, ..steady() }, seed);
        for round in 0..8 {
            run_until(&mut run, 20 + 5 * round);
            run.programs[round].restart();
        }
        run_until(&mut run, 70);
        assert!(run.alarms.is_empty(), "seed {seed}: {:?}", run.alarms);
        for member in 0..8 {
            let (has, fair) = (f64::from(run.programs[member].slots), run.fair(member));
            assert!((has - fair).abs() <= 0.1 * fair + 1.0, "seed {seed}, member {member}: {has} of {fair}");
        }
    }
}

#[test]
fn a_control_signal_changes_a_weight_and_never_its_sign() {
    let mut hand = ByHand::new();
    hand.second([1000; 2], [0.0; 2], [0.0; 2]);
    let (slots, _) = hand.second([1000; 2], [0.0; 2], [200.0, -200.0]);
    assert_eq!(slots, [307, 205], "1200 to 800");
    let (slots, _) = hand.second([1000; 2], [0.0; 2], [200.0, -200.0]);
    assert_eq!(slots, [358, 154], "1400 to 600");
    let (slots, _) = hand.second([1000; 2], [0.0; 2], [0.0; 2]);
    assert_eq!(slots, [358, 154], "for some seconds 0 means no change");
    for _ in 0..30 {
        let (slots, _) = hand.second([1000; 2], [0.0; 2], [0.0, -1e30]);
        assert!(slots[1] >= 1 && slots[0] + slots[1] == SLOTS, "{slots:?}");
    }
    for _ in 0..30 {
        let (slots, _) = hand.second([1000; 2], [0.0; 2], [-1500.0, 1500.0]);
        assert!(slots[0] >= 1 && slots[0] + slots[1] == SLOTS, "{slots:?}");
    }
    let (slots, _) = hand.second([1000; 2], [0.0; 2], [0.0; 2]);
    assert!(slots[0] < slots[1], "{slots:?}");
}

#[test]
fn a_report_of_nobody_changes_nothing() {
    let mut hand = ByHand::new();
    let before = hand.second([1000; 2], [0.3; 2], [0.0; 2]);
    hand.controller.report(7, time(hand.at), &Report::default());
    assert_eq!(hand.second([1000; 2], [0.3; 2], [0.0; 2]).0, before.0);
}

#[test]
fn members_join_once_and_no_more_than_there_are_slots() {
    let mut controller = Controller::new(2, DELAY);
    let have_joined = [1, 1, 2, 3].map(|member| controller.join(member, JOINING, time(0.0)));
    assert_eq!(have_joined, [true, false, true, false]);
    assert!(controller.leave(2) && !controller.leave(2));
}

#[test]
fn who_is_not_ready_gets_nothing_and_who_leaves_makes_a_calendar_due() {
    let mut controller = joined(3);
    let planes = PlaneCounters::default();
    assert!(controller.next(time(1.0), &planes).wanted.is_empty());
    let ready = Report { is_ready: true, ..Report::default() };
    (0..3).for_each(|member| controller.report(member, time(1.1), &ready));
    let decision = controller.next(time(2.0), &planes);
    assert_eq!(decision.wanted, [(0, 171), (1, 171), (2, 170)]);
    assert!(decision.is_due);
    controller.published(&decision.wanted);
    assert!(!controller.next(time(3.0), &planes).is_due);
    controller.suspend(1);
    let decision = controller.next(time(4.0), &planes);
    assert_eq!((decision.wanted.as_slice(), decision.is_due), ([(0, 256), (2, 256)].as_slice(), true));
    controller.published(&decision.wanted);
    controller.leave(0);
    controller.suspend(2);
    let decision = controller.next(time(5.0), &planes);
    assert!(decision.wanted.is_empty() && decision.is_due);
}

#[test]
fn no_report_makes_a_controller_fail() {
    for seed in 0..2000 {
        let mut random = simnet::Random::new(seed, 9);
        let slots = 1 << random.below(10);
        let mut controller = Controller::new(slots, DELAY);
        let mut now = 0.0;
        for _ in 0..300 {
            now += [0.0, 0.01, 0.1, 1.0][random.below(4) as usize];
            let member = random.below(20) as u16;
            let any =
                |random: &mut simnet::Random| [0, 1, 7, u64::MAX - 1, u64::MAX][random.below(5) as usize];
            let real = |random: &mut simnet::Random| [0.0, 0.3, 1.0, 1e300, -1e300][random.below(5) as usize];
            match random.below(10) {
                0 => {
                    let greatest_factor = [0.0, 0.5, 3.0][random.below(3) as usize];
                    let least_factor = [0.0, 0.5][random.below(2) as usize];
                    let joining = Joining { least_factor, greatest_factor, ..JOINING };
                    controller.join(member, joining, time(now));
                }
                1 => drop(controller.leave(member)),
                2 => {
                    let packets: Vec<_> =
                        (0..random.below(20) as u16).map(|member| (member, any(&mut random))).collect();
                    let ticks = real(&mut random);
                    let got = controller.next(time(now), &PlaneCounters { packets: &packets, ticks });
                    let all: u32 = got.wanted.iter().map(|&(_, count)| count).sum();
                    assert!(all == slots || got.wanted.is_empty(), "seed {seed}: {got:?}");
                    assert!(got.wanted.iter().all(|&(_, count)| count > 0), "seed {seed}: {got:?}");
                    controller.published(&got.wanted);
                }
                _ => {
                    let counters = Counters {
                        received: any(&mut random),
                        reassembled: any(&mut random),
                        reassembly_errors: any(&mut random),
                        enqueue_errors: any(&mut random),
                        dequeued: any(&mut random),
                    };
                    let (fill, control_signal) = (real(&mut random).clamp(0.0, 1.0), real(&mut random));
                    let is_ready = random.below(4) != 0;
                    let report = Report { fill, control_signal, is_ready, counters };
                    controller.report(member, time(now), &report);
                }
            }
        }
    }
}

#[test]
fn after_a_restart_shares_hold_before_workers_report_and_newcomers_begin_low() {
    let mut controller = joined(3);
    let ready = Report { is_ready: true, ..Report::default() };
    let none = PlaneCounters { packets: &[], ticks: 1000.0 };
    controller.restore(0, 1.6);
    controller.restore(1, 0.4);
    // No worker has reported yet.
    assert_eq!(controller.next(time(0.1), &none).wanted, [(0, 410), (1, 102)]);
    // Two workers have reported: one from before the restart, and a newcomer.
    controller.report(1, time(0.2), &ready);
    controller.report(2, time(0.2), &ready);
    let wanted = controller.next(time(1.0), &none).wanted;
    assert_eq!(wanted.iter().map(|(member, _)| *member).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(wanted[0].1 > 350 && wanted[1].1 > 80 && wanted[2].1 < 60, "{wanted:?}");
    // A worker from before the restart stays silent, so it does not count as ready any more.
    controller.suspend(0);
    let wanted = controller.next(time(2.0), &none).wanted;
    assert!(wanted.iter().all(|(member, _)| *member != 0), "{wanted:?}");
}
