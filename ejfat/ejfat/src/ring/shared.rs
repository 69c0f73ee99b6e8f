//! A ring on one machine: files that bridge and worker map, and a UNIX socket of whole messages (`SOCK_SEQPACKET`).
//!
//! ```text
//! worker ─► bridge   Subscription, 64 bytes
//! bridge ─► worker   Answer, 64 bytes, and if it is no refusal two files: events, which the worker can only read; credits
//! bridge ─► worker   one byte: look at the head         (only while the worker sleeps)
//! end of the socket: the other one is gone
//!
//! events    head u32 at 0 | descriptors at 64 | ring at the next page
//! credits   count u32 | asleep u32 | reserved 56 | for each slot: generation u32
//! ```
//!
//! The head is the sequence number of the newest event; it is written after the descriptor. A worker that is about to
//! sleep sets `asleep` to 1 and then reads the head once more. A bridge writes the head and then reads `asleep`. Each
//! side has a sequentially consistent fence between its write and its read, so no wake-up is lost.

use super::{BLOCK, CREDIT};

/// Offsets in the file of events.
pub const HEAD_AT: usize = 0;
pub const DESCRIPTORS_AT: usize = BLOCK;
/// The alignment of the ring in the file, which is at least the page size of every machine that runs this.
pub const PAGE: usize = 1 << 16;

/// Offsets in the file of credits, which are the same as in the region of credits over RDMA.
pub const COUNT_AT: usize = 0;
pub const ASLEEP_AT: usize = CREDIT;
