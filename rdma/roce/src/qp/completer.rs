//! The completer: turns acknowledgements and READ responses into completions (IBTA vol. 1, 9.9.2; Linux: rxe_comp.c).

use std::time::Duration;

use verbs::WcStatus;

use super::{
    DeviceTables,
    requester::Requester,
    wqe::{self, SendWqe, WqePayload},
};
use crate::{
    memory::RegionWriter,
    mr_table::Want,
    psn::Psn,
    refusal::RefusalCause,
    time::Time,
    timer::Timer,
    wire::{Aeth, NakCode, Syndrome},
};

/// The delay of each RNR NAK timer code (IBTA vol. 1, table 45), in units of 10 us.
const RNR_DELAYS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time for which a requester waits after an RNR NAK whose timer code is the low five bits of `code`.
fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(u64::from(RNR_DELAYS[usize::from(code & 0x1f)]) * 10)
}

/// A READ response packet, and the memory for its payload.
pub(crate) struct ReadResponse<'a> {
    pub(crate) psn: Psn,
    pub(crate) payload: &'a [u8],
    pub(crate) mtu: u32,
    pub(crate) memory: &'a mut dyn RegionWriter,
}

/// The effect of an acknowledgement or READ response.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The status with which the oldest work request failed; `None` if no work request failed.
    pub(crate) failed: Option<WcStatus>,
    /// The cause for which the packet was refused; `None` if the packet was not refused.
    pub(crate) refused: Option<RefusalCause>,
}

impl Progress {
    fn failed(status: WcStatus) -> Self {
        Self { failed: Some(status), refused: None }
    }

    fn refused(cause: RefusalCause) -> Self {
        Self { failed: None, refused: Some(cause) }
    }
}

impl Requester {
    /// Returns true if the packet with the PSN `psn` was sent and is not acknowledged yet.
    fn outstanding(&self, psn: Psn) -> bool {
        psn.since(self.una) >= 0 && self.sent_end.since(psn) > 0
    }

