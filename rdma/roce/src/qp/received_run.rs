//! Runs of received packets: MIDDLE packets of one WRITE, or of the responses of one READ, that follow each other in a
//! super-packet. What they have in common is looked up and checked once.

use super::{DeviceTables, QpConnection, completer::ReadRun, responder::WriteRun};
use crate::{
    memory::RegionWriter,
    opcode,
    time::Time,
    wire::{Bth, ICRC_LEN},
};

/// The run that can follow a packet. The packets of a run have the next expected PSNs, the same length and the same fields
/// of the header, and ask for no acknowledgement. The regions in which their payload lies were looked up, and permit the
/// access. Every other packet must be handled by [`QpEntry::handle`](super::QpEntry::handle).
pub(crate) struct ReceivedRun<'a> {
    opcode: u8,
    before: Bth,
    datagram_len: usize,
    message: Message<'a>,
}

enum Message<'a> {
    Write(WriteRun<'a>),
    Read(ReadRun<'a>),
}

impl<'a> ReceivedRun<'a> {
    pub(super) fn after(
        before: &Bth,
        connection: &'a mut QpConnection,
        shared: &DeviceTables,
    ) -> Option<Self> {
        let mtu = connection.peer.mtu;
        let (opcode, message) = match before.opcode {
            opcode::WRITE_FIRST | opcode::WRITE_MIDDLE => {
                (opcode::WRITE_MIDDLE, Message::Write(connection.responder.write_run(mtu, shared)?))
            }
            opcode::READ_RESPONSE_FIRST | opcode::READ_RESPONSE_MIDDLE => {
                (opcode::READ_RESPONSE_MIDDLE, Message::Read(connection.requester.read_run(mtu, shared)?))
            }
            _ => return None,
        };
        Some(Self { opcode, before: *before, datagram_len: Bth::LEN + mtu as usize + ICRC_LEN, message })
    }

    /// Returns true if `datagram`, apart from its ICRC, is the next packet of the run.
    pub(crate) fn fits(&self, datagram: &[u8]) -> bool {
        let Some(bth) = datagram.first_chunk().map(Bth::decode) else { return false };
        let next = match &self.message {
            Message::Write(run) => run.next(),
            Message::Read(run) => run.next(),
        };
        datagram.len() == self.datagram_len
            && next == Some(bth.psn)
            && (bth.opcode, bth.ack_req, bth.pad) == (self.opcode, false, 0)
            && (bth.dest_qp, bth.tver, bth.p_key, bth.reserved7)
                == (self.before.dest_qp, self.before.tver, self.before.p_key, self.before.reserved7)
    }

    /// Executes a packet that fits and whose ICRC is right.
    pub(crate) fn execute(
        &mut self,
        now: Time,
        datagram: &[u8],
        shared: &DeviceTables,
        memory: &mut dyn RegionWriter,
    ) {
        let payload = &datagram[Bth::LEN..self.datagram_len - ICRC_LEN];
        match &mut self.message {
            Message::Write(run) => run.execute(payload, memory),
            Message::Read(run) => run.execute(now, payload, shared, memory),
        }
    }
}
