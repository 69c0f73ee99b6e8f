//! A ring in shared memory on one machine. Bridge and worker map two files, the file of events and the file of credits.
//! Bridge and worker exchange messages through a UNIX socket (`SOCK_SEQPACKET`).
//!
//! ```text
//! worker ─► bridge   Subscription, 64 bytes
//! bridge ─► worker   SubscribeResponse, 64 bytes, and without refusal two files: events, which the worker can only
//!                    read; credits
//! bridge ─► worker   one byte: look at the head         (only while the worker sleeps)
//! end of the socket: the other side has ended
//!
//! events    head u32 at 0 | descriptors at 64 | ring at the next page
//! credits   count u32 | asleep u32 | reserved 56 | for each slot: generation u32
//! ```
//!
//! The word `head` is the sequence number of the newest event. The bridge first writes the descriptor of an
//! event, then writes the sequence number into `head`, and then reads `asleep`. A worker that is about to
//! sleep sets `asleep` to 1 and reads `head` once more afterwards. The bridge has a sequentially consistent
//! fence between writing `head` and reading `asleep`. The worker has a sequentially consistent fence between
//! writing `asleep` and reading `head`. No wake-up is lost, because the two fences ensure that the bridge
//! reads 1 from `asleep`, or the worker reads the new value of `head`.

use super::{BLOCK, CREDIT};

/// The offset of the sequence number of the newest event (`head`) in the shared file of events, in bytes.
pub const HEAD_AT: usize = 0;
/// The offset of the first descriptor in the shared file of events, in bytes.
pub const DESCRIPTORS_AT: usize = BLOCK;
/// The alignment of the ring in the shared file of events, in bytes. The alignment is at least the page size of every
/// supported machine.
pub const PAGE: usize = 1 << 16;

/// The offset of the count of credits in the file of credits, in bytes. The region of credits, which is used over RDMA,
/// has the count at the same offset.
pub const COUNT_AT: usize = 0;
/// The offset of the word `asleep` in the file of credits, in bytes.
pub const ASLEEP_AT: usize = CREDIT;
