//! A ring on one host, without a wire: files that both map, and a UNIX socket of whole messages (`SOCK_SEQPACKET`).
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
//! The head is the number of the newest event; it is written after the descriptor. A worker that is about to sleep says so
//! (asleep is 1), and looks at the head once more; a bridge that wrote the head looks who sleeps: each with a
//! sequentially consistent fence between the two.

use super::{BLOCK, CREDIT};

/// Where parts of the file of events begin.
pub const HEAD_AT: usize = 0;
pub const DESCRIPTORS_AT: usize = BLOCK;
/// What the ring begins on; not smaller than a page of any machine that runs this.
pub const PAGE: usize = 1 << 16;

/// In the file of credits, as in the region of credits over RDMA.
pub const COUNT_AT: usize = 0;
pub const ASLEEP_AT: usize = CREDIT;
