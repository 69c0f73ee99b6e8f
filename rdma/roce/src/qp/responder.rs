//! The responder: turns request packets into memory writes, receive completions and acknowledgements (IBTA vol. 1,
//! 9.7.4; Linux: rxe_resp.c). Each packet is checked in this order: first the PSN, the sequence of opcodes and the
//! length of the payload, then the number of posted receives or outstanding READs. The length and the RKey in the RETH
//! are checked next, and the length of the message is checked last. A packet that passes all checks is executed. If the
//! packet belongs to a SEND or WRITE and the requester demands an acknowledgement, the packet is also acknowledged.

use std::collections::VecDeque;

use verbs::{PdId, Wc, WcOpcode, WcStatus};

use super::{
    DeviceTables,
    completer::place,
    response::{PendingResponse, PendingResponses},
    wqe::RecvWqe,
};
use crate::{
    memory::{RegionId, RegionWriter},
    mr_table::{MrRef, Want},
    opcode::{OpcodeInfo, Operation, Position},
    psn::Psn,
    refusal::RefusalCause::{self, MessageLength, OpcodeSequence, ReceiverNotReady, RemoteAccess},
    wire::{Packet, Reth, Syndrome},
};

/// The longest message in bytes (IBTA C9-9).
const MAX_MESSAGE: u32 = 1 << 31;

/// The message that is being received.
#[derive(Debug)]
enum IncomingMessage {
    None,
    Send {
        recv: RecvWqe,
        filled: u64,
    },
    /// `target` is `None` for a WRITE of no bytes, whose RKey is not checked.
    Write {
        target: Option<(MrRef, u64)>,
        len: u32,
        filled: u32,
    },
}

/// A gap in the PSNs that arrived: packets are missing, and packets with later PSNs have arrived.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: Psn,
    /// The highest PSN that has arrived since the gap was noticed. When a packet shows that the requester resends
    /// packets, `furthest` becomes the PSN of this packet.
    furthest: Psn,
    latest: Psn,
}

impl Gap {
    /// The responder assumes that the network reorders only packets whose PSNs differ by at most this number. A packet
    /// can have a lower PSN than the packet that arrived just before it. If the difference is above this number, the
    /// requester has resent the packet. The number is 3, like TCP's limit of duplicate ACKs, which serves the same
    /// purpose.
    const REORDERING: i32 = 3;

    fn before(psn: Psn) -> Self {
        Self { first: psn, furthest: psn, latest: psn }
    }

    /// Notes the PSN `psn` of a packet that arrived while earlier packets are missing. Returns true if this packet
    /// shows that the requester resends packets.
    fn starts_over(&mut self, psn: Psn) -> bool {
        let back =
            psn.since(self.first) <= 0 || psn == self.furthest || self.latest.since(psn) > Self::REORDERING;
        if psn.since(self.first) < 0 {
            self.first = psn;
        }
        if back || psn.since(self.furthest) > 0 {
            self.furthest = psn;
        }
        self.latest = psn;
        back
    }
}

#[derive(Debug)]
pub(crate) struct Responder {
    /// The expected PSN, which the next new request packet must have. A request packet with an earlier PSN is a
    /// repetition.
    epsn: Psn,
    /// The number of completed messages, modulo 2^24.
    msn: u32,
    message: IncomingMessage,
    /// The gap for which a NAK was sent; `None` if no packet is missing.
    gap: Option<Gap>,
    /// True if the packet that was executed last is a SEND or WRITE packet that no ACK has acknowledged.
    unacknowledged: bool,
    /// The first PSN of the READ that was executed last; `None` before the first READ. A repeated SEND or WRITE packet
    /// with a PSN before `last_read` is acknowledged with its own PSN, and not with the newest PSN. If the requester
    /// still waits for responses of the READ, an ACK with the PSN `last_read` or a later PSN would tell it that these
    /// responses were lost.
    last_read: Option<Psn>,
    pub(super) responses: PendingResponses,
    responder_resources: u8,
}

/// The result of executing a packet.
#[derive(Debug, Default)]
pub(crate) struct ExecutedRequest {
    pub(crate) completion: Option<Wc>,
    /// The cause for which the packet was refused; `None` if the packet was not refused.
    pub(crate) refused: Option<RefusalCause>,
}

