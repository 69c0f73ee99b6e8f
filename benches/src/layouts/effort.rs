//! How often a workload is measured, and about how long that takes.

use std::time::Duration;

use super::point::{Direction, Workload};

/// How often and how long one workload is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effort {
    pub(crate) repeats: u32,
    /// Times that all contenders connect; repeats are spread over them, so that where memory happens to lie matters less.
    pub(crate) rounds: u32,
    /// Seconds of a contender in a repeat.
    pub(crate) seconds: f64,
    /// The fewest calls of a contender in a repeat.
    pub(crate) least_calls: u32,
}

const MIB: u64 = 1 << 20;
const SECONDS: f64 = 0.02;
const QUICK_SECONDS: f64 = 0.015;
const ROUNDS: u32 = 5;

impl Effort {
    /// Large parameters have fewer repeats.
    pub(crate) fn of(workload: &Workload, repeats: u32, quick: bool) -> Self {
        let total = workload.total();
        let (share, rounds, least_calls) = match total / MIB {
            0..=3 => (1, ROUNDS, 5),
            4..=31 => (2, 3, 3),
            _ => (3, 2, 1),
        };
        let repeats = (repeats / share).max(repeats.min(3));
        let seconds = if quick { QUICK_SECONDS } else { SECONDS };
        Self { repeats, rounds: rounds.min(repeats), seconds, least_calls }
    }

    /// Repeats of the sessions of a round, which is counted from 0.
    pub(crate) fn repeats_in(&self, round: u32) -> u32 {
        self.repeats / self.rounds + u32::from(round < self.repeats % self.rounds)
    }

    /// Estimates the seconds for all contenders. The unit does not matter: only ratios between workloads are used.
    pub(crate) fn estimate(&self, workload: &Workload, contenders: usize) -> f64 {
        let (params, total, moved) =
            (f64::from(workload.params), workload.total() as f64, workload.moved() as f64);
        let ways = if workload.direction == Direction::Both { 2.0 } else { 1.0 };
        let call = 20e-6 + 1e-6 * params * ways + moved / BYTES_PER_SECOND;
        let connect = 1e-3 + 30e-6 * params + 6.0 * total / BYTES_PER_SECOND;
        let repeat = self.seconds.max(f64::from(self.least_calls) * call) + 0.5e-3;
        let rounds = f64::from(self.rounds) * (connect + 4.0 * call);
        contenders as f64 * (rounds + self.seconds + f64::from(self.repeats) * repeat)
    }
}

const BYTES_PER_SECOND: f64 = 1e9;

/// How long what is left takes, judging by what was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remaining {
    /// Estimates, in seconds.
    left: f64,
    done: f64,
    /// What the done took.
    took: f64,
}

/// Estimates count as if they had been right for so long.
const TRUST: f64 = 5.0;

impl Remaining {
    pub(crate) fn of(estimates: impl IntoIterator<Item = f64>) -> Self {
        Self { left: estimates.into_iter().sum(), ..Self::default() }
    }

    pub(crate) fn done(&mut self, estimate: f64, took: Duration) {
        self.left = (self.left - estimate).max(0.0);
        self.done += estimate;
        self.took += took.as_secs_f64();
    }

    pub(crate) fn left(&self) -> Duration {
        Duration::from_secs_f64(self.left * (self.took + TRUST) / (self.done + TRUST))
    }

    /// How much is done, in thousandths.
    pub(crate) fn permille(&self) -> u64 {
        let all = self.left + self.done;
        if all > 0.0 { (1000.0 * self.done / all) as u64 } else { 1000 }
    }
}

/// As people say it.
pub(crate) fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => "a few seconds".into(),
        seconds if seconds < 90.0 => format!("{:.0} s", (seconds / 10.0).round() * 10.0),
        seconds => format!("{:.0} min", (seconds / 60.0).round()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fit::synthetic::workload, *};

    #[test]
    fn large_parameters_have_fewer_repeats_and_none_gets_lost() {
        let repeats = |bytes, repeats| Effort::of(&workload(1, bytes), repeats, false).repeats;
        assert_eq!([64, 4 * MIB, 64 * MIB].map(|bytes| repeats(bytes, 15)), [15, 7, 5]);
        assert_eq!([64, 4 * MIB, 64 * MIB].map(|bytes| repeats(bytes, 2)), [2, 2, 2]);
        for bytes in [64, 4 * MIB, 64 * MIB] {
            for repeats in 2..20 {
                let effort = Effort::of(&workload(1, bytes), repeats, true);
                let all: u32 = (0..effort.rounds).map(|round| effort.repeats_in(round)).sum();
                assert_eq!(all, effort.repeats);
                assert!((0..effort.rounds).all(|round| effort.repeats_in(round) > 0));
            }
        }
    }

    #[test]
    fn the_estimate_follows_what_things_took() {
        let mut remaining = Remaining::of([10.0, 10.0, 10.0]);
        assert_eq!((remaining.left().as_secs(), remaining.permille()), (30, 0));
        remaining.done(10.0, Duration::from_secs(25));
        assert_eq!((remaining.left().as_secs(), remaining.permille()), (40, 333));
        remaining.done(10.0, Duration::from_secs(25));
        remaining.done(10.0, Duration::from_secs(25));
        assert_eq!((remaining.left().as_secs(), remaining.permille()), (0, 1000));
    }

    #[test]
    fn times_left_are_round() {
        let texts = [3, 34, 89, 100, 3000].map(|seconds| about(Duration::from_secs(seconds)));
        assert_eq!(texts, ["a few seconds", "30 s", "90 s", "2 min", "50 min"]);
    }
}
