//! A reliable-connected queue pair: requester, completer and responder of one connection.
//!
//! | from | on | to |
//! |---|---|---|
//! | Unconnected | `connect` (handshake done) | Connected |
//! | Unconnected | `fail` | Dead |
//! | Connected | `fail`: refusal sent or received, retries exhausted, disconnect | Failed |
//! | Failed | last response sent | Failed (silent) |
//!
//! A work request that is posted in the state Failed or Dead completes as flushed at once.

mod completer;
pub mod model;
mod received_run;
mod requester;
mod responder;
mod response;
mod rtt;
mod wqe;

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use verbs::{CqId, Error, PdId, QpCap, QpNum, Wc, WcStatus};

pub(crate) use wqe::{RecvWqe, SendWqe, SgeList, SgeRef, WqePayload};

use crate::{
    config::Config,
    counters::Counters,
    cq::CqEntry,
    endpoint::QpAttr,
    icrc::IdRule,
    id_map::IdMap,
    memory::RegionWriter,
    mr_table::MrTable,
    opcode::{OpcodeInfo, Operation},
    psn::Psn,
    refusal::RefusalCause,
    time::Time,
    transmit::{Run, Transmit},
    wire::{Bth, CarriedAck, Packet},
};
use received_run::ReceivedRun;
use requester::{Requester, Retry};
use responder::Responder;

/// The data that all queue pairs of a device share.
#[derive(Debug, Default)]
pub(crate) struct DeviceTables {
    pub(crate) config: Config,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: IdMap<CqEntry>,
    pub(crate) counters: Counters,
    /// A buffer for the work requests that a packet completed. The buffer is used again for each packet, so that no
    /// memory is allocated for a packet.
    pub(crate) done: Vec<SendWqe>,
    /// The number of regions that were deregistered, modulo 2^32.
    pub(crate) deregistered: u32,
}

impl DeviceTables {
    pub(crate) fn new(config: Config) -> Self {
        Self { mrs: MrTable::new(config.rkeys), config, ..Self::default() }
    }
}

/// The other end of a connection: its address, its queue pair number and the path MTU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    pub(crate) qpn: u32,
    pub(crate) mtu: u32,
    /// True if the peer uses the embedded provider. If `embedded` is true, the peer's packets with an IPv4
    /// identification of 128 or more are refused. The embedded provider never sends such an identification.
    pub(crate) embedded: bool,
    pub(crate) carried_acks: CarriedAcks,
}

/// What the ends of a connection have told each other about carried acknowledgements.
///
/// | from | on | to |
/// |---|---|---|
/// | Never | - | - |
/// | Untold | a packet of the peer says that the peer accepts them | Agreed |
/// | Offered | a packet of the peer says that the peer accepts them | Agreed |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarriedAcks {
    /// The peer does not use the embedded provider.
    Never,
    /// Neither end has told the other that it accepts carried acknowledgements.
    Untold,
    /// This end tells the peer in each packet that it accepts carried acknowledgements. The peer has not told this end.
    Offered,
    /// Both ends accept carried acknowledgements.
    Agreed,
}

impl CarriedAcks {
    fn new(attr: &QpAttr) -> Self {
        match (attr.embedded_peer, attr.offers_carried_acks) {
            (false, _) => Self::Never,
            (true, false) => Self::Untold,
            (true, true) => Self::Offered,
        }
    }

    /// Notes a packet of the peer.
    fn heard(&mut self, bth: &Bth) {
        if *self != Self::Never && bth.reserved7 & Bth::TAKES_CARRIED_ACKS != 0 {
            *self = Self::Agreed;
        }
    }

    /// Returns true if this end tells, or has told, the peer that it accepts carried acknowledgements.
    fn told(self) -> bool {
        matches!(self, Self::Offered | Self::Agreed)
    }
}

impl Peer {
    /// Returns the IPv4 identifications with which the packets of this peer may be sent.
    pub(crate) const fn id_rule(&self) -> IdRule {
        if self.embedded { IdRule::Below128 } else { IdRule::Any }
    }

