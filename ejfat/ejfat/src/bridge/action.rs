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
    /// Copy an event from the ring of a worker that ended, at this byte, to where the descriptor says, and tell the worker:
    /// the event is delivered again. Where the home is in a twin, write it first.
    Again { from: WorkerId, offset: u64, worker: WorkerId, descriptor: Descriptor },
    /// The ring of a worker that ended, or its twin, is not wanted any more: once for each that was removed. So many events
    /// in it that could have been delivered again were not.
    Forget { worker: WorkerId, given_up: u32 },
}
