//! The calendar of a load balancer: which member gets the events of which slot.
//!
//! An event's slot comes from the low bits of its event number. So a member that has two slots next to each other may get two
//! events in a row, and the slots of a member are spread evenly. Every slot that changes its member makes the members' queues
//! change, so from one calendar to the next as few slots as possible move.

mod counts;
mod moves;

pub use counts::{CountError, Demand, counts};
pub(crate) use counts::{parts, rounded};

/// A member's id in the tables of a load balancer.
pub type MemberId = u16;

/// The highest id of a member. Tables have 16 bits for it, and ESnet's control planes write the id above this one where a slot has no
/// member.
pub const MOST_MEMBER_ID: MemberId = MemberId::MAX - 1;

/// The most slots of a calendar.
pub const MOST_SLOTS: u32 = 1 << 12;

/// Which member each slot leads to; `None`: no member, so that events of this slot are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    slots: Vec<Option<MemberId>>,
}

impl Calendar {
    /// A calendar in which no slot has a member. `None` if `slots` is not a power of two, or too large.
    pub fn empty(slots: u32) -> Option<Self> {
        let is_sound = slots.is_power_of_two() && slots <= MOST_SLOTS;
        is_sound.then(|| Self { slots: vec![None; slots as usize] })
    }

    /// The calendar with these slots. `None` if their number is not a power of two, or too large.
    pub fn of(slots: &[Option<MemberId>]) -> Option<Self> {
        let is_sound = slots.len().is_power_of_two() && slots.len() <= MOST_SLOTS as usize;
        is_sound.then(|| Self { slots: slots.to_vec() })
    }

    /// Returns the member of each slot, in the order of the slots. `None` stands for a slot without a member.
    pub fn slots(&self) -> &[Option<MemberId>] {
        &self.slots
    }

    /// The number of slots that lead to a member.
    pub fn count(&self, member: MemberId) -> u32 {
        self.slots.iter().filter(|slot| **slot == Some(member)).count() as u32
    }

    /// Returns the next calendar, in which each member has as many slots as `wanted` says; other members have none. As
    /// few slots change as possible: only members that have too many lose slots, and only members that have too few get
    /// them.
    ///
    /// A member gives up slots where its slots are closest together, and takes slots far from the slots that it has.
    /// Ties are broken by the lowest number, so the same arguments give the same calendar.
    ///
    /// # Panics
    /// If a member is in `wanted` twice, or there are more slots in `wanted` than the calendar has.
    pub fn next(&self, wanted: &[(MemberId, u32)]) -> Self {
        moves::next(self, &[], wanted)
    }

    /// Returns the next calendar like [`Self::next`], with `fixed` slots that lead to certain members whatever else
    /// changes. They count in `wanted`.
    ///
    /// # Panics
    /// In the cases of [`Self::next`]; also if a member has more slots in `fixed` than in `wanted`, or a slot is not in
    /// the calendar.
    pub fn next_around(&self, fixed: &[(u32, MemberId)], wanted: &[(MemberId, u32)]) -> Self {
        moves::next(self, fixed, wanted)
    }
}
