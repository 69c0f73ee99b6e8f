//! How many lines of the log a peer may cause.
//!
//! Each peer may cause a few lines at once and then one in a second, so that a flood of failures is neither a flood of
//! lines nor the end of other peers' lines. The next line that a peer may cause says how many were left out.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use crate::peer::Peer;

/// Lines that a peer may cause at once.
const BURST: u32 = 8;
/// A peer earns another line in this time.
const PERIOD: Duration = Duration::from_secs(1);
/// Peers that are told apart. Those beyond share one allowance.
const PEERS: usize = 1024;

/// Counts the lines of peers, which are told apart by `K`.
#[derive(Debug)]
pub struct Lines<K = Peer> {
    peers: HashMap<K, Allowance>,
    others: Allowance,
}

impl<K> Default for Lines<K> {
    fn default() -> Self {
        Self { peers: HashMap::new(), others: Allowance::default() }
    }
}

/// The lines of one peer.
#[derive(Debug, Default)]
struct Allowance {
    /// Lines told since the allowance was whole, at the time `since`.
    told: u32,
    since: Option<Instant>,
    left_out: u64,
}

impl Allowance {
    fn refill(&mut self, now: Instant) {
        let Some(since) = self.since else { return };
        let earned = now.saturating_duration_since(since).as_nanos() / PERIOD.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.told = self.told.saturating_sub(earned);
        self.since = if self.told == 0 { None } else { since.checked_add(PERIOD * earned) };
    }

    fn take(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        if self.told >= BURST {
            self.left_out += 1;
            return None;
        }
        self.told += 1;
        self.since = self.since.or(Some(now));
        Some(std::mem::take(&mut self.left_out))
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.told == 0
    }
}

impl<K: Eq + Hash> Lines<K> {
    /// Whether `peer` may cause a line at `now`: then how many were left out since its last one.
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(number: u32) -> Peer {
        IpAddr::from(Ipv4Addr::from_bits(number)).into()
    }

    #[test]
    fn a_flood_of_one_peer_is_a_line_a_second_and_leaves_the_lines_of_others() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let (mut told, mut left_out) = (0, 0);
        for millisecond in 0..20_000 {
            let now = start + Duration::from_millis(millisecond);
            if let Some(before) = lines.take(peer(1), now) {
                (told, left_out) = (told + 1, left_out + before);
            }
            if millisecond == 10_000 {
                assert_eq!(lines.take(peer(2), now), Some(0));
            }
        }
        assert_eq!(told, u64::from(BURST) + 19);
        // What was left out since the last line is not told yet: less than a second's.
        assert!((18_900..=20_000 - told).contains(&left_out), "{left_out}");
    }

    #[test]
    fn many_peers_take_bounded_memory_and_share_what_is_beyond() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        let told = (0..100_000).filter(|&number| lines.take(peer(number), now).is_some()).count();
        assert_eq!((told, lines.peers.len()), (PEERS + BURST as usize, PEERS));
        // A minute later all are whole again, and forgotten.
        assert!(lines.take(peer(1 << 30), now + Duration::from_secs(60)).is_some());
        assert_eq!(lines.peers.len(), 1);
    }
}
