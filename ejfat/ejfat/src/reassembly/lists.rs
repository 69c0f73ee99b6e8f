//! Linked lists whose elements are event buffers. [`Links::new`] allocates the links of all event buffers, so the
//! methods that change a list allocate no memory. [`Links::push`] adds an event buffer to the end of a list, and
//! [`Links::touch`] moves an event buffer to the end of its list.

/// The index that stands for no buffer.
pub(super) const NONE: u32 = u32::MAX;

/// The first and the last buffer of a list.
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

/// The links of each buffer to the previous and the next buffer of its list. A buffer is in at most one of the lists
/// that use these links.
#[derive(Debug)]
pub(super) struct Links(Vec<(u32, u32)>);

impl Links {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![(NONE, NONE); slots as usize])
    }

    pub(super) fn push(&mut self, list: &mut List, buffer: u32) {
        self.0[buffer as usize] = (list.last, NONE);
        match list.last {
            NONE => list.first = buffer,
            last => self.0[last as usize].1 = buffer,
        }
        list.last = buffer;
    }

    pub(super) fn remove(&mut self, list: &mut List, buffer: u32) {
        let (before, after) = self.0[buffer as usize];
        match before {
            NONE => list.first = after,
            before => self.0[before as usize].1 = after,
        }
        match after {
            NONE => list.last = before,
            after => self.0[after as usize].0 = before,
        }
    }

    /// Returns the buffers of a list, from the first to the last.
    pub(super) fn of(&self, list: &List) -> impl Iterator<Item = u32> {
        let present = |buffer| (buffer != NONE).then_some(buffer);
        std::iter::successors(present(list.first), move |&buffer| present(self.0[buffer as usize].1))
    }

    /// Moves a buffer to the end of the list, because a segment of the buffer's event arrived.
    #[inline]
    pub(super) fn touch(&mut self, list: &mut List, buffer: u32) {
        if list.last != buffer {
            self.remove(list, buffer);
            self.push(list, buffer);
        }
    }
}
