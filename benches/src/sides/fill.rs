//! How much to move so that a repeat takes as long as it shall.

use std::time::Duration;

use crate::side::{Effort, Work};

/// A repeat starts with so much, whatever it is counted in.
pub(crate) const START: u64 = 8;

/// Runs until a run takes most of the time it shall. Gives the amount that takes all of it, and the last run's work per second.
pub(crate) fn fill(
    effort: &Effort,
    mut run: impl FnMut(u64) -> anyhow::Result<Duration>,
) -> anyhow::Result<(u64, f64)> {
    let mut amount = START;
    loop {
        let seconds = run(amount)?.as_secs_f64().max(1e-9);
        let rate = amount as f64 / seconds;
        let wanted = (rate * effort.seconds).ceil().max(1.0) as u64;
        if seconds >= 0.5 * effort.seconds {
            return Ok((wanted, rate));
        }
        // The first runs are slow, so the amount grows in steps.
        amount = wanted.clamp(amount.saturating_add(1), amount.saturating_mul(4));
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// Goodput in GiB/s.
pub(crate) fn goodput(bytes: u64, time: Duration) -> Work {
    let amount = bytes as f64 / GIB;
    Work { value: amount / time.as_secs_f64(), amount }
}

/// The median in microseconds of calls given in nanoseconds.
pub(crate) fn latency(nanoseconds: &mut [u64]) -> Work {
    nanoseconds.sort_unstable();
    let middle = nanoseconds.get(nanoseconds.len() / 2).copied().unwrap_or(0);
    Work { value: middle as f64 / 1e3, amount: nanoseconds.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_amount_grows_until_it_takes_long_enough() {
        let run = |amount| Ok(Duration::from_micros(amount * 100));
        assert_eq!(fill(&Effort::USUAL, run).unwrap().0, 3000);
        assert_eq!(fill(&Effort::USUAL, |_| Ok(Duration::from_secs(9))).unwrap().0, 1);
    }

    #[test]
    fn the_median_call_counts() {
        let work = latency(&mut [9000, 1000, 2000]);
        assert_eq!((work.value, work.amount), (2.0, 3.0));
        assert_eq!(goodput(1 << 31, Duration::from_secs(4)).value, 0.5);
    }
}
