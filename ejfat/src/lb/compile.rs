//! Rules to the arrays that packets are looked up in.

use std::collections::BTreeMap;

use super::{Epoch, LbId, Member, Rules, TickPrefix};

/// A slot without member. There are fewer members than this, since each has a slot.
const NONE: u16 = u16::MAX;

/// An epoch, and its part of the slots. Slots that are masked off or beyond the last rule are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    pub(super) epoch: Epoch,
    pub(super) first: u32,
    pub(super) len: u16,
}

#[derive(Clone, Debug)]
pub(super) struct MemberEntry {
    pub(super) lb: LbId,
    pub(super) id: u16,
    pub(super) v4: Option<Member>,
    pub(super) v6: Option<Member>,
}

#[derive(Debug)]
pub(super) struct Compiler<'a> {
    rules: &'a Rules,
    slots: Vec<u16>,
    members: Vec<MemberEntry>,
    index: BTreeMap<(LbId, u16), u16>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(rules: &'a Rules) -> Self {
        Self { rules, slots: Vec::new(), members: Vec::new(), index: BTreeMap::new() }
    }

    /// Where ticks begin to lead to another calendar of a load balancer, from tick 0 on.
    pub(super) fn calendars(&mut self, lb: LbId) -> Vec<(u64, Option<Calendar>)> {
        let of_lb = self.rules.epochs.iter().filter(|((of, _), _)| *of == lb);
        let mut ranges = Ranges::default();
        of_lb.for_each(|(&(_, ticks), &epoch)| ranges.add(ticks, epoch));

        let mut known = BTreeMap::new();
        let mut calendar = |epoch: Epoch| {
            let slots = known.entry((epoch.id, epoch.slot_bits)).or_insert_with(|| self.slots_of(lb, epoch));
            Calendar { epoch, first: slots.0, len: slots.1 }
        };
        ranges.finish().into_iter().map(|(first, epoch)| (first, epoch.map(&mut calendar))).collect()
    }

    /// Where an epoch's slots begin, and their number.
    fn slots_of(&mut self, lb: LbId, epoch: Epoch) -> (u32, u16) {
        let begin = self.slots.len();
        let keys = (lb, epoch.id, 0)..=(lb, epoch.id, low_bits(epoch.slot_bits));
        for (&(_, _, slot), &id) in self.rules.calendar.range(keys) {
            self.slots.resize(begin + usize::from(slot), NONE);
            let member = self.member(lb, id);
            self.slots.push(member);
        }
        (begin as u32, (self.slots.len() - begin) as u16)
    }

    fn member(&mut self, lb: LbId, id: u16) -> u16 {
        *self.index.entry((lb, id)).or_insert_with(|| {
            let find = |v6| self.rules.members.get(&(lb, v6, id)).copied();
            self.members.push(MemberEntry { lb, id, v4: find(false), v6: find(true) });
            (self.members.len() - 1) as u16
        })
    }

    pub(super) fn finish(self) -> (Vec<u16>, Vec<MemberEntry>) {
        (self.slots, self.members)
    }
}

/// A mask of at most 14 bits: rules have no more.
#[inline]
pub(super) fn low_bits(bits: u8) -> u16 {
    (1 << bits) - 1
}

/// Prefixes, of which the longest counts, made into disjoint ranges of ticks.
#[derive(Debug, Default)]
struct Ranges {
    /// First ticks; each range ends where the next begins. Before the first there is no epoch.
    ranges: Vec<(u64, Option<Epoch>)>,
    /// Prefixes around the last tick looked at, the longest last.
    around: Vec<(TickPrefix, Epoch)>,
}

impl Ranges {
    /// In the order of prefixes: each comes behind those around it.
    fn add(&mut self, ticks: TickPrefix, epoch: Epoch) {
        while self.around.last().is_some_and(|(around, _)| around.last() < ticks.first()) {
            self.end_last();
        }
        self.begin(ticks.first(), Some(epoch));
        self.around.push((ticks, epoch));
    }

    fn begin(&mut self, tick: u64, epoch: Option<Epoch>) {
        self.ranges.pop_if(|(first, _)| *first == tick);
        self.ranges.push((tick, epoch));
    }

    fn end_last(&mut self) {
        let Some((ended, _)) = self.around.pop() else { return };
        if let Some(next) = ended.last().checked_add(1) {
            self.begin(next, self.around.last().map(|&(_, epoch)| epoch));
        }
    }

    fn finish(mut self) -> Vec<(u64, Option<Epoch>)> {
        while !self.around.is_empty() {
            self.end_last();
        }
        self.ranges.dedup_by(|next, before| next.1 == before.1);
        self.ranges
    }
}
