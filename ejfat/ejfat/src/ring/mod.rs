//! Event rings: memory of a worker that a bridge fills with events, and the worker empties in any order.
//!
//! ```text
//! bridge  Slots::take ─► bytes of the event ─► Slots::send ─► Descriptor, immediate = sequence number
//! worker  Reader::handle ─► Given: where the event lies ─► Reader::credit ─► word of its first slot
//! bridge  Slots::look at the words ─► free slots
//! ```
//!
//! A ring is [`Geometry::slots`] slots; an event takes as many as it needs, side by side. Beside it are a descriptor and a
//! credit word for each slot.
//!
//! **Rules.** The descriptor of sequence number n lies at n mod the power of two from the number of slots on, and is there
//! before the immediate is told. Events are told in order, so at most as many descriptors are unread as there are slots, and
//! none is overwritten unread. Credit for an event is the generation of its first slot, in that slot's word, after
//! which the count changes. Any other change of a word is counted and changes nothing.
//!
//! A worker asks for one of two versions. In version 1 it gets no event that another worker had. In version 2 it may also
//! get events of workers that ended, whichever version those spoke, and the descriptor of such an event says so.
//!
//! Over RDMA a worker subscribes by an ordinary call of MRSP, `subscribe` (80), with a region for each parameter. After its
//! response the bridge writes, and the immediate is the number of the event whose descriptor it carries, from 1 on.
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
