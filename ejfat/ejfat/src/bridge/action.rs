//! The inputs of a dispatcher, and the actions that a dispatcher orders.

use super::WorkerId;
use crate::{
    reassembly::{EventId, Name},
    ring::Descriptor,
};

/// The workers that may get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Anybody,
    /// The workers that take this data id.
    DataId(u16),
    /// The worker that has this member number in the load-balancer tables. If no worker with this member number is
    /// subscribed, any worker may get the event.
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
    /// The event is in the ring of `worker`, at the byte `offset`.
    Ring { worker: WorkerId, offset: u64 },
    /// The event is in the caller's spill memory.
    Spill,
}

/// An action that the caller has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copy an event from spill memory to the byte `offset` of a worker's ring or staging ring.
    Move { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// Announce an event to its worker, and release the reassembler's event buffer. If the event is only in the staging
    /// ring, first WRITE the event to the worker's ring.
    Deliver { id: EventId, worker: WorkerId, descriptor: Descriptor },
    /// Copy the bytes of an incomplete event from the ring of a worker that ended to spill memory. After this action,
    /// the location of the event is spill memory.
    Rescue { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// Release the reassembler's event buffer.
    Drop { id: EventId },
    /// Deliver an event of the ended worker `from` again. Copy the event from byte `offset` of the ring of `from` to
    /// the offset in the ring of `worker` that the descriptor contains. If `worker` has a staging ring, copy the event
    /// to the staging ring, and WRITE it to the worker's ring. After the copy, announce the event to `worker`.
    Again { from: WorkerId, offset: u64, worker: WorkerId, descriptor: Descriptor },
    /// Release the ring or staging ring of a worker that ended. For each removed worker, the dispatcher orders this
    /// action exactly once. `given_up` is the number of events in the ring that could have been delivered again, but
    /// were not delivered again.
    Forget { worker: WorkerId, given_up: u32 },
}
