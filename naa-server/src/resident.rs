//! Loop services: code that runs in the server loop beside calls, and writes to hosts that subscribed.
//!
//! ```text
//! call of its function ─► subscribe(): may it? ─► the answer goes out ─► begin(Stream): the resident's from now on
//! each turn of the loop ─► turn() ─► Stream::post
//! acknowledged          ─► completed()
//! the host left         ─► ended(): drop the Stream
//! ```
//!
//! A host that subscribed makes no more calls. The service writes to it until the session ends, and the host may write to its inputs.

use std::{fmt, net::SocketAddr, os::fd::BorrowedFd, sync::Arc, time::Instant};

use mrsp::RegionRequest;
use verbs::{Error, Memory, Pd, Qp, RemoteAddr, SendWr, Sge};

use crate::call::{Call, Failure};

/// The number of a session that a loop service has. It is not used again as long as the server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// One of a stream's regions.
#[derive(Clone, Debug)]
pub struct StreamRegion {
    /// The memory on this side. The host may write an input at any time; only the loop service writes an output.
    pub memory: Memory,
    pub(crate) lkey: u32,
    /// The region on the host's side.
    pub remote: RemoteAddr,
}

impl StreamRegion {
    /// A scatter-gather element of `length` bytes from `offset` of the memory on this side.
    ///
    /// # Panics
    /// If the bytes do not lie inside the region.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        let len = self.memory.len() as u64;
        assert!(offset <= len && u64::from(length) <= len - offset, "inside the region");
        Sge { addr: self.memory.addr() + offset, length, lkey: self.lkey }
    }

    /// The host's address of the bytes from `offset` on.
    ///
    /// # Panics
    /// If `offset` lies behind the end.
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        assert!(offset <= self.memory.len() as u64, "inside the region");
        RemoteAddr { addr: self.remote.addr.wrapping_add(offset), rkey: self.remote.rkey }
    }
}

/// The connection to a host that subscribed. Drop it when [`Resident::ended`] is called: its memory is freed after that.
#[derive(Debug)]
pub struct Stream {
    pub id: StreamId,
    pub peer: SocketAddr,
    /// The regions, in the order in which the host described its parameters.
    pub regions: Vec<StreamRegion>,
    /// The most work requests that may be unfinished at a time, signaled or not.
    pub most_sends: u32,
    pub pd: Pd,
    pub(crate) qp: Arc<Qp>,
}

impl Stream {
    /// The number for its work requests: completions with another number are not reported to [`Resident::completed`].
    pub fn number(&self) -> u64 {
        crate::session::stream_number(self.id.0)
    }

    /// Posts all of `wrs`. If there is an error, those before the index in `.0` were posted.
    ///
    /// # Errors
    /// The device's error.
    pub fn post(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.qp.post_send(wrs)
    }
}

/// The host that asks for a subscription.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub peer: SocketAddr,
    /// The parameters as the host described them; each has a region of its own.
    pub params: &'a [RegionRequest],
}

/// Code that runs in the server loop. None of the methods may block, and a turn may take some hundred microseconds at most, because calls wait
/// meanwhile.
pub trait Resident: Send + fmt::Debug {
    /// Called when a host calls the [function](crate::function::Function::subscribes) by which hosts subscribe. If this succeeds,
    /// [`begin`](Self::begin) follows unless the session ends first.
    ///
    /// # Errors
    /// The failure that the host is to learn of. Its session goes on.
    fn subscribe(&mut self, asking: &Asking<'_>, call: &mut Call<'_>) -> Result<(), Failure>;

    /// The response is posted, and whatever is posted from now on follows it.
    fn begin(&mut self, stream: Stream, now: Instant);

    /// The oldest signaled work request of a stream that was not yet complete has completed.
    fn completed(&mut self, stream: StreamId, now: Instant);

    /// The session ends: drop the stream, if there was one, and post nothing more.
    fn ended(&mut self, stream: StreamId, now: Instant);

    /// Does what there is to do. Returns true if there was something; then it is called again soon.
    fn turn(&mut self, now: Instant) -> bool;

    /// The server shuts down: accept nothing more. Returns true when nothing is on its way to hosts any more. It is called until then, or until the
    /// time limit of the shutdown.
    fn finish(&mut self) -> bool;

    /// The next stream that is to be closed for what its host did, and why.
    fn poll_closing(&mut self) -> Option<(StreamId, String)>;

    /// When there is something to do even if nothing arrives.
    fn deadline(&self) -> Option<Instant>;

    /// A file descriptor that is readable when there is something to do.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The server loop was asleep and is awake again.
    fn woken(&mut self);
}
