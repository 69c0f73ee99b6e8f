//! The slots of a ring as the bridge knows them: which slots are in use, and which events were acknowledged and
//! released.

use std::{cell::Cell, collections::VecDeque};

use super::Geometry;

/// Adjacent slots for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of the event's first slot.
    pub slot: u32,
    /// The number of adjacent slots that the event takes.
    pub slots: u32,
    /// The value that releases the event when the worker writes it into the credit word of the event's first slot.
    pub generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The slot is free, or it belongs to an event that begins in an earlier slot.
    Free,
    Filling {
        slots: u32,
    },
    /// The event was announced to the worker. The event's slots become free when `acknowledged` and `credited` are both
    /// true.
    Sent {
        slots: u32,
        tag: u32,
        acknowledged: bool,
        credited: bool,
    },
}

/// An event that the worker has released, or whose arrival in the ring is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credited {
    /// The number of the event's first slot.
    pub slot: u32,
    /// The tag that the caller passed to [`RingSlots::send`].
    pub tag: u32,
    /// True if the event is now both acknowledged and released, so that its slots are free again. The acknowledgement
    /// and the release can come in either order.
    pub acknowledged: bool,
}

/// The numbers of released events and of wrong credits that one call of [`RingSlots::look`] found in the credit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditCounts {
    /// The number of events that the worker has released since the previous call of [`RingSlots::look`].
    pub credits: u32,
    /// The number of changed credit words whose new value releases no event.
    pub wrong: u32,
}

/// The state of all slots of a ring. The geometry of the ring bounds the memory that this state takes.
#[derive(Clone, Debug)]
pub struct RingSlots {
    geometry: Geometry,
    /// A bitmap of the slots that are in use. Each slot has one bit, which is set while the slot is in use.
    used: Vec<u64>,
    in_use: u32,
    /// All slots with numbers below this number are in use, so a search for free slots begins at this slot. Free slots
    /// with low numbers are used first, because CPU caches are likely to contain them.
    lowest: u32,
    states: Vec<State>,
    /// For each slot, the generation of the last event that began in this slot.
    generations: Vec<u32>,
    /// The values of the credit words when they were last read.
    seen: Vec<u32>,
    /// The number of slots that are in use by events that were not sent yet.
    filling: u32,
    /// The smallest number of adjacent free slots that a search did not find; `u32::MAX` if no search has failed. A
    /// search for this number of slots or for more would fail again, so it is omitted. When slots become free, the
    /// value becomes `u32::MAX` again.
    in_vain: Cell<u32>,
    /// The first slot of each event that was sent and not acknowledged, in the order in which the events were sent.
    unacknowledged: VecDeque<u32>,
    /// The number of sent events that the worker has not released.
    outstanding: u32,
    next_sequence: u32,
}

