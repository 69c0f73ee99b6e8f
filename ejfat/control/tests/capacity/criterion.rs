//! The criterion for shares, from 20 s after all rates moved to other workers on.

use crate::{
    outcome::Outcome,
    setting::{Queue, ReportKind, Service, Setting},
};

fn outcome(setting: &Setting, seeds: std::ops::Range<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    seeds.for_each(|seed| outcome.add(setting, seed));
    outcome
}

/// Prints a row, and returns whether it keeps the criterion.
fn row(setting: &Setting, seeds: std::ops::Range<u64>) -> bool {
    let got = outcome(setting, seeds);
    let is_kept = keeps(setting, &got);
    println!(
        "{:4} {:5.2} {:4.1} {:11} {:8} | {:6.2} {:6.2} {:6.1} | {:6.2} {:5.2} {:3} {}",
        setting.workers,
        setting.load,
        setting.age,
        format!("{:?}", setting.service),
        format!("{:?}", setting.report_kind),
        got.percent_not_above(),
        got.percent_not_off(),
        got.percent_steady(),
        got.percent_lost(),
        f64::from(got.calendars) * f64::from(setting.workers) / f64::from(got.cells),
        got.median_settled(),
        if is_kept { "" } else { "missed" },
    );
    is_kept
}

fn keeps(setting: &Setting, got: &Outcome) -> bool {
    (setting.load > 0.99 || got.percent_not_above() >= 99.5)
        && (setting.load < 1.05 || got.percent_not_off() >= 99.0)
        && (setting.load < 0.95 || got.percent_steady() >= 95.0)
}

const HEAD: &str = "   N  load  age service     tells    | not above  off steady |   lost  cal/s settled s";

/// All points take minutes; they are run with `NAA_LONG=1`.
fn are_all_wanted() -> bool {
    std::env::var("NAA_LONG").is_ok_and(|value| value == "1")
}

#[test]
fn shares_keep_the_criterion() {
    println!("{HEAD}");
    let setting =
        |workers, load, age| Setting { workers, load, age, service: Service::Even, ..Setting::default() };
    let mut points = Vec::new();
    let seeds = if are_all_wanted() { 0..16 } else { 0..12 };
    if are_all_wanted() {
        for workers in [2, 4, 8, 16, 32] {
            for age in [0.2, 2.0] {
                for load in [0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 1.05, 1.2, 1.5] {
                    points.push(setting(workers, load, age));
                }
            }
        }
        for workers in [8, 32] {
            for (load, age) in [(0.9, 2.0), (0.99, 0.2), (0.99, 2.0), (1.05, 0.2), (1.05, 2.0)] {
                points.push(Setting { ratio: 5.0, ..setting(workers, load, age) });
                points.push(Setting { queue: Queue::Seconds(0.2), ..setting(workers, load, age) });
            }
        }
    } else {
        points.extend([setting(2, 0.7, 0.2), setting(8, 0.99, 0.2), setting(8, 0.99, 2.0)]);
        points.extend([setting(8, 1.2, 2.0), setting(32, 0.99, 0.2)]);
        points.push(Setting { queue: Queue::Seconds(0.2), ..setting(8, 1.05, 2.0) });
    }
    let missed: Vec<_> = points.iter().filter(|point| !row(point, seeds.clone())).collect();
    assert!(missed.is_empty(), "seeds {seeds:?} of {missed:#?}");
}

#[test]
fn workers_that_are_silent_while_their_queue_is_too_long_report_again() {
    let (report_kind, queue) = (ReportKind::E2sar, Queue::Unbounded(1000));
    let setting = Setting { load: 0.5, report_kind, queue, ..Setting::default() };
    assert!(row(&setting, 0..4), "seeds 0 to 3 of {setting:?}");
}

#[test]
fn shares_hold_when_workers_report_seldom_or_their_reports_come_in_bursts() {
    for (burst, period) in [(5, 0.5), (1, 0.5), (1, 0.3)] {
        let setting = Setting { load: 1.2, burst, period, service: Service::Even, ..Setting::default() };
        assert!(row(&setting, 0..4), "seeds 0 to 3 of {setting:?}");
    }
}

/// Where less is known than the criterion asks for, these points are reached all the same. Others are printed.
#[test]
fn shares_where_less_is_known() {
    println!("{HEAD}");
    let setting = |load, age| Setting { load, age, ..Setting::default() };
    let reporting = |report_kind, load, age| {
        let queue = Queue::Events(1000);
        Setting { report_kind, queue, ..setting(load, age) }
    };
    let many =
        |slots, load, age| Setting { workers: 128, slots, service: Service::Even, ..setting(load, age) };
    let (e2sar, fill) = (ReportKind::E2sar, ReportKind::Fill);
    let reached = [setting(0.99, 0.2), reporting(e2sar, 0.99, 2.0), reporting(fill, 0.7, 0.2)];
    for point in &reached {
        assert!(row(point, 0..4), "seeds 0 to 3 of {point:?}");
    }
    assert!(row(&many(2048, 0.99, 0.2), 0..1), "seed 0 of 128 workers");
    if !are_all_wanted() {
        return;
    }
    for age in [0.2, 2.0] {
        for load in [0.5, 0.7, 0.99, 1.2] {
            row(&setting(load, age), 0..16);
            row(&reporting(e2sar, load, age), 0..16);
            row(&reporting(fill, load, age), 0..16);
            println!("no report while the fill level is above 1:");
            row(&Setting { queue: Queue::Unbounded(1000), ..reporting(e2sar, load, age) }, 0..16);
            for slots in [512, 2048] {
                println!("{slots} slots:");
                row(&many(slots, load, age), 0..4);
            }
        }
    }
}
