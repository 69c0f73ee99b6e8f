//! The division of a ring into slots.

use super::{BLOCK, CREDIT, shared};

/// The number of slots of a ring, and the number of bytes of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    slots: u32,
    slot_bytes: u32,
}

/// The reason why a geometry is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The number of slots is not from 1 to 65536. The value is the number of slots.
    #[error("a ring of {0} slots; it has 1 to {most}", most = Geometry::MOST_SLOTS)]
    Slots(u32),
    /// The size of a slot is 0 or not a multiple of [`Geometry::UNIT`]. The value is the size of a slot in
    /// bytes.
    #[error("slots of {0} bytes; they are multiples of {unit} bytes", unit = Geometry::UNIT)]
    SlotBytes(u32),
    /// The ring has 4 GiB or more. The value is the size of the ring in bytes.
    #[error("a ring of {0} bytes; it is shorter than 4 GiB")]
    RingBytes(u64),
}

impl Geometry {
    /// The maximum number of slots of a ring.
    const MOST_SLOTS: u32 = 1 << 16;
    /// The size of a slot is a multiple of this number of bytes, so that every event begins at the start of a cache
    /// line.
    pub const UNIT: u32 = 64;

    /// Creates the geometry of a ring with `slots` slots of `slot_bytes` bytes each.
    ///
    /// # Errors
    /// Fails if the number of slots, the size of a slot or the size of the ring is not valid.
    pub fn new(slots: u32, slot_bytes: u32) -> Result<Self, GeometryError> {
        if !(1..=Self::MOST_SLOTS).contains(&slots) {
            return Err(GeometryError::Slots(slots));
        }
        if slot_bytes == 0 || !slot_bytes.is_multiple_of(Self::UNIT) {
            return Err(GeometryError::SlotBytes(slot_bytes));
        }
        let ring = u64::from(slots) * u64::from(slot_bytes);
        // In MRSP, the length of a region has 32 bits, so a ring of 2^32 bytes or more is refused.
        if ring > u64::from(u32::MAX) {
            return Err(GeometryError::RingBytes(ring));
        }
        Ok(Self { slots, slot_bytes })
    }

    /// Returns the number of slots.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the size of one slot in bytes.
    pub fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Returns the size of the ring in bytes, without event descriptors and credits.
    pub fn ring_bytes(self) -> usize {
        self.slots as usize * self.slot_bytes as usize
    }

    /// Returns the offset in bytes at which the ring begins in the shared file of events ([`shared`](super::shared)).
    /// The ring begins at the start of a page.
    pub fn shared_ring_at(self) -> usize {
        (shared::DESCRIPTORS_AT + self.descriptors_bytes()).next_multiple_of(shared::PAGE)
    }

    /// Returns the length in bytes of the shared file of events, which contains the event descriptors and the ring
    /// ([`shared`](super::shared)).
    pub fn shared_bytes(self) -> usize {
        self.shared_ring_at() + self.ring_bytes()
    }

    /// Returns the number of event descriptors of the ring, which is a power of two and thus a divisor of 2^32. The
    /// index of an event descriptor is its sequence number modulo this number. The index therefore goes on without a
    /// jump when the sequence numbers wrap from 2^32 - 1 to 0.
    fn descriptors(self) -> u32 {
        self.slots.next_power_of_two()
    }

    /// Returns the size of all event descriptors in bytes.
    pub fn descriptors_bytes(self) -> usize {
        self.descriptors() as usize * BLOCK
    }

    /// Returns the length in bytes of the region or file of credits. The region or file begins with a block of 64
    /// bytes, in which the count of credits lies: the worker changes this count after writing a credit word. One credit
    /// word for each slot follows this block.
    pub fn credits_bytes(self) -> usize {
        BLOCK + self.slots as usize * CREDIT
    }

    /// Returns the offset of a slot's credit word in the region or file of credits, in bytes.
    pub fn credit_at(self, slot: u32) -> usize {
        BLOCK + slot as usize * CREDIT
    }

    /// Returns the offset of a slot in the ring, in bytes.
    pub fn offset(self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.slot_bytes)
    }

    /// Returns the number of slots that an event takes, which is at least one. Returns `None` if the event needs more
    /// slots than the ring has.
    pub fn slots_for(self, length: u32) -> Option<u32> {
        Some(length.div_ceil(self.slot_bytes).max(1)).filter(|&slots| slots <= self.slots)
    }

    /// Returns the offset of the event descriptor for the sequence number `sequence`, in bytes from the first event
    /// descriptor.
    pub fn descriptor_at(self, sequence: u32) -> usize {
        (sequence & (self.descriptors() - 1)) as usize * BLOCK
    }
}