    pub(crate) fn handle_ack(
        &mut self,
        now: Time,
        psn: Psn,
        aeth: Aeth,
        shared: &mut DeviceTables,
        done: &mut Vec<SendWqe>,
    ) -> Progress {
        if !self.outstanding(psn) {
            // A repeated acknowledgement of packets that were already acknowledged is not an error.
            let repeated = matches!(aeth.syndrome, Syndrome::Ack(_)) && psn.since(self.una) < 0;
            return Progress { failed: None, refused: (!repeated).then_some(RefusalCause::StrayResponse) };
        }
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                if !self.ack_through(now, psn, done) {
                    self.implied_nak(now, shared);
                }
                Progress::default()
            }
            Syndrome::RnrNak(code) => self.handle_rnr(now, psn, code, shared, done),
            Syndrome::Nak(NakCode::PsnSequence) => {
                shared.counters.rcvd_seq_err += 1;
                self.ack_through(now, psn.minus(1), done);
                self.lost(now);
                Progress::default()
            }
            Syndrome::Nak(code) => {
                self.ack_through(now, psn.minus(1), done);
                Progress::failed(nak_status(code))
            }
            Syndrome::Reserved(_) => Progress::refused(RefusalCause::ReservedSyndrome),
        }
    }

    fn handle_rnr(
        &mut self,
        now: Time,
        psn: Psn,
        code: u8,
        shared: &mut DeviceTables,
        done: &mut Vec<SendWqe>,
    ) -> Progress {
        shared.counters.rcvd_rnr_err += 1;
        self.ack_through(now, psn.minus(1), done);
        if self.timers.is_set(Timer::RnrPause) {
            // The pause after the previous RNR NAK is not over, and no request packet is sent during the pause. The new
            // RNR NAK therefore responds to an older packet, for example a tail probe, or it is a copy that the network
            // made. It uses up no retry and starts no pause.
            return Progress::default();
        }
        if self.rnr_left == 0 {
            shared.counters.retry_rnr_exceeded_err += 1;
            return Progress::failed(WcStatus::RnrRetryExceeded);
        }
        if self.retry.rnr < 7 {
            self.rnr_left -= 1;
        }
        self.go_back();
        self.timers.set(Timer::RnrPause, now + rnr_delay(code));
        // The RNR NAK shows that the peer is alive, so the retransmission timer stops. The timer starts again only
        // after `Timer::RnrPause` has expired.
        self.timers.stop(Timer::Retransmit);
        Progress::default()
    }

    /// Marks all packets up to and including `psn` as acknowledged, but stops at the first READ, because a READ is
    /// completed only by its responses. Returns false if a READ at or before `psn` still waits for responses, so that
    /// not all packets were marked.
    fn ack_through(&mut self, now: Time, psn: Psn, done: &mut Vec<SendWqe>) -> bool {
        let (before, full) = (self.una, self.window_full());
        let mut reached = true;
        while let Some(wqe) = self.wqes.front() {
            let Some(first) = wqe.first else { break };
            if psn.since(self.una) < 0 {
                break;
            }
            if wqe.is_read() {
                reached = false;
                break;
            }
            let last = first.plus(wqe.packets - 1);
            if psn.since(last) < 0 {
                self.una = psn.plus(1);
                break;
            }
            self.una = last.plus(1);
            done.extend(self.pop());
        }
        self.progressed(now, before, full);
        reached
    }

    fn window_full(&self) -> bool {
        self.in_flight(self.sent_end) + 1 >= self.window.packets()
    }

    /// Removes the oldest work request, and changes the cursor's index so that the cursor still points at the same
    /// packet.
    pub(super) fn pop(&mut self) -> Option<SendWqe> {
        self.cursor = match self.cursor {
            (0, _) => (0, 0),
            (index, packet) => (index - 1, packet),
        };
        self.wqes.pop_front()
    }

    /// Updates the timers, the congestion window and the retry counts if new packets were acknowledged. `before` is the
    /// oldest unacknowledged PSN before the acknowledgement.
    fn progressed(&mut self, now: Time, before: Psn, full: bool) {
        let packets = self.una.since(before);
        if packets <= 0 {
            return;
        }
        self.skip_acknowledged();
        self.retries_left = self.retry.count;
        self.rnr_left = self.retry.rnr;
        self.rtt.acked(self.una, now);
        self.window.on_ack(packets as u32, full);
        while self.reads.front().is_some_and(|&end| self.una.since(end) > 0) {
            self.reads.pop_front();
        }
        if self.recover.is_some_and(|end| self.una.since(end) >= 0) {
            self.recover = None;
        }
        self.timers.stop(Timer::Retransmit);
        if self.sent_end.since(self.una) > 0 && !self.timers.is_set(Timer::RnrPause) {
            self.arm(now);
        }
    }

    /// Moves the cursor, which points at the next packet to send, past packets that are acknowledged by now. The cursor
    /// had moved back to these packets to resend them.
    fn skip_acknowledged(&mut self) {
        if let (0, packet) = self.cursor
            && let Some(first) = self.first_psn()
        {
            let acked = self.una.since(first).max(0) as u32;
            self.cursor = (0, packet.max(acked));
        }
    }

    /// Handles the loss of the oldest unacknowledged packet: this packet and all later packets are resent. If the
    /// oldest unacknowledged packet already waits to be resent, this function does nothing.
    fn lost(&mut self, now: Time) {
        let (index, packet) = self.cursor;
        if index > 0 || self.first_psn().is_some_and(|first| first.plus(packet).since(self.una) > 0) {
            self.window.on_loss(now);
            self.go_back();
        }
    }

    /// Handles an acknowledgement which shows that earlier READ responses were lost.
    fn implied_nak(&mut self, now: Time, shared: &mut DeviceTables) {
        if self.recover.is_none() {
            shared.counters.implied_nak_seq_err += 1;
            self.lost(now);
        }
    }

    pub(crate) fn handle_read_response(
        &mut self,
        now: Time,
        response: ReadResponse<'_>,
        shared: &mut DeviceTables,
        done: &mut Vec<SendWqe>,
    ) -> Progress {
        let psn = response.psn;
        if !self.outstanding(psn) {
            return Progress::refused(RefusalCause::StrayResponse);
        }
        self.ack_through(now, psn.minus(1), done);
        let Some(first) = self.wqes.front().filter(|w| w.is_read()).and_then(|w| w.first) else {
            return bad_response();
        };
        match psn.since(self.una) {
            0 => {}
            ahead if ahead > 0 => {
                self.implied_nak(now, shared);
                return Progress::refused(RefusalCause::ResponseGap);
            }
            _ => return Progress::default(),
        }
        let packet = psn.value().wrapping_sub(first.value()) & Psn::MASK;
        self.take_response(now, packet, response, shared, done)
    }

    fn take_response(
        &mut self,
        now: Time,
        packet: u32,
        response: ReadResponse<'_>,
        shared: &mut DeviceTables,
        done: &mut Vec<SendWqe>,
    ) -> Progress {
        let ReadResponse { payload, mtu, memory, .. } = response;
        let wqe = &self.wqes[0];
        let last = packet + 1 == wqe.packets;
        if payload.len() != wqe.packet_len(packet, mtu) as usize {
            return bad_response();
        }
        let WqePayload::Sges(sges) = &wqe.payload else { unreachable!("a READ is never inline") };
        let offset = u64::from(packet) * u64::from(mtu);
        if !place(sges, offset, payload, shared, memory) {
            let status = WcStatus::LocalProtectionError;
            return Progress { failed: Some(status), refused: Some(RefusalCause::ResponseMemory) };
        }
        let (before, full) = (self.una, self.window_full());
        self.una = before.plus(1);
        if last {
            done.extend(self.pop());
        }
        self.progressed(now, before, full);
        Progress::default()
    }

    /// Returns the run of READ responses that can arrive next; `None` if the oldest work request is no READ that was sent,
    /// or if the region of a buffer does not permit the access any more.
    pub(super) fn read_run(&mut self, mtu: u32, shared: &DeviceTables) -> Option<ReadRun<'_>> {
        let wqe = self.wqes.front().filter(|wqe| wqe.is_read())?;
        let WqePayload::Sges(sges) = &wqe.payload else { return None };
        let permitted = sges.iter().all(|sge| shared.mrs.still(sge.mr, Want::LocalWrite).is_some());
        let last = wqe.first?.plus(wqe.packets - 1);
        permitted.then_some(ReadRun { requester: self, mtu, last })
    }

    /// Handles the expiry of the retransmission timer, or the end of the pause after an RNR NAK.
    pub(crate) fn handle_timeout(&mut self, now: Time, shared: &mut DeviceTables) -> Progress {
        self.timers.expired(Timer::RnrPause, now);
        if !self.timers.expired(Timer::Retransmit, now) {
            return Progress::default();
        }
        shared.counters.local_ack_timeout_err += 1;
        let first = self.rtt.probes_tail();
        if self.rtt.expired() {
            if self.retries_left == 0 {
                shared.counters.retry_exceeded_err += 1;
                return Progress::failed(WcStatus::RetryExceeded);
            }
            self.retries_left -= 1;
        } else if first {
            self.step_back();
            self.arm(now);
            return Progress::default();
        }
        self.window.on_loss(now);
        self.go_back();
        self.arm(now);
        Progress::default()
    }

    /// Resends only the last packet that was sent, as a tail probe. The peer's acknowledgement or NAK of the resent
    /// packet shows which packets are missing. If the peer is only slow, no packet was lost, so it would be useless to
    /// resend all packets. A READ request is never resent as a tail probe. If the last packet that was sent is a READ
    /// request, no packet is resent now, and the requester waits until the retransmission timer expires again.
    fn step_back(&mut self) {
        let (index, packet) = self.cursor;
        let last = match (index, packet) {
            (0, 0) => return,
            (index, 0) => (index - 1, self.wqes[index - 1].packets - 1),
            (index, packet) => (index, packet - 1),
        };
        let wqe = &self.wqes[last.0];
        let Some(psn) = wqe.first.map(|first| first.plus(last.1)) else { return };
        if wqe.is_read() || psn.since(self.una) < 0 {
            return;
        }
        // Unlike other retransmissions, a tail probe does not end the measurement of the round-trip time, so
        // `rtt.forget` is not called here. A round-trip time is measured from the first transmission of a packet to its
        // acknowledgement. If only the tail probe is acknowledged, the measured time is too long, but it is never too
        // short.
        self.cursor = last;
        self.demand_ack();
    }
}