/// The parts of the queue pair that the responder uses to execute a request.
pub(crate) struct QpParts<'a> {
    pub(crate) qp: verbs::QpNum,
    pub(crate) pd: PdId,
    pub(crate) mtu: u32,
    pub(crate) rq: &'a mut VecDeque<RecvWqe>,
    pub(crate) shared: &'a mut DeviceTables,
    pub(crate) memory: &'a mut dyn RegionWriter,
}

impl Responder {
    pub(crate) fn new(epsn: Psn, responder_resources: u8) -> Self {
        Self {
            epsn,
            msn: 0,
            message: IncomingMessage::None,
            gap: None,
            unacknowledged: false,
            last_read: None,
            responses: PendingResponses::default(),
            responder_resources,
        }
    }

    pub(crate) fn handle(
        &mut self,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
        cx: &mut QpParts<'_>,
    ) -> ExecutedRequest {
        match packet.bth.psn.since(self.epsn) {
            0 => {}
            ahead if ahead > 0 => {
                self.out_of_sequence(packet.bth.psn, cx.shared);
                return ExecutedRequest { completion: None, refused: Some(RefusalCause::OutOfSequence) };
            }
            _ => {
                let refused = self.duplicate(info, packet, cx).err();
                return ExecutedRequest { completion: None, refused };
            }
        }
        self.gap = None;
        match self.execute(info, packet, cx) {
            Ok(completion) => {
                // A READ is answered by its responses, not by an acknowledgement.
                self.unacknowledged = info.operation != Operation::ReadRequest;
                if packet.bth.ack_req && self.unacknowledged {
                    self.acknowledge();
                }
                ExecutedRequest { completion, refused: None }
            }
            Err(cause) => {
                let completion = self.refuse(cause, packet, cx);
                ExecutedRequest { completion, refused: Some(cause) }
            }
        }
    }

    fn acknowledge(&mut self) {
        self.unacknowledged = false;
        let psn = self.epsn.minus(1);
        self.responses.push(PendingResponse::Ack { psn, syndrome: Syndrome::ACK, msn: self.msn });
    }

    /// Handles a packet with a later PSN than the expected PSN, which means that earlier packets are missing. The
    /// responder sends a NAK when it notices that packets are missing. If the expected packet is still missing after
    /// the requester has resent packets, the responder sends another NAK. In this case, the first NAK or the resent
    /// packet with the expected PSN was probably lost.
    fn out_of_sequence(&mut self, psn: Psn, shared: &mut DeviceTables) {
        if let Some(gap) = &mut self.gap {
            if !gap.starts_over(psn) {
                return;
            }
        } else {
            self.gap = Some(Gap::before(psn));
        }
        shared.counters.send_seq_err += 1;
        let after_ack = std::mem::take(&mut self.unacknowledged);
        self.responses.push(PendingResponse::SequenceNak { psn: self.epsn, msn: self.msn, after_ack });
    }

    /// Handles a repeated request. A repeated SEND or WRITE is acknowledged again. A repeated READ is executed again.
    /// It may begin in the middle of the range of the original READ.
    fn duplicate(
        &mut self,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
        cx: &mut QpParts<'_>,
    ) -> Result<(), RefusalCause> {
        if info.operation != Operation::ReadRequest {
            let psn = packet.bth.psn;
            if self.last_read.is_some_and(|read| read.since(psn) > 0) {
                self.responses.push(PendingResponse::Ack { psn, syndrome: Syndrome::ACK, msn: self.msn });
            } else {
                self.acknowledge();
            }
            return Err(RefusalCause::Duplicate);
        }
        let (response, packets) = self.read_response(packet, cx).map_err(|_| RefusalCause::Duplicate)?;
        let end = packet.bth.psn.plus(packets);
        // A READ request can ask for response packets with the expected PSN or later PSNs. Such a request is not a
        // complete duplicate, and is not executed.
        if end.since(self.epsn) > 0 {
            return Err(RefusalCause::Duplicate);
        }
        cx.shared.counters.duplicate_request += 1;
        self.responses.restart_read(packet.bth.psn, end, response);
        Ok(())
    }

