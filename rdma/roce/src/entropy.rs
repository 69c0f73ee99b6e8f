//! Random numbers come from outside the crate, so that a simulation can be repeated.

/// A source of random numbers. In production it must be cryptographically strong: RKeys, queue pair numbers, PSNs and
/// communication IDs are the only secrets of RoCE.
pub trait Entropy {
    fn next_u32(&mut self) -> u32;
}
