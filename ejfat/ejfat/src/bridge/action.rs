//! What a dispatcher is asked for, and what it says.

use super::WorkerId;
use crate::{
    reassembly::{EventId, Name},
    ring::Descriptor,
};

/// Who may have an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Anybody,
    /// Workers that take this data id.
    DataId(u16),
    /// The member that load-balancer tables name; without such a worker, anybody.
    Member(u16),
}

/// An event of which the first segment came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub id: EventId,
    pub name: Name,
    pub tick: Option<u64>,
    pub length: u32,
    pub target: Target,
}

/// Where the bytes of an event are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In a ring, from this byte on.
    Ring { worker: WorkerId, offset: u64 },
    /// In the caller's own memory.
    Spill,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copy an event from spill memory to a ring.
    Move { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// The event is in its ring, or its twin: tell the worker, and release the reassembler's slot. Where the home was
    /// in a twin or the event was moved there, write it first.
    Deliver { id: EventId, worker: WorkerId, descriptor: Descriptor },
    /// Copy what there is of an event from the ring of a worker that ended to spill memory. Its home is there now.
    Rescue { id: EventId, length: u32, worker: WorkerId, offset: u64 },
    /// Release the reassembler's slot.
    Drop { id: EventId },
    /// Deliver an event again: copy it from byte `offset` of the ring of `from`, a worker that ended, to the place in the ring of `worker`
    /// that the descriptor says, and tell `worker`. If that place is in a twin, WRITE the event to the worker's ring before.
    Again { from: WorkerId, offset: u64, worker: WorkerId, descriptor: Descriptor },
    /// Release the ring of a worker that ended, or the twin of that ring. This comes once for each worker that was removed. `given_up`
    /// events in the ring could have been delivered again and were not.
    Forget { worker: WorkerId, given_up: u32 },
}