    fn execute(
        &mut self,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
        cx: &mut QpParts<'_>,
    ) -> Result<Option<Wc>, RefusalCause> {
        self.check_sequence(info)?;
        self.check_length(info.position, packet, cx.mtu)?;
        match info.operation {
            Operation::Send => self.execute_send(info.position, packet, cx),
            Operation::Write => self.execute_write(info.position, packet, cx),
            Operation::ReadRequest => self.execute_read(packet, cx).map(|()| None),
            _ => Err(OpcodeSequence),
        }
    }

    fn check_sequence(&self, info: &OpcodeInfo) -> Result<(), RefusalCause> {
        let fits = match &self.message {
            IncomingMessage::None => info.position.starts(),
            IncomingMessage::Send { .. } => info.operation == Operation::Send && !info.position.starts(),
            IncomingMessage::Write { .. } => info.operation == Operation::Write && !info.position.starts(),
        };
        if fits { Ok(()) } else { Err(OpcodeSequence) }
    }

    /// Checks the lengths: FIRST and MIDDLE packets are full, LAST is not empty, and no packet exceeds the path MTU.
    fn check_length(&self, position: Position, packet: &Packet<'_>, mtu: u32) -> Result<(), RefusalCause> {
        let len = packet.payload.len() as u64;
        let mtu = u64::from(mtu);
        let fits = match position {
            Position::First | Position::Middle => len == mtu,
            Position::Last => 1 <= len && len <= mtu,
            Position::Only => len <= mtu,
        };
        if fits { Ok(()) } else { Err(RefusalCause::PayloadLength) }
    }

    fn execute_send(
        &mut self,
        position: Position,
        packet: &Packet<'_>,
        cx: &mut QpParts<'_>,
    ) -> Result<Option<Wc>, RefusalCause> {
        if position.starts() {
            let recv = cx.rq.pop_front().ok_or(ReceiverNotReady)?;
            self.message = IncomingMessage::Send { recv, filled: 0 };
        }
        let IncomingMessage::Send { recv, filled } = &mut self.message else { return Err(OpcodeSequence) };
        let len = packet.payload.len() as u64;
        if *filled + len > recv.len {
            return Err(RefusalCause::ReceiveTooShort);
        }
        if !place(&recv.sges, *filled, packet.payload, cx.shared, cx.memory) {
            return Err(RefusalCause::ReceiveMemory);
        }
        *filled += len;
        let done = (recv.wr_id, *filled as u32);
        self.passed(1, position.ends());
        if !position.ends() {
            return Ok(None);
        }
        self.message = IncomingMessage::None;
        Ok(Some(received(cx, done.0, WcOpcode::Recv, done.1, packet)))
    }

    fn execute_write(
        &mut self,
        position: Position,
        packet: &Packet<'_>,
        cx: &mut QpParts<'_>,
    ) -> Result<Option<Wc>, RefusalCause> {
        if packet.imm.is_some() && cx.rq.is_empty() {
            return Err(ReceiverNotReady);
        }
        if position.starts() {
            self.message = self.begin_write(position, packet, cx)?;
        }
        let IncomingMessage::Write { target, len, filled } = &mut self.message else {
            return Err(OpcodeSequence);
        };
        let total = *len;
        let payload = packet.payload.len() as u32;
        // The payload of all packets of a WRITE together must have exactly the length that the RETH announces. The last
        // packet of a WRITE must reach the announced length, and no earlier packet may reach it.
        let after = *filled + payload;
        if after > total || position.ends() != (after == total) {
            return Err(MessageLength);
        }
        if let Some((mr, offset)) = *target {
            // The region is checked for each packet, because its access rights may have been revoked since the first
            // packet of the WRITE.
            let region = cx.shared.mrs.still(mr, Want::RemoteWrite).ok_or(RemoteAccess)?;
            cx.memory.write(region, offset + u64::from(*filled), packet.payload);
        }
        *filled = after;
        self.passed(1, position.ends());
        if !position.ends() {
            return Ok(None);
        }
        self.message = IncomingMessage::None;
        if packet.imm.is_none() {
            return Ok(None);
        }
        let recv = cx.rq.pop_front().ok_or(ReceiverNotReady)?;
        Ok(Some(received(cx, recv.wr_id, WcOpcode::RecvWriteWithImm, total, packet)))
    }

