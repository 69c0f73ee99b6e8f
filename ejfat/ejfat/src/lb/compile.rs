//! Compiles rules into arrays that are searched for the calendar of a tick and for the member of a calendar slot.

use std::collections::BTreeMap;

use super::{Epoch, LbId, Member, Rules, TickPrefix};
use crate::segment::IpVersion;

/// The member index of a calendar slot that has no member. No member has this index: only members that slot rules name
/// have an index, and there are at most 32,768 slot rules, so each member index is below 32,768.
const NONE: u16 = u16::MAX;

/// The maximum ratio of the length of a calendar's array to the number of rules in the calendar. If the length would be
/// more than `MOST_SPREAD` times the number of rules, the calendar is stored as a sorted list. An array therefore takes
/// at most 16 bytes for each rule (eight elements of 2 bytes), even if the slot numbers are far apart.
const MOST_SPREAD: usize = 8;

/// An epoch, and the location of the slots of its calendar. Only the calendar slots that a packet can select are
/// stored. The numbers of these slots are below 2^b, where b is the highest `slot_bits` among the epoch rules with this
/// epoch's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    pub(super) epoch: Epoch,
    slots: SlotsAt,
}

/// The location of a calendar's slots in the array of all calendars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotsAt {
    first: u32,
    len: u16,
    /// False if the calendar is stored as an array, and true if it is stored as a sorted list. The array has one
    /// element for each slot number below `len`: the member of this slot, or [`NONE`]. The sorted list has `len` slot
    /// numbers in ascending order, followed by the members of these slots. The array or list begins at the index
    /// `first` of the array of all calendars.
    sorted: bool,
}

impl Calendar {
    /// Returns the index of the member that has a slot, or [`NONE`] if no member has this slot.
    #[inline]
    pub(super) fn member(&self, slots: &[u16], slot: u16) -> u16 {
        let SlotsAt { first, len, sorted } = self.slots;
        let (first, len) = (first as usize, usize::from(len));
        if sorted {
            let (numbers, members) = slots[first..][..2 * len].split_at(len);
            return numbers.binary_search(&slot).map_or(NONE, |at| members[at]);
        }
        slots[first..][..len].get(usize::from(slot)).copied().unwrap_or(NONE)
    }

    /// Returns the number of each calendar slot that has a member, and the index of this member. The slot numbers are
    /// in ascending order. The array of all calendars is `slots`.
    pub(super) fn each<'a>(&self, slots: &'a [u16]) -> impl Iterator<Item = (u16, u16)> + 'a {
        let SlotsAt { first, len, sorted } = self.slots;
        let (first, len) = (first as usize, usize::from(len));
        let (numbers, members) =
            slots[first..][..len * (1 + usize::from(sorted))].split_at(if sorted { len } else { 0 });
        let number = move |at: usize| numbers.get(at).map_or(at as u16, |number| *number);
        let each = members.iter().enumerate().map(move |(at, &member)| (number(at), member));
        each.filter(|(_, member)| *member != NONE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemberEntry {
    pub(super) id: u16,
    pub(super) v4: Option<Member>,
    pub(super) v6: Option<Member>,
}

/// Compiles the epoch rules, slot rules and member rules of one load balancer into calendars, and into the arrays of
/// the slots and members of these calendars.
#[derive(Debug)]
pub(super) struct Compiler<'a> {
    lb: LbId,
    rules: &'a Rules,
    slots: Vec<u16>,
    members: Vec<MemberEntry>,
    index: BTreeMap<u16, u16>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(lb: LbId, rules: &'a Rules) -> Self {
        Self { lb, rules, slots: Vec::new(), members: Vec::new(), index: BTreeMap::new() }
    }

    /// Returns the ticks at which the calendar changes, each with the calendar from this tick on.
    pub(super) fn calendars(&mut self) -> Vec<(u64, Option<Calendar>)> {
        let of_lb = self.rules.epochs.iter().filter(|((of, _), _)| *of == self.lb);
        let mut ranges = Ranges::default();
        of_lb.for_each(|(&(_, ticks), &epoch)| ranges.add(ticks, epoch));

        let ranges = ranges.finish();

        // Epoch rules with the same id share a calendar, even if they differ in `slot_bits` or `xor`. The calendar of
        // an epoch id is compiled for the highest `slot_bits` among the epoch rules with this id.
        let mut widest = BTreeMap::new();
        for epoch in ranges.iter().filter_map(|(_, epoch)| *epoch) {
            let bits = widest.entry(epoch.id).or_insert(epoch.slot_bits);
            *bits = epoch.slot_bits.max(*bits);
        }
        let slots: BTreeMap<_, _> =
            widest.into_iter().map(|(id, bits)| (id, self.slots_of(id, bits))).collect();
        let calendar = |epoch: Epoch| Some(Calendar { epoch, slots: *slots.get(&epoch.id)? });
        ranges.into_iter().map(|(first, epoch)| (first, epoch.and_then(calendar))).collect()
    }

    /// Adds the slots of an epoch's calendar to the array `self.slots`, except slots whose numbers do not fit into
    /// `bits` bits. Returns the part of the array that these slots take up.
    fn slots_of(&mut self, epoch: u32, bits: u8) -> SlotsAt {
        let (lb, begin) = (self.lb, self.slots.len());
        let rules = self.rules.calendar.range((lb, epoch, 0)..=(lb, epoch, low_bits(bits)));
        let count = rules.clone().count();
        let array = rules.clone().next_back().map_or(0, |(&(_, _, last), _)| usize::from(last) + 1);
        let sorted = array > MOST_SPREAD * count;
        if sorted {
            self.slots.extend(rules.clone().map(|(&(_, _, slot), _)| slot));
        }
        for (&(_, _, slot), &id) in rules {
            if !sorted {
                self.slots.resize(begin + usize::from(slot), NONE);
            }
            let member = self.member(id);
            self.slots.push(member);
        }
        let len = if sorted { count } else { array };
        SlotsAt { first: begin as u32, len: len as u16, sorted }
    }

    fn member(&mut self, id: u16) -> u16 {
        *self.index.entry(id).or_insert_with(|| {
            let find = |ip| self.rules.members.get(&(self.lb, ip, id)).copied();
            self.members.push(MemberEntry { id, v4: find(IpVersion::V4), v6: find(IpVersion::V6) });
            (self.members.len() - 1) as u16
        })
    }

    pub(super) fn finish(self) -> (Vec<u16>, Vec<MemberEntry>) {
        (self.slots, self.members)
    }
}

