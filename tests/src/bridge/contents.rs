//! Contents and sizes of events, by data id and number: any of them can be made again.

use simnet::Random;

const MOST: usize = 300_000;

#[derive(Debug)]
pub(super) struct Contents {
    seed: u64,
    noise: Vec<u8>,
}

impl Contents {
    pub(super) fn new(seed: u64) -> Self {
        let mut noise = vec![0; MOST + 4096];
        Random::new(seed, 0).fill(&mut noise);
        Self { seed, noise }
    }

    /// Most are small, some large. It replaces what `into` has.
    pub(super) fn event(&self, data_id: u16, event: u64, into: &mut Vec<u8>) {
        // Half of the streams are of numbers, so that no two events of a run share one.
        let mut random = Random::new(self.seed, 1 + (u64::from(data_id) << 48 | event));
        let most = match random.below(1000) {
            0 => MOST,
            1..=50 => 100_000,
            51..=300 => 20_000,
            _ => 4_000,
        };
        let len = 1 + random.below(most as u64) as usize;
        let at = random.below((self.noise.len() - len) as u64) as usize;
        into.clear();
        into.extend_from_slice(&self.noise[at..][..len]);
        // No two are the same.
        let own = random.next_u64().to_le_bytes();
        let part = len.min(own.len());
        into[..part].copy_from_slice(&own[..part]);
    }
}