    fn begin_write(
        &self,
        position: Position,
        packet: &Packet<'_>,
        cx: &QpParts<'_>,
    ) -> Result<IncomingMessage, RefusalCause> {
        let reth = packet.reth.ok_or(OpcodeSequence)?;
        if reth.length > MAX_MESSAGE || position == Position::First && reth.length <= cx.mtu {
            return Err(MessageLength);
        }
        let target = memory_of(&reth, Want::RemoteWrite, cx)?;
        Ok(IncomingMessage::Write { target, len: reth.length, filled: 0 })
    }

    fn execute_read(&mut self, packet: &Packet<'_>, cx: &mut QpParts<'_>) -> Result<(), RefusalCause> {
        if self.responses.reads() >= usize::from(self.responder_resources) {
            return Err(RefusalCause::TooManyReads);
        }
        let (response, packets) = self.read_response(packet, cx)?;
        self.last_read = Some(packet.bth.psn);
        self.passed(packets, true);
        self.responses.push(response.with_msn(self.msn));
        Ok(())
    }

    fn read_response(
        &self,
        packet: &Packet<'_>,
        cx: &QpParts<'_>,
    ) -> Result<(PendingResponse, u32), RefusalCause> {
        let reth = packet.reth.ok_or(OpcodeSequence)?;
        let packets = reth.length.div_ceil(cx.mtu).max(1);
        // A READ uses one PSN for each response packet. A requester must have fewer than 2^23 PSNs outstanding, because
        // the responder could otherwise not distinguish new PSNs from duplicates.
        if reth.length > MAX_MESSAGE || packets >= 1 << 23 {
            return Err(MessageLength);
        }
        let source = memory_of(&reth, Want::RemoteRead, cx)?;
        let psn = packet.bth.psn;
        let repeated = psn.since(self.epsn) < 0;
        let (len, msn) = (reth.length, self.msn);
        let response = PendingResponse::Read { psn, packet: 0, packets, source, len, msn, repeated };
        Ok((response, packets))
    }

    fn passed(&mut self, packets: u32, message_done: bool) {
        self.epsn = self.epsn.plus(packets);
        if message_done {
            self.msn = (self.msn + 1) & Psn::MASK;
        }
    }

    /// Answers a refused request with a NAK or an RNR NAK. If the refusal ends a SEND that had already taken a posted
    /// receive, the function returns the failed completion of this receive, else `None`.
    fn refuse(&mut self, cause: RefusalCause, packet: &Packet<'_>, cx: &QpParts<'_>) -> Option<Wc> {
        let syndrome = if let Some(code) = cause.nak() {
            Syndrome::Nak(code)
        } else {
            // The peer may already have sent packets that follow the refused request. The next line sets `gap`, so that
            // these packets cause no NAK for a sequence error.
            self.gap = Some(Gap::before(packet.bth.psn));
            Syndrome::RnrNak(cx.shared.config.rnr_timer)
        };
        self.responses.push(PendingResponse::Ack { psn: packet.bth.psn, syndrome, msn: self.msn });
        if cause == ReceiverNotReady {
            return None;
        }
        self.take_recv().map(|recv| failed_recv(cx, recv.wr_id, cause))
    }

    /// Drops the message that is being received. Returns the posted receive of a SEND; `None` if no SEND is being
    /// received.
    pub(crate) fn take_recv(&mut self) -> Option<RecvWqe> {
        match std::mem::replace(&mut self.message, IncomingMessage::None) {
            IncomingMessage::Send { recv, .. } => Some(recv),
            _ => None,
        }
    }
}

/// The MIDDLE packets that can follow in the WRITE that is being received.
pub(super) struct WriteRun<'a> {
    responder: &'a mut Responder,
    region: RegionId,
    /// The offset in the region to which the next packet's payload belongs.
    offset: u64,
    mtu: u32,
    /// The number of MIDDLE packets for which the message has room.
    left: u32,
}