/// The MIDDLE packets that can follow among the responses of the READ that is the oldest work request.
pub(super) struct ReadRun<'a> {
    requester: &'a mut Requester,
    mtu: u32,
    /// The PSN of the READ's last response packet, which belongs to no run.
    last: Psn,
}

impl ReadRun<'_> {
    /// Returns the PSN of the next packet; `None` if the next packet is the last one, or was not asked for.
    pub(super) fn next(&self) -> Option<Psn> {
        let psn = self.requester.una;
        (self.last.since(psn) > 0 && self.requester.outstanding(psn)).then_some(psn)
    }

    /// Executes the next packet as [`Requester::handle_read_response`] does.
    pub(super) fn execute(
        &mut self,
        now: Time,
        payload: &[u8],
        shared: &DeviceTables,
        memory: &mut dyn RegionWriter,
    ) {
        let requester = &mut *self.requester;
        let (before, full) = (requester.una, requester.window_full());
        let wqe = &requester.wqes[0];
        if let (Some(first), WqePayload::Sges(sges)) = (wqe.first, &wqe.payload) {
            let packet = before.value().wrapping_sub(first.value()) & Psn::MASK;
            place(sges, u64::from(packet) * u64::from(self.mtu), payload, shared, memory);
        }
        requester.una = before.plus(1);
        requester.progressed(now, before, full);
    }
}

/// Copies `payload`, which begins at the offset `offset` of its message, into the buffers of a work request. Returns
/// false if the region of a buffer was deregistered or does not permit writing any more, or if the buffers are too
/// short.
pub(super) fn place(
    sges: &[wqe::SgeRef],
    offset: u64,
    payload: &[u8],
    shared: &DeviceTables,
    memory: &mut dyn RegionWriter,
) -> bool {
    let mut rest = payload;
    wqe::pieces(sges, offset, payload.len() as u64, Want::LocalWrite, &shared.mrs, |p| {
        let (now, later) = rest.split_at(p.len as usize);
        memory.write(p.region, p.offset, now);
        rest = later;
    })
}

fn bad_response() -> Progress {
    Progress { failed: Some(WcStatus::BadResponse), refused: Some(RefusalCause::BadResponse) }
}

fn nak_status(code: NakCode) -> WcStatus {
    match code {
        NakCode::RemoteAccess => WcStatus::RemoteAccessError,
        NakCode::RemoteOperation => WcStatus::RemoteOperationError,
        NakCode::InvalidRequest | NakCode::InvalidRdRequest => WcStatus::RemoteInvalidRequest,
        NakCode::PsnSequence | NakCode::Reserved(_) => WcStatus::BadResponse,
    }
}
