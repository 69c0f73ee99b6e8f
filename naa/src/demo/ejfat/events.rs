//! Contents and sizes of events, by their numbers.

use std::ops::Range;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

const MOST: usize = 1 << 20;

/// Generates events.
#[derive(Debug)]
pub(in crate::demo) struct Events {
    random: ChaCha8Rng,
    noise: Vec<u8>,
}

impl Events {
    pub(in crate::demo) fn new(seed: u64, sender: u16) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(sender) << 48);
        let mut noise = vec![0; MOST + 4096];
        random.fill_bytes(&mut noise);
        Self { random, noise }
    }

    /// Makes the next event. Most events are small, and some are large.
    pub(super) fn next(&mut self) -> &[u8] {
        let random = self.random.next_u32();
        let most = match random % 1000 {
            0 => MOST,
            1..=50 => 100_000,
            51..=300 => 20_000,
            _ => 4_000,
        };
        let len = 1 + self.random.next_u32() as usize % most;
        let at = self.random.next_u32() as usize % (self.noise.len() - len);
        // Random first bytes make events differ.
        self.noise[at..][..len.min(8)].copy_from_slice(&self.random.next_u64().to_le_bytes()[..len.min(8)]);
        &self.noise[at..][..len]
    }

    /// The bytes of an event whose length is in this range.
    pub(in crate::demo) fn of_bytes(&mut self, len: Range<usize>) -> &[u8] {
        let len = len.start + self.random.next_u32() as usize % (len.end - len.start);
        let at = self.random.next_u32() as usize % (self.noise.len() - len);
        &self.noise[at..][..len]
    }

    pub(in crate::demo) fn entropy(&mut self) -> u16 {
        self.random.next_u32() as u16
    }
}