impl Responder {
    /// Returns the run that can follow the packet that was executed last; `None` if this packet belongs to no WRITE that
    /// goes on, or if the region does not permit the access any more.
    pub(super) fn write_run(&mut self, mtu: u32, shared: &DeviceTables) -> Option<WriteRun<'_>> {
        let IncomingMessage::Write { target: Some((mr, start)), len, filled } = self.message else {
            return None;
        };
        let region = shared.mrs.still(mr, Want::RemoteWrite)?;
        // The LAST packet of the message has at least one byte.
        let left = (len - filled).saturating_sub(1) / mtu;
        Some(WriteRun { responder: self, region, offset: start + u64::from(filled), mtu, left })
    }
}

impl WriteRun<'_> {
    /// Returns the PSN of the next packet; `None` if the message has no room for another MIDDLE packet.
    pub(super) fn next(&self) -> Option<Psn> {
        (self.left > 0).then_some(self.responder.epsn)
    }

    /// Executes the next packet as [`Responder::handle`] does. The packet asks for no acknowledgement.
    pub(super) fn execute(&mut self, payload: &[u8], memory: &mut dyn RegionWriter) {
        memory.write(self.region, self.offset, payload);
        self.offset += u64::from(self.mtu);
        self.left -= 1;
        if let IncomingMessage::Write { filled, .. } = &mut self.responder.message {
            *filled += self.mtu;
        }
        self.responder.passed(1, false);
        self.responder.unacknowledged = true;
    }
}

/// Returns the memory region of a WRITE or READ request with the header `reth`, and the offset of the request's first
/// byte in the region. Returns `None` if the request has no bytes; the RKey of such a request is not checked. Returns
/// the refusal cause `RemoteAccess` if the access `want` is not permitted.
fn memory_of(reth: &Reth, want: Want, cx: &QpParts<'_>) -> Result<Option<(MrRef, u64)>, RefusalCause> {
    if reth.length == 0 {
        return Ok(None);
    }
    let found = cx.shared.mrs.remote(reth.rkey, cx.pd, reth.addr, reth.length.into(), want);
    found.map(Some).ok_or(RemoteAccess)
}

fn received(cx: &mut QpParts<'_>, wr_id: u64, opcode: WcOpcode, byte_len: u32, packet: &Packet<'_>) -> Wc {
    cx.shared.counters.rdma_recvs += 1;
    Wc {
        wr_id,
        qp: cx.qp,
        status: WcStatus::Success,
        opcode,
        byte_len,
        imm: packet.imm,
        solicited: packet.bth.solicited,
    }
}

fn failed_recv(cx: &QpParts<'_>, wr_id: u64, cause: RefusalCause) -> Wc {
    let status = match cause {
        RefusalCause::ReceiveTooShort => WcStatus::LocalLengthError,
        _ => WcStatus::LocalProtectionError,
    };
    Wc { wr_id, qp: cx.qp, status, ..Wc::EMPTY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of NAKs that the responder sends if packets with the PSNs `psns` arrive while an earlier
    /// packet is missing.
    fn naks(psns: &[u32]) -> usize {
        let mut gap = Gap::before(Psn::new(psns[0]));
        1 + psns[1..].iter().filter(|&&psn| gap.starts_over(Psn::new(psn))).count()
    }

    #[test]
    fn a_gap_is_told_again_when_the_requester_starts_over() {
        assert_eq!(naks(&[11, 12, 13, 14]), 1);
        // The responder sends another NAK only when the requester seems to resend packets. Packets that arrive in a
        // slightly different order do not look like a retransmission, so there is only one NAK.
        assert_eq!(naks(&[11, 13, 12, 15, 14, 16]), 1);
        // If packet 11 arrives a second time, the requester has resent packets, and the missing packets before packet
        // 11 were lost again.
        assert_eq!(naks(&[11, 12, 13, 11, 12, 13, 14]), 2);
        // After packet 17, the requester resends all packets up to packet 17, beginning with those that were lost
        // before packet 11. The network loses the resent packets up to packet 12, so packet 13 is the next packet that
        // arrives.
        assert_eq!(naks(&[11, 12, 13, 14, 15, 16, 17, 13, 14]), 2);
        // If the last packet arrives twice in a row, the requester has sent it again as a tail probe.
        assert_eq!(naks(&[11, 12, 13, 13]), 2);
        // The PSNs wrap around from 0xffffff to 0.
        assert_eq!(naks(&[0xff_fffe, 0xff_ffff, 0, 1, 0xff_fffe]), 2);
    }
}
