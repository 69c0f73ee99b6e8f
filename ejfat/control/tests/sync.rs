//! Syncs of senders that are honest, change, or are forged. A failure prints the seed.

use std::time::Duration;

use ejfat::Time;
use ejfat_control::{
    boundary::Margins,
    sync::{Gate, Verdict},
};
use simnet::Random;

const SECOND: u64 = 1_000_000_000;

fn margins() -> Margins {
    Margins::default()
}

/// A sender that syncs once a second; syncs arrive up to 12 ms late.
struct Honest {
    random: Random,
    tick: f64,
}

impl Honest {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 0), tick: 1e6 }
    }

    /// One second at a rate: when the sync comes, and its tick.
    fn second(&mut self, second: u64, rate: f64) -> (Time, u64) {
        self.tick += rate;
        (Time(second * SECOND + self.random.below(12_000_000)), self.tick as u64)
    }
}

#[test]
fn rates_that_stay_within_the_factor_always_fit() {
    for seed in 0..200 {
        let (mut gate, mut honest) = (Gate::default(), Honest::new(seed));
        let mut rate = 1000.0;
        for second in 1..600 {
            // A step by less than the factor, a pause, or nothing.
            if second % 40 == 20 {
                rate = [500.0, 900.0, 1000.0][(second / 40 % 3) as usize];
            }
            let pauses = (100..130).contains(&second);
            let (at, tick) = honest.second(second, if pauses { 0.0 } else { rate });
            let verdict = gate.check(at, tick, 0.0, &margins());
            assert_eq!(verdict, Verdict::Fits, "seed {seed}, second {second}");
            let sender = gate.sender(at).expect("a sender that was heard");
            assert_eq!((sender.tick, sender.age), (tick, Duration::ZERO));
            // The highest rate is known and little more, whatever the delays.
            let known = if second > 2 { 500.0..=1030.0 } else { 0.0..=1030.0 };
            assert!(known.contains(&sender.rate), "seed {seed}, second {second}: {}", sender.rate);
        }
    }
}

/// A sender pauses just after it was registered.
#[test]
fn a_sender_that_paused_between_its_first_syncs_is_not_taken_to_be_slow() {
    let at = |second: f64| Time((second * SECOND as f64) as u64);
    let syncs = [(0.0, 5000), (5.0, 6000), (6.0, 7000), (7.0, 8000), (8.0, 9000)];
    let check = |known_rate: f64| {
        let mut gate = Gate::default();
        syncs.map(|(second, tick)| gate.check(at(second), tick, known_rate, &margins()))
    };
    // The sender's own first two syncs give 200 ticks a second.
    assert_eq!([0.0, 1000.0].map(check), [[Verdict::Fits; 5]; 2]);
    // If other senders show a rate of 100 ticks a second, the third sync is too far ahead.
    assert_eq!(check(100.0)[2], Verdict::Refused);
}

#[test]
fn a_sender_that_is_ten_times_as_fast_is_confirmed_when_another_one_shows_the_rate() {
    let at = |second: u64| Time(second * SECOND);
    let mut gate = Gate::default();
    for second in 0..10 {
        assert_eq!(gate.check(at(second), 1000 * second, 1000.0, &margins()), Verdict::Fits);
    }
    assert_eq!(gate.check(at(10), 20_000, 1000.0, &margins()), Verdict::Refused);
    assert_eq!(gate.check(at(11), 30_000, 10_000.0, &margins()), Verdict::Confirmed);
    assert_eq!(gate.check(at(12), 40_000, 10_000.0, &margins()), Verdict::Fits, "it is confirmed once");
    // A forged sync that the sender does not reach is not confirmed.
    assert_eq!(gate.check(at(13), 1_000_000, 10_000.0, &margins()), Verdict::Refused);
    assert_eq!(gate.check(at(14), 60_000, 10_000.0, &margins()), Verdict::Fits);
}

#[test]
fn a_rate_is_settled_three_seconds_after_it_rose() {
    let (mut gate, mut honest) = (Gate::default(), Honest::new(1));
    let mut settled = Vec::new();
    for second in 1..30 {
        let (at, tick) = honest.second(second, if second < 15 { 1000.0 } else { 1500.0 });
        gate.check(at, tick, 0.0, &margins());
        settled.push((second, gate.is_settled(at)));
    }
    let unsettled: Vec<_> = settled.iter().filter(|(_, is)| !is).map(|(second, _)| *second).collect();
    // The rate is that of two seconds, so it rises twice.
    assert_eq!(unsettled, [1, 2, 3, 4, 5, 15, 16, 17, 18, 19]);
}