    /// Returns a BTH with the fields that are the same in all packets to this peer. The bit MigReq is 1, as in the packets
    /// of RDMA NICs.
    fn bth(&self) -> Bth {
        let reserved7 = if self.carried_acks.told() { Bth::TAKES_CARRIED_ACKS } else { 0 };
        Bth { mig_req: true, p_key: Bth::DEFAULT_P_KEY, dest_qp: self.qpn, reserved7, ..Bth::default() }
    }
}

#[derive(Debug)]
struct QpConnection {
    peer: Peer,
    requester: Requester,
    responder: Responder,
    /// True if the last packet that was built is a request packet although acknowledgements were waiting to be sent.
    overtaken: bool,
}

impl QpConnection {
    /// Returns true if the next request packet may be sent before the responses that wait to be sent.
    fn may_overtake(&self) -> bool {
        let responses = &self.responder.responses;
        !self.overtaken && !responses.is_empty() && responses.are_acks() && self.requester.has_work()
    }
}

#[derive(Debug)]
enum Phase {
    Unconnected,
    Connected(Box<QpConnection>),
    /// The connection has failed. Responses of the responder, such as a NAK, may still wait to be sent.
    Failed(Box<QpConnection>),
    Dead,
}

#[derive(Debug)]
pub(crate) struct QpEntry {
    pub(crate) num: QpNum,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) cap: QpCap,
    phase: Phase,
    rq: VecDeque<RecvWqe>,
}

impl QpEntry {
    pub(crate) fn new(num: QpNum, init: &verbs::QpInit) -> Self {
        Self {
            num,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            cap: init.cap,
            phase: Phase::Unconnected,
            rq: VecDeque::new(),
        }
    }

    pub(crate) fn connect(&mut self, attr: &QpAttr, config: &Config) -> bool {
        if !matches!(self.phase, Phase::Unconnected) {
            return false;
        }
        let peer = Peer {
            addr: attr.peer,
            qpn: attr.remote_qpn,
            mtu: attr.path_mtu,
            embedded: attr.embedded_peer,
            carried_acks: CarriedAcks::new(attr),
        };
        let ack_timeout = ack_timeout(attr.ack_timeout);
        let retry = Retry { count: attr.retry_count.min(7), rnr: attr.rnr_retry_count.min(7), ack_timeout };
        let window = config.new_window(peer.mtu);
        let intervals = (config.min_probe, config.min_rto);
        let resources = attr.responder_resources.min(config.max_responder_resources);
        let (send_psn, recv_psn) = (Psn::new(attr.send_psn), Psn::new(attr.recv_psn));
        self.phase = Phase::Connected(Box::new(QpConnection {
            peer,
            requester: Requester::new(send_psn, attr.initiator_depth, retry, window, intervals),
            responder: Responder::new(recv_psn, resources),
            overtaken: false,
        }));
        true
    }

