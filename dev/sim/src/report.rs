//! What runs come to.

use std::{fmt, ops::AddAssign, str::FromStr};

use simnet::LinkCounters;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work requests of all sorts.
    Traffic,
    /// Sessions, and calls of functions.
    Calls,
    /// Events of EJFAT to a worker.
    Events,
    /// Events of EJFAT through a bridge to workers' rings.
    Bridge,
    /// EJFAT's control plane, with data planes, senders and workers.
    Control,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Traffic, Self::Calls, Self::Events, Self::Bridge, Self::Control];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Traffic => "traffic",
            Self::Calls => "calls",
            Self::Events => "events",
            Self::Bridge => "bridge",
            Self::Control => "control",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        kind.ok_or_else(|| format!("{text:?} is neither traffic, calls, events, bridge nor control"))
    }
}

/// A run in which a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    pub seed: u64,
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, seed, why } = self;
        let again = format!("cargo xtask sim --kind {kind} --seed {seed}");
        write!(f, "seed {seed} of {kind} failed: {why}; reproduce with: {again}")
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

impl Summary {
    /// One seed, of which it is known only what its links did.
    pub(super) fn of<'a>(links: impl Iterator<Item = &'a LinkCounters>) -> Self {
        let mut summary = Self { seeds: 1, ..Self::default() };
        for link in links {
            summary.packets += link.sent;
            summary.lost += link.lost;
            summary.duplicated += link.duplicated;
            summary.reordered += link.reordered;
            summary.corrupted += link.corrupted;
        }
        summary
    }
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
