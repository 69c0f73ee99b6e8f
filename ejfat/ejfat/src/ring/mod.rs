//! Event rings: memory of a worker that a bridge fills with events. The worker releases the events in any order.
//!
//! ```text
//! bridge  Slots::take ─► bytes of the event ─► Slots::send ─► Descriptor, immediate = sequence number
//! worker  Reader::handle ─► Given: where the event lies ─► Reader::credit ─► word of its first slot
//! bridge  Slots::look at the words ─► free slots
//! ```
//!
//! A ring has [`Geometry::slots`] slots; an event takes as many adjacent slots as it needs. Outside the ring are a
//! descriptor and a credit word for each slot.
//!
//! **Rules.** The descriptor of sequence number n lies at n modulo the number of descriptors, which is the number of
//! slots rounded up to a power of two. It is written before the immediate. Events are announced in order, so at most as
//! many descriptors are unread as there are slots, and none is overwritten unread. Credit for an event is the
//! generation of its first slot, which the worker writes in that slot's word; the count of credits changes afterwards.
//! Any other change of a word is counted and changes nothing.
//!
//! A worker asks for one of two versions. A worker of version 1 gets no event that another worker had. A worker of
//! version 2 may also get events of workers that ended, whichever version those used, and the descriptor of such an
//! event says so.
//!
//! Over RDMA a worker subscribes by an ordinary call of MRSP, `subscribe` (80), with a region for each parameter. The
//! bridge writes events and descriptors after the response. The immediate of a descriptor's WRITE is the sequence
//! number of its event, from 1 on.
//!
//! | parameter | bytes | who writes it while subscribed |
//! |---|---|---|
//! | input 0, [`Subscription`] | 64 | nobody |
//! | input 1, credits: count u32, reserved 60, a word for each slot | [`Geometry::credits_bytes`] | worker |
//! | output 0, [`Answer`] | 64 | nobody |
//! | output 1, [`Descriptor`]s | [`Geometry::descriptors_bytes`] | bridge |
//! | output 2, ring | [`Geometry::ring_bytes`] | bridge |

mod geometry;
mod reader;
pub mod shared;
mod slots;
mod wire;

pub use geometry::{Geometry, GeometryError};
pub use reader::{Given, Reader, ReaderError};
pub use slots::{Credited, Looked, Run, Slots};
pub use wire::{
    Answer, BLOCK, CREDIT, Descriptor, Filter, Malformed, Placing, Refusal, Subscription, WorkerName,
};
