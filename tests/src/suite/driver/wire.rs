//! What an end is asked to do. Both ends are asked in the same words, the far one over TCP.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use verbs::{RemoteAddr, SendFlags, SendOp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Queue {
    Send,
    Receive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Remote {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

impl Remote {
    pub(super) fn at(self, offset: u64) -> Self {
        Self { addr: self.addr.wrapping_add(offset), ..self }
    }
}

impl From<Remote> for RemoteAddr {
    fn from(Remote { addr, rkey }: Remote) -> Self {
        Self { addr, rkey }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Op {
    Send,
    SendWithImm(u32),
    Write(Remote),
    WriteWithImm(Remote, u32),
    Read(Remote),
}

impl From<Op> for SendOp {
    fn from(op: Op) -> Self {
        match op {
            Op::Send => Self::Send,
            Op::SendWithImm(imm) => Self::SendWithImm(imm),
            Op::Write(to) => Self::Write(to.into()),
            Op::WriteWithImm(to, imm) => Self::WriteWithImm(to.into(), imm),
            Op::Read(from) => Self::Read(from.into()),
        }
    }
}

/// A part of the region that the end numbers `region`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Part {
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Load {
    Parts(Vec<Part>),
    Inline(Vec<u8>),
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Wr {
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) load: Load,
    pub(super) signaled: bool,
    pub(super) fence: bool,
}

impl Wr {
    pub(super) fn new(id: u64, op: Op, parts: &[Part]) -> Self {
        Self { id, op, load: Load::Parts(parts.to_vec()), signaled: true, fence: false }
    }

    pub(super) fn inline(id: u64, op: Op, bytes: &[u8]) -> Self {
        Self { id, op, load: Load::Inline(bytes.to_vec()), signaled: true, fence: false }
    }

    pub(super) fn unsignaled(self) -> Self {
        Self { signaled: false, ..self }
    }

    pub(super) fn fenced(self) -> Self {
        Self { fence: true, ..self }
    }

    pub(super) fn flags(&self) -> SendFlags {
        SendFlags { signaled: self.signaled, solicited: true, fence: self.fence }
    }
}

/// A completion; `status` and `opcode` as the driver interface names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Done {
    pub(super) id: u64,
    pub(super) status: String,
    pub(super) opcode: String,
    pub(super) len: u32,
    pub(super) imm: Option<u32>,
}

/// A connection event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum CmEventReport {
    Request { private_data: Vec<u8> },
    Established { private_data: Vec<u8>, path_mtu: u32 },
    Rejected { reason: u16, private_data: Vec<u8> },
    Unreachable,
    Disconnected,
}

/// What may be done with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum AccessRequest {
    Local,
    Write,
    Read,
    All,
}

impl From<AccessRequest> for verbs::Access {
    fn from(access: AccessRequest) -> Self {
        match access {
            AccessRequest::Local => Self::LOCAL,
            AccessRequest::Write => Self::REMOTE_WRITE,
            AccessRequest::Read => Self { remote_write: false, ..Self::ALL },
            AccessRequest::All => Self::ALL,
        }
    }
}

/// A connection to be asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct Connect {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    pub(super) private_data: Vec<u8>,
    pub(super) rnr_retry_count: u8,
    pub(super) ack_timeout: u8,
}

impl Connect {
    pub(super) fn to(ip: IpAddr, ack_timeout: u8) -> Self {
        Self { ip, port: 0, private_data: Vec::new(), rnr_retry_count: 7, ack_timeout }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) enum Request {
    /// A new queue pair in the place of the former, with no regions; answers with the largest inline payload.
    Fresh {
        max_recv_wr: u32,
    },
    /// Answers with the port.
    Listen,
    Connect(Connect),
    /// Answers the last request.
    Accept {
        private_data: Vec<u8>,
    },
    Reject {
        private_data: Vec<u8>,
    },
    /// The next event, `None` after so many milliseconds.
    Event {
        ms: u64,
    },
    Disconnect,
    /// Registers zeroed memory; `foreign` in another protection domain. Answers with a `Remote`; regions are
    /// numbered from 0.
    Region {
        len: usize,
        access: AccessRequest,
        foreign: bool,
    },
    Deregister {
        region: usize,
    },
    Fill {
        part: Part,
        seed: u32,
    },
    /// Where the part begins to differ from the pattern; `None`: nowhere.
    Differs {
        part: Part,
        seed: u32,
    },
    /// Whether every byte is zero.
    Untouched {
        part: Part,
    },
    Receive {
        id: u64,
        part: Part,
    },
    Post {
        wrs: Vec<Wr>,
    },
    /// The next completion, `None` after so many milliseconds.
    Next {
        queue: Queue,
        ms: u64,
    },
}