impl RingSlots {
    /// Creates the state of an empty ring. The first event gets sequence number 1.
    pub fn new(geometry: Geometry) -> Self {
        let slots = geometry.slots() as usize;
        Self {
            geometry,
            used: vec![0; slots.div_ceil(64)],
            in_use: 0,
            lowest: 0,
            states: vec![State::Free; slots],
            generations: vec![0; slots],
            seen: vec![0; slots],
            filling: 0,
            in_vain: Cell::new(u32::MAX),
            unacknowledged: VecDeque::with_capacity(slots),
            outstanding: 0,
            next_sequence: 1,
        }
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the number of slots that are in use. The slots of an event are in use until the worker has both
    /// acknowledged and released the event, or until [`RingSlots::give_back`] frees them.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Returns the number of sent events that were not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Returns the sequence number of the next event.
    pub fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Returns the number of sent events that the worker has not released.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the number of slots that are in use by events that were not sent yet.
    pub fn filling(&self) -> u32 {
        self.filling
    }

    /// Returns true if [`take`](Self::take) would find slots for an event of `length` bytes.
    pub fn has_room(&self, length: u32) -> bool {
        let slots = self.geometry.slots_for(length);
        slots.is_some_and(|slots| slots <= self.geometry.slots() - self.in_use && self.find(slots).is_some())
    }

    /// Takes slots for an event of `length` bytes. Returns `None` if not enough adjacent slots are free.
    pub fn take(&mut self, length: u32) -> Option<Run> {
        let slots = self.geometry.slots_for(length)?;
        if slots > self.geometry.slots() - self.in_use {
            return None;
        }
        let slot = self.find(slots)?;
        self.mark(slot, slots, true);
        if slot == self.lowest {
            self.lowest = slot + slots;
        }
        self.states[slot as usize] = State::Filling { slots };
        self.filling += slots;
        // The generation differs from the current value of the credit word, so that the current value is not a credit
        // for the new event.
        let generation = self.seen[slot as usize].wrapping_add(1);
        self.generations[slot as usize] = generation;
        Some(Run { slot, slots, generation })
    }

    /// Returns the lowest slot number at which `slots` adjacent free slots begin. Returns `None` if not enough adjacent
    /// slots are free.
    fn find(&self, slots: u32) -> Option<u32> {
        if slots >= self.in_vain.get() {
            return None;
        }
        let found = self.search(slots);
        if found.is_none() {
            self.in_vain.set(slots);
        }
        found
    }

    fn search(&self, slots: u32) -> Option<u32> {
        let to = self.geometry.slots();
        let (mut at, mut free) = (self.lowest, 0);
        while at < to {
            let word = self.used[at as usize / 64] >> (at % 64);
            if word & 1 == 1 {
                // Slots that are in use are skipped.
                at += word.trailing_ones();
                free = 0;
                continue;
            }
            let zeros = word.trailing_zeros().min(64 - at % 64).min(to - at);
            free += zeros;
            if free >= slots {
                return Some(at + zeros - free);
            }
            at += zeros;
        }
        None
    }

    fn mark(&mut self, slot: u32, slots: u32, used: bool) {
        for at in slot..slot + slots {
            let bit = 1 << (at % 64);
            match used {
                true => self.used[at as usize / 64] |= bit,
                false => self.used[at as usize / 64] &= !bit,
            }
        }
        self.in_use = if used { self.in_use + slots } else { self.in_use - slots };
    }

    fn free(&mut self, slot: u32, slots: u32) {
        self.states[slot as usize] = State::Free;
        self.lowest = self.lowest.min(slot);
        self.in_vain.set(u32::MAX);
        self.mark(slot, slots, false);
    }

    /// Frees the slots that [`RingSlots::take`] took for an event that will not be sent.
    ///
    /// # Panics
    /// Panics if `slot` is not the first slot of an unsent event.
    pub fn give_back(&mut self, slot: u32) {
        match self.states[slot as usize] {
            State::Filling { slots } => {
                self.filling -= slots;
                self.free(slot, slots);
            }
            other => panic!("slot {slot} is {other:?}, so nothing is being filled"),
        }
    }

    /// Notes that the event whose first slot is `slot` is announced to the worker. Returns the event's sequence number.
    /// The caller may choose any number as `tag`, and gets it back in [`Credited`] and from [`RingSlots::held`].
    ///
    /// # Panics
    /// Panics if `slot` is not the first slot of an unsent event.
    pub fn send(&mut self, slot: u32, tag: u32) -> u32 {
        let State::Filling { slots } = self.states[slot as usize] else {
            panic!("slot {slot} is {:?}, so nothing is being filled", self.states[slot as usize]);
        };
        self.filling -= slots;
        self.states[slot as usize] = State::Sent { slots, tag, acknowledged: false, credited: false };
        self.unacknowledged.push_back(slot);
        self.outstanding += 1;
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Notes that the worker acknowledged the oldest unacknowledged event, and returns this event.
    pub fn acknowledge(&mut self) -> Option<Credited> {
        let slot = self.unacknowledged.pop_front()?;
        let State::Sent { slots, tag, acknowledged, credited } = &mut self.states[slot as usize] else {
            return None;
        };
        *acknowledged = true;
        let (slots, tag, credited) = (*slots, *tag, *credited);
        if credited {
            self.free(slot, slots);
        }
        Some(Credited { slot, tag, acknowledged: credited })
    }

    /// Reads the credit words, one for each slot, and calls `given_back` for each released event.
    pub fn look(&mut self, words: &[u32], mut given_back: impl FnMut(Credited)) -> CreditCounts {
        const TOGETHER: usize = 16;
        let mut looked = CreditCounts::default();
        let all = words.len().min(self.seen.len());
        for from in (0..all).step_by(TOGETHER) {
            let to = all.min(from + TOGETHER);
            if words[from..to] == self.seen[from..to] {
                continue;
            }
            for (at, &word) in (from..to).zip(&words[from..to]) {
                if word != self.seen[at] {
                    self.seen[at] = word;
                    match self.credit(at as u32, word) {
                        Some(credited) => {
                            looked.credits += 1;
                            given_back(credited);
                        }
                        None => looked.wrong += 1,
                    }
                }
            }
        }
        looked
    }

    fn credit(&mut self, slot: u32, word: u32) -> Option<Credited> {
        let generation = self.generations[slot as usize];
        let State::Sent { slots, tag, acknowledged, credited } = &mut self.states[slot as usize] else {
            return None;
        };
        if *credited || word != generation {
            return None;
        }
        *credited = true;
        let (slots, tag, acknowledged) = (*slots, *tag, *acknowledged);
        self.outstanding -= 1;
        if acknowledged {
            self.free(slot, slots);
        }
        Some(Credited { slot, tag, acknowledged })
    }

    /// Returns the first slot and the tag of each sent event that the worker has not released.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(&self.states).filter_map(|(slot, state)| match state {
            State::Sent { tag, credited: false, .. } => Some((slot, *tag)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use simnet::Random;

    use super::*;

    fn slots(count: u32) -> RingSlots {
        RingSlots::new(Geometry::new(count, 64).unwrap())
    }

    #[test]
    fn events_span_slots_side_by_side() {
        let mut slots = slots(130);
        let first = slots.take(64 * 100).unwrap();
        assert_eq!((first.slot, first.slots), (0, 100));
        assert_eq!(slots.take(64 * 31), None);
        let second = slots.take(64 * 30 - 63).unwrap();
        assert_eq!((second.slot, second.slots), (100, 30));
        assert_eq!(slots.take(1), None);
        slots.give_back(0);
        let third = slots.take(64 * 100).unwrap();
        assert_eq!((third.slot, slots.filling()), (0, 130));
        slots.give_back(third.slot);
        slots.give_back(second.slot);
        assert_eq!((slots.in_use(), slots.take(64 * 131)), (0, None));
        assert!(slots.take(64 * 130).is_some());
    }

    #[test]
    fn slots_are_free_after_credit_and_acknowledgement_in_either_order() {
        for acknowledged_first in [true, false] {
            let mut slots = slots(2);
            let run = slots.take(64).unwrap();
            assert_eq!(slots.send(run.slot, 7), 1);
            let mut words = [0; 2];
            words[run.slot as usize] = run.generation;
            let mut given_back = Vec::new();
            if acknowledged_first {
                assert_eq!(slots.acknowledge().map(|done| done.tag), Some(7));
                assert_eq!(slots.in_use(), 1);
            }
            let looked = slots.look(&words, |credited| given_back.push(credited));
            assert_eq!(looked, CreditCounts { credits: 1, wrong: 0 });
            assert_eq!(given_back, [Credited { slot: 0, tag: 7, acknowledged: acknowledged_first }]);
            if !acknowledged_first {
                assert_eq!(slots.in_use(), 1);
                slots.acknowledge();
            }
            assert_eq!((slots.in_use(), slots.outstanding(), slots.acknowledge()), (0, 0, None));
        }
    }

    #[test]
    fn wrong_credit_is_counted_once_and_changes_nothing() {
        let mut slots = slots(4);
        let look = |slots: &mut RingSlots, words: [u32; 4]| slots.look(&words, |_| ());
        // No event is in the ring, so any change of a credit word is wrong.
        assert_eq!(look(&mut slots, [1, 0, 0, 0]).wrong, 1);
        assert_eq!(look(&mut slots, [1, 0, 0, 0]).wrong, 0);
        let run = slots.take(64).unwrap();
        slots.send(run.slot, 0);
        slots.acknowledge();
        // The credit word had the value 1 before the event was sent, so this value is not a credit for the event.
        assert_eq!((run.generation, look(&mut slots, [1, 0, 0, 0])), (2, CreditCounts::default()));
        assert_eq!(look(&mut slots, [3, 0, 0, 9]), CreditCounts { credits: 0, wrong: 2 });
        assert_eq!(slots.in_use(), 1);
        assert_eq!(look(&mut slots, [2, 0, 0, 9]), CreditCounts { credits: 1, wrong: 0 });
        assert_eq!(slots.in_use(), 0);
        // The event was released, so any further change of the credit word of its first slot is wrong.
        assert_eq!(look(&mut slots, [0, 0, 0, 9]).wrong, 1);
    }

    #[test]
    fn slots_in_the_middle_of_an_event_have_no_credit() {
        let mut slots = slots(4);
        let run = slots.take(256).unwrap();
        slots.send(run.slot, 0);
        assert_eq!(slots.look(&[0, 1, 1, 1], |_| ()), CreditCounts { credits: 0, wrong: 3 });
    }

    /// The ring finds the same slots as a search that looks at one slot after the other.
    #[test]
    fn the_first_free_slots_are_found() {
        let mut random = Random::new(1, 0);
        let (mut slots, mut used, mut runs) = (slots(300), vec![false; 300], Vec::new());
        for _ in 0..20_000 {
            if !runs.is_empty() && random.chance(500_000) {
                let Run { slot, slots: count, .. } =
                    runs.swap_remove(random.below(runs.len() as u64) as usize);
                slots.give_back(slot);
                used[slot as usize..(slot + count) as usize].fill(false);
            } else {
                let count = random.range(1..=90) as usize;
                let is_free = |at: &usize| !used[*at..at + count].contains(&true);
                let expected = (0..=300 - count).find(is_free);
                let run = slots.take(64 * count as u32);
                assert_eq!(run.map(|run| run.slot as usize), expected);
                runs.extend(run);
                expected.into_iter().for_each(|at| used[at..at + count].fill(true));
            }
        }
    }
}
