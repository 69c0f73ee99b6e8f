//! What RDMA does between a bridge and one worker: WRITEs arrive whole, in order and late, until the connection breaks.

use std::{collections::VecDeque, ops::Range};

use ejfat::ring::BLOCK;
use simnet::Random;

/// A WRITE of the bridge.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// A WRITE from the buffer of a received segment.
    Segment { offset: u64, bytes: Vec<u8> },
    /// A WRITE from the staging ring, which is read when the WRITE arrives, as a device may do.
    Staged(Range<usize>),
    /// A WRITE of an event descriptor, with the sequence number as its immediate.
    Descriptor { sequence: u32, block: [u8; BLOCK] },
}

/// How late things are, and when nothing passes.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    /// Each way, at most.
    pub(super) most: u64,
    /// Nothing arrives in this time; it arrives behind it.
    pub(super) pause: Range<u64>,
}

#[derive(Debug)]
pub(super) struct Wire {
    delays: Delays,
    random: Random,
    /// Nothing arrives any more from then on.
    broken: u64,
    writes: VecDeque<(u64, Write)>,
    acknowledgements: VecDeque<u64>,
    /// Words that the worker wrote: slot and value.
    credits: VecDeque<(u64, u32, u32)>,
}

impl Wire {
    pub(super) fn new(delays: Delays, random: Random) -> Self {
        Self {
            delays,
            random,
            broken: u64::MAX,
            writes: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            credits: VecDeque::new(),
        }
    }

    /// When something arrives that leaves now, behind what left before.
    fn arrival(&mut self, now: u64, before: Option<u64>) -> u64 {
        let at = (now + self.random.below(self.delays.most + 1)).max(before.unwrap_or_default());
        if self.delays.pause.contains(&at) { self.delays.pause.end } else { at }
    }

    pub(super) fn write(&mut self, now: u64, write: Write) {
        let at = self.arrival(now, self.writes.back().map(|&(at, _)| at));
        if at < self.broken {
            self.writes.push_back((at, write));
        }
    }

    pub(super) fn acknowledge(&mut self, now: u64) {
        let at = self.arrival(now, self.acknowledgements.back().copied());
        if at < self.broken {
            self.acknowledgements.push_back(at);
        }
    }

    pub(super) fn credit(&mut self, now: u64, (slot, value): (u32, u32)) {
        let at = self.arrival(now, self.credits.back().map(|&(at, ..)| at));
        if at < self.broken {
            self.credits.push_back((at, slot, value));
        }
    }

    /// What was to arrive from then on never will, in both directions.
    pub(super) fn break_at(&mut self, now: u64) {
        self.broken = now;
        self.writes.retain(|&(at, _)| at < now);
        self.acknowledgements.retain(|&at| at < now);
        self.credits.retain(|&(at, ..)| at < now);
    }

    /// WRITEs that did not arrive are lost; what the worker sent before is still on its way.
    pub(super) fn worker_died(&mut self, now: u64) {
        self.writes.clear();
        self.broken = now;
    }

    pub(super) fn written(&mut self, now: u64) -> Option<Write> {
        self.writes.front().filter(|&&(at, _)| at <= now)?;
        self.writes.pop_front().map(|(_, write)| write)
    }

    pub(super) fn acknowledged(&mut self, now: u64) -> bool {
        let due = self.acknowledgements.front().is_some_and(|&at| at <= now);
        due && self.acknowledgements.pop_front().is_some()
    }

    pub(super) fn credited(&mut self, now: u64) -> Option<(u32, u32)> {
        self.credits.front().filter(|&&(at, ..)| at <= now)?;
        self.credits.pop_front().map(|(_, slot, value)| (slot, value))
    }

    pub(super) fn next_arrival(&self) -> Option<u64> {
        let writes = self.writes.front().map(|&(at, _)| at);
        let credits = self.credits.front().map(|&(at, ..)| at);
        writes.into_iter().chain(credits).chain(self.acknowledgements.front().copied()).min()
    }
}
