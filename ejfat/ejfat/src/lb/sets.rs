//! The sets of tables of one load balancer, and what is known of its ticks.

use std::{net::IpAddr, sync::Arc};

use arrayvec::ArrayVec;

use super::{Balancer, DropCause, LbTables, tally::Places};
use crate::wire::LbHeader;

/// Why tables were not staged.
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

/// Why tables were not withdrawn.
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
    /// Packets that it routed.
    pub(super) hits: u64,
    /// Packets that it dropped, but for those of strangers.
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
    /// All since there was none, also those whose ticks a higher horizon has reached since then.
    pub packets: u64,
    /// The lowest tick that is known to be above the horizon.
    pub lowest: u64,
    pub highest: u64,
}

/// Ticks above this one are not remembered when they are routed, if there is no other horizon.
pub(super) const NO_HORIZON: u64 = u64::MAX;

/// The sets of tables of one load balancer, and which of its ticks were routed.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// The current one, then those staged, with ascending ticks.
    pub(super) sets: ArrayVec<Set, { 1 + Balancer::MOST_STAGED }>,
    /// The newest ticks routed since [`Balancer::age`], and in the time before.
    pub(super) newest: Option<u64>,
    pub(super) before: Option<u64>,
    /// The newest tick before it became silent.
    pub(super) last: Option<u64>,
    /// Higher ticks are routed, but not remembered.
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

    /// The index of the set that a packet with this header meets. Without a readable tick it is the first set, whose sources are those of
    /// all sets.
    #[inline]
    pub(super) fn at_of(&self, header: &Result<LbHeader, DropCause>) -> usize {
        header.as_ref().map_or(0, |header| self.at(header.tick))
    }

    /// Whether a packet that meets a set may come from an address: if that set allows it, or one that is staged for later ticks. So a
    /// sender that is new need not wait until the ticks reach the tables that let it in.
    #[inline]
    pub(super) fn allows(&self, at: usize, from: IpAddr) -> bool {
        self.sets[at..].iter().any(|set| set.tables.allows(from))
    }

    /// Which set the next new tick meets.
    pub(super) fn upcoming(&self) -> usize {
        self.newest_tick().or(self.last).map_or(0, |newest| self.at(newest.saturating_add(1)))
    }

    /// Where a set from a tick on would be inserted. The first set has all ticks before the second, so a new one comes behind
    /// it, also from a tick on that is not above its own; `past_first` permits that for its very tick, if earlier ones met it.
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

    /// From which tick on the next tables would apply, and which set they would take the place of, if any.
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
            // Whoever met the tables there are did so too long ago to have events on their way.
            _ => Ok((set.from, Some(at))),
        }
    }

    pub(super) fn insert(&mut self, at: usize, set: Set) {
        // It has all these ticks already. What is inserted can be withdrawn then, since there are tables before it.
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

    /// Takes over what an engine routed above the horizon that it had.
    pub(super) fn absorb_beyond(&mut self, more: BeyondHorizon) {
        let beyond = self.beyond.get_or_insert(BeyondHorizon { packets: 0, ..more });
        beyond.packets += more.packets;
        beyond.lowest = beyond.lowest.min(more.lowest);
        beyond.highest = beyond.highest.max(more.highest);
        // The engine may have had a lower horizon than this one.
        self.set_horizon(self.horizon);
    }

    /// Counts a packet that the tables dropped. A stranger, whom no earlier tables would have let in, makes no difference.
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
