//! The sets of tables of one load balancer, and the ticks that the load balancer routed.

use std::{net::IpAddr, sync::Arc};

use arrayvec::ArrayVec;

use super::{DataPlane, DropCause, LbTables, packet_counters::Places};
use crate::wire::LbHeader;

/// The reason why tables were not staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// A tick to which the new tables would apply was already routed. The new tables could split the event with this
    /// tick: later segments could go to another worker than the earlier segments.
    #[error(
        "ticks up to {newest} were routed already, so tables from tick {from} on could split events; stage them from a later tick, or force them; if a sender's clock was wrong, that tick is forgotten some seconds after"
    )]
    Routed {
        /// The first tick to which the new tables would apply.
        from: u64,
        /// The highest tick that was routed.
        newest: u64,
    },
    /// Another set of tables has the same first tick, or the first tick is 0, which always belongs to the current set.
    #[error("there are tables from tick {from} on already; stage these from another tick, or force them")]
    Taken {
        /// The first tick to which the new tables would apply.
        from: u64,
    },
    /// The load balancer has [`DataPlane::MOST_STAGED`] staged sets of tables.
    #[error(
        "{most} sets of tables are staged already; try again when those of the oldest have gone out of use, two seconds after their last packet, or put these in the place of all",
        most = DataPlane::MOST_STAGED
    )]
    Full,
    /// The first tick of the new tables cannot be chosen, because all routed ticks were above the horizon, and such
    /// ticks are not remembered.
    #[error(
        "ticks up to {highest} were routed, but none up to the horizon {horizon}, so the next tick is not known; give a tick, or stage tables with a higher horizon"
    )]
    BeyondHorizon {
        /// The highest tick that was routed.
        highest: u64,
        /// The horizon of the load balancer.
        horizon: u64,
    },
}

/// The reason why tables were not withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WithdrawError {
    /// No set of tables with this first tick is staged.
    #[error("no tables are staged from tick {from} on; withdraw only what was staged")]
    Absent {
        /// The first tick of the tables that were to be withdrawn.
        from: u64,
    },
    /// The tables that were to be withdrawn have already routed or dropped a packet. A withdrawal could split the event
    /// of this packet, because later segments of the event would be looked up in other tables.
    #[error(
        "packets met the tables from tick {from} on already, so to withdraw them could split events; stage others from a later tick"
    )]
    Routed {
        /// The first tick of the tables that were to be withdrawn.
        from: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) from: u64,
    pub(super) tables: Arc<LbTables>,
    pub(super) places: Places,
    /// The number of packets that this set routed.
    pub(super) hits: u64,
    /// The number of packets with a valid LB header that this set dropped. A packet is not counted if no set of the
    /// load balancer allows the packet's source address. A set whose `hits` or `dropped` is above 0 cannot be
    /// withdrawn.
    pub(super) dropped: u64,
}

impl Set {
    pub(super) fn new(from: u64, tables: Arc<LbTables>) -> Self {
        Self { from, tables, places: Vec::new(), hits: 0, dropped: 0 }
    }
}

/// The packets that a load balancer routed although their ticks were above its horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondHorizon {
    /// The number of packets whose ticks were above the horizon when the packets were routed. When the horizon rises,
    /// some of these ticks may no longer be above it. The load balancer does not know how many, so `packets` does not
    /// decrease while `highest` is above the horizon.
    pub packets: u64,
    /// The lowest routed tick above the horizon that the load balancer knows. A load balancer stores only two of the
    /// ticks that it routed above its horizon: the lowest one in `lowest`, and the highest one in `highest`. When the
    /// horizon rises to `lowest` or higher but stays below `highest`, only `highest` of these two ticks is still above
    /// the horizon. In this case, `lowest` is set to `highest`.
    pub lowest: u64,
    /// The highest routed tick above the horizon.
    pub highest: u64,
}

/// The value of [`Sets::horizon`] for a load balancer that has no horizon. No tick is above this value.
pub(super) const NO_HORIZON: u64 = u64::MAX;

