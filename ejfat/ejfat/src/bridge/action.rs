//! The inputs of a dispatcher, and the actions that a dispatcher orders.

use super::WorkerId;
use crate::{
    reassembly::{EventBufferId, EventKey},
    ring::Descriptor,
};

/// The workers that may get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EligibleWorkers {
    /// Every worker may get the event.
    Anybody,
    /// Only the workers whose [`Filter`](crate::ring::Filter) takes this data id may get the event.
    DataId(u16),
    /// Only the workers whose [`Filter`](crate::ring::Filter) has this member number may get the event. If no worker
    /// with this member number can get events at present, any worker may get the event.
    Member(u16),
}

/// An event whose first segment arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The id of the event in the reassembler.
    pub id: EventBufferId,
    /// The event number and the data id of the event.
    pub name: EventKey,
    /// The tick in the LB header of the first segment, or `None` if the segment had no LB header.
    pub tick: Option<u64>,
    /// The length of the whole event in bytes.
    pub length: u32,
    /// The workers that may get the event.
    pub target: EligibleWorkers,
}

/// The location of an event's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLocation {
    /// The event is in the ring of `worker`, at the byte `offset`.
    Ring {
        /// The worker to which the ring belongs.
        worker: WorkerId,
        /// The offset of the event's first byte in the ring, in bytes.
        offset: u64,
    },
    /// The event is in the caller's spill memory.
    Spill,
}

/// An action that the caller has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchAction {
    /// Announce an event to its worker, and release the reassembler's event buffer. If the event is only in the staging
    /// ring, first WRITE the event to the worker's ring.
    Deliver {
        /// The id of the event in the reassembler.
        id: EventBufferId,
        /// The worker that gets the event.
        worker: WorkerId,
        /// The descriptor by which the worker finds the event in its ring.
        descriptor: Descriptor,
        /// True if the event is in spill memory. The caller must then first copy `descriptor.length` bytes from spill
        /// memory to the byte `descriptor.offset` of the worker's ring or staging ring.
        spilled: bool,
    },
    /// Copy the bytes of an incomplete event from the ring of an ended worker into spill memory. After this action, the
    /// location of the event is spill memory.
    Rescue {
        /// The id of the event in the reassembler.
        id: EventBufferId,
        /// The length of the whole event in bytes.
        length: u32,
        /// The worker that ended.
        worker: WorkerId,
        /// The offset of the event in the ring of the ended worker, in bytes.
        offset: u64,
    },
    /// Release the reassembler's event buffer.
    Drop {
        /// The id of the event in the reassembler.
        id: EventBufferId,
    },
    /// Deliver an event of the ended worker `from` again. Copy the event from the ring of `from`, beginning at byte
    /// `offset`, to the ring of `worker`, beginning at byte `descriptor.offset`. Then announce the event to `worker`.
    /// If `worker` has a staging ring, copy the event to the staging ring, and WRITE the event from the staging ring to
    /// the worker's ring before the announcement.
    Redeliver {
        /// The ended worker.
        from: WorkerId,
        /// The offset of the event in the ring of the ended worker, in bytes.
        offset: u64,
        /// The worker that gets the event.
        worker: WorkerId,
        /// The descriptor by which the new worker finds the event in its ring.
        descriptor: Descriptor,
    },
    /// Release the ring or staging ring of a worker that ended. The dispatcher orders this action exactly once for each
    /// removed worker. `given_up` is the number of events in the ring that still waited to be delivered again. These
    /// events are given up.
    Forget {
        /// The ended worker.
        worker: WorkerId,
        /// The number of events that are given up although they still waited to be delivered again.
        given_up: u32,
    },
}
