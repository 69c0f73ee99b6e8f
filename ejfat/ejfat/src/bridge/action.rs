//! Inputs of a dispatcher, and the actions that it orders.

use super::WorkerId;
use crate::{
    reassembly::{EventId, Name},
    ring::Descriptor,
};

/// The workers that may get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Anybody,
    /// Workers that take this data id.
    DataId(u16),
    /// The member that load-balancer tables name. If no such worker is subscribed, any worker may get the event.
    Member(u16),
}

/// An event whose first segment arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub id: EventId,
    pub name: Name,
    pub tick: Option<u64>,
    pub length: u32,
    pub target: Target,
}

/// The location of an event's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A worker's ring, at this offset in bytes.
    Ring { worker: WorkerId, offset: u64 },
    /// The caller's spill memory.
    Spill,
}

/// An action that the caller has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copy an event from spill memory to a ring.
    Move { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// The event is in its ring or in the staging ring: announce it to the worker, and release the reassembler's event
    /// buffer. If the event is in the staging ring, because it was reassembled there or moved there, WRITE it to the
    /// worker's ring first.
    Deliver { id: EventId, worker: WorkerId, descriptor: Descriptor },
    /// Copy the bytes that an event has so far from the ring of a worker that ended to spill memory, which is its
    /// location from now on.
    Rescue { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// Release the reassembler's event buffer.
    Drop { id: EventId },
    /// Deliver an event again: copy it from byte `offset` of the ring of `from`, a worker that ended, to the place in
    /// the ring of `worker` that the descriptor says, and announce it to `worker`. If that place is in a staging ring,
    /// WRITE the event to the worker's ring before.
    Again { from: WorkerId, offset: u64, worker: WorkerId, descriptor: Descriptor },
    /// Release the ring of a worker that ended, or its staging ring. This comes once for each worker that was removed.
    /// `given_up` events in the ring could have been delivered again and were not.
    Forget { worker: WorkerId, given_up: u32 },
}