/// The sets of tables of one load balancer, and the routed ticks that are remembered.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// The current set, followed by the staged sets in the ascending order of their first ticks.
    pub(super) sets: ArrayVec<Set, { 1 + DataPlane::MOST_STAGED }>,
    /// The highest tick that was remembered as routed since [`DataPlane::age`] last cleared this field. Each call of
    /// [`DataPlane::age`] moves the value of this field into the field `before`, but skips a load balancer whose
    /// `horizon` is not [`NO_HORIZON`].
    pub(super) newest: Option<u64>,
    /// The value that [`DataPlane::age`] last moved out of the field `newest`; `None` if the field had no value.
    pub(super) before: Option<u64>,
    /// The highest of the ticks that [`DataPlane::age`] has forgotten. [`DataPlane::age`] forgets all ticks of a load
    /// balancer that routed no packet since the previous call of [`DataPlane::age`].
    pub(super) last: Option<u64>,
    /// The highest tick that can be remembered as routed. Packets with ticks above the horizon are routed, too, but
    /// their ticks are not remembered.
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

    /// Returns the index of the set that applies to a packet with this header. If the tick cannot be read from the
    /// header, the index is 0, so that [`Sets::allows`] searches all sets for the source address.
    #[inline]
    pub(super) fn at_of(&self, header: &Result<LbHeader, DropCause>) -> usize {
        header.as_ref().map_or(0, |header| self.at(header.tick))
    }

    /// Returns true if the set `at`, or any set for later ticks, allows the source address `from`. The set `at` is the
    /// set that applies to the packet. The sets for later ticks count as well, so that a new sender can send as soon as
    /// a set that allows its address is staged.
    #[inline]
    pub(super) fn allows(&self, at: usize, from: IpAddr) -> bool {
        self.sets[at..].iter().any(|set| set.tables.allows(from))
    }

    /// Returns the index of the set that applies to the next tick, which is one above the highest known routed tick. If
    /// no routed tick is known, the index is 0.
    pub(super) fn upcoming(&self) -> usize {
        self.newest_tick().or(self.last).map_or(0, |newest| self.at(newest.saturating_add(1)))
    }

    /// Returns the index at which a set with the first tick `from` would be inserted. The index is never 0: the first
    /// set also applies to all ticks below its first tick, so even a set with a lower first tick comes after it. Fails
    /// with [`StageError::Routed`] if `from` or a higher tick is remembered as routed. Fails with [`StageError::Taken`]
    /// if `from` is 0 or the first tick of any set. Fails with [`StageError::Full`] if there is no room for another
    /// set.
    ///
    /// If `past_first` is true and a tick is remembered as routed, `from` may also be the first tick of the first set.
    /// The new set then applies from `from` on, and the first set applies only to lower ticks. All remembered ticks are
    /// such lower ticks, because the function would otherwise fail with [`StageError::Routed`].
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

    /// Returns the first tick to which newly staged tables would apply, and the index of the set that these tables
    /// would replace, if any.
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
            // The existing tables routed no packet recently, so no event is in flight, and the new tables can replace
            // the existing tables.
            _ => Ok((set.from, Some(at))),
        }
    }

    pub(super) fn insert(&mut self, at: usize, set: Set) {
        // No set is inserted before the first set, and the sets must stay in the ascending order of their first ticks.
        // If the inserted set begins at a lower tick than the first set, or at the same tick, the first tick of the
        // first set becomes 0. The change affects no packet, because the first set also applies to all ticks below its
        // first tick.
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
            self.add_beyond(BeyondHorizon { packets: 1, lowest: tick, highest: tick });
        }
        self.sets[at].hits += 1;
    }

    #[cold]
    fn add_beyond(&mut self, more: BeyondHorizon) {
        let beyond = self.beyond.get_or_insert(BeyondHorizon { packets: 0, ..more });
        beyond.packets += more.packets;
        beyond.lowest = beyond.lowest.min(more.lowest);
        beyond.highest = beyond.highest.max(more.highest);
    }

    /// Adds `more`, the packets above the horizon that an engine counted, to the field `beyond`.
    pub(super) fn absorb_beyond(&mut self, more: BeyondHorizon) {
        // The engine may have counted `more` with a lower horizon than `self.horizon`. The lowest and the
        // highest tick of `more` must be remembered as routed if they are not above `self.horizon`. `remember` does
        // this. It must come before `add_beyond`, which stores only one lowest and one highest tick for `more` and
        // `self.beyond` together.
        if let Some(more) = self.remember(more) {
            self.add_beyond(more);
        } else if let Some(beyond) = &mut self.beyond {
            beyond.packets += more.packets;
        }
    }

    /// Counts a packet that the tables of the set `at` dropped, if any set of the load balancer allows the source
    /// address `from`. A set with a counted packet cannot be withdrawn. The packets of a sender whose address is not
    /// allowed are not counted, so that this sender cannot prevent a withdrawal.
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
        self.beyond = self.beyond.and_then(|beyond| self.remember(beyond));
    }

    /// The ticks of `beyond` were above the horizon when they were routed, but the horizon may have risen. If a tick of
    /// `beyond` is no longer above the horizon, the tick is now remembered as routed. Returns `beyond` with only the
    /// ticks that are still above the horizon, or `None` if there are none.
    fn remember(&mut self, beyond: BeyondHorizon) -> Option<BeyondHorizon> {
        if beyond.lowest > self.horizon {
            return Some(beyond);
        }
        let rest = Some(BeyondHorizon { lowest: beyond.highest, ..beyond });
        let rest = rest.filter(|rest| rest.lowest > self.horizon);
        let reached = if rest.is_none() { beyond.highest } else { beyond.lowest };
        self.newest = self.newest.max(Some(reached));
        rest
    }
}
