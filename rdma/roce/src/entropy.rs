//! Randomness comes in from outside, so that a simulation can be repeated.

/// A source of random numbers. In production it must be cryptographically strong: RKeys, queue pair numbers,
/// PSNs and communication IDs are the only secrets RoCE has.
pub trait Entropy {
    fn next_u32(&mut self) -> u32;
}
