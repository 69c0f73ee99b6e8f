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
}
