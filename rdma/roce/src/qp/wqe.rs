//! Posted work requests.

use smallvec::SmallVec;
use verbs::{SendFlags, SendOp, WcOpcode};

use crate::{
    memory::Piece,
    mr_table::{MrRef, MrTable, Want},
    psn::Psn,
};

/// A scatter-gather element of a posted work request. Its LKey, address and length were checked when the work request
/// was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgeRef {
    pub(crate) mr: MrRef,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

pub(crate) type SgeList = SmallVec<[SgeRef; 2]>;

/// Calls `each` for each piece of memory that belongs to the bytes `offset..offset + len` of a message. The message
/// lies in the buffers `sges`, in their order. Returns false if the region of such a piece was deregistered, or if it
/// does not permit the access `want` any more. Also returns false if the buffers end before `offset + len`.
pub(crate) fn pieces(
    sges: &[SgeRef],
    mut offset: u64,
    mut len: u64,
    want: Want,
    mrs: &MrTable,
    mut each: impl FnMut(Piece),
) -> bool {
    for sge in sges {
        let sge_len = u64::from(sge.len);
        if offset >= sge_len {
            offset -= sge_len;
            continue;
        }
        let n = len.min(sge_len - offset);
        if n > 0 {
            let Some(region) = mrs.still(sge.mr, want) else { return false };
            each(Piece { region, offset: sge.offset + offset, len: n as u32 });
        }
        offset = 0;
        len -= n;
        if len == 0 {
            return true;
        }
    }
    len == 0
}

/// Returns the number of bytes from `offset` in a message to the end of the buffer that contains this byte. The message
/// lies in the buffers `sges`, in their order.
pub(crate) fn contiguous(sges: &[SgeRef], mut offset: u64) -> u64 {
    for sge in sges {
        match u64::from(sge.len).checked_sub(offset) {
            Some(left) if left > 0 => return left,
            _ => offset -= u64::from(sge.len),
        }
    }
    0
}

#[derive(Clone, Debug)]
pub(crate) enum WqePayload {
    Sges(SgeList),
    Inline(SmallVec<[u8; 64]>),
}

/// A work request of the send queue. After its first packet was sent, the work request occupies `packets` PSNs from
/// `first` on.
#[derive(Clone, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) payload: WqePayload,
    pub(crate) len: u32,
    pub(crate) packets: u32,
    pub(crate) first: Option<Psn>,
    /// True if the memory of the work request was deregistered. If `broken` is true, the work request fails as soon as
    /// all earlier work requests have completed.
    pub(crate) broken: bool,
}

impl SendWqe {
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.op, SendOp::Read(_))
    }

    pub(crate) fn opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendWithImm(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteWithImm(..) => WcOpcode::Write,
            SendOp::Read(_) => WcOpcode::Read,
        }
    }

    /// Returns the number of payload bytes in packet `n` of this message.
    pub(crate) fn packet_len(&self, n: u32, mtu: u32) -> u32 {
        let start = u64::from(n) * u64::from(mtu);
        u64::from(self.len).saturating_sub(start).min(mtu.into()) as u32
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) sges: SgeList,
    pub(crate) len: u64,
}
