//! The requester: turns work requests into request packets (IBTA vol. 1, 9.7.3). A request packet refers to its payload
//! in registered memory; only inline data is copied into the packet. Sent packets are not stored; a retransmission
//! reads the memory again.

use std::{collections::VecDeque, time::Duration};

use verbs::{SendOp, WcStatus};

use super::{
    DeviceTables, Peer,
    wqe::{self, SendWqe, WqePayload},
};
use crate::{
    mr_table::Want,
    opcode,
    psn::Psn,
    time::Time,
    timer::{Timer, TimerTable},
    transmit::{Run, Transmit},
    window::Window,
    wire::{Bth, Reth, pad_of},
};

/// The retry limits and the ACK timeout, which are chosen when the connection is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// The number of retries, 0-7. The requester resends after each of the first `count` consecutive ACK timeouts.
    /// After one more ACK timeout, the queue pair fails.
    pub(crate) count: u8,
    /// The number of RNR retries, 0-6, or 7 for retries without limit.
    pub(crate) rnr: u8,
    /// The local ACK timeout; if it is zero, the requester never gives up because of a silent peer.
    pub(crate) ack_timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) wqes: VecDeque<SendWqe>,
    /// The packet to send next: the index of a work request, and the number of a packet in it.
    pub(super) cursor: (usize, u32),
    /// The oldest unacknowledged PSN.
    pub(super) una: Psn,
    /// The first PSN that is not assigned to a work request yet.
    pub(super) alloc: Psn,
    /// The PSN after the highest PSN that was sent.
    pub(super) sent_end: Psn,
    /// One PSN for each READ request that was sent and is not answered in full: the PSN of its last response packet.
    /// The PSNs are in ascending order. A retransmission of the READ request asks for no response packet after this
    /// PSN. If the retransmission asked for more, only a part of it would be a duplicate of the first READ request, and
    /// a responder could refuse the retransmission.
    pub(super) reads: VecDeque<Psn>,
    pub(super) initiator_depth: u8,
    pub(super) window: Box<dyn Window>,
    since_ack_req: u32,
    pub(super) retry: Retry,
    pub(super) retries_left: u8,
    pub(super) rnr_left: u8,
    pub(super) rtt: super::rtt::Rtt,
    /// A retransmission is in progress until all packets before this PSN are acknowledged; `None` if no retransmission
    /// is in progress.
    pub(super) recover: Option<Psn>,
    pub(super) timers: TimerTable,
    /// The number of times that the requester went back to packets that it had sent, modulo 2^32. A run that was granted
    /// before the requester went back must end.
    pub(super) run_epoch: u32,
}

impl Requester {
    pub(crate) fn new(
        psn: Psn,
        initiator_depth: u8,
        retry: Retry,
        window: Box<dyn Window>,
        (min_probe, min_rto): (Duration, Duration),
    ) -> Self {
        Self {
            wqes: VecDeque::new(),
            cursor: (0, 0),
            una: psn,
            alloc: psn,
            sent_end: psn,
            reads: VecDeque::new(),
            initiator_depth,
            window,
            since_ack_req: 0,
            retry,
            retries_left: retry.count,
            rnr_left: retry.rnr,
            rtt: super::rtt::Rtt::new(min_probe, min_rto, retry.ack_timeout),
            recover: None,
            timers: TimerTable::default(),
            run_epoch: 0,
        }
    }

