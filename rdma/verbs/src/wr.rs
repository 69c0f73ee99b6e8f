//! Work requests and work completions.

use crate::QpNum;

/// A scatter-gather element: `length` bytes at `addr` in the memory region with the LKey `lkey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The address of the first byte, inside the memory region.
    pub addr: u64,
    /// The length of this piece of memory in bytes.
    pub length: u32,
    /// The LKey of the memory region.
    pub lkey: u32,
}

/// The target of a one-sided operation: an address in the peer's memory region with the RKey `rkey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The address of the first byte in the peer's memory region, as the peer named it.
    pub addr: u64,
    /// The RKey of the peer's memory region.
    pub rkey: u32,
}

/// The operation of a send work request. Immediates are in native byte order here and big-endian on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// A message into the oldest posted receive of the peer.
    Send,
    /// A message with an immediate into the oldest posted receive of the peer.
    SendWithImm(u32),
    /// A WRITE, which the peer's program does not notice.
    Write(RemoteAddr),
    /// A WRITE with an immediate, which uses up one receive of the peer and gives the peer a completion.
    WriteWithImm(RemoteAddr, u32),
    /// A READ from the peer's region into the memory of the work request.
    Read(RemoteAddr),
}

/// The data of a work request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory, which the caller must not touch until the completion.
    Sges(&'a [Sge]),
    /// Bytes that are copied while the work request is posted, so that they need no memory region. Inline data has at
    /// most `DeviceAttr::max_inline_data` bytes, and a READ cannot have inline data.
    Inline(&'a [u8]),
}

/// The options of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// True if the work request has a completion when it succeeds. A work request that fails always has a completion.
    pub signaled: bool,
    /// True if the message has the solicited-event bit, which wakes a peer that armed its completion queue for
    /// solicited events only.
    pub solicited: bool,
    /// True if the device sends the request only after earlier READs of the queue pair have completed.
    pub fence: bool,
}

impl SendFlags {
    /// The work request has a completion when it succeeds.
    pub const SIGNALED: Self = Self { signaled: true, solicited: false, fence: false };
    /// The work request has a completion when it succeeds, and its message has the solicited-event bit.
    pub const SIGNALED_SOLICITED: Self = Self { signaled: true, solicited: true, fence: false };
}

/// A work request for the send queue: a SEND, WRITE or READ.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// A number of the program's choice, which the completion contains.
    pub wr_id: u64,
    /// The operation of the work request, with target and immediate.
    pub op: SendOp,
    /// The data to send, or the memory that receives the data of a READ.
    pub payload: Payload<'a>,
    /// The options of the work request.
    pub flags: SendFlags,
}

/// A work request for the receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// A number of the program's choice, which the completion contains.
    pub wr_id: u64,
    /// The memory for the message, filled in the order of the elements.
    pub sges: &'a [Sge],
}

/// The status of a completion, with the names and the order of libibverbs (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// The work request succeeded.
    Success,
    /// The message is longer than the memory of the receive.
    LocalLengthError,
    /// The device found an inconsistency in the queue pair while it executed the work request.
    LocalQpOperationError,
    /// A scatter-gather element is not valid: its memory is not inside the region of its LKey, the region does not
    /// permit the access, or the region was deregistered.
    LocalProtectionError,
    /// The work request was not executed, because the queue pair had failed or was disconnected.
    WrFlushError,
    /// The peer answered with a packet that fits no outstanding request, or with a NAK that has a reserved code.
    BadResponse,
    /// A region of this side does not permit the access that a message of the peer needs.
    LocalAccessError,
    /// The peer refused the request as invalid, for example because the message is longer than the peer's receive.
    RemoteInvalidRequest,
    /// The peer refused the access to its memory: the RKey, the address range or the access right is wrong.
    RemoteAccessError,
    /// The peer could not execute the request because of an error on its side.
    RemoteOperationError,
    /// The peer sent no acknowledgement, although the request was retried as often as `retry_count` permits.
    RetryExceeded,
    /// The peer had no receive posted, although the request was retried as often as `rnr_retry_count` permits.
    RnrRetryExceeded,
    /// The device failed, or a completion was lost because the completion queue was full.
    FatalError,
}

impl WcStatus {
    /// Returns true if the work request succeeded.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

impl std::fmt::Display for WcStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLengthError => "local length error: a buffer was shorter than its message",
            Self::LocalQpOperationError => "local QP operation error",
            Self::LocalProtectionError => "local protection error: the LKey does not cover the buffer",
            Self::WrFlushError => "flushed: the queue pair had failed or was closed",
            Self::BadResponse => "the peer answered with a packet that fits no outstanding request",
            Self::LocalAccessError => "local access error: the region does not permit this operation",
            Self::RemoteInvalidRequest => "the peer refused the request as invalid",
            Self::RemoteAccessError => "the peer refused access: wrong RKey, bounds or permission",
            Self::RemoteOperationError => "the peer could not carry out the operation",
            Self::RetryExceeded => "no acknowledgement after all retries: the peer is gone or unreachable",
            Self::RnrRetryExceeded => "the peer had no receive posted after all retries",
            Self::FatalError => "the device failed",
        })
    }
}

/// The kind of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    /// A SEND, with or without an immediate, was acknowledged by the peer.
    Send,
    /// A WRITE, with or without an immediate, was acknowledged by the peer.
    Write,
    /// The data of a READ has arrived in the memory that the work request names.
    Read,
    /// The memory of a receive contains the message of a peer's SEND.
    Recv,
    /// A WRITE with immediate has used up a receive. The data of the WRITE went to the address that the peer named, not
    /// into the receive's memory.
    RecvWriteWithImm,
}

/// A work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The `wr_id` of the completed work request.
    pub wr_id: u64,
    /// The queue pair to which the work request was posted.
    pub qp: QpNum,
    /// The status: success, or the reason of the failure.
    pub status: WcStatus,
    /// The kind of the completed request; valid only if `status` is success, as in libibverbs.
    pub opcode: WcOpcode,
    /// The number of bytes that were received or read. If a WRITE with immediate completed a receive, this is the
    /// number of bytes of the WRITE.
    pub byte_len: u32,
    /// The immediate in native byte order, if the message had an immediate.
    pub imm: Option<u32>,
    /// True if the message had the solicited-event bit. The verbs provider always reports false.
    pub solicited: bool,
}

impl Wc {
    /// A placeholder that fills arrays before completions are polled into them.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        qp: QpNum(0),
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        byte_len: 0,
        imm: None,
        solicited: false,
    };
}
