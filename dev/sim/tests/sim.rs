//! A few seeds of the simulation; `cargo xtask sim` runs many.

use sim::{
    Kind, RunConfig,
    site::{Site, Size},
};

fn run(kind: Kind, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = sim::run(kind, seed, &RunConfig::default()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn seeds_0_to_24() {
    run(Kind::Traffic, 0..25);
}

#[test]
fn seeds_25_to_49() {
    run(Kind::Traffic, 25..50);
}

#[test]
fn calls_of_seeds_0_to_99() {
    run(Kind::Calls, 0..100);
}

#[test]
fn bridges_of_seeds_0_to_499() {
    run(Kind::Bridge, 0..500);
}

/// Each of these seeds once failed, by the fault beside it.
#[test]
fn control_planes_of_seeds_that_found_faults() {
    let faults = [
        (1193, "a load balancer began anew while planes were asked, which was forgotten"),
        (1407, "ticks that may be split were not told after a restart"),
        (1460, "an epoch began far ahead where planes of both kinds serve a load balancer"),
        (2255, "ticks of a reservation that ended were not told"),
        (2409, "a load balancer that began anew was not recorded"),
        (3123, "a load balancer that was reserved again gave nobody anything while its senders were silent"),
        (3612, "a sender that was ten times as fast had passed more ticks than were told"),
        (
            3746,
            "syncs of a sender that paused after a new reservation were refused, though planes told its rate",
        ),
        (
            8734,
            "syncs of a sender that was registered again and paused were refused, though another one's rate was known",
        ),
        (12_571, "planes of both kinds differed in ticks that a clock was set back to, which was not told"),
        (15_539, "the simulation took a load balancer that was reserved again for another one"),
        (
            17_757,
            "a boundary did not allow for packets that come late, where events are few and each raises ticks by many",
        ),
        (
            18_870,
            "a sender that paused after its first sync was taken to be slow, and its syncs were refused",
        ),
        (
            21_645,
            "a worker that had to wait got events, because a state that came meanwhile said that it was ready",
        ),
        (24_898, "a worker left while the first epoch that led to it was on its way, and got events on"),
        (25_103, "a clock was set back shortly before epochs were reset, and its ticks were not told"),
        (35_348, "ticks below all epochs of a plane without sets of tables were not told"),
        (41_330, "a load balancer ended before it was known that ticks had leapt, and they were not told"),
        (43_095, "a boundary was one tick too high where each event raises ticks by one"),
        (
            44_733,
            "a plane came back without the tables of ticks that a clock was set back to, which was not told",
        ),
        (
            50_540,
            "a load balancer ended before a sync told that its senders had become too fast for a plane that tells no ticks",
        ),
        (59_483, "a late sync hid for a moment how far its sender had come"),
        (59_497, "a load balancer ended before planes told that only some of them took an epoch"),
        (
            53_070,
            "what was split while a sender was ten times too fast was not told when another sender showed its rate",
        ),
        (52_039, "a forged sync hid how fast a new sender was, and what was split then was not told"),
        (75_715, "a plane was lost while it was to give tables back, and what they split was not told"),
        (
            84_206,
            "an epoch that one plane alone had was forgotten when the next began, and senders went back below it",
        ),
        (
            86_014,
            "senders ten times too fast were forgotten by a reset, and what they had split was not told",
        ),
        (
            88_230,
            "a sender ten times too fast was removed before a sync showed it, and what it had split was not told",
        ),
        (
            91_464,
            "after a reset all ticks were above the horizon, and epochs began at tick 0 again and again",
        ),
        (
            94_664,
            "after a restart a plane had tables of the reservation before, and what they split was not told",
        ),
    ];
    for (seed, fault) in faults {
        if let Err(failure) = sim::run(Kind::Control, seed, &RunConfig::default()) {
            panic!("once {fault}: {failure}");
        }
    }
}

#[test]
fn sixteen_load_balancers_with_2048_workers_get_epochs_once_a_second() {
    let mut site = Site::new(Size::LARGER, 1).expect("a site that fits");
    (0..10).for_each(|_| site.second());
    assert_eq!((site.staged(), site.workers()), (16, 2048));
    // No epoch begins while load balancers are set up and senders' rates are unknown.
    assert!(site.epochs >= 16 * 6, "{} epochs", site.epochs);
}

#[test]
fn equal_seeds_give_equal_runs() {
    for kind in Kind::ALL {
        for seed in 0..5 {
            let twice = [0, 1].map(|_| sim::run(kind, seed, &RunConfig::default()));
            assert_eq!(twice[0], twice[1]);
        }
    }
}
