//! Pseudo-random numbers, the same in each run.

use roce::Entropy;

/// A generator of pseudo-random numbers (a linear congruential generator). The field is the seed.
#[derive(Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.next_u32() as usize % end
    }
}

impl Entropy for Numbers {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper bits have the longer periods.
        (self.0 >> 32) as u32
    }
}