/// Returns a mask in which only the lowest `bits` bits are set. `bits` is at most 14, because an epoch rule with more
/// than 14 slot bits is refused, and a member rule with more than 14 port bits is refused, too.
#[inline]
pub(super) fn low_bits(bits: u8) -> u16 {
    (1 << bits) - 1
}

/// Turns prefixes of ticks into disjoint ranges of ticks. If several prefixes contain a tick, the longest prefix
/// applies.
#[derive(Debug, Default)]
struct Ranges {
    /// The first tick of each range of ticks, and the epoch of the range, or `None` if the range has no epoch. A range
    /// ends where the next range begins. The ticks below the first range have no epoch.
    ranges: Vec<(u64, Option<Epoch>)>,
    /// The last element is the prefix that was added last. The elements before it are the added prefixes that contain
    /// it. Each prefix in this list contains all later prefixes of the list.
    around: Vec<(TickPrefix, Epoch)>,
}

impl Ranges {
    /// Adds a prefix of ticks and the epoch of these ticks. Prefixes must be added in the order of [`TickPrefix`], in
    /// which a prefix follows all prefixes that contain it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lb::Rule;

    /// Returns the number of 16-bit words in all compiled calendars, divided by the number of slot rules and rounded
    /// up.
    fn words_per_slot(rules: impl IntoIterator<Item = Rule>) -> usize {
        let mut all = Rules::default();
        rules.into_iter().for_each(|rule| all.insert(rule, false).unwrap());
        let mut compiler = Compiler::new(LbId::new(0).unwrap(), &all);
        compiler.calendars();
        compiler.finish().0.len().div_ceil(all.calendar.len())
    }

    /// Returns the epoch rules and slot rules of `count` epochs. Each epoch consists of one tick, and the calendar of
    /// each epoch has the slots in `slots`.
    fn epochs(count: u32, slots: &[u16]) -> Vec<Rule> {
        let lb = LbId::new(0).unwrap();
        let epoch = |id: u32| {
            let (ticks, epoch) =
                (TickPrefix::new(id.into(), 64).unwrap(), Epoch { slot_bits: 14, ..Epoch::new(id) });
            let slot = move |&slot: &u16| Rule::Slot { lb, epoch: id, slot, member: 1 };
            slots.iter().map(slot).chain([Rule::Epoch { lb, ticks, epoch }])
        };
        (0..count).flat_map(epoch).collect()
    }

    #[test]
    fn tables_grow_with_the_slots_that_have_rules_not_with_their_numbers() {
        let far: Vec<_> = (0..16).map(|n| n * 1092).collect();
        for slots in [&[16_383][..], &[0, 16_383], &far] {
            let words = words_per_slot(epochs(1024, slots));
            assert!(words <= 8, "{words} words for each of {slots:?}");
        }
    }

    #[test]
    fn epochs_that_differ_in_their_bits_share_a_calendar() {
        let lb = LbId::new(0).unwrap();
        let slots = (0..16).map(|slot| Rule::Slot { lb, epoch: 7, slot, member: slot });
        let of_bits = |slot_bits: u8| {
            let ticks = TickPrefix::new(slot_bits.into(), 64).unwrap();
            Rule::Epoch { lb, ticks, epoch: Epoch { slot_bits, ..Epoch::new(7) } }
        };
        assert_eq!(words_per_slot(slots.chain((0..=14).map(of_bits))), 1);
    }
}
