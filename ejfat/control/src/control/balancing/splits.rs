//! Which ticks may be split, and the ticks that senders may have on their way. Ranges are the first tick, and the first one behind.

use std::{net::IpAddr, time::Duration};

use ejfat::Time;

use super::{Balancing, FOLLOWED, ON_THEIR_WAY};
use crate::{boundary::Sender, plane::PlaneId, sync::Verdict};

/// Bounds how far a refused sync may be above the begin of an epoch and still be believed: what a sender at twice the known rate does in
/// this time. A sender that is ten times too fast does not get farther while its packets are on their way.
const TOO_FAST: Duration = Duration::from_secs(15);

impl Balancing {
    /// Ticks that may be split because a sender was faster than was allowed for: epochs of the last seconds may have begun at ticks
    /// that it had passed. `behind` is a tick that it cannot have reached.
    pub(super) fn passed_boundaries(&self, behind: u64) -> Option<(u64, u64)> {
        let lowest = self.boundaries.iter().map(|(_, from)| *from).min();
        lowest.filter(|from| *from < behind).map(|from| (from, behind))
    }

    /// Ranges of ticks that may be split and are not told yet, for a load balancer that ends: the first tick, and the first one behind.
    /// One of these planes lacks an epoch, or it is not known yet whether ticks above the horizon are the senders'.
    pub(crate) fn splits_of(
        &self,
        now: Time,
        planes: impl Iterator<Item = PlaneId>,
    ) -> impl Iterator<Item = (u64, u64)> {
        let lacks = planes.filter_map(|plane| self.publisher.lacks(plane));
        let leapt =
            self.ahead.iter().filter_map(|ahead| Some(self.begun_since(ahead.since)?.min(ahead.lowest)));
        let from = lacks.chain(self.publisher.open).chain(leapt).min();
        let behind = self.behind(now);
        from.map(|from| (from, behind)).into_iter().chain(self.unreported.clone())
    }

    /// A tick that no sender has reached.
    pub(crate) fn behind(&self, now: Time) -> u64 {
        let highest = self.highest_routed().max(self.ahead.as_ref().map(|ahead| ahead.highest));
        match highest {
            Some(tick) => self.around(now, tick).1,
            None => self.on_their_way(now).1,
        }
    }

    /// The highest known rate, by planes and by syncs. All senders number the same events, so each may be as fast as the fastest.
    pub(crate) fn fastest(&self, now: Time) -> f64 {
        self.senders.rates(now).fold(self.rate.rate(), f64::max)
    }

    /// A tick that senders which have `tick` cannot reach within a time, as far as their rate is known.
    pub(super) fn beyond_reach(&self, now: Time, tick: u64, time: Duration) -> u64 {
        self.options.margins.beyond_routed(tick, self.fastest(now), time)
    }

    /// The ticks that senders may have on their way, around one that they have.
    pub(crate) fn around(&self, now: Time, tick: u64) -> (u64, u64) {
        let fastest = self.fastest(now);
        if fastest <= 0.0 {
            return (0, u64::MAX);
        }
        let beyond = self.options.margins.beyond_routed(tick, fastest, ON_THEIR_WAY);
        (tick.saturating_sub(beyond - tick), beyond)
    }

    /// The ticks that senders may have on their way, by their syncs: all of them if there are none.
    pub(crate) fn on_their_way(&self, now: Time) -> (u64, u64) {
        let around = |Sender { tick, rate, age }: Sender| {
            let passed = self.options.margins.beyond_routed(tick, rate, age);
            (self.around(now, tick).0, self.around(now, passed).1)
        };
        let ranges = self.senders.proven(now).map(around);
        ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, u64::MAX))
    }

    /// Like [`Self::on_their_way`], with the ticks of the last twelve seconds: a sender that counts from another tick now may have
    /// had them, and that is known later only.
    pub(crate) fn on_their_way_since(&self, now: Time) -> (u64, u64) {
        let (from, to) = self.on_their_way(now);
        let since = self.beyond_reach(now, 0, FOLLOWED);
        (from.saturating_sub(since), to)
    }

    /// The lowest first tick of the epochs that began since shortly before a time.
    pub(super) fn begun_since(&self, time: Time) -> Option<u64> {
        let late = self.boundaries.iter().filter(|(then, _)| *then + ON_THEIR_WAY >= time);
        late.map(|(_, from)| *from).min()
    }

    /// Ranges of ticks that may be split by what a sync tells: the first tick, and the first one behind.
    pub(crate) fn splits_by_sync(
        &self,
        now: Time,
        tick: u64,
        verdict: Option<Verdict>,
    ) -> impl Iterator<Item = (u64, u64)> {
        let by_syncs = self.by_syncs();
        let (from, to) = self.around(now, tick);
        // The sync does not fit, and an epoch began a short time ago.
        let is_doubted = by_syncs && matches!(verdict, Some(Verdict::Doubtful | Verdict::Refused));
        let begun = self.begun_since(now).filter(|_| is_doubted);
        let doubted = begun.map(|begun| {
            let passed = begun < from && tick <= self.beyond_reach(now, begun, TOO_FAST);
            (if passed { begun } else { from }, to)
        });
        // Planes have different tables for lower ticks.
        let is_back = matches!(verdict, Some(Verdict::Doubtful | Verdict::Followed));
        let partly = if is_back { self.publisher.partly } else { 0 };
        let mixed = [self.mixed, partly].into_iter().filter(|mixed| tick < *mixed).max();
        let uneven = mixed.unwrap_or(0).max(self.publisher.uneven);
        let confirmed = verdict == Some(Verdict::Confirmed);
        let passed = self.passed_boundaries(to).filter(|_| by_syncs && confirmed);
        doubted.into_iter().chain(passed).chain((from < uneven).then(|| (from, to.min(uneven))))
    }

    /// Ticks that may be split if the newest syncs of these senders were true, which were refused. They have to be told before the senders
    /// are forgotten, because no later sync can confirm them.
    pub(crate) fn doubted(&self, now: Time, forgotten: impl Fn(IpAddr) -> bool) -> Option<(u64, u64)> {
        let doubts =
            || self.senders.doubts().filter(|(address, _)| forgotten(*address)).map(|(_, tick)| tick);
        let (lowest, highest) = (doubts().min()?, doubts().max()?);
        let begun = self.begun_since(now)?;
        let passed = self.beyond_reach(now, begun, TOO_FAST);
        let from = begun.min(self.around(now, lowest).0);
        Some((from, passed.max(self.around(now, highest).1)))
    }

    /// Ticks that may be split because their senders are below `first`, the first tick for which a plane without sets of tables has an
    /// epoch of its own: lower ticks meet the newest epoch.
    pub(crate) fn below(&self, now: Time, first: u64) -> impl Iterator<Item = (u64, u64)> {
        let senders = self.senders.proven(now).filter(move |sender| sender.tick < first);
        senders.map(move |sender| self.around(now, sender.tick))
    }
}
