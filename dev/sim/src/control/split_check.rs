//! Looks where the segments of events go.

use std::collections::{BTreeMap, BTreeSet};

use super::S;

/// The time (ns) after which the control plane knows the rate of senders that began.
pub(super) const KNOWN: u64 = 2 * S;
/// The time (ns) during which segments of an event may arrive.
const REMEMBERED: u64 = 5 * S;

#[derive(Clone, Copy, Debug)]
struct FirstSegment {
    worker: usize,
    at: u64,
}

/// Checks to which workers the events of one load balancer go.
#[derive(Default)]
pub(super) struct SplitChecker {
    /// By the count of ticks that began anew, and the tick.
    events: BTreeMap<(u32, u64), FirstSegment>,
    next_tidy: u64,
    /// When the control plane knows the rate of senders (ns).
    pub(super) known: u64,
    pub(super) split: BTreeSet<u64>,
    /// Events that were split while the highest rate was known.
    pub(super) split_later: u64,
    /// Ranges that were told while the highest rate was known.
    pub(super) announced_later: u64,
    /// Ticks that may be split, as the control plane told: the first one, and the first behind.
    pub(super) announced: Vec<(u64, u64)>,
    pub(super) delivered: u64,
    pub(super) dropped: u64,
}

impl SplitChecker {
    /// A checker of a load balancer whose senders begin at `begin` (ns).
    pub(super) fn new(begin: u64) -> Self {
        Self { known: begin + KNOWN, ..Self::default() }
    }

    /// A segment came to a worker. Returns whether it is the first one of its event.
    pub(super) fn segment(&mut self, now: u64, (anew, tick): (u32, u64), worker: usize) -> bool {
        self.delivered += 1;
        if now >= self.next_tidy {
            self.next_tidy = now + REMEMBERED;
            self.events.retain(|_, first| now < first.at + REMEMBERED);
        }
        match self.events.get(&(anew, tick)) {
            Some(first) if first.worker != worker => {
                self.split.insert(tick);
                self.split_later += u64::from(now > self.known);
                false
            }
            Some(_) => false,
            None => {
                self.events.insert((anew, tick), FirstSegment { worker, at: now });
                true
            }
        }
    }

    /// The control plane told ticks that may be split.
    pub(super) fn announce(&mut self, now: u64, from: u64, to: u64) {
        self.announced.push((from, to));
        self.announced_later += u64::from(now > self.known);
    }

    /// The first event that was split although nobody told so.
    pub(super) fn unlisted(&self) -> Option<u64> {
        let is_announced = |tick: u64| self.announced.iter().any(|&(from, to)| (from..to).contains(&tick));
        self.split.iter().copied().find(|tick| !is_announced(*tick))
    }
}