    /// Returns the connection; `None` if the queue pair is not connected, or has failed.
    fn connection(&self) -> Option<&QpConnection> {
        match &self.phase {
            Phase::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.connection().map(|connection| &connection.peer)
    }

    /// Returns true if the further packets of `run`, which this queue pair granted, may still be sent.
    pub(crate) fn run_goes_on(&self, run: &Run, shared: &DeviceTables) -> bool {
        match &self.phase {
            Phase::Connected(connection) | Phase::Failed(connection) if run.responses => {
                connection.responder.responses.run_goes_on(run.epoch, shared)
            }
            Phase::Connected(connection) => {
                connection.requester.run_epoch == run.epoch && run.deregistered == shared.deregistered
            }
            _ => false,
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Unconnected => "not connected",
            Phase::Connected(_) => "connected",
            Phase::Failed(_) | Phase::Dead => "in the error state",
        }
    }

    /// Returns the path MTU, the most bytes of payload per packet; `None` if the queue pair is not connected.
    pub(crate) fn mtu(&self) -> Option<u32> {
        self.peer().map(|p| p.mtu)
    }

    pub(crate) fn send_queue_full(&self) -> bool {
        let limit = self.cap.max_send_wr as usize;
        self.connection().is_some_and(|connection| connection.requester.wqes.len() >= limit)
    }

    pub(crate) fn post_send(&mut self, wqe: SendWqe, shared: &mut DeviceTables) -> Result<(), Error> {
        match &mut self.phase {
            Phase::Unconnected => Err(Error::QpState("not connected")),
            Phase::Connected(connection) if wqe.is_read() && connection.requester.initiator_depth == 0 => {
                Err(Error::Invalid("the connection was made without READs: its initiator_depth is 0"))
            }
            Phase::Connected(connection) => {
                shared.counters.rdma_sends += 1;
                connection.requester.post(wqe);
                Ok(())
            }
            Phase::Failed(_) | Phase::Dead => {
                self.complete_send(&wqe, WcStatus::WrFlushError, shared);
                Ok(())
            }
        }
    }

    pub(crate) fn post_recv(&mut self, wqe: RecvWqe, shared: &mut DeviceTables) -> Result<(), Error> {
        if matches!(self.phase, Phase::Failed(_) | Phase::Dead) {
            self.flush_recv(&wqe, shared);
            return Ok(());
        }
        if self.rq.len() >= self.cap.max_recv_wr as usize {
            return Err(queue_full("receive queue entries", self.cap.max_recv_wr));
        }
        self.rq.push_back(wqe);
        Ok(())
    }

    /// Handles a packet that has a correct ICRC and comes from the connection's peer.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
        shared: &mut DeviceTables,
        memory: &mut dyn RegionWriter,
    ) -> Result<(), RefusalCause> {
        if let Phase::Connected(connection) = &mut self.phase {
            connection.peer.carried_acks.heard(&packet.bth);
        }
        match info.operation {
            Operation::Acknowledge | Operation::ReadResponse => {
                self.handle_response(now, info.operation, packet, shared, memory)
            }
            Operation::Cnp => {
                if let Phase::Connected(connection) = &mut self.phase {
                    shared.counters.rx_cnp += 1;
                    connection.requester.window.on_cnp(now);
                }
                Ok(())
            }
            _ => {
                let acked = packet.carried.map_or(Ok(()), |ack| self.handle_carried(now, &ack, shared));
                self.handle_request(info, packet, shared, memory).and(acked)
            }
        }
    }

    /// Returns true if the peer may send carried acknowledgements, because this end has told it so.
    pub(crate) fn takes_carried_acks(&self) -> bool {
        self.peer().is_some_and(|peer| peer.carried_acks.told())
    }

    /// Handles the acknowledgement that a request packet carries, as if it had arrived in a packet of its own.
    fn handle_carried(
        &mut self,
        now: Time,
        ack: &CarriedAck,
        shared: &mut DeviceTables,
    ) -> Result<(), RefusalCause> {
        let Phase::Connected(connection) = &mut self.phase else { return Err(RefusalCause::UnknownQp) };
        let mut done = std::mem::take(&mut shared.done);
        let progress = connection.requester.handle_ack(now, ack.psn, ack.aeth, shared, &mut done);
        self.progressed(&progress, done, shared)
    }

    /// Reports the work requests `done`, fails the queue pair if `progress` says so, and returns the buffer `done` to
    /// the device.
    fn progressed(
        &mut self,
        progress: &completer::Progress,
        mut done: Vec<SendWqe>,
        shared: &mut DeviceTables,
    ) -> Result<(), RefusalCause> {
        self.settle(&done, progress.failed, shared);
        done.clear();
        shared.done = done;
        progress.refused.map_or(Ok(()), Err)
    }

    /// Returns the run that can follow a packet with the header `before`, which was not refused, and the rule for the IPv4
    /// identifications of its packets. Returns `None` if no run can follow.
    pub(crate) fn received_run(
        &mut self,
        before: &Bth,
        shared: &DeviceTables,
    ) -> Option<(IdRule, ReceivedRun<'_>)> {
        let Phase::Connected(connection) = &mut self.phase else { return None };
        let rule = connection.peer.id_rule();
        ReceivedRun::after(before, connection, shared).map(|run| (rule, run))
    }

