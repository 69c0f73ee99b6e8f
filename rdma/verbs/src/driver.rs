//! The interface that a provider implements.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    time::Instant,
};

use crate::{CmEvent, CmId, ConnParam, Error, Memory, RecvWr, SendWr, Wc};

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

/// The id of a protection domain, unique on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// The id of a completion queue, unique on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// The id of a queue of CM events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// The keys of a registered memory region. The LKey also identifies the region when the program calls methods of the
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// The key by which this program's work requests name the region.
    pub lkey: u32,
    /// The key that the packets of peers must contain.
    pub rkey: u32,
}

/// The access rights of a memory region. Local reads are always permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// True if the device may write received messages and the results of READs to the region.
    pub local_write: bool,
    /// True if peers may write the region by WRITEs. If `remote_write` is true, the verbs provider also grants
    /// `local_write`, because libibverbs requires this.
    pub remote_write: bool,
    /// True if peers may read the region by READs.
    pub remote_read: bool,
}

impl Access {
    /// The device may write received messages and the results of READs to the region, and peers have no access.
    pub const LOCAL: Self = Self { local_write: true, remote_write: false, remote_read: false };
    /// Peers may write the region, but not read it.
    pub const REMOTE_WRITE: Self = Self { local_write: true, remote_write: true, remote_read: false };
    /// Peers may write and read the region.
    pub const ALL: Self = Self { local_write: true, remote_write: true, remote_read: true };
}

/// The sizes that a program requests for a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// The maximum number of send work requests that are posted and not completed.
    pub max_send_wr: u32,
    /// The maximum number of receives that are posted and not completed.
    pub max_recv_wr: u32,
    /// The maximum number of scatter-gather elements of one work request.
    pub max_sge: u32,
    /// If true, the device may delay acknowledgements, which is useful for a program that responds to each message that
    /// it receives. The acknowledgement of a message that completes a receive is delayed until the program posts its
    /// next request, but at most for a millisecond. The delayed acknowledgement and the program's next request are sent
    /// together. If a program ends without destroying its objects, the device never sends an acknowledgement that is
    /// still delayed. A NIC sends acknowledgements by itself, so the verbs provider ignores this field.
    pub late_acks: bool,
}

impl Default for QpCap {
    fn default() -> Self {
        Self { max_send_wr: 256, max_recv_wr: 64, max_sge: 32, late_acks: false }
    }
}

/// The objects and sizes of a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    /// The protection domain of the queue pair.
    pub pd: PdId,
    /// The completion queue for the completions of SENDs, WRITEs and READs.
    pub send_cq: CqId,
    /// The completion queue for the completions of receives; it may be the same queue as `send_cq`.
    pub recv_cq: CqId,
    /// The sizes of the queue pair's queues.
    pub cap: QpCap,
}

/// The properties and limits of an opened device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// The provider's name: "embedded" or "verbs".
    pub provider: &'static str,
    /// The device's own name, for people who read logs.
    pub name: String,
    /// The local address of the device.
    pub address: IpAddr,
    /// The largest path MTU in bytes that the device's link and the device's configuration allow.
    pub max_path_mtu: u32,
    /// The maximum number of bytes of inline data in one work request.
    pub max_inline_data: u32,
    /// The maximum number of scatter-gather elements of one work request.
    pub max_sge: u32,
    /// The maximum number of queue pairs of the device.
    pub max_qp: u32,
    /// The maximum number of work requests per queue of a queue pair.
    pub max_qp_wr: u32,
    /// The maximum number of memory regions of the device.
    pub max_mr: u32,
    /// The maximum number of completion queues of the device.
    pub max_cq: u32,
    /// The maximum number of completions that a completion queue can hold.
    pub max_cqe: u32,
    /// The maximum length of a message in bytes.
    pub max_msg: u64,
    /// True if peers can connect to the device. Peers cannot connect if another socket holds the UDP port 4791 of the
    /// device's address.
    pub can_listen: bool,
    /// True if [`Driver::set_mr_access`] takes access rights away from peers. A NIC needs much time for revoking
    /// rights, or cannot revoke rights at all. If a provider cannot revoke rights, peers keep the rights with which the
    /// region was registered.
    pub revokes: bool,
}

/// How a thread waits for completions and CM events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Poll without ever sleeping. Spinning has the lowest latency and keeps one core busy.
    Spin,
    /// Sleep immediately, without spinning.
    Block,
    /// Spin for some tens of microseconds, then sleep.
    #[default]
    Adaptive,
}

/// The objects that a thread waits for: a completion queue, a channel, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitOn {
    /// The completion queue whose completions end the wait; `None` if completions do not end the wait.
    pub cq: Option<CqId>,
    /// The channel whose CM events end the wait; `None` if CM events do not end the wait.
    pub channel: Option<ChannelId>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A completion or a CM event can be polled.
    Ready,
    /// The deadline of the wait has passed.
    TimedOut,
    /// A call of [`Driver::interrupt`] ended the wait.
    Interrupted,
}

