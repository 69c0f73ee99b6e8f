//! What lives in a server's loop beside its calls, and writes to hosts that subscribed by one.
//!
//! ```text
//! call of its function ─► subscribe(): may it? ─► the answer goes out ─► begin(Stream): the resident's from now on
//! each turn of the loop ─► turn() ─► Stream::post
//! acknowledged          ─► completed()
//! the host left         ─► ended(): drop the Stream
//! ```
//!
//! A host that subscribed makes no more calls: it is written to until it goes, and writes itself to what it sent as
//! inputs.

use std::{fmt, net::SocketAddr, os::fd::BorrowedFd, sync::Arc, time::Instant};

use mrsp::RegionRequest;
use verbs::{Error, Memory, Pd, Qp, RemoteAddr, SendWr, Sge};

use crate::call::{Call, Failure};

/// A session that a resident has. Not used again within a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// One of a stream's regions.
#[derive(Clone, Debug)]
pub struct StreamRegion {
    /// Here. Of an input the host writes it whenever it likes; an output's is the resident's alone.
    pub memory: Memory,
    pub(crate) lkey: u32,
    /// At the host.
    pub remote: RemoteAddr,
}

impl StreamRegion {
    /// `length` bytes from `offset` of the memory here.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        let len = self.memory.len() as u64;
        assert!(offset <= len && u64::from(length) <= len - offset, "inside the region");
        Sge { addr: self.memory.addr() + offset, length, lkey: self.lkey }
    }

    /// Bytes from `offset` on, at the host.
    ///
    /// # Panics
    /// If it lies behind the end.
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        assert!(offset <= self.memory.len() as u64, "inside the region");
        RemoteAddr { addr: self.remote.addr.wrapping_add(offset), rkey: self.remote.rkey }
    }
}

/// The connection to a host that subscribed. Drop it when [`Resident::ended`] says so: its memory goes then.
#[derive(Debug)]
pub struct Stream {
    pub id: StreamId,
    pub peer: SocketAddr,
    /// As the host described its parameters.
    pub regions: Vec<StreamRegion>,
    /// Work requests that may be unfinished at a time, signalled or not.
    pub most_sends: u32,
    pub pd: Pd,
    pub(crate) qp: Arc<Qp>,
}

impl Stream {
    /// The number of its work requests: completions with another one do not come to [`Resident::completed`].
    pub fn number(&self) -> u64 {
        crate::session::stream_number(self.id.0)
    }

    /// Posts all of them or, on an error, those before index `.0`.
    ///
    /// # Errors
    /// The device's.
    pub fn post(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.qp.post_send(wrs)
    }
}

/// Who asks for a subscription.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub peer: SocketAddr,
    /// Its parameters, as it described them: each has a region of its own.
    pub params: &'a [RegionRequest],
}

/// Lives in a server's loop. Nothing here may block, and a turn takes some hundred microseconds at most: calls wait
/// meanwhile.
pub trait Resident: Send + fmt::Debug {
    /// A host calls the [function](crate::function::Function::subscribes) by which hosts subscribe. If this succeeds, [`begin`](Self::begin) follows unless the session ends first.
    ///
    /// # Errors
    /// What the host is told. Its session goes on.
    fn subscribe(&mut self, asking: &Asking<'_>, call: &mut Call<'_>) -> Result<(), Failure>;

    /// The answer is on its way, and what is posted now comes behind it.
    fn begin(&mut self, stream: Stream, now: Instant);

    /// The oldest signalled work request of a stream that was not complete is.
    fn completed(&mut self, stream: StreamId, now: Instant);

    /// The host is gone, or nearly: drop the stream, if there was one, and post nothing more.
    fn ended(&mut self, stream: StreamId, now: Instant);

    /// Does what there is to do. True if there was something: then it is asked again soon.
    fn turn(&mut self, now: Instant) -> bool;

    /// The server shuts down: take nothing more. True when nothing is on its way to hosts any more; called until then, or
    /// until patience is over.
    fn finish(&mut self) -> bool;

    /// The next stream that is to be closed for what its host did, and why.
    fn poll_closing(&mut self) -> Option<(StreamId, String)>;

    /// When there is something to do whatever happens.
    fn deadline(&self) -> Option<Instant>;

    /// Readable when it has something to do.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The loop slept, and sleeps no more.
    fn woken(&mut self);
}