    fn handle_response(
        &mut self,
        now: Time,
        operation: Operation,
        packet: &Packet<'_>,
        shared: &mut DeviceTables,
        memory: &mut dyn RegionWriter,
    ) -> Result<(), RefusalCause> {
        let Phase::Connected(connection) = &mut self.phase else { return Err(RefusalCause::UnknownQp) };
        let mut done = std::mem::take(&mut shared.done);
        let psn = packet.bth.psn;
        let progress = match packet.aeth {
            Some(aeth) if operation == Operation::Acknowledge => {
                connection.requester.handle_ack(now, psn, aeth, shared, &mut done)
            }
            _ => {
                let (payload, mtu) = (packet.payload, connection.peer.mtu);
                let response = completer::ReadResponse { psn, payload, mtu, memory };
                connection.requester.handle_read_response(now, response, shared, &mut done)
            }
        };
        self.progressed(&progress, done, shared)
    }

    fn handle_request(
        &mut self,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
        shared: &mut DeviceTables,
        memory: &mut dyn RegionWriter,
    ) -> Result<(), RefusalCause> {
        let Phase::Connected(connection) = &mut self.phase else { return Err(RefusalCause::UnknownQp) };
        let (mtu, recv_cq) = (connection.peer.mtu, self.recv_cq);
        let mut cx = responder::QpParts { qp: self.num, pd: self.pd, mtu, rq: &mut self.rq, shared, memory };
        let outcome = connection.responder.handle(info, packet, &mut cx);
        let mut failed = outcome.refused.is_some_and(RefusalCause::is_fatal);
        if let Some(wc) = outcome.completion {
            // If the completion queue is full, the program never learns of the message, so the message gets no ACK.
            if !complete(shared, recv_cq, wc) {
                connection.responder.responses.withdraw_ack(packet.bth.psn);
                failed = true;
            }
        }
        if failed {
            self.fail(None, shared);
        }
        outcome.refused.map_or(Ok(()), Err)
    }