/// The methods of an opened device, which a provider implements. All methods may be called from any thread.
///
/// The methods identify objects by ids. [`crate::Context`] and its objects call these methods, and release the objects
/// in the right order. A call with an id that the device does not know fails with [`Error::NotFound`].
pub trait Driver: Send + Sync + 'static {
    /// The properties and limits of the device, which do not change while the device is open.
    fn attr(&self) -> &DeviceAttr;

    /// Creates a protection domain.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] or [`Error::Io`] if the operating system refuses the protection domain.
    fn alloc_pd(&self) -> Result<PdId, Error>;
    /// Destroys a protection domain.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] while regions or queue pairs use the protection domain.
    fn dealloc_pd(&self, pd: PdId) -> Result<(), Error>;

    /// Registers `memory` with the rights `access`. The device holds a clone of `memory` until the region is
    /// deregistered, so the memory stays mapped. The rights in `access` are in force at once. If
    /// [`DeviceAttr::revokes`] is true, [`Driver::set_mr_access`] can restrict them later. Peers address the memory by
    /// its virtual address.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the device has no room for another region, or if the limit of locked memory
    /// is reached. Fails with [`Error::Io`] if the operating system refuses the registration for any reason other than
    /// the limit of locked memory.
    fn reg_mr(&self, pd: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error>;
    /// Changes the access rights of peers; the new rights must be among the rights with which the region was
    /// registered. The method corresponds to `ibv_rereg_mr` of libibverbs with `IBV_REREG_MR_CHANGE_ACCESS`. If
    /// [`DeviceAttr::revokes`] is true, every access that is no longer permitted has ended when the call returns. If
    /// [`DeviceAttr::revokes`] is false, the call checks its arguments, but changes no access rights.
    ///
    /// # Errors
    /// Fails with [`Error::Invalid`] if `access` has a right with which the region was not registered.
    fn set_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error>;
    /// Deregisters the region. After the call returns, neither a peer nor the device touches the memory. The option
    /// `keep_registrations` of the verbs provider is an exception: it keeps the registration for a later call of
    /// [`reg_mr`](Self::reg_mr) with the same memory.
    fn dereg_mr(&self, lkey: u32) -> Result<(), Error>;

    /// Creates a completion queue with room for `depth` completions.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the device has no room for another completion queue. Fails with
    /// [`Error::Invalid`] if `depth` is 0. Fails with [`Error::Invalid`] or [`Error::Exhausted`] if `depth` is more
    /// than [`DeviceAttr::max_cqe`].
    fn create_cq(&self, depth: u32) -> Result<CqId, Error>;
    /// Destroys a completion queue and the completions in it.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] while queue pairs use the completion queue.
    fn destroy_cq(&self, cq: CqId) -> Result<(), Error>;
    /// Moves completions to `out`, the oldest first, and returns the number of completions that were moved.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the device reports that the completion queue has failed.
    fn poll_cq(&self, cq: CqId, out: &mut [Wc]) -> Result<usize, Error>;

    /// Creates a queue pair that is not connected yet. Receives can be posted before the queue pair is connected, but
    /// work requests for the send queue cannot.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the device has no room for another queue pair. Fails with [`Error::Invalid`]
    /// or [`Error::Exhausted`] if a size in `init` is more than the device allows.
    fn create_qp(&self, init: &QpInit) -> Result<QpNum, Error>;
    /// Destroys the queue pair. Work requests that are still in the queues get no completion, as in libibverbs.
    fn destroy_qp(&self, qp: QpNum) -> Result<(), Error>;
    /// Posts all work requests of `wrs` in order. If an error is returned, only the work requests before the returned
    /// index were posted.
    ///
    /// # Errors
    /// Fails with the index of the first work request that was not posted, together with the [`Error`] of this work
    /// request. The call fails with [`Error::Exhausted`] if the send queue is full. The embedded provider also reports
    /// [`Error::QpState`] if the queue pair is not connected. It reports [`Error::LocalProtection`] if a scatter-gather
    /// element does not lie inside the region of its LKey, or if the region does not permit the access. The call fails
    /// with [`Error::Invalid`] if the device refuses the work request.
    fn post_send(&self, qp: QpNum, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)>;
    /// Posts a receive. The messages of the peer fill the receives in the order in which the receives were posted.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if the receive queue is full.
    fn post_recv(&self, qp: QpNum, wr: &RecvWr<'_>) -> Result<(), Error>;

    /// Creates a channel, a queue of CM events.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system refuses to create the channel.
    fn create_channel(&self) -> Result<ChannelId, Error>;
    /// Destroys a channel. While listeners or connections use the channel, the embedded provider fails with
    /// [`Error::Busy`], and the verbs provider destroys these listeners and connections, too.
    fn destroy_channel(&self, channel: ChannelId) -> Result<(), Error>;
    /// Takes the oldest CM event of the channel; returns `None` if the channel has no CM event.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if reading CM events from the operating system fails.
    fn next_event(&self, channel: ChannelId) -> Result<Option<CmEvent>, Error>;
    /// Does the same as [`poll_cq`](Self::poll_cq) and then [`next_event`](Self::next_event). Returns the number of
    /// completions, and the CM event.
    ///
    /// # Errors
    /// Fails with the errors of both methods.
    fn poll(&self, cq: CqId, channel: ChannelId, out: &mut [Wc]) -> Result<(usize, Option<CmEvent>), Error> {
        Ok((self.poll_cq(cq, out)?, self.next_event(channel)?))
    }
    /// Accepts connection requests to TCP-space `port`; if `port` is 0, the provider chooses a free port. Returns the
    /// id of the listener and the port number.
    ///
    /// # Errors
    /// Fails with [`Error::CannotListen`] if [`DeviceAttr::can_listen`] is false, and with [`Error::AddressInUse`] or
    /// [`Error::Busy`] if another listener has the port. If `port` is 0 and no port is free, the embedded provider
    /// fails with [`Error::Exhausted`].
    fn listen(&self, channel: ChannelId, port: u16, backlog: u32) -> Result<(CmId, u16), Error>;
    /// Starts to connect `qp` to the listener at `remote`, whose port is a TCP-space port (RDMA_PS_TCP). The verbs
    /// provider continues the attempt only while the program calls [`next_event`](Self::next_event) or waits on
    /// `channel`. The program must therefore do so repeatedly until the attempt ends.
    ///
    /// # Errors
    /// Fails with [`Error::Invalid`] if a value of `param` is out of range, or if `remote` is not of the address family
    /// of the device. If the peer is unreachable, the call does not fail, but [`CmEvent::Unreachable`] follows.
    fn connect(
        &self,
        channel: ChannelId,
        qp: QpNum,
        remote: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId, Error>;
    /// Brings `qp` to ready-to-send and accepts the connection request `id`. The program must post receives before this
    /// call.
    ///
    /// # Errors
    /// Fails with [`Error::Invalid`] if the request was accepted or rejected before, or if a value of `param` is out of
    /// range. Fails with [`Error::QpState`] or [`Error::Io`] if the queue pair cannot be connected.
    fn accept(&self, id: CmId, qp: QpNum, param: &ConnParam) -> Result<(), Error>;
    /// Rejects a connection request with the reason [`CONSUMER_DEFINED`](crate::RejectReason::CONSUMER_DEFINED) and at
    /// most 148 bytes of private data. The program must not use `id` afterwards.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the request does not exist any more. Fails with [`Error::Invalid`] if the
    /// request was accepted, was rejected or has expired. Fails with [`Error::Invalid`] or [`Error::Io`] if
    /// `private_data` is too long.
    fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error>;
    /// Disconnects the connection `id`: flushes the queue pair and notifies the peer. The CM event
    /// [`CmEvent::Disconnected`] follows.
    fn disconnect(&self, id: CmId) -> Result<(), Error>;
    /// Destroys a listener or a connection; if the connection is still open, it is disconnected first.
    fn destroy_id(&self, id: CmId) -> Result<(), Error>;

    /// Waits until an object of `on` has something to poll, until `deadline`, or until a call of
    /// [`interrupt`](Self::interrupt) ends the wait. The engine of the embedded provider needs a thread that makes its
    /// turns: receive, timers, send. If no other thread makes the turns, the waiting thread makes them during the wait.
    fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error>;
    /// Waits like [`wait`](Self::wait) with [`WaitMode::Block`], and also returns [`Wake::Ready`] when `beside` is
    /// readable. If another thread makes the turns of the embedded provider's engine, nothing watches `beside`. The
    /// call then returns [`Wake::TimedOut`] after at most half a millisecond, so that the program can check `beside`
    /// itself.
    fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error>;
    /// Returns a file descriptor on which the event loop of a program can sleep. After a call of [`arm`](Self::arm),
    /// the file descriptor becomes readable when an object of `on` has something to poll, and sometimes also without a
    /// reason. The file descriptor stays valid until the objects of `on` are destroyed. A thread that sleeps on the
    /// file descriptor makes no turns of the embedded provider's engine, but leaves the turns to other threads.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the process has no free file descriptor.
    fn descriptor(&self, on: WaitOn) -> Result<OwnedFd, Error>;
    /// Arms the file descriptor of `on` for one notification. Returns false if an object of `on` already has something
    /// to poll.
    ///
    /// # Errors
    /// The embedded provider fails with [`Error::Invalid`] if [`descriptor`](Self::descriptor) was not called before
    /// for the same `on`.
    fn arm(&self, on: WaitOn) -> Result<bool, Error>;
    /// Ends one wait on `on`. If another thread is waiting on `on`, its wait ends. Otherwise, the next wait of any
    /// thread on `on` ends.
    fn interrupt(&self, on: WaitOn);

    /// Returns the name and the value of each counter of the device. If rxe has the same counter in its hw_counters,
    /// the counter has the name that rxe uses.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
