//! A load balancer that nobody has reserved any more. Which of its events may be split is told for some seconds after its end, because
//! a part of that is known only then: syncs show that senders were too fast, or count from another tick, and planes answer whether they
//! took an epoch that was on its way.

use std::net::IpAddr;

use ejfat::{Time, wire::SyncHeader};

use super::{
    balancing::{Balancing, ON_THEIR_WAY},
    planes::{PlaneAnswer, Target},
    publisher::Step,
};
use crate::plane::{PlaneId, PlaneKind};

/// See the [module](self). Ranges of ticks are the first tick, and the first one behind.
#[derive(Debug)]
pub(super) struct Ended {
    of: Balancing,
    /// A tick that no sender had reached at the end.
    behind: u64,
    until: Time,
}

impl Ended {
    /// Begins to follow a load balancer that ends now. The caller has told the splits that are known already.
    pub(super) fn new(mut of: Balancing, now: Time) -> Self {
        of.publisher.open = None;
        Self { behind: of.behind(now), of, until: now + ON_THEIR_WAY }
    }

    pub(super) fn target(&self) -> Target {
        (self.of.lb, self.of.reservation)
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.until
    }

    /// The addresses from which [`Self::sync`] takes syncs.
    pub(super) fn senders(&self, now: Time) -> impl Iterator<Item = IpAddr> {
        self.of.senders.addresses(now)
    }

    /// Takes a sync. Returns the ticks that may be split because of it: none if its sender was not known before the end.
    pub(super) fn sync(&mut self, now: Time, from: IpAddr, sync: &SyncHeader) -> Vec<(u64, u64)> {
        if !self.of.senders.knows(from) {
            return Vec::new();
        }
        let known_rate = self.of.fastest(now);
        let margins = &self.of.options.margins;
        let verdict = self.of.senders.check(now, (from, sync.source), sync.tick, known_rate, margins);
        self.of.splits_by_sync(now, sync.tick, verdict).collect()
    }

    /// Takes what a plane answered. Returns ticks that may be split.
    pub(super) fn answered(&mut self, plane: PlaneId, answer: PlaneAnswer) -> Option<(u64, u64)> {
        let step = self.of.publisher.answered(plane, answer);
        self.step(&step)
    }

    /// A plane is lost. Returns ticks that may be split.
    pub(super) fn lost(&mut self, plane: PlaneId) -> Option<(u64, u64)> {
        let step = self.of.publisher.lost(plane);
        self.step(&step)
    }

    fn step(&self, step: &Step) -> Option<(u64, u64)> {
        let publisher = &self.of.publisher;
        let from = match step {
            Step::Wait => None,
            Step::Withdraw { from, .. } => Some(*from),
            Step::Begun { .. } => publisher.newest().and_then(|newest| {
                let mut staged =
                    self.of.options.planes.iter().filter(|(_, kind)| **kind == PlaneKind::Staged);
                staged.any(|(plane, _)| !newest.planes.contains(plane)).then_some(newest.from)
            }),
            _ => publisher.open,
        };
        from.filter(|from| *from < self.behind).map(|from| (from, self.behind))
    }
}