    pub(crate) fn post(&mut self, wqe: SendWqe) {
        self.wqes.push_back(wqe);
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Returns the PSN of the first packet of the oldest work request. Returns `None` if there is no work request, or
    /// if the oldest work request has no PSNs yet.
    pub(super) fn first_psn(&self) -> Option<Psn> {
        self.wqes.front().and_then(|wqe| wqe.first)
    }

    /// Returns the PSN of the packet to send next; `None` if no packet waits to be sent.
    fn cursor_psn(&self) -> Option<Psn> {
        let wqe = self.wqes.get(self.cursor.0)?;
        Some(wqe.first.unwrap_or(self.alloc).plus(self.cursor.1))
    }

    /// Returns true if a packet could be sent now.
    pub(crate) fn has_work(&self) -> bool {
        if self.timers.is_set(Timer::RnrPause) {
            return false;
        }
        let (Some(wqe), Some(psn)) = (self.wqes.get(self.cursor.0), self.cursor_psn()) else { return false };
        if wqe.broken && self.cursor.0 > 0 {
            return false;
        }
        let fenced = wqe.flags.fence && self.cursor.1 == 0;
        let reads = if fenced || wqe.is_read() { self.reads_before(psn) } else { 0 };
        if fenced && reads > 0 || wqe.is_read() && reads >= usize::from(self.initiator_depth) {
            return false;
        }
        self.in_flight(psn) < self.window.packets()
    }

    /// Returns the number of READ requests that are not answered in full and whose last response packet has a PSN
    /// before `psn`.
    fn reads_before(&self, psn: Psn) -> usize {
        self.reads.partition_point(|end| psn.since(*end) > 0)
    }

    pub(super) fn in_flight(&self, psn: Psn) -> u32 {
        psn.value().wrapping_sub(self.una.value()) & Psn::MASK
    }

    /// Builds the packet to send next, and grants a run of at most `most` packets that begins with it; returns false if no
    /// packet can be sent now. If the memory of the packet's
    /// payload was deregistered, the function returns false until the packet's work request is the oldest work request.
    /// When the work request is the oldest, the function returns an error.
    pub(crate) fn next_packet(
        &mut self,
        now: Time,
        peer: &Peer,
        shared: &mut DeviceTables,
        out: &mut Transmit,
        most: u32,
    ) -> Result<bool, WcStatus> {
        if !self.has_work() {
            return Ok(false);
        }
        let (index, packet) = self.cursor;
        let psn = self.start(index).plus(packet);
        let consumed = if self.wqes[index].is_read() {
            self.read_request(index, packet, psn, peer, out)
        } else if let Err(status) = self.data_packet(index, packet, psn, peer, shared, out) {
            self.wqes[index].broken = true;
            return if index == 0 { Err(status) } else { Ok(false) };
        } else {
            let more = self.run_after(index, packet, psn, peer, most);
            let (epoch, deregistered) = (self.run_epoch, shared.deregistered);
            // The caller sets `qpn`.
            out.run = Run { more, epoch, deregistered, ..Run::default() };
            self.since_ack_req += more;
            1 + more
        };
        self.advance(now, psn, consumed);
        shared.counters.sent_pkts += 1 + u64::from(out.run.more);
        Ok(true)
    }

    /// Returns the first PSN of a work request. If the work request has no PSNs yet, they are assigned now.
    fn start(&mut self, index: usize) -> Psn {
        let wqe = &mut self.wqes[index];
        *wqe.first.get_or_insert_with(|| {
            let first = self.alloc;
            self.alloc = first.plus(wqe.packets);
            first
        })
    }

    fn advance(&mut self, now: Time, psn: Psn, consumed: u32) {
        let end = psn.plus(consumed);
        if end.since(self.sent_end) > 0 {
            self.sent_end = end;
            self.rtt.sent(psn.plus(consumed - 1), now);
        }
        let (index, packet) = self.cursor;
        let next = packet + consumed;
        self.cursor = if next >= self.wqes[index].packets { (index + 1, 0) } else { (index, next) };
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm(now);
        }
    }

    pub(super) fn arm(&mut self, now: Time) {
        self.timers.set(Timer::Retransmit, now + self.rtt.interval());
    }

    /// Builds a READ request in `out`, and returns the number of response packets that the request asks for. This
    /// number is at most the congestion window, so that the response packets fit into the receive buffer of the socket.
    fn read_request(&mut self, index: usize, packet: u32, psn: Psn, peer: &Peer, out: &mut Transmit) -> u32 {
        let wqe = &self.wqes[index];
        let SendOp::Read(remote) = wqe.op else { unreachable!("only READs come here") };
        let at = self.reads_before(psn);
        let repeated = self.reads.get(at).map(|end| end.since(psn) as u32 + 1);
        let packets = repeated.unwrap_or(u32::MAX).min(wqe.packets - packet).min(self.window.packets());
        let offset = u64::from(packet) * u64::from(peer.mtu);
        let len = (u64::from(wqe.len) - offset).min(u64::from(packets) * u64::from(peer.mtu)) as u32;
        out.begin(peer.addr);
        out.header.push(&self.bth(opcode::READ_REQUEST, psn, 0, peer, false, true).encode());
        // The sum of address and offset is not checked for overflow here. The peer checks the address in the request,
        // and refuses the request if the sum has wrapped around.
        let reth = Reth { addr: remote.addr.wrapping_add(offset), rkey: remote.rkey, length: len };
        out.header.push(&reth.encode());
        if repeated != Some(packets) {
            self.reads.insert(at, psn.plus(packets - 1));
        }
        self.since_ack_req = 0;
        packets
    }

    fn data_packet(
        &mut self,
        index: usize,
        packet: u32,
        psn: Psn,
        peer: &Peer,
        shared: &DeviceTables,
        out: &mut Transmit,
    ) -> Result<(), WcStatus> {
        let wqe = &self.wqes[index];
        let last = packet + 1 == wqe.packets;
        let len = wqe.packet_len(packet, peer.mtu);
        let ack_req = last || self.wants_ack(psn);
        let solicited = last && wqe.flags.solicited;
        let op = data_opcode(wqe.op, packet == 0, last);
        out.begin(peer.addr);
        out.header.push(&self.bth(op, psn, pad_of(len as usize), peer, solicited, ack_req).encode());
        let info = opcode::info(op).expect("own opcodes are known");
        if let (true, SendOp::Write(remote) | SendOp::WriteWithImm(remote, _)) = (info.reth, wqe.op) {
            out.header.push(&Reth { addr: remote.addr, rkey: remote.rkey, length: wqe.len }.encode());
        }
        if let (true, SendOp::SendWithImm(imm) | SendOp::WriteWithImm(_, imm)) = (info.immdt, wqe.op) {
            out.header.push(&imm.to_be_bytes());
        }
        let offset = u64::from(packet) * u64::from(peer.mtu);
        match &wqe.payload {
            WqePayload::Inline(bytes) => {
                let start = offset as usize;
                out.inline.extend_from_slice(&bytes[start..start + len as usize]);
            }
            WqePayload::Sges(sges) => {
                let pieces = &mut out.pieces;
                if !wqe::pieces(sges, offset, len.into(), Want::LocalRead, &shared.mrs, |p| pieces.push(p)) {
                    return Err(WcStatus::LocalProtectionError);
                }
            }
        }
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        Ok(())
    }

