//! How much to move so that a repeat takes as long as it shall.

use std::time::Duration;

use crate::side::{Effort, Work};

/// A repeat starts with so much, whatever it is counted in.
const START: u64 = 8;

/// Finds the amount while warming up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) amount: u64,
}

impl Fill {
    pub(crate) const fn new() -> Self {
        Self { amount: START }
    }

    /// Runs until a run takes most of the time it shall. Gives the last one's work per second.
    pub(crate) fn warm_up(
        &mut self,
        effort: &Effort,
        mut run: impl FnMut(u64) -> anyhow::Result<Duration>,
    ) -> anyhow::Result<f64> {
        self.amount = START;
        loop {
            let seconds = run(self.amount)?.as_secs_f64().max(1e-9);
            let rate = self.amount as f64 / seconds;
            let wanted = (rate * effort.seconds).ceil().max(1.0) as u64;
            if seconds >= 0.5 * effort.seconds {
                self.amount = wanted;
                return Ok(rate);
            }
            // The first runs are slow, so the amount grows in steps.
            self.amount = wanted.clamp(self.amount.saturating_add(1), self.amount.saturating_mul(4));
        }
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
        let mut fill = Fill::new();
        let run = |amount| Ok(Duration::from_micros(amount * 100));
        fill.warm_up(&Effort::USUAL, run).unwrap();
        assert_eq!(fill.amount, 3000);
        let slow = |_| Ok(Duration::from_secs(9));
        fill.warm_up(&Effort::USUAL, slow).unwrap();
        assert_eq!(fill.amount, 1);
    }

    #[test]
    fn the_median_call_counts() {
        let work = latency(&mut [9000, 1000, 2000]);
        assert_eq!((work.value, work.amount), (2.0, 3.0));
        assert_eq!(goodput(1 << 31, Duration::from_secs(4)).value, 0.5);
    }
}
