//! Lists of slots from the stalest to the freshest, without allocation.

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// One list's links of all slots. A slot is in one list that uses them, or in none.
#[derive(Debug)]
pub(super) struct Links(Vec<(u32, u32)>);

impl Links {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![(NONE, NONE); slots as usize])
    }

    pub(super) fn push(&mut self, list: &mut List, slot: u32) {
        self.0[slot as usize] = (list.last, NONE);
        match list.last {
            NONE => list.first = slot,
            last => self.0[last as usize].1 = slot,
        }
        list.last = slot;
    }

    pub(super) fn remove(&mut self, list: &mut List, slot: u32) {
        let (before, after) = self.0[slot as usize];
        match before {
            NONE => list.first = after,
            before => self.0[before as usize].1 = after,
        }
        match after {
            NONE => list.last = before,
            after => self.0[after as usize].0 = before,
        }
    }

    /// Its slots, the stalest first.
    pub(super) fn of(&self, list: &List) -> impl Iterator<Item = u32> {
        let present = |slot| (slot != NONE).then_some(slot);
        std::iter::successors(present(list.first), move |&slot| present(self.0[slot as usize].1))
    }

    /// The slot is the freshest now.
    #[inline]
    pub(super) fn touch(&mut self, list: &mut List, slot: u32) {
        if list.last != slot {
            self.remove(list, slot);
            self.push(list, slot);
        }
    }
}
