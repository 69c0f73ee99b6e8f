//! Artificial packet loss, for measurements and tests.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Loses received datagrams at random. Each datagram is lost or kept independently of the others, even if the Linux
/// kernel merged several datagrams (GRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossInjection {
    /// The number of lost datagrams per million.
    pub per_million: u32,
    /// The seed of the random numbers. Two runs with the same seed and the same `per_million` lose datagrams at the
    /// same positions in the sequence of received datagrams. For example, both runs lose the third and the ninth
    /// datagram.
    pub seed: u64,
}

#[derive(Debug)]
pub(crate) struct Dropper {
    /// A datagram is lost if the random number that is drawn for it is below this value.
    threshold: u32,
    rng: ChaCha8Rng,
}

impl Dropper {
    pub(crate) fn new(loss: LossInjection) -> Self {
        let share = u64::from(loss.per_million.min(1_000_000)) * u64::from(u32::MAX) / 1_000_000;
        Self { threshold: share as u32, rng: ChaCha8Rng::seed_from_u64(loss.seed) }
    }

    /// Returns true if the next datagram is to be lost.
    pub(crate) fn drops(&mut self) -> bool {
        self.rng.next_u32() < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_as_asked_and_the_same_again() {
        let lost = |per_million| {
            let mut dropper = Dropper::new(LossInjection { per_million, seed: 7 });
            (0..100_000).filter(|_| dropper.drops()).count()
        };
        assert_eq!(lost(0), 0);
        assert!((900..1100).contains(&lost(10_000)), "{}", lost(10_000));
        assert_eq!(lost(10_000), lost(10_000));
        assert!(lost(1_000_000) > 99_990);
    }
}
