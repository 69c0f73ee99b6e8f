//! Work requests and work completions.

use crate::QpNum;

/// A scatter-gather element: `length` bytes at `addr` in the memory region with the LKey `lkey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The target of a one-sided operation: an address in the peer's memory region with the RKey `rkey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    pub addr: u64,
    pub rkey: u32,
}

/// The operation of a send work request. Immediates are in host byte order here and big-endian on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    Send,
    SendWithImm(u32),
    Write(RemoteAddr),
    WriteWithImm(RemoteAddr, u32),
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// True if the work request has a completion when it succeeds. A work request that fails always has a completion.
    pub signaled: bool,
    /// True if the message has the solicited-event bit, which wakes a peer that armed its completion queue for
    /// solicited events only.
    pub solicited: bool,
    /// Whether the request waits until earlier READs have completed.
    pub fence: bool,
}

impl SendFlags {
    pub const SIGNALED: Self = Self { signaled: true, solicited: false, fence: false };
    pub const SIGNALED_SOLICITED: Self = Self { signaled: true, solicited: true, fence: false };
}

#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub wr_id: u64,
    pub op: SendOp,
    pub payload: Payload<'a>,
    pub flags: SendFlags,
}

#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub wr_id: u64,
    pub sges: &'a [Sge],
}

/// The status of a completion, with the names and the order of libibverbs (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    Success,
    LocalLengthError,
    LocalQpOperationError,
    LocalProtectionError,
    WrFlushError,
    BadResponse,
    LocalAccessError,
    RemoteInvalidRequest,
    RemoteAccessError,
    RemoteOperationError,
    RetryExceeded,
    RnrRetryExceeded,
    FatalError,
}

impl WcStatus {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    Send,
    Write,
    Read,
    Recv,
    /// A WRITE with immediate has used up a receive. The data of the WRITE went to the address that the peer named, not
    /// into the receive's memory.
    RecvWriteWithImm,
}

/// A work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub qp: QpNum,
    pub status: WcStatus,
    /// The kind of the completed request; valid only if `status` is success, as in libibverbs.
    pub opcode: WcOpcode,
    /// The number of bytes that were received or read. If a WRITE with immediate completed a receive, this is the
    /// number of bytes of the WRITE.
    pub byte_len: u32,
    /// The immediate in host byte order, if the message had an immediate.
    pub imm: Option<u32>,
    /// Whether the message had the solicited-event bit.
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
