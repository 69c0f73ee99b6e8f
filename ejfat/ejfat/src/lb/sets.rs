//! The sets of tables of one load balancer, and its routed ticks.

use std::{net::IpAddr, sync::Arc};

use arrayvec::ArrayVec;

use super::{Balancer, DropCause, LbTables, tally::Places};
use crate::wire::LbHeader;

/// The reason why tables were not staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error(
        "ticks up to {newest} were routed already, so tables from tick {from} on could split events; stage them from a later tick, or force them; if a sender's clock was wrong, that tick is forgotten some seconds after"
    )]
    Routed { from: u64, newest: u64 },
    #[error("there are tables from tick {from} on already; stage these from another tick, or force them")]
    Taken { from: u64 },
    #[error(
        "{most} sets of tables are staged already; try again when those of the oldest have gone out of use, two seconds after their last packet, or put these in the place of all",
        most = Balancer::MOST_STAGED
    )]
    Full,
    #[error(
        "ticks up to {highest} were routed, but none up to the horizon {horizon}, so the next tick is not known; give a tick, or stage tables with a higher horizon"
    )]
    BeyondHorizon { highest: u64, horizon: u64 },
}

/// The reason why tables were not withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WithdrawError {
    #[error("no tables are staged from tick {from} on; withdraw only what was staged")]
    Absent { from: u64 },
    #[error(
        "packets met the tables from tick {from} on already, so to withdraw them could split events; stage others from a later tick"
    )]
    Routed { from: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) from: u64,
    pub(super) tables: Arc<LbTables>,
    pub(super) places: Places,
    /// The number of packets that this set routed.
    pub(super) hits: u64,
    /// The number of packets that this set dropped, without those from addresses that no earlier set allows.
    pub(super) dropped: u64,
}

impl Set {
    pub(super) fn new(from: u64, tables: Arc<LbTables>) -> Self {
        Self { from, tables, places: Vec::new(), hits: 0, dropped: 0 }
    }
}

/// Packets of a load balancer that were routed though their ticks are above its horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondHorizon {
    /// The number of all such packets since the last time when there were none, also of those whose ticks are below the
    /// horizon by now.
    pub packets: u64,
    /// The lowest tick that is known to be above the horizon.
    pub lowest: u64,
    pub highest: u64,
}

/// The horizon of a load balancer that has none: all ticks are remembered when they are routed.
pub(super) const NO_HORIZON: u64 = u64::MAX;

/// The sets of tables of one load balancer, and which of its ticks were routed.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// The current set, then the staged ones in ascending order of their ticks.
    pub(super) sets: ArrayVec<Set, { 1 + Balancer::MOST_STAGED }>,
    /// The highest tick that was routed since [`Balancer::age`]; `before` is that of the period before it.
    pub(super) newest: Option<u64>,
    pub(super) before: Option<u64>,
    /// The highest tick before the load balancer became silent.
    pub(super) last: Option<u64>,
    /// Ticks above this one are routed, but not remembered.
    pub(super) horizon: u64,
    pub(super) beyond: Option<BeyondHorizon>,
}

impl Sets {
    pub(super) fn new(tables: Arc<LbTables>) -> Self {
        let sets = ArrayVec::from_iter([Set::new(0, tables)]);
        Self { sets, newest: None, before: None, last: None, horizon: NO_HORIZON, beyond: None }
    }

    pub(super) fn newest_tick(&self) -> Option<u64> {
        self.newest.max(self.before)
    }

    #[inline]
    pub(super) fn at(&self, tick: u64) -> usize {
        self.sets.iter().rposition(|set| set.from <= tick).unwrap_or(0)
    }

    /// Returns the index of the set that a packet with this header meets. If the tick cannot be read, it is the first
    /// set, whose allowed sources include those of all sets.
    #[inline]
    pub(super) fn at_of(&self, header: &Result<LbHeader, DropCause>) -> usize {
        header.as_ref().map_or(0, |header| self.at(header.tick))
    }

    /// Whether a packet that meets the set `at` may come from an address: either that set allows the address, or a set
    /// that is staged for later ticks. So a new sender need not wait until the ticks reach the tables that allow it.
    #[inline]
    pub(super) fn allows(&self, at: usize, from: IpAddr) -> bool {
        self.sets[at..].iter().any(|set| set.tables.allows(from))
    }

