//! What programs hand in of rdma-core's structs, as far as a server looks at it.

use verbs::{QpNum, Wc, WcOpcode, WcStatus};

/// The head of `struct ibv_wc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct IbvWc {
    wr_id: u64,
    status: u32,
    opcode: u32,
    vendor_err: u32,
    byte_len: u32,
    imm_data: u32,
    qp_num: u32,
}

impl IbvWc {
    /// `None` for what a server's queue pair does not complete.
    pub(crate) fn read(&self) -> Option<Wc> {
        let status = match self.status {
            0 => WcStatus::Success,
            1 => WcStatus::LocalLengthError,
            5 => WcStatus::WrFlushError,
            10 => WcStatus::RemoteAccessError,
            12 => WcStatus::RetryExceeded,
            13 => WcStatus::RnrRetryExceeded,
            _ => WcStatus::FatalError,
        };
        let (opcode, imm) = match self.opcode {
            0 => (WcOpcode::Send, None),
            1 => (WcOpcode::Write, None),
            128 => (WcOpcode::Recv, None),
            129 => (WcOpcode::RecvWriteWithImm, Some(u32::from_be(self.imm_data))),
            // Errors need not say what they were of.
            _ if status != WcStatus::Success => (WcOpcode::Send, None),
            _ => return None,
        };
        Some(Wc {
            wr_id: 0,
            qp: QpNum(self.qp_num),
            status,
            opcode,
            byte_len: self.byte_len,
            imm,
            solicited: true,
        })
    }
}
