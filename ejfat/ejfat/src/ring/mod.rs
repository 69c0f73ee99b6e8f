//! Event rings. A ring is memory of a worker, and a bridge fills this memory with events. The worker releases the
//! events in any order.
//!
//! ```text
//! bridge  RingSlots::take ─► bytes of the event ─► RingSlots::send ─► Descriptor, immediate = sequence number
//! worker  Reader::handle ─► Given: the location of the event ─► Reader::credit ─► word of its first slot
//! bridge  RingSlots::look at the words ─► free slots
//! ```
//!
//! A ring has [`Geometry::slots`] slots, and an event takes as many adjacent slots as it needs. The descriptors and the
//! credit words are outside the ring. Each slot has one credit word.
//!
//! **Rules.** The descriptor of sequence number n has the index n modulo the number of descriptors. The number of
//! descriptors is the number of slots rounded up to a power of two. A descriptor is written before the worker gets the
//! immediate of the event. Each event needs at least one slot until the worker has released it, so the number of
//! unreleased events is at most the number of slots. The number of descriptors is at least the number of slots, and the
//! worker reads descriptors in the order of announcement. Therefore no descriptor is overwritten before the worker has
//! read it. To release an event, the worker writes the generation of the event's first slot into the credit word of
//! this slot. After writing the credit word, the worker changes the count of credits, which lies in front of the credit
//! words. A changed count of credits shows the bridge that a credit word has changed. If a change of a credit word does
//! not release an event, the bridge counts the change as wrong and ignores it.
//!
//! A worker requests version 1 or version 2 of the ring protocol. A worker of version 1 never gets an event that
//! another worker got before. A worker of version 2 may also get events of workers that ended, whatever version these
//! workers used. A flag in the descriptor marks an event that is delivered again.
//!
//! Over RDMA, a worker subscribes by an ordinary MRSP call of function `subscribe` ([`call`]), with a region for each
//! parameter. After the response to the call of `subscribe`, the bridge writes events and descriptors. The immediate of
//! a descriptor's WRITE is the sequence number of the event. The first event has sequence number 1.
//!
//! | parameter | bytes | who writes it while subscribed |
//! |---|---|---|
//! | input 0, [`Subscription`] | 64 | nobody |
//! | input 1, credits: count u32, reserved 60, a word for each slot | [`Geometry::credits_bytes`] | worker |
//! | output 0, [`SubscribeResponse`] | 64 | nobody |
//! | output 1, [`Descriptor`]s | [`Geometry::descriptors_bytes`] | bridge |
//! | output 2, ring | [`Geometry::ring_bytes`] | bridge |

pub mod call;
mod geometry;
mod reader;
pub mod shared;
mod slots;
mod wire;

pub use geometry::{Geometry, GeometryError};
pub use reader::{Given, Reader, ReaderError};
pub use slots::{CreditCounts, Credited, RingSlots, Run};
pub use wire::{
    BLOCK, CREDIT, DeliveryMode, Descriptor, Filter, Malformed, SubscribeRefusal, SubscribeResponse,
    Subscription, WorkerName,
};