    /// Returns the index of the set that the next new tick meets.
    pub(super) fn upcoming(&self) -> usize {
        self.newest_tick().or(self.last).map_or(0, |newest| self.at(newest.saturating_add(1)))
    }

    /// Returns the index at which a set from a tick on would be inserted. The first set has all ticks before the
    /// second, so a new set comes behind it, even if its tick is not above that of the first set. The same tick is
    /// permitted only with `past_first`, and only if earlier ticks met the first set.
    pub(super) fn place_for(&self, from: u64, past_first: bool) -> Result<usize, StageError> {
        let newest = self.newest_tick();
        if let Some(newest) = newest.filter(|&newest| newest >= from) {
            return Err(StageError::Routed { from, newest });
        }
        let at = self.sets.partition_point(|set| set.from < from);
        let is_past_first = past_first && at == 0 && newest.is_some();
        if !is_past_first && (from == 0 || self.sets.get(at).is_some_and(|set| set.from == from)) {
            return Err(StageError::Taken { from });
        }
        if self.sets.is_full() { Err(StageError::Full) } else { Ok(at.max(1)) }
    }

    /// Returns the tick from which the next tables would apply, and the index of the set that they would replace, if
    /// any.
    pub(super) fn next(&self) -> Result<(u64, Option<usize>), StageError> {
        let at = self.upcoming();
        let set = &self.sets[at];
        match self.newest_tick() {
            Some(newest) if set.hits > 0 => {
                let next = newest.saturating_add(1);
                self.place_for(next, true).map(|_| (next, None))
            }
            None if set.hits > 0
                && let Some(BeyondHorizon { highest, .. }) = self.beyond =>
            {
                Err(StageError::BeyondHorizon { highest, horizon: self.horizon })
            }
            // Packets that met the existing tables did so too long ago to have events in flight.
            _ => Ok((set.from, Some(at))),
        }
    }

    pub(super) fn insert(&mut self, at: usize, set: Set) {
        // The first set has all these ticks already. Its tick becomes 0, so that the inserted set has one before it and
        // can be withdrawn.
        if self.sets[0].from >= set.from {
            self.sets[0].from = 0;
        }
        self.sets.insert(at, set);
    }

    #[inline]
    pub(super) fn routed(&mut self, at: usize, tick: u64) {
        if tick <= self.horizon {
            self.newest = self.newest.max(Some(tick));
        } else {
            self.routed_beyond(tick);
        }
        self.sets[at].hits += 1;
    }

    #[cold]
    fn routed_beyond(&mut self, tick: u64) {
        let beyond = self.beyond.get_or_insert(BeyondHorizon { packets: 0, lowest: tick, highest: tick });
        beyond.packets += 1;
        (beyond.lowest, beyond.highest) = (beyond.lowest.min(tick), beyond.highest.max(tick));
    }

    /// Adds what an engine routed above the horizon that it had.
    pub(super) fn absorb_beyond(&mut self, more: BeyondHorizon) {
        let beyond = self.beyond.get_or_insert(BeyondHorizon { packets: 0, ..more });
        beyond.packets += more.packets;
        beyond.lowest = beyond.lowest.min(more.lowest);
        beyond.highest = beyond.highest.max(more.highest);
        // The horizon is applied again, because the engine may have had a lower one.
        self.set_horizon(self.horizon);
    }

    /// Counts a packet that the tables dropped. A packet from an address that no earlier tables would have allowed is
    /// not counted.
    #[cold]
    pub(super) fn dropped(&mut self, at: usize, cause: DropCause, from: IpAddr) {
        let (before, [set, ..]) = self.sets.split_at_mut(at) else { return };
        let is_stranger = cause == DropCause::BlockedSrc;
        if !is_stranger || before.iter().any(|before| before.tables.allows(from)) {
            set.dropped += 1;
        }
    }

    pub(super) fn set_horizon(&mut self, horizon: u64) {
        self.horizon = horizon;
        let Some(beyond) = &mut self.beyond else { return };
        if beyond.lowest > horizon {
            return;
        }
        if beyond.highest <= horizon {
            self.newest = self.newest.max(Some(beyond.highest));
            self.beyond = None;
        } else {
            self.newest = self.newest.max(Some(beyond.lowest));
            beyond.lowest = beyond.highest;
        }
    }
}