#[test]
fn a_clock_that_was_set_is_followed_within_ten_seconds() {
    for (jump, what) in [(-900_000.0, "back"), (1e9, "ahead"), (-1e15, "to the beginning")] {
        for seed in 0..100 {
            let (mut gate, mut honest) = (Gate::default(), Honest::new(seed));
            let mut followed = None;
            for second in 1..60 {
                if second == 30 {
                    honest.tick = (honest.tick + jump).max(0.0);
                }
                let (at, tick) = honest.second(second, 1000.0);
                match gate.check(at, tick, 0.0, &margins()) {
                    Verdict::Fits | Verdict::Confirmed => {
                        assert!(second < 30 || followed.is_some(), "{what}, seed {seed}")
                    }
                    Verdict::Doubtful | Verdict::Refused => {
                        assert!(followed.is_none(), "{what}, seed {seed}, second {second}")
                    }
                    Verdict::Followed => followed = Some(second - 29),
                }
            }
            let took = followed.expect("followed at last");
            assert!(took <= 10, "{what}, seed {seed}: {took} s");
        }
    }
}

#[test]
fn forged_syncs_do_not_move_the_sender() {
    for seed in 0..200 {
        let (mut gate, mut honest) = (Gate::default(), Honest::new(seed));
        let mut forged = Random::new(seed, 1);
        for second in 1..300 {
            let (at, tick) = honest.second(second, 1000.0);
            assert_eq!(gate.check(at, tick, 0.0, &margins()), Verdict::Fits, "seed {seed}, second {second}");
            if second > 5 && forged.below(2) == 0 {
                // Anything, or a little behind.
                let lie = if forged.below(2) == 0 {
                    forged.next_u64() | 1 << 40
                } else {
                    tick - 1 - forged.below(5000)
                };
                let later = Time(at.0 + forged.below(SECOND / 2));
                let verdict = gate.check(later, lie, 0.0, &margins());
                assert!(
                    matches!(verdict, Verdict::Doubtful | Verdict::Refused),
                    "seed {seed}, second {second}"
                );
            }
            let sender = gate.sender(at).expect("a sender that was heard");
            assert!(sender.tick == tick && sender.rate <= 1030.0, "seed {seed}, second {second}: {sender:?}");
        }
    }
}

/// A forger who sees the syncs can stay within what the gate must allow. The rate that it learns is bounded all the same.
#[test]
fn a_forger_at_the_edge_wins_a_bounded_lead() {
    let (mut gate, mut honest) = (Gate::default(), Honest::new(7));
    for second in 1..20 {
        let (at, tick) = honest.second(second, 1000.0);
        gate.check(at, tick, 0.0, &margins());
    }
    let (at, tick) = honest.second(20, 1000.0);
    gate.check(at, tick, 0.0, &margins());
    // The highest tick that fits half a second later.
    let later = Time(at.0 + SECOND / 2);
    let highest = (0..40_000)
        .rev()
        .find(|more| gate.clone().check(later, tick + more, 0.0, &margins()) == Verdict::Fits);
    let highest = highest.expect("its own tick fits");
    assert!((1300..=1500).contains(&highest), "{highest} ticks, of which 500 are honest");
}

#[test]
fn a_sync_that_is_late_does_not_hide_where_its_sender_is() {
    let (mut gate, margins) = (Gate::default(), margins());
    for second in 0..5 {
        gate.check(Time(second * SECOND), second * 1000, 0.0, &margins);
    }
    let now = Time(4 * SECOND + 700_000_000);
    assert_eq!(gate.check(now, 4010, 0.0, &margins), Verdict::Fits);
    assert_eq!(gate.sender(now).map(|sender| sender.tick), Some(4010));
    // The rate is slightly lower with the late one.
    let expected = gate.expected(now).map(|sender| sender.tick).max();
    assert!(expected.is_some_and(|tick| (4690..=4700).contains(&tick)), "{expected:?}");
}