    /// Returns how many packets of a run of at most `most` packets can follow the packet `packet` of the message with
    /// the index `index`. The PSN of the packet is `psn`, and the packet was just built. The packets of a run are MIDDLE
    /// packets that request no acknowledgement and whose payload is contiguous in one region.
    fn run_after(&self, index: usize, packet: u32, psn: Psn, peer: &Peer, most: u32) -> u32 {
        let wqe = &self.wqes[index];
        let WqePayload::Sges(sges) = &wqe.payload else { return 0 };
        let asks_for_ack = self.since_ack_req == 0;
        if packet == 0 || asks_for_ack {
            return 0;
        }
        let in_message = (wqe.packets - packet).saturating_sub(2);
        let mtu = u64::from(peer.mtu);
        let in_buffer = (wqe::contiguous(sges, u64::from(packet) * mtu) / mtu).saturating_sub(1) as u32;
        let window = self.window.packets();
        let before_ack = Self::ack_interval(window).saturating_sub(self.since_ack_req + 1);
        let in_window = window.saturating_sub(self.in_flight(psn) + 2);
        [most - 1, in_message, in_buffer, before_ack, in_window].into_iter().min().unwrap_or(0)
    }

    /// Returns the number of packets of which at least one must request an acknowledgement.
    fn ack_interval(window: u32) -> u32 {
        (window / 4).clamp(1, 32)
    }

    /// Returns true if the packet `psn` must request an acknowledgement. The requester asks for an acknowledgement at
    /// least once in 32 packets and at least once in a quarter of the window. Acknowledgements can therefore arrive
    /// before the window is full. The packet that fills the window must also request an acknowledgement.
    fn wants_ack(&self, psn: Psn) -> bool {
        let window = self.window.packets();
        self.since_ack_req + 1 >= Self::ack_interval(window) || self.in_flight(psn) + 1 >= window
    }

    fn bth(&self, opcode: u8, psn: Psn, pad: u8, peer: &Peer, solicited: bool, ack_req: bool) -> Bth {
        Bth { opcode, solicited, pad, ack_req, psn, ..peer.bth() }
    }

    /// Moves the cursor back to the oldest unacknowledged packet, so that all packets from there on are sent again.
    pub(super) fn go_back(&mut self) {
        let first = self.first_psn().unwrap_or(self.una);
        self.cursor = (0, self.una.value().wrapping_sub(first.value()) & Psn::MASK);
        self.recover = Some(self.sent_end);
        self.rtt.forget();
        self.since_ack_req = 0;
        self.run_epoch = self.run_epoch.wrapping_add(1);
    }

    /// Makes the next packet ask for an acknowledgement.
    pub(super) fn demand_ack(&mut self) {
        self.since_ack_req = self.window.packets();
    }
}

fn data_opcode(op: SendOp, first: bool, last: bool) -> u8 {
    match (op, first, last) {
        (SendOp::Send, true, true) => opcode::SEND_ONLY,
        (SendOp::SendWithImm(_), true, true) => opcode::SEND_ONLY_WITH_IMM,
        (SendOp::Send | SendOp::SendWithImm(_), true, false) => opcode::SEND_FIRST,
        (SendOp::Send | SendOp::SendWithImm(_), false, false) => opcode::SEND_MIDDLE,
        (SendOp::Send, false, true) => opcode::SEND_LAST,
        (SendOp::SendWithImm(_), false, true) => opcode::SEND_LAST_WITH_IMM,
        (SendOp::Write(_), true, true) => opcode::WRITE_ONLY,
        (SendOp::WriteWithImm(..), true, true) => opcode::WRITE_ONLY_WITH_IMM,
        (SendOp::Write(_) | SendOp::WriteWithImm(..), true, false) => opcode::WRITE_FIRST,
        (SendOp::Write(_) | SendOp::WriteWithImm(..), false, false) => opcode::WRITE_MIDDLE,
        (SendOp::Write(_), false, true) => opcode::WRITE_LAST,
        (SendOp::WriteWithImm(..), false, true) => opcode::WRITE_LAST_WITH_IMM,
        (SendOp::Read(_), ..) => opcode::READ_REQUEST,
    }
}
