//! A limit on the log lines that one peer can cause.
//!
//! Each peer may cause a burst of a few log lines, and after the burst one log line per second. Because the log lines
//! of each peer are limited, a flood of failures of one peer neither fills the log nor suppresses the log lines of
//! other peers. After log lines of a peer were left out, the next log line of this peer says how many log lines were
//! left out.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use crate::source_network::SourceNetwork;

/// The maximum number of log lines that a peer may cause in one burst.
const BURST: u32 = 8;
/// The time after which a peer that has used up its burst may cause one more log line.
const PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of peers whose log lines are counted separately. All peers that are not counted separately may
/// together cause as many log lines as a single peer.
const PEERS: usize = 1024;

/// Counts the log lines of each peer; `K` identifies peers.
#[derive(Debug)]
pub struct LogLimit<K = SourceNetwork> {
    peers: HashMap<K, Allowance>,
    others: Allowance,
}

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        Self { peers: HashMap::new(), others: Allowance::default() }
    }
}

/// The state of the limit for one peer: how many log lines it has recently caused, and how many were left out.
#[derive(Debug, Default)]
struct Allowance {
    /// The number of written log lines that still count against the limit [`BURST`]. Each log line that is written adds
    /// 1, and each [`PERIOD`] that passes subtracts 1.
    written: u32,
    /// The time at which the present [`PERIOD`] began; `None` if `written` is 0.
    since: Option<Instant>,
    left_out: u64,
}

impl Allowance {
    fn refill(&mut self, now: Instant) {
        let Some(since) = self.since else { return };
        let earned = now.saturating_duration_since(since).as_nanos() / PERIOD.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.written = self.written.saturating_sub(earned);
        self.since = if self.written == 0 { None } else { since.checked_add(PERIOD * earned) };
    }

    fn take(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        if self.written >= BURST {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        self.since = self.since.or(Some(now));
        Some(std::mem::take(&mut self.left_out))
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.written == 0
    }
}

impl<K: Eq + Hash> LogLimit<K> {
    /// Returns `None` if no log line of `peer` may be written at `now`. Otherwise returns the number of log lines of
    /// `peer` that were left out since the last log line of `peer`. All peers that are not counted separately are
    /// treated as one peer.
    pub fn take(&mut self, peer: K, now: Instant) -> Option<u64> {
        if self.peers.len() >= PEERS && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, allowance| !allowance.is_whole(now));
            if self.peers.len() >= PEERS {
                return self.others.take(now);
            }
        }
        self.peers.entry(peer).or_default().take(now)
    }
}
