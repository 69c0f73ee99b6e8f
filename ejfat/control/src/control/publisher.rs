//! How tables of one load balancer come onto all data planes, or onto none.
//!
//! | phase | event | next |
//! |---|---|---|
//! | idle | tables are wanted | looking: each plane is asked what it has routed |
//! | looking | the last answer | rules: planes without sets of tables begin the epoch; or staging, if there are none |
//! | rules | the last answer | staging: the others have it from the same tick on |
//! | staging | all planes took it | idle: the epoch is in force |
//! | staging | some refused, none took it | looking again, for a later tick |
//! | staging | some refused, others took it | withdrawing: those that took it give it back |
//! | withdrawing | all gave it back | looking again |
//! | withdrawing | packets met it on a plane already | looking again; ticks from there to the next epoch may be split |
//!
//! A plane that is lost counts as one that was never asked.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use ejfat::{Time, lb::Rules};

use super::planes::PlaneAnswer;
use crate::{
    calendar::{Calendar, MemberId},
    p4::Members,
    plane::PlaneId,
    rate::remember,
};

/// Epochs of a load balancer that are remembered, as many as a plane has sets of tables.
const REMEMBERED: usize = 16;

/// The tables of an epoch, and what they were made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Epoch {
    /// The first tick.
    pub(crate) from: u64,
    pub(crate) calendar: Calendar,
    pub(crate) members: Members,
    pub(crate) rules: Arc<Rules>,
    /// The planes that have it.
    pub(crate) planes: BTreeSet<PlaneId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Looking {
        asked: Time,
        waiting: BTreeSet<PlaneId>,
        routed: Option<u64>,
    },
    Rules {
        /// When every plane is to have it at the latest.
        until: Time,
        epoch: Box<Epoch>,
        horizon: Option<u64>,
        waiting: BTreeSet<PlaneId>,
    },
    Staging(Box<Staging>),
    Withdrawing {
        from: u64,
        waiting: BTreeSet<PlaneId>,
        /// Whether packets met the tables on some plane, or a plane was lost that may still have them.
        met: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Staging {
    pub(crate) epoch: Epoch,
    pub(crate) in_place: bool,
    pub(crate) reset: bool,
    pub(crate) waiting: BTreeSet<PlaneId>,
    pub(crate) took: BTreeSet<PlaneId>,
    pub(crate) refused: bool,
    /// Whether a plane was lost that may have the tables.
    pub(crate) lost: bool,
    /// Planes without sets of tables have the epoch already, so it cannot be taken back everywhere.
    pub(crate) is_begun: bool,
}

/// What follows from an answer, beside the next phase.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Other answers are missing.
    Wait,
    /// Every plane has told what it routed.
    Looked { asked: Time, routed: Option<u64> },
    /// The other planes are to have it now.
    Ruled { until: Time, epoch: Box<Epoch>, horizon: Option<u64> },
    /// The epoch is in force. Ticks from `may_split` to its boundary may be split.
    Begun { may_split: Option<u64>, reset: bool },
    /// To be tried again, for a later tick.
    Retry,
    /// These planes are to give tables back.
    Withdraw { from: u64, planes: BTreeSet<PlaneId> },
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Publisher {
    pub(crate) phase: Phase,
    /// Epochs in force, the newest last.
    pub(crate) history: VecDeque<Epoch>,
    /// Epochs since the reservation.
    pub(crate) number: u64,
    /// Ticks from there on may be split until the next epoch begins.
    pub(crate) open: Option<u64>,
    /// The highest tick from which on any plane may have tables that are not in the history.
    pub(crate) highest: u64,
    /// How many times in a row an epoch was too late.
    pub(crate) tries: u32,
    /// The history is what the store had: planes may have later epochs with the same calendar.
    pub(crate) is_resumed: bool,
    /// The first tick of the epochs that a plane lacks, for each plane that was away when an epoch began. These ticks
    /// are known here even when the history does not have the epochs any more.
    lacking: BTreeMap<PlaneId, u64>,
    /// Below this tick planes may have different tables: one that was empty has got the epochs that were remembered, and others have
    /// earlier ones.
    pub(crate) uneven: u64,
    /// The first tick of an epoch that some planes may have and others lack, the highest such one: planes that have it may have dropped
    /// their tables for lower ticks. Its own ticks are told when the next epoch begins.
    pub(crate) partly: u64,
    /// After a restart: the first tick of the epoch that the store had, until the next epoch is staged.
    pub(crate) resumed_from: Option<u64>,
}

impl Publisher {
    pub(crate) fn newest(&self) -> Option<&Epoch> {
        self.history.back()
    }

    /// Whether the newest epoch, or one that is on its way to planes, leads to this member.
    pub(crate) fn names(&self, member: MemberId) -> bool {
        let on_its_way = match &self.phase {
            Phase::Rules { epoch, .. } => Some(&**epoch),
            Phase::Staging(staging) => Some(&staging.epoch),
            Phase::Idle | Phase::Looking { .. } | Phase::Withdrawing { .. } => None,
        };
        self.newest().into_iter().chain(on_its_way).any(|epoch| epoch.calendar.count(member) > 0)
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether no plane has tables that others may not get.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Looking { .. })
    }

    /// Ticks from there on may be split until the next epoch begins.
    pub(crate) fn may_split_from(&mut self, tick: u64) {
        self.open = Some(self.open.map_or(tick, |open| open.min(tick)));
    }

    /// From which tick on a plane has other tables than the others, if it has sets from these ticks on, ascending.
    pub(crate) fn differs(&self, plane: PlaneId, sets: &[u64]) -> Option<u64> {
        let newest = self.newest().map_or(0, |newest| newest.from);
        let unknown = sets.iter().copied().find(|from| *from > newest);
        if self.is_resumed && sets.last().is_none_or(|has| *has != newest) {
            // What came between is in no record.
            return Some(unknown.unwrap_or_else(|| sets.last().map_or(0, |has| has.saturating_add(1))));
        }
        self.lacks(plane).into_iter().chain(unknown).min()
    }

    /// The first tick of the epochs that a plane lacks.
    pub(crate) fn lacks(&self, plane: PlaneId) -> Option<u64> {
        let lacks =
            self.history.iter().filter(|epoch| !epoch.planes.contains(&plane)).map(|epoch| epoch.from);
        lacks.chain(self.lacking.get(&plane).copied()).min()
    }

    /// Notes that these planes lack the newest epoch.
    pub(crate) fn without(&mut self, planes: impl Iterator<Item = PlaneId>) {
        for plane in planes {
            if let Some(from) = self.lacks(plane) {
                self.lacking.insert(plane, from);
            }
        }
    }

    /// Notes that a plane, which was empty, has got the epochs that are remembered, and no earlier ones.
    pub(crate) fn loaded(&mut self, plane: PlaneId) {
        self.uneven = self.uneven.max(self.history.front().map_or(0, |first| first.from));
        self.has_all(plane);
    }

    /// Notes that a plane has all epochs, or will have the next one.
    pub(crate) fn has_all(&mut self, plane: PlaneId) {
        self.lacking.remove(&plane);
        for epoch in &mut self.history {
            epoch.planes.insert(plane);
        }
    }

    /// Compares what the store had with a plane that is back: planes may have later epochs with the same calendar.
    pub(crate) fn resume(&mut self, plane: PlaneId, sets: &[u64]) {
        let Some(newest) = self.history.back_mut().filter(|_| self.is_resumed) else { return };
        let has = sets.last().copied().unwrap_or(0);
        if newest.planes.is_empty() {
            // The plane's newest tables count, also if they begin at a lower tick than those of the record: senders may have begun to
            // count from a lower tick after that was stored.
            newest.from = has;
            self.highest = has;
        }
        if has == newest.from {
            newest.planes.insert(plane);
        }
    }

    /// Takes what a plane answered, if it is waited for.
    pub(crate) fn answered(&mut self, plane: PlaneId, answer: PlaneAnswer) -> Step {
        match (&mut self.phase, answer) {
            (Phase::Looking { waiting, routed, .. }, PlaneAnswer::Looked(tick)) => {
                *routed = (*routed).max(tick.filter(|_| waiting.contains(&plane)));
                waiting.remove(&plane);
            }
            (Phase::Rules { waiting, .. }, PlaneAnswer::Ruled) => drop(waiting.remove(&plane)),
            (Phase::Staging(staging), PlaneAnswer::Staged { took }) => {
                let is_expected = staging.waiting.remove(&plane);
                staging.refused |= is_expected && !took;
                staging.took.extend((is_expected && took).then_some(plane));
            }
            (Phase::Withdrawing { waiting, met, .. }, PlaneAnswer::Withdrawn { gave }) => {
                *met |= waiting.remove(&plane) && !gave;
            }
            _ => {}
        }
        self.step()
    }

    /// A plane is lost: nothing is expected of it.
    pub(crate) fn lost(&mut self, plane: PlaneId) -> Step {
        match &mut self.phase {
            Phase::Idle => return Step::Wait,
            Phase::Looking { waiting, .. } | Phase::Rules { waiting, .. } => {
                waiting.remove(&plane);
            }
            Phase::Withdrawing { waiting, met, .. } => *met |= waiting.remove(&plane),
            Phase::Staging(staging) => {
                staging.lost |= staging.waiting.remove(&plane) | staging.took.remove(&plane);
            }
        }
        self.step()
    }

    /// What follows if nothing is waited for.
    pub(crate) fn step(&mut self) -> Step {
        match std::mem::take(&mut self.phase) {
            Phase::Idle => Step::Wait,
            Phase::Looking { asked, waiting, routed } if waiting.is_empty() => Step::Looked { asked, routed },
            Phase::Rules { until, epoch, horizon, waiting } if waiting.is_empty() => {
                Step::Ruled { until, epoch, horizon }
            }
            Phase::Staging(staging) if staging.waiting.is_empty() => self.all_answered(*staging),
            Phase::Withdrawing { from, waiting, met } if waiting.is_empty() => {
                if met {
                    self.may_split_from(from);
                }
                Step::Retry
            }
            waits => {
                self.phase = waits;
                Step::Wait
            }
        }
    }

    fn all_answered(&mut self, staging: Staging) -> Step {
        let Staging { mut epoch, in_place, reset, took, refused, lost, is_begun, .. } = staging;
        let from = epoch.from;
        if !refused {
            epoch.planes = took;
            self.begin(epoch, in_place, reset);
            let may_split = self.open.take();
            if !reset {
                self.partly = self.partly.max(may_split.unwrap_or(0));
            }
            return Step::Begun { may_split, reset };
        }
        self.tries = self.tries.saturating_add(1);
        if lost {
            self.may_split_from(from);
        }
        if took.is_empty() && !is_begun {
            return Step::Retry;
        }
        if in_place || reset || is_begun {
            // What was there before cannot be brought back.
            self.may_split_from(from);
            return Step::Retry;
        }
        self.phase = Phase::Withdrawing { from, waiting: took.clone(), met: false };
        Step::Withdraw { from, planes: took }
    }

    fn begin(&mut self, epoch: Epoch, in_place: bool, reset: bool) {
        if reset {
            self.history.clear();
            (self.highest, self.uneven, self.partly) = (0, 0, 0);
        } else if in_place {
            self.history.pop_back();
        }
        self.highest = self.highest.max(epoch.from);
        (self.tries, self.is_resumed) = (0, false);
        self.number += 1;
        remember(&mut self.history, REMEMBERED, epoch);
    }
}
