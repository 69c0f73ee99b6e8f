//! The interface through which the caller provides random numbers, so that a simulation can be repeated.

/// A source of random numbers. In production, the random numbers must be cryptographically strong, because RKeys, queue
/// pair numbers, PSNs and communication IDs are the only secrets of RoCE.
pub trait Entropy {
    /// Returns the next random number; all 32 bits are random.
    fn next_u32(&mut self) -> u32;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Entropy;

    /// A source of numbers that counts up from the given number, so that tests know the next number.
    pub(crate) struct Counting(pub(crate) u32);

    impl Entropy for Counting {
        fn next_u32(&mut self) -> u32 {
            self.0 += 1;
            self.0
        }
    }

    /// A generator of pseudo-random numbers (splitmix64).
    pub(crate) struct Random(pub(crate) u64);

    impl Entropy for Random {
        fn next_u32(&mut self) -> u32 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z >> 32) as u32
        }
    }
}
