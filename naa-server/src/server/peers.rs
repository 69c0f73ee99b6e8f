//! The resources of the server that each source network uses, and the time that the server loop spent on inline calls
//! of each source network.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap as HashMap;

use verbs::source_network::SourceNetwork;

use crate::{counters::SourceNetworkCounters, memory_budget::Account, pool::Calls};

/// The length of a window, in which the time of a source network's inline calls is measured. If other source networks
/// use the server, the calls of a source network run inline only until they have taken [`INLINE_TIME`] in the current
/// window.
const WINDOW: Duration = Duration::from_millis(10);
const INLINE_TIME: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<SourceNetwork, SourceUse>);

#[derive(Debug, Default)]
struct SourceUse {
    account: Account,
    sessions: usize,
    /// The time at which the current window began, or `None` before the first window. A window is a period of length
    /// [`WINDOW`] in which the time of this source network's inline calls is limited. The limit holds only if other
    /// source networks use the server, too.
    window: Option<Instant>,
    /// The time that the server loop spent on inline calls of the source network since the start of the current window.
    inline: Duration,
    counted: SourceNetworkCounters,
}

impl Peers {
    pub(super) fn sessions(&self, peer: SourceNetwork) -> usize {
        self.0.get(&peer).map_or(0, |source| source.sessions)
    }

    /// Returns the account of the source network `peer`, which counts the bytes and files that its sessions have in
    /// use. If the source network is new, a new account is made for it.
    pub(super) fn account(&mut self, peer: SourceNetwork) -> Account {
        self.0.entry(peer).or_default().account.clone()
    }

    pub(super) fn session_began(&mut self, peer: SourceNetwork) {
        let source = self.0.entry(peer).or_default();
        source.sessions += 1;
        source.counted.sessions_accepted += 1;
    }

    pub(super) fn session_ended(&mut self, peer: SourceNetwork) {
        if let Some(source) = self.0.get_mut(&peer) {
            source.sessions = source.sessions.saturating_sub(1);
        }
    }

    pub(super) fn called(&mut self, peer: SourceNetwork) {
        if let Some(source) = self.0.get_mut(&peer) {
            source.counted.calls += 1;
        }
    }

    pub(super) fn call_refused(&mut self, peer: SourceNetwork) {
        if let Some(source) = self.0.get_mut(&peer) {
            source.counted.calls_refused += 1;
        }
    }

    pub(super) fn memory_refused(&mut self, peer: SourceNetwork) {
        if let Some(source) = self.0.get_mut(&peer) {
            source.counted.memory_refused += 1;
        }
    }

    /// Returns true if the server loop may execute a call of `peer` itself. If no other source network uses the server,
    /// `peer` may have all of the loop's time.
    pub(super) fn may_inline(&mut self, peer: SourceNetwork, now: Instant) -> bool {
        if self.0.len() == 1 {
            return true;
        }
        let Some(source) = self.0.get_mut(&peer) else { return true };
        if source.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (source.window, source.inline) = (Some(now), Duration::ZERO);
        }
        source.inline < INLINE_TIME
    }

    /// Returns true if another source network may have to wait while the server loop computes.
    pub(super) fn is_shared(&self) -> bool {
        self.0.len() > 1
    }

    pub(super) fn computed(&mut self, peer: SourceNetwork, time: Duration) {
        if let Some(source) = self.0.get_mut(&peer) {
            source.inline += time;
        }
    }

    /// Forgets the source networks that have nothing in use, and returns the counters of all other source networks.
    /// `calls` returns the calls of a source network that have not ended.
    pub(super) fn survey(&mut self, calls: impl Fn(SourceNetwork) -> Calls) -> Vec<SourceNetworkCounters> {
        let mut counters = Vec::with_capacity(self.0.len());
        self.0.retain(|&peer, source| {
            let (open, memory) = (calls(peer), source.account.used());
            if source.sessions == 0 && memory == 0 && open == Calls::default() {
                return false;
            }
            let now = SourceNetworkCounters {
                peer: Some(peer),
                sessions: source.sessions,
                memory,
                open,
                ..source.counted.clone()
            };
            counters.push(now);
            true
        });
        counters.sort_by_key(|stats| stats.peer);
        counters
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn peer(number: u8) -> SourceNetwork {
        IpAddr::from([10, 9, 0, number]).into()
    }

    #[test]
    fn the_loop_computes_for_one_peer_a_fifth_of_the_time_while_there_are_others() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        peers.session_began(peer(1));
        let inline = |peers: &mut Peers| {
            let mut time = Duration::ZERO;
            for step in 0..10_000 {
                let now = start + Duration::from_micros(100) * step;
                if peers.may_inline(peer(1), now) {
                    peers.computed(peer(1), Duration::from_micros(100));
                    time += Duration::from_micros(100);
                }
            }
            time
        };
        assert_eq!(inline(&mut peers), Duration::from_secs(1), "alone it has all of the loop's time");
        let later = start + Duration::from_secs(2);
        peers.session_began(peer(2));
        let share = inline(&mut peers);
        assert!(share <= Duration::from_millis(210), "{share:?}");
        assert!(peers.may_inline(peer(2), later), "the other peer's time is its own");
    }
}
