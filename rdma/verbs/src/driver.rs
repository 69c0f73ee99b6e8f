//! What a provider implements.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    time::Instant,
};

use crate::{CmEvent, CmId, ConnParam, Error, Memory, RecvWr, SendWr, Wc};

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// A queue of connection events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// The keys of a registered memory region. The LKey also names the region towards the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    pub lkey: u32,
    pub rkey: u32,
}

/// What a memory region permits. Local reads are always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub local_write: bool,
    pub remote_write: bool,
    pub remote_read: bool,
}

impl Access {
    pub const LOCAL: Self = Self { local_write: true, remote_write: false, remote_read: false };
    pub const REMOTE_WRITE: Self = Self { local_write: true, remote_write: true, remote_read: false };
    pub const ALL: Self = Self { local_write: true, remote_write: true, remote_read: true };
}

/// Sizes asked of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_sge: u32,
    /// The program answers what it receives: the acknowledgement of a message that completes a receive may wait
    /// for what is posted next, for a millisecond at most, so that both leave together. A program that ends
    /// without destroying its objects owes it still. Providers whose hardware acknowledges ignore this.
    pub late_acks: bool,
}

impl Default for QpCap {
    fn default() -> Self {
        Self { max_send_wr: 256, max_recv_wr: 64, max_sge: 32, late_acks: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    pub cap: QpCap,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// "embedded" or "verbs".
    pub provider: &'static str,
    /// The device's own name, for people.
    pub name: String,
    pub address: IpAddr,
    /// Bytes of payload per packet this device's link allows.
    pub max_path_mtu: u32,
    pub max_inline_data: u32,
    pub max_sge: u32,
    pub max_qp: u32,
    /// Work requests per queue of a queue pair.
    pub max_qp_wr: u32,
    pub max_mr: u32,
    pub max_cq: u32,
    /// Completions a completion queue can hold.
    pub max_cqe: u32,
    /// Largest message in bytes.
    pub max_msg: u64,
    /// The device can be dialled (a second process on one address cannot).
    pub can_listen: bool,
    /// What [`Driver::set_mr_access`] takes from peers they no longer have. NICs offer that at the price of many
    /// calls or not at all, so there peers keep what the region was registered for.
    pub revokes: bool,
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleep: lowest latency, one core.
    Spin,
    /// Sleep at once.
    Block,
    /// Spin for some tens of microseconds, then sleep.
    #[default]
    Adaptive,
}

/// What a thread waits for: either, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitOn {
    pub cq: Option<CqId>,
    pub channel: Option<ChannelId>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A completion or connection event can be polled.
    Ready,
    /// The deadline passed.
    TimedOut,
    /// Somebody called [`Driver::interrupt`].
    Interrupted,
}

/// One opened device. All methods may be called from any thread.
///
/// Objects are named by ids; [`crate::Context`] wraps them so that they are released in the right order.
/// Ids the device does not know give [`Error::NotFound`].
pub trait Driver: Send + Sync + 'static {
    fn attr(&self) -> &DeviceAttr;

    fn alloc_pd(&self) -> Result<PdId, Error>;
    /// [`Error::Busy`] while regions or queue pairs use it.
    fn dealloc_pd(&self, pd: PdId) -> Result<(), Error>;

    /// Registers `memory`, which the device keeps alive, for `access` at most. It is in force at once. Peers address
    /// the memory by its virtual address.
    fn reg_mr(&self, pd: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error>;
    /// Changes what peers may do, within what the region was registered for. If [`DeviceAttr::revokes`], no access that
    /// is no longer permitted is under way when it returns (`ibv_rereg_mr` with `IBV_REREG_MR_CHANGE_ACCESS`).
    fn set_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error>;
    /// When it returns, neither a peer nor the device touches the memory any more.
    fn dereg_mr(&self, lkey: u32) -> Result<(), Error>;

    fn create_cq(&self, depth: u32) -> Result<CqId, Error>;
    fn destroy_cq(&self, cq: CqId) -> Result<(), Error>;
    /// Takes completions, oldest first, into `out`; returns how many.
    fn poll_cq(&self, cq: CqId, out: &mut [Wc]) -> Result<usize, Error>;

    fn create_qp(&self, init: &QpInit) -> Result<QpNum, Error>;
    /// Work requests still queued vanish without a completion, as in libibverbs.
    fn destroy_qp(&self, qp: QpNum) -> Result<(), Error>;
    /// Posts all of `wrs` or, on an error, those before index `.0`.
    fn post_send(&self, qp: QpNum, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)>;
    fn post_recv(&self, qp: QpNum, wr: &RecvWr<'_>) -> Result<(), Error>;

    fn create_channel(&self) -> Result<ChannelId, Error>;
    fn destroy_channel(&self, channel: ChannelId) -> Result<(), Error>;
    fn next_event(&self, channel: ChannelId) -> Result<Option<CmEvent>, Error>;
    /// Accepts connection requests to TCP-space `port`; 0 picks a free one. Returns the port too.
    fn listen(&self, channel: ChannelId, port: u16, backlog: u32) -> Result<(CmId, u16), Error>;
    /// Goes on while the program polls or waits on `channel`: over rdma-core nobody else takes the steps.
    fn connect(
        &self,
        channel: ChannelId,
        qp: QpNum,
        remote: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId, Error>;
    /// Brings `qp` to ready-to-send and answers the request. Post receives before.
    fn accept(&self, id: CmId, qp: QpNum, param: &ConnParam) -> Result<(), Error>;
    fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error>;
    /// Flushes the queue pair and tells the peer; [`CmEvent::Disconnected`] follows.
    fn disconnect(&self, id: CmId) -> Result<(), Error>;
    /// Ends a listener or forgets a connection; a live one is disconnected.
    fn destroy_id(&self, id: CmId) -> Result<(), Error>;

    /// Waits, and drives the device while doing so.
    fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error>;
    /// As [`wait`](Self::wait) without spinning, and [`Wake::Ready`] also when `beside` is readable. Who waits drives the device
    /// all the time, where [`descriptor`](Self::descriptor) leaves that to others.
    fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error>;
    /// A descriptor for event loops of programs: readable, once [armed](Self::arm), when something of `on` can be
    /// polled, and now and then for nothing. It serves until the objects are gone.
    fn descriptor(&self, on: WaitOn) -> Result<OwnedFd, Error>;
    /// Arms the descriptor of `on` for one time. False if something can be polled already.
    fn arm(&self, on: WaitOn) -> Result<bool, Error>;
    /// Ends one wait on `on`, now or the next.
    fn interrupt(&self, on: WaitOn);

    /// Counters by name, named as rxe's hw_counters where one exists.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
