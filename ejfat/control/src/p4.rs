//! Epochs on planes that have one set of tables: ESnet's P4 data plane, programmed rule by rule over `sn_p4`.
//!
//! Such a plane changes one rule at a time, tells no ticks, and has room for four epochs of a load balancer. The rules of a new
//! epoch come in an order in which no single change alters what a tick below the boundary meets:
//!
//! | step | change | ticks that meet something else from then on |
//! |---|---|---|
//! | 1 | the epoch that is four back: its prefixes and slots are deleted | those of that epoch, which are over |
//! | 2 | members and slots of the new epoch are inserted | none, since no prefix leads to it |
//! | 3 | prefixes from the last boundary up to the new one lead to the last epoch | none, since the catch-all leads there too |
//! | 4 | the catch-all prefix is replaced: it leads to the new epoch | all from the new boundary on, by one change |
//! | 5 | members that no epoch names any more are deleted | none |
//!
//! A writer that was replaced is kept out by time, since the protocol has no terms: it writes only while its lease lasts longer
//! than a write may take, and its successor writes when the lease is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ejfat::{
    lb::{Epoch, LbId, Member, Rule, RuleKey, TickPrefix, prefixes},
    segment::IpVersion,
};

use crate::calendar::{Calendar, MemberId};

/// The epochs of a load balancer that a plane has room for.
pub const MOST_EPOCHS: usize = 4;

/// A change of the plane's tables. Changes are made one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a rule. There is none with its key.
    Insert(Rule),
    /// Puts a rule in the place of the one with its key.
    Replace(Rule),
    /// Removes the rule with this key.
    Delete(RuleKey),
}

/// Where the packets of members go, for each IP version that they take.
pub type Members = BTreeMap<(MemberId, IpVersion), Member>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Programmed {
    /// Its first tick. Those before the first epoch's meet that one, too.
    from: u64,
    calendar: Calendar,
}

/// The epochs of a load balancer on one plane.
#[derive(Clone, Debug)]
pub struct Epochs {
    lb: LbId,
    /// Consecutive epochs, the newest last.
    epochs: VecDeque<Programmed>,
    /// The number of epochs there were before the oldest of `epochs`.
    gone: u64,
    members: Members,
}

impl Epochs {
    /// Creates the epochs of a load balancer whose tables are empty.
    pub fn new(lb: LbId) -> Self {
        Self { lb, epochs: VecDeque::new(), gone: 0, members: Members::new() }
    }

    /// Returns the plane's id of the epoch that is `at` epochs behind the oldest.
    fn id(&self, at: usize) -> u32 {
        ((self.gone + at as u64) % MOST_EPOCHS as u64) as u32
    }

    /// Changes that begin a new epoch at a boundary, or the first one for all ticks. `members` are those that the calendar
    /// names, and `over` is a tick below which no packet is on its way any more.
    ///
    /// `None` if the boundary is not above that of the epoch before, or the plane has no room until older ticks are over.
    pub fn begin(
        &mut self,
        boundary: u64,
        calendar: &Calendar,
        members: &Members,
        over: u64,
    ) -> Option<Vec<Change>> {
        if self.epochs.back().is_some_and(|newest| boundary <= newest.from) {
            return None;
        }
        let mut changes = Vec::new();
        if self.epochs.len() == MOST_EPOCHS {
            if self.epochs[1].from > over {
                return None;
            }
            self.end_oldest(&mut changes);
        }
        self.describe(members, &mut changes);
        let new = self.id(self.epochs.len());
        changes.extend(self.slots_of(new, calendar).map(Change::Insert));
        let catch_all = self.epoch(TickPrefix::ALL, new, calendar);
        match self.epochs.back() {
            None => changes.push(Change::Insert(catch_all)),
            Some(last) => {
                let last_id = self.id(self.epochs.len() - 1);
                let range = prefixes(self.closed_from(last.from)..boundary).into_iter();
                changes.extend(range.map(|ticks| Change::Insert(self.epoch(ticks, last_id, &last.calendar))));
                changes.push(Change::Replace(catch_all));
            }
        }
        self.epochs.push_back(Programmed { from: boundary, calendar: calendar.clone() });
        self.forget(&mut changes);
        Some(changes)
    }