    /// Reports the work requests `done` as completed. If `failed` has a status, the queue pair fails with this status
    /// after the work requests `done` have been reported.
    fn settle(&mut self, done: &[SendWqe], mut failed: Option<WcStatus>, shared: &mut DeviceTables) {
        for wqe in done {
            if wqe.flags.signaled && !self.complete_send(wqe, WcStatus::Success, shared) {
                failed = Some(WcStatus::FatalError);
            }
        }
        if let Some(status) = failed {
            self.fail(Some(status), shared);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, shared: &mut DeviceTables) {
        let Phase::Connected(connection) = &mut self.phase else { return };
        let progress = connection.requester.handle_timeout(now, shared);
        self.settle(&[], progress.failed, shared);
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.connection().and_then(|connection| connection.requester.deadline())
    }

    pub(crate) fn has_work(&self) -> bool {
        match &self.phase {
            Phase::Connected(connection) => {
                !connection.responder.responses.is_empty() || connection.requester.has_work()
            }
            Phase::Failed(connection) => !connection.responder.responses.is_empty(),
            _ => false,
        }
    }

    /// Returns true if the queue pair has no packet that must be sent at once. If the program permits late
    /// acknowledgements, ACKs may wait until the program posts its next request.
    pub(crate) fn may_wait(&self) -> bool {
        match &self.phase {
            Phase::Connected(connection) if self.cap.late_acks => {
                connection.responder.responses.are_acks() && !connection.requester.has_work()
            }
            _ => !self.has_work(),
        }
    }

    /// Builds the next packet. Responses are sent before requests, because the peer's window depends on responses.
    /// There is one exception for programs that permit late acknowledgements, if the peer also uses the embedded
    /// provider. If both ends have agreed on it, the next request packet carries the acknowledgement. Otherwise one
    /// request packet is sent before the acknowledgements in the queue. In this order, the request packet
    /// and an acknowledgement can form one super-packet, in which only the last datagram may be shorter than the
    /// others. An acknowledgement is usually shorter than a request packet, so it must come last.
    ///
    /// The packet can be the first of a run of at most `most` packets.
    pub(crate) fn next_packet(
        &mut self,
        now: Time,
        shared: &mut DeviceTables,
        out: &mut Transmit,
        most: u32,
    ) -> bool {
        let late_acks = self.cap.late_acks;
        let (connection, open) = match &mut self.phase {
            Phase::Connected(connection) => (connection, true),
            Phase::Failed(connection) => (connection, false),
            _ => return false,
        };
        let peer = connection.peer;
        let overtakes = late_acks && open && peer.embedded && connection.may_overtake();
        connection.overtaken = overtakes;
        let most = if overtakes { 1 } else { most };
        if !overtakes {
            match connection.responder.responses.next_packet(&peer, shared, out, most) {
                Ok(true) => {
                    out.run.qpn = self.num.0;
                    return true;
                }
                Ok(false) if !open => return false,
                Ok(false) => {}
                Err(()) => {
                    self.fail(None, shared);
                    return self.next_packet(now, shared, out, most);
                }
            }
        }
        match connection.requester.next_packet(now, &peer, shared, out, most) {
            Ok(sent) => {
                out.run.qpn = self.num.0;
                if sent
                    && overtakes
                    && peer.carried_acks == CarriedAcks::Agreed
                    && let Some(ack) = connection.responder.responses.take_only_ack()
                {
                    out.header.carry(&ack);
                    shared.counters.carried_acks += 1;
                }
                sent
            }
            Err(status) => {
                self.fail(Some(status), shared);
                self.has_work() && self.next_packet(now, shared, out, most)
            }
        }
    }

    /// Moves the queue pair to the error state. The oldest work request of the send queue completes with `status`, and
    /// all other work requests complete as flushed. If `status` is `None`, the oldest work request completes as
    /// flushed, too.
    pub(crate) fn fail(&mut self, status: Option<WcStatus>, shared: &mut DeviceTables) {
        let mut connection = match std::mem::replace(&mut self.phase, Phase::Dead) {
            Phase::Connected(connection) => connection,
            Phase::Failed(connection) => {
                self.phase = Phase::Failed(connection);
                return;
            }
            Phase::Unconnected | Phase::Dead => {
                self.flush_receives(shared);
                return;
            }
        };
        let mut status = status.unwrap_or(WcStatus::WrFlushError);
        while let Some(wqe) = connection.requester.pop() {
            self.complete_send(&wqe, status, shared);
            status = WcStatus::WrFlushError;
        }
        if let Some(recv) = connection.responder.take_recv() {
            self.flush_recv(&recv, shared);
        }
        self.phase = Phase::Failed(connection);
        self.flush_receives(shared);
    }

    fn flush_receives(&mut self, shared: &mut DeviceTables) {
        while let Some(recv) = self.rq.pop_front() {
            self.flush_recv(&recv, shared);
        }
    }

    fn flush_recv(&self, recv: &RecvWqe, shared: &mut DeviceTables) {
        let (status, opcode) = (WcStatus::WrFlushError, verbs::WcOpcode::Recv);
        let wc = Wc { wr_id: recv.wr_id, qp: self.num, status, opcode, ..Wc::EMPTY };
        complete(shared, self.recv_cq, wc);
    }

    fn complete_send(&self, wqe: &SendWqe, status: WcStatus, shared: &mut DeviceTables) -> bool {
        let (qp, opcode) = (self.num, wqe.opcode());
        let wc = Wc { wr_id: wqe.wr_id, qp, status, opcode, byte_len: wqe.len, ..Wc::EMPTY };
        complete(shared, self.send_cq, wc)
    }
}

/// Adds a completion to the completion queue `cq`. Returns false if the completion queue was full. The caller must fail
/// the queue pair when this function returns false.
fn complete(shared: &mut DeviceTables, cq: CqId, wc: Wc) -> bool {
    let fits = shared.cqs.get_mut(&cq.0).is_some_and(|cq| cq.push(wc));
    if !fits {
        shared.counters.cq_overrun += 1;
    }
    fits
}

/// Returns the error for a work request that does not fit into a queue with `limit` entries.
pub(crate) fn queue_full(what: &'static str, limit: u32) -> Error {
    Error::Exhausted { what, limit: limit.into(), remedy: "poll completions first" }
}

/// Converts the code of the local ACK timeout to a duration. The code 0 gives the duration 0, which stands for no
/// timeout.
fn ack_timeout(code: u8) -> Duration {
    match code & 0x1f {
        0 => Duration::ZERO,
        n => Duration::from_nanos(4096 << n),
    }
}
