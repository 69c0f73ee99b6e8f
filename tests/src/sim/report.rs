//! What runs come to.

use std::{fmt, ops::AddAssign};

/// A run in which a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, why } = self;
        write!(f, "seed {seed} failed: {why}; reproduce with: cargo xtask sim --seed {seed}")
    }
}

impl std::error::Error for Failure {}

/// Totals over successful runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub seeds: u64,
    pub packets: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    pub bytes: u64,
    pub completions: u64,
    pub virtual_nanos: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.packets += other.packets;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.retransmitted += other.retransmitted;
        self.bytes += other.bytes;
        self.completions += other.completions;
        self.virtual_nanos += other.virtual_nanos;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} packets ({} lost, {} duplicated, {} reordered, {} corrupted, {} retransmitted), \
             {} completions, {} MiB, {:.1} virtual seconds",
            self.seeds,
            self.packets,
            self.lost,
            self.duplicated,
            self.reordered,
            self.corrupted,
            self.retransmitted,
            self.completions,
            self.bytes >> 20,
            self.virtual_nanos as f64 / 1e9,
        )
    }
}