    /// The first tick for which there is an epoch of its own. Lower ticks meet the newest epoch.
    pub fn first_tick(&self) -> u64 {
        self.epochs.front().map_or(0, |first| self.closed_from(first.from))
    }

    /// The members that any epoch names.
    pub fn named(&self) -> BTreeSet<MemberId> {
        self.epochs.iter().flat_map(|epoch| epoch.calendar.slots()).flatten().copied().collect()
    }

    /// All rules of the load balancer, for a plane whose tables are empty.
    pub fn whole(&self) -> Vec<Rule> {
        let mut rules: Vec<_> = self.members.iter().map(|(&key, &member)| self.member(key, member)).collect();
        for (at, epoch) in self.epochs.iter().enumerate() {
            rules.extend(self.slots_of(self.id(at), &epoch.calendar));
            match self.epochs.get(at + 1) {
                Some(next) => {
                    let range = prefixes(self.closed_from(epoch.from)..next.from).into_iter();
                    rules.extend(range.map(|ticks| self.epoch(ticks, self.id(at), &epoch.calendar)));
                }
                None => rules.push(self.epoch(TickPrefix::ALL, self.id(at), &epoch.calendar)),
            }
        }
        rules
    }

    /// The first tick whose prefixes lead to an epoch that is not the newest. The very first epoch has all earlier ticks.
    fn closed_from(&self, from: u64) -> u64 {
        let is_first = self.gone == 0 && self.epochs.front().is_some_and(|first| first.from == from);
        if is_first { 0 } else { from }
    }

    fn end_oldest(&mut self, changes: &mut Vec<Change>) {
        let (oldest, end) = (&self.epochs[0], self.epochs[1].from);
        let range = prefixes(self.closed_from(oldest.from)..end).into_iter();
        changes
            .extend(range.map(|ticks| Change::Delete(self.epoch(ticks, self.id(0), &oldest.calendar).key())));
        changes.extend(self.slots_of(self.id(0), &oldest.calendar).map(|slot| Change::Delete(slot.key())));
        self.epochs.pop_front();
        self.gone += 1;
    }

    fn describe(&mut self, members: &Members, changes: &mut Vec<Change>) {
        for (&key, &member) in members {
            let rule = self.member(key, member);
            match self.members.insert(key, member) {
                None => changes.push(Change::Insert(rule)),
                Some(before) if before != member => changes.push(Change::Replace(rule)),
                Some(_) => {}
            }
        }
    }

    /// Deletes members that no epoch names.
    fn forget(&mut self, changes: &mut Vec<Change>) {
        let named = self.named();
        let unnamed: Vec<_> = self.members.keys().filter(|(id, _)| !named.contains(id)).copied().collect();
        for key in unnamed {
            if let Some(member) = self.members.remove(&key) {
                changes.push(Change::Delete(self.member(key, member).key()));
            }
        }
    }

    fn member(&self, (id, ip): (MemberId, IpVersion), member: Member) -> Rule {
        Rule::Member { lb: self.lb, ip, id, member }
    }

    fn slots_of<'a>(&self, epoch: u32, calendar: &'a Calendar) -> impl Iterator<Item = Rule> + use<'a> {
        let lb = self.lb;
        let rule = move |(slot, member): (usize, &Option<MemberId>)| {
            member.map(|member| Rule::Slot { lb, epoch, slot: slot as u16, member })
        };
        calendar.slots().iter().enumerate().filter_map(rule)
    }

    fn epoch(&self, ticks: TickPrefix, id: u32, calendar: &Calendar) -> Rule {
        let slot_bits = calendar.slots().len().ilog2() as u8;
        Rule::Epoch { lb: self.lb, ticks, epoch: Epoch { slot_bits, ..Epoch::new(id) } }
    }
}
