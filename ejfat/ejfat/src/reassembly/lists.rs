//! Lists of event buffers in the order of their last segments, the oldest first, without allocation.

/// Stands for no buffer.
pub(super) const NONE: u32 = u32::MAX;

/// The first and the last entry of a list.
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

/// The links of one list for all buffers. A buffer is in one list that uses these links, or in none.
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

    /// Returns the buffers of a list, the one without a segment for longest first.
    pub(super) fn of(&self, list: &List) -> impl Iterator<Item = u32> {
        let present = |slot| (slot != NONE).then_some(slot);
        std::iter::successors(present(list.first), move |&slot| present(self.0[slot as usize].1))
    }

    /// Moves a buffer to the end of the list, because a segment arrived for it.
    #[inline]
    pub(super) fn touch(&mut self, list: &mut List, slot: u32) {
        if list.last != slot {
            self.remove(list, slot);
            self.push(list, slot);
        }
    }
}
