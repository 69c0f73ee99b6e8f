//! Waits between tries.

use std::time::Duration;

/// Waits that double up to a bound. Each is made up to a quarter longer or shorter at random, so that many workers that lost the
/// same control plane do not call it again at the same moment.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: u64,
}

impl Backoff {
    pub(crate) const FIRST: Duration = Duration::from_millis(100);
    /// The bound of a wait, before it is made longer or shorter.
    pub(crate) const MOST: Duration = Duration::from_secs(2);

    pub(crate) fn new(seed: u64) -> Self {
        Self { next: Self::FIRST, random: seed | 1 }
    }

    /// Returns the next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::MOST);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let per_mille = 750 + (self.random % 501) as u32;
        wait * per_mille / 1000
    }

    /// Makes the next wait a short one again, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = Self::FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        for seed in [0, 1, 77, u64::MAX] {
            let mut backoff = Backoff::new(seed);
            for n in 0..10 {
                let (wait, middle) = (backoff.wait(), (Backoff::FIRST * (1 << n)).min(Backoff::MOST));
                assert!(wait >= middle * 3 / 4 && wait <= middle * 5 / 4, "seed {seed}, wait {n}: {wait:?}");
            }
            backoff.reset();
            assert!(backoff.wait() <= Backoff::FIRST * 5 / 4);
        }
    }
}
