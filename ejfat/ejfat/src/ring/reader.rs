//! The worker's end of a ring.

use super::{BLOCK, Descriptor, Geometry, Malformed};

/// A violation of the protocol by the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// The descriptor is not valid.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The sequence number of the announcement or of the descriptor is not the next sequence number.
    #[error("event {got} was told when {expected} was due")]
    Sequence {
        /// The sequence number that the event should have.
        expected: u32,
        /// The wrong sequence number, which is in the announcement or in the descriptor.
        got: u32,
    },
    /// The descriptor contains a wrong location of the event. The event does not lie inside the ring, its number of
    /// slots does not fit its length, or its offset is not the offset of its first slot.
    #[error("an event lies outside its ring, or its slots are not as its length needs")]
    Outside,
    /// The event has a slot that is still in use by another event, because the worker has not released the other event.
    #[error("an event lies in slots of another one that was not given back")]
    Taken,
}

/// An event that the worker has not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given(Descriptor);

impl Given {
    /// Returns the event's descriptor. [`Reader::handle`] has checked that the event lies inside the ring.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0
    }
}

/// What a worker knows of its ring: the sequence number of the next event, and the slots of the events that it has not
/// released.
#[derive(Clone, Debug)]
pub struct Reader {
    geometry: Geometry,
    /// True if the worker uses version 2 of the ring protocol, in which events may be delivered again.
    redelivery: bool,
    next: u32,
    /// One bit for each slot of the ring, which is set if an unreleased event has the slot.
    held: Vec<u64>,
    outstanding: u32,
}

impl Reader {
    /// Creates a reader for an empty ring. `redelivery` is true for version 2 of the ring protocol, in which events may
    /// be delivered again.
    pub fn new(geometry: Geometry, redelivery: bool) -> Self {
        let held = vec![0; (geometry.slots() as usize).div_ceil(64)];
        Self { geometry, redelivery, next: 1, held, outstanding: 0 }
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the offset of the next event's descriptor, in bytes from the first descriptor.
    pub fn descriptor_at(&self) -> usize {
        self.geometry.descriptor_at(self.next)
    }

    /// Returns the sequence number of the next event.
    pub fn next_sequence(&self) -> u32 {
        self.next
    }

    /// Returns the number of received events that the worker has not released.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Checks the descriptor of an event that the bridge announced with the sequence number `sequence`, and returns the
    /// event. The caller must read the bytes of `descriptor` after the announcement has arrived. Bytes that were read
    /// earlier may belong to another event.
    ///
    /// # Errors
    /// Fails with a [`ReaderError`] if the bridge has broken the protocol. After an error, the reader is unchanged.
    pub fn handle(&mut self, sequence: u32, descriptor: &[u8; BLOCK]) -> Result<Given, ReaderError> {
        let descriptor = Descriptor::decode(descriptor)?;
        if descriptor.delivered_again && !self.redelivery {
            return Err(Malformed::Field.into());
        }
        let expected = self.next;
        if let Some(got) = [sequence, descriptor.sequence].into_iter().find(|&got| got != expected) {
            return Err(ReaderError::Sequence { expected, got });
        }
        let Descriptor { slot, slots, offset, length, .. } = descriptor;
        let needed = self.geometry.slots_for(length).ok_or(ReaderError::Outside)?;
        let inside = slot < self.geometry.slots() && slots <= self.geometry.slots() - slot;
        if slots != needed || !inside || offset != self.geometry.offset(slot) {
            return Err(ReaderError::Outside);
        }
        if (slot..slot + slots).any(|at| self.holds(at)) {
            return Err(ReaderError::Taken);
        }
        self.flip(&descriptor);
        self.outstanding += 1;
        self.next = expected.wrapping_add(1);
        Ok(Given(descriptor))
    }

    /// Releases an event. Returns the index of the credit word that the worker must write, and the new value of this
    /// word.
    pub fn credit(&mut self, given: Given) -> (u32, u32) {
        debug_assert!(self.holds(given.0.slot));
        self.flip(&given.0);
        self.outstanding -= 1;
        (given.0.slot, given.0.generation)
    }

    fn holds(&self, slot: u32) -> bool {
        self.held[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn flip(&mut self, &Descriptor { slot, slots, .. }: &Descriptor) {
        for at in slot..slot + slots {
            self.held[at as usize / 64] ^= 1 << (at % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::wire::EXAMPLE;

    fn descriptor(sequence: u32, slot: u32, length: u32) -> Descriptor {
        let slots = length.div_ceil(64).max(1);
        let offset = u64::from(slot) * 64;
        Descriptor { sequence, generation: 5, slot, slots, offset, length, ..EXAMPLE }
    }

    #[test]
    fn events_are_read_in_order_and_given_back_in_any() {
        let mut reader = Reader::new(Geometry::new(4, 64).unwrap(), false);
        let first = reader.handle(1, &descriptor(1, 2, 100).encode()).unwrap();
        let second = reader.handle(2, &descriptor(2, 0, 1).encode()).unwrap();
        assert_eq!((reader.outstanding(), reader.descriptor_at()), (2, 3 * BLOCK));
        assert_eq!(reader.credit(second), (0, 5));
        assert_eq!(reader.credit(first), (2, 5));
        assert_eq!(reader.outstanding(), 0);
    }

    #[test]
    fn in_version_2_events_are_delivered_again_or_not() {
        let mut reader = Reader::new(Geometry::new(4, 64).unwrap(), true);
        for (sequence, delivered_again) in [(1, false), (2, true)] {
            let its = Descriptor { delivered_again, ..descriptor(sequence, sequence, 1) };
            let given = reader.handle(sequence, &its.encode()).unwrap();
            assert_eq!(given.descriptor().delivered_again, delivered_again);
        }
    }

    #[test]
    fn a_bridge_that_lies_is_found_out() {
        let mut reader = Reader::new(Geometry::new(4, 64).unwrap(), false);
        let mut handle = |sequence, of: Descriptor| reader.handle(sequence, &of.encode());
        assert_eq!(handle(2, descriptor(2, 0, 1)), Err(ReaderError::Sequence { expected: 1, got: 2 }));
        assert_eq!(handle(1, descriptor(9, 0, 1)), Err(ReaderError::Sequence { expected: 1, got: 9 }));
        for outside in [
            descriptor(1, 4, 1),
            descriptor(1, u32::MAX, 1),
            descriptor(1, 3, 65),
            descriptor(1, 0, u32::MAX),
            Descriptor { offset: 64, ..descriptor(1, 0, 1) },
            Descriptor { slots: u32::MAX, ..descriptor(1, 1, 1) },
            Descriptor { slots: 0, ..descriptor(1, 1, 0) },
        ] {
            assert_eq!(handle(1, outside), Err(ReaderError::Outside), "{outside:?}");
        }
        let again = Descriptor { delivered_again: true, ..descriptor(1, 1, 128) };
        assert_eq!(handle(1, again), Err(ReaderError::Malformed(Malformed::Field)), "not in version 1");
        assert!(handle(1, descriptor(1, 1, 128)).is_ok());
        assert_eq!(handle(2, descriptor(2, 2, 1)), Err(ReaderError::Taken));
    }
}
