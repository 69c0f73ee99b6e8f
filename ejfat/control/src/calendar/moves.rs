//! Which slots move from one calendar to the next.

use std::collections::{BTreeMap, BTreeSet};

use super::{Calendar, MemberId};

/// Widths are fixed-point numbers with so many binary digits behind the point.
const SHIFT: u32 = 16;

/// A member while slots move.
#[derive(Debug, Default)]
struct Party {
    /// The slots that the member has, ascending.
    has: Vec<u32>,
    /// The slots that the member has and may not give up.
    fixed: BTreeSet<u32>,
    wanted: usize,
}

impl Party {
    fn needs(&self) -> usize {
        self.wanted.saturating_sub(self.has.len())
    }

    /// Takes the slot away around which the member's slots are closest together.
    fn give_up(&mut self, mask: u32) -> u32 {
        let free = (0..self.has.len()).filter(|&at| !self.fixed.contains(&self.has[at]));
        let closest = free.min_by_key(|&at| self.width(at, at + 1, mask));
        self.has.remove(closest.expect("a member that has too many slots has some that are not fixed"))
    }

    /// How far the member's slots are apart around a slot that it does not have. `next` is the place of the first of its slots
    /// that is greater.
    fn room(&self, slot: u32, next: usize, mask: u32) -> u64 {
        if self.has.is_empty() {
            return 0;
        }
        let (before, after) = (self.at(next + self.has.len() - 1), self.at(next));
        let nearest = (slot.wrapping_sub(before) & mask).min(after.wrapping_sub(slot) & mask);
        // The arc to the nearest one counts as the narrowest of the arcs around the slot.
        (u64::from(nearest) << (SHIFT + 1)) + self.width(next, next, mask)
    }

    /// The slot at a place, which is counted around the circle once.
    fn at(&self, place: usize) -> u32 {
        let count = self.has.len();
        self.has[if place < count { place } else { place - count }]
    }

    /// The sum of the widths of arcs, each divided by the number of its gaps: from the k-th slot before place `begin` to the
    /// k-th from place `end` on, for k = 1, 2, 4 and so on. Narrow arcs keep two slots from being neighbours, and wide ones
    /// keep a half of the circle from getting more than the other.
    fn width(&self, begin: usize, end: usize, mask: u32) -> u64 {
        let count = self.has.len();
        let arc = |k: usize| {
            let (from, to) = (self.at(begin + count - k), self.at(end + k - 1));
            u64::from(to.wrapping_sub(from) & mask)
        };
        (0..SHIFT).take_while(|log| 2 << log < count).map(|log| (arc(1 << log) << SHIFT) >> (log + 1)).sum()
    }

    fn take(&mut self, slot: u32) {
        let place = self.has.partition_point(|&own| own < slot);
        self.has.insert(place, slot);
    }
}

pub(super) fn next(now: &Calendar, fixed: &[(u32, MemberId)], wanted: &[(MemberId, u32)]) -> Calendar {
    let slots = now.slots.len() as u32;
    let mut now = now.clone();
    fixed.iter().for_each(|&(slot, member)| now.slots[slot as usize] = Some(member));
    let all: u64 = wanted.iter().map(|&(_, count)| u64::from(count)).sum();
    assert!(all <= u64::from(slots), "{all} slots are wanted of {slots}");
    let mut parties: BTreeMap<MemberId, Party> = BTreeMap::new();
    let mut free = Vec::new();
    for (slot, member) in (0..).zip(&now.slots) {
        match member {
            Some(member) => parties.entry(*member).or_default().has.push(slot),
            None => free.push(slot),
        }
    }
    for &(slot, member) in fixed {
        parties.entry(member).or_default().fixed.insert(slot);
    }
    let mut members = BTreeSet::new();
    for &(member, count) in wanted {
        assert!(members.insert(member), "member {member} is wanted twice");
        parties.entry(member).or_default().wanted = count as usize;
    }
    // Nobody keeps a slot, so all may move.
    if parties.values().all(|party| party.has.is_empty() || party.wanted == 0) {
        return first(slots, wanted);
    }
    for party in parties.values_mut() {
        while party.has.len() > party.wanted {
            free.push(party.give_up(slots - 1));
        }
    }
    free.sort_unstable();
    let mut gainers: Vec<_> = parties.into_iter().filter(|(_, party)| party.needs() > 0).collect();
    let mut next = now;
    free.iter().for_each(|&slot| next.slots[slot as usize] = None);
    while let Some(at) = neediest(&gainers) {
        let (member, party) = &mut gainers[at];
        let slot = free.remove(roomiest(&free, party, slots - 1));
        party.take(slot);
        next.slots[slot as usize] = Some(*member);
        if party.needs() == 0 {
            gainers.remove(at);
        }
    }
    next
}

/// The place of the member that lacks the greatest part of what it is to have; of equal ones the first.
fn neediest(gainers: &[(MemberId, Party)]) -> Option<usize> {
    let lacks_more = |a: &Party, b: &Party| (a.needs() * b.wanted).cmp(&(b.needs() * a.wanted));
    // The order is reversed because `max_by` takes the last of several equal members.
    (0..gainers.len()).rev().max_by(|&a, &b| lacks_more(&gainers[a].1, &gainers[b].1))
}

/// The place of the free slot around which a member has most room; of equal ones the first.
fn roomiest(free: &[u32], party: &Party, mask: u32) -> usize {
    let (mut best, mut next) = ((0, 0), 0);
    for (place, &slot) in free.iter().enumerate() {
        while party.has.get(next).is_some_and(|&own| own < slot) {
            next += 1;
        }
        let room = party.room(slot, next, mask);
        if room > best.0 {
            best = (room, place);
        }
    }
    best.1
}

/// The first calendar. Each member wishes its slots at equal distances, and all wishes are met in their order.
fn first(slots: u32, wanted: &[(MemberId, u32)]) -> Calendar {
    // A wish is at (2m + 1) / 2n of the circle: compared as fractions, so that no rounding decides.
    let wishes =
        wanted.iter().flat_map(|&(member, count)| (0..count).map(move |m| (2 * m + 1, count, member)));
    let mut wishes: Vec<_> = wishes.collect();
    wishes.sort_by(|a, b| {
        let place = (u64::from(a.0) * u64::from(b.1)).cmp(&(u64::from(b.0) * u64::from(a.1)));
        place.then(a.2.cmp(&b.2))
    });
    let mut calendar = vec![None; slots as usize];
    // Where fewer slots are wanted than there are, those without a member are spread as well.
    let count = wishes.len() as u64;
    for (at, (.., member)) in (0..).zip(wishes) {
        calendar[(at * u64::from(slots) / count) as usize] = Some(member);
    }
    Calendar { slots: calendar }
}
