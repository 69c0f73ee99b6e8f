//! Loop services: code that runs in the server loop beside calls, and writes to hosts that subscribed.
//!
//! ```text
//! call of its function  ─► subscribe(): is it accepted? ─► the response is posted ─► begin(StreamingSession)
//! each turn of the loop ─► turn() ─► StreamingSession::post()
//! acknowledgement       ─► completed()
//! end of the session    ─► ended(): drop the StreamingSession
//! ```
//!
//! A host that subscribed makes no more calls. The loop service writes to the host until the session ends, and the host
//! may write to the inputs of its session.

use std::{fmt, net::SocketAddr, os::fd::BorrowedFd, sync::Arc, time::Instant};

use mrsp::RegionRequest;
use verbs::{Error, Memory, Pd, Qp, RemoteAddr, SendWr, Sge};

use crate::call::{Call, CallFailure};

/// The number of a session whose streaming call a loop service serves. The server never gives the same number to two
/// sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// One region of a session with a streaming call.
#[derive(Clone, Debug)]
pub struct StreamRegion {
    /// The server's memory of this region. If the region is an input, the host may write this memory at any time. If
    /// the region is an output, only the loop service writes this memory.
    pub memory: Memory,
    pub(crate) lkey: u32,
    /// The address and the RKey of the host's memory for this region.
    pub remote: RemoteAddr,
}

impl StreamRegion {
    /// Returns a scatter-gather element of `length` bytes that starts at `offset` in the server's memory of this
    /// region.
    ///
    /// # Panics
    /// Panics if the bytes are not inside the region.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        let len = self.memory.len() as u64;
        assert!(offset <= len && u64::from(length) <= len - offset, "inside the region");
        Sge { addr: self.memory.addr() + offset, length, lkey: self.lkey }
    }

    /// Returns the host's address and RKey for the byte at `offset` in this region.
    ///
    /// # Panics
    /// Panics if `offset` is greater than the length of the region.
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        assert!(offset <= self.memory.len() as u64, "inside the region");
        RemoteAddr { addr: self.remote.addr.wrapping_add(offset), rkey: self.remote.rkey }
    }
}

/// The connection to a host that subscribed. The loop service must drop the `StreamingSession` when
/// [`LoopService::ended`] is called. The memory of the session is not freed before the `StreamingSession` is dropped.
#[derive(Debug)]
pub struct StreamingSession {
    /// The number by which the methods of [`LoopService`] identify the session.
    pub id: StreamId,
    /// The address of the host.
    pub peer: SocketAddr,
    /// The regions in the order in which the host described its parameters.
    pub regions: Vec<StreamRegion>,
    /// The maximum number of work requests that may be unfinished at a time, signaled or not.
    pub most_sends: u32,
    /// The protection domain of the session's queue pair. Memory from which the loop service writes is registered with
    /// this protection domain.
    pub pd: Pd,
    pub(crate) qp: Arc<Qp>,
}

impl StreamingSession {
    /// Returns the number (`wr_id`) that the loop service must give to each work request that it posts in this session.
    /// [`LoopService::completed`] is called only for completions of work requests with this number.
    pub fn number(&self) -> u64 {
        crate::session::stream_number(self.id.0)
    }

    /// Posts all of `wrs`.
    ///
    /// # Errors
    /// Fails with the index of the first work request that was not posted, and with the device's error. If this method
    /// fails, the work requests of `wrs` before the returned index were posted.
    pub fn post(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        self.qp.post_send(wrs)
    }
}

/// A host that requests a subscription.
#[derive(Clone, Copy, Debug)]
pub struct SubscribingHost<'a> {
    /// The address of the host.
    pub peer: SocketAddr,
    /// The parameters as the host described them. Each parameter has a region of its own.
    pub params: &'a [RegionRequest],
}

/// Code that the server loop runs beside calls, and that writes to hosts which subscribed. No method may block, and
/// [`turn`](Self::turn) may take some hundred microseconds at most, because calls wait meanwhile.
pub trait LoopService: Send + fmt::Debug {
    /// Decides if a host may subscribe. The server loop calls this method when a host calls a function whose handler is
    /// a [subscription](crate::function::Handler::Subscription). After success, [`begin`](Self::begin) is called unless
    /// the session ends first.
    ///
    /// # Errors
    /// Fails with the failure that the host gets as the response. After a failure, the session of the host continues,
    /// but the loop service does not write to the host.
    fn subscribe(&mut self, host: &SubscribingHost<'_>, call: &mut Call<'_>) -> Result<(), CallFailure>;

    /// Starts to write to a host whose subscription was accepted. The response to the host's subscription is already
    /// posted, so the work requests that the loop service posts follow this response.
    fn begin(&mut self, stream: StreamingSession, now: Instant);

    /// Notifies the loop service that a signaled work request of the session `stream` has completed: the oldest one
    /// that had not completed before.
    fn completed(&mut self, stream: StreamId, now: Instant);

    /// Notifies the loop service that the session `stream` is about to end. The loop service must post no more work
    /// requests in this session. If it still has the [`StreamingSession`] of this session, it must drop the
    /// `StreamingSession`.
    fn ended(&mut self, stream: StreamId, now: Instant);

    /// Lets the loop service do the work that it has now. Returns true if work was done. After `turn` has returned
    /// true, the server loop polls for a short time instead of waiting, and calls `turn` again soon.
    fn turn(&mut self, now: Instant) -> bool;

    /// Notifies the loop service that the server shuts down, so that the loop service takes no new data for hosts.
    /// Returns true when no data is in transit to hosts. The server loop calls `finish` repeatedly until the result is
    /// true or the shutdown times out.
    fn finish(&mut self) -> bool;

    /// Returns the next session that the server loop must close, and a text that says why. Returns `None` if the server
    /// loop must close no session.
    fn poll_closing(&mut self) -> Option<(StreamId, String)>;

    /// Returns the time at which the server loop must end a wait even if nothing has arrived, because the loop service
    /// then has work. Returns `None` if there is no such time.
    fn deadline(&self) -> Option<Instant>;

    /// Returns a file descriptor that is readable when the loop service has work.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Notifies the loop service that a wait of the server loop has ended, whether by a wake-up or by a time-out. The
    /// server loop calls this method only after a wait in which it could sleep.
    fn woken(&mut self);
}
