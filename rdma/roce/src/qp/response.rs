//! The responses that a responder still has to send: acknowledgements and READ responses. Responses are sent in the
//! order of their requests, because an acknowledgement between the responses of one READ is a fatal error for the
//! requester.

use std::collections::VecDeque;

use super::{DeviceTables, Peer};
use crate::{
    memory::Piece,
    mr_table::{MrRef, Want},
    opcode,
    psn::Psn,
    transmit::{Run, Transmit},
    wire::{Aeth, Bth, CarriedAck, NakCode, Syndrome, pad_of},
};

#[derive(Clone, Copy, Debug)]
pub(super) enum PendingResponse {
    Ack {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// A NAK that reports that the packet `psn` is missing. If `after_ack` is true, an ACK of the packets before `psn`
    /// is sent before the NAK. By the specification, the NAK alone already acknowledges these packets, so the ACK is
    /// only for rxe. The requester of rxe ignores all NAKs after the first one, and counts down its retries, until it
    /// receives an ACK. If rxe received no ACK here, it would notice each further loss only by an ACK time-out, and the
    /// connection would end after a few losses.
    SequenceNak {
        psn: Psn,
        msn: u32,
        after_ack: bool,
    },
    /// The next response packet to be sent is number `packet` of `packets`, counted from 0. `source` is `None` for a
    /// READ of no bytes. `repeated` is true if the READ was executed before and its request has arrived again. The
    /// response to a repeated READ does not count towards the limit of outstanding READs, because the network may
    /// duplicate a READ request without a fault of the peer.
    Read {
        psn: Psn,
        packet: u32,
        packets: u32,
        source: Option<(MrRef, u64)>,
        len: u32,
        msn: u32,
        repeated: bool,
    },
}

impl PendingResponse {
    pub(super) fn with_msn(mut self, new: u32) -> Self {
        match &mut self {
            Self::Ack { msn, .. } | Self::SequenceNak { msn, .. } | Self::Read { msn, .. } => *msn = new,
        }
        self
    }

    fn takes_resource(&self) -> bool {
        matches!(self, Self::Read { repeated: false, .. })
    }

    /// Returns the last PSN that an ACK acknowledges; `None` if the response is a NAK, RNR NAK or READ response.
    fn acknowledged(&self) -> Option<Psn> {
        match self {
            Self::Ack { psn, syndrome: Syndrome::Ack(_), .. } => Some(*psn),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct PendingResponses {
    queue: VecDeque<PendingResponse>,
    reads: usize,
    /// The number of repeated READs, modulo 2^32. A run that was granted before a READ was repeated must end, because
    /// the READ responses of the run may be those that are sent again.
    run_epoch: u32,
}

impl PendingResponses {
    /// The maximum number of responses that may wait. The limit is higher than the number of responses that a requester
    /// can cause with the packets of one congestion window. When the queue is full, a further response is dropped, and
    /// the requester repeats its request.
    const MAX: usize = 256;

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if each response in the queue is an ACK. The result is also true if the queue is empty.
    pub(super) fn are_acks(&self) -> bool {
        self.queue.iter().all(|response| response.acknowledged().is_some())
    }

    /// Returns the number of outstanding READs, without repeated READs.
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    pub(super) fn push(&mut self, response: PendingResponse) {
        // An ACK also acknowledges all earlier PSNs, so a new ACK replaces an ACK that is the last response in the
        // queue.
        if let Some(back) = self.queue.back_mut()
            && let (Some(new), Some(old)) = (response.acknowledged(), back.acknowledged())
        {
            if new.since(old) >= 0 {
                *back = response;
            }
            return;
        }
        if self.queue.len() >= Self::MAX {
            return;
        }
        self.reads += usize::from(response.takes_resource());
        self.queue.push_back(response);
    }

    /// Returns the response that was pushed last. Returns `None` if the queue is empty, or if an earlier call returned
    /// this response. If the returned response is an ACK, NAK or RNR NAK, it is removed from the queue. The response to
    /// a READ stays in the queue until [`PendingResponses::finish_oldest`] removes it.
    pub(super) fn take_newest(&mut self) -> Option<PendingResponse> {
        match self.queue.back_mut()? {
            PendingResponse::Ack { .. } | PendingResponse::SequenceNak { .. } => self.queue.pop_back(),
            response => {
                let newest = *response;
                let PendingResponse::Read { packet: packet @ 0, .. } = response else { return None };
                *packet = 1;
                Some(newest)
            }
        }
    }

    /// Removes and returns the only response in the queue if it is an ACK.
    pub(super) fn take_only_ack(&mut self) -> Option<CarriedAck> {
        let PendingResponse::Ack { psn, syndrome: syndrome @ Syndrome::Ack(_), msn } = *self.queue.front()?
        else {
            return None;
        };
        if self.queue.len() > 1 {
            return None;
        }
        self.queue.pop_front();
        Some(CarriedAck { reserved: 0, psn, aeth: Aeth { syndrome, msn } })
    }

    /// Withdraws the ACK of packet `psn` if this ACK is the newest response in the queue.
    pub(super) fn withdraw_ack(&mut self, psn: Psn) {
        if self.queue.back().and_then(PendingResponse::acknowledged) == Some(psn) {
            self.queue.pop_back();
        }
    }

    /// Removes the oldest response, which has been sent. Returns true if the removed response counted towards the limit
    /// of outstanding READs.
    pub(super) fn finish_oldest(&mut self) -> bool {
        let took = self.queue.pop_front().is_some_and(|response| response.takes_resource());
        self.reads -= usize::from(took);
        took
    }

    /// Handles a repeated READ with the PSNs `from..end`: removes the queued READ responses whose PSNs overlap
    /// `from..end`, and then queues `response`, which answers the repeated READ.
    pub(super) fn restart_read(&mut self, from: Psn, end: Psn, response: PendingResponse) {
        self.queue.retain(|queued| match queued {
            PendingResponse::Read { psn, packets, .. } => {
                psn.plus(*packets).since(from) <= 0 || psn.since(end) >= 0
            }
            PendingResponse::Ack { .. } | PendingResponse::SequenceNak { .. } => true,
        });
        self.reads = self.queue.iter().filter(|r| r.takes_resource()).count();
        self.run_epoch = self.run_epoch.wrapping_add(1);
        self.push(response);
    }

    /// Returns true if the READ whose responses are a run that was granted at `epoch` is still the oldest response, and
    /// may still read its region.
    pub(super) fn run_goes_on(&self, epoch: u32, shared: &DeviceTables) -> bool {
        let Some(PendingResponse::Read { source: Some((mr, _)), .. }) = self.queue.front() else {
            return false;
        };
        epoch == self.run_epoch && shared.mrs.still(*mr, Want::RemoteRead).is_some()
    }

    /// Builds the next packet of the oldest response, and grants a run of at most `most` packets that begins with it.
    /// Only MIDDLE packets of READ responses have runs, and the LAST packet, which is built later, checks again whether
    /// the READ may read its region. Returns `Ok(false)` if no response waits. Returns `Err` if the region of a READ was
    /// deregistered, or its access rights revoked, before all responses were sent.
    pub(super) fn next_packet(
        &mut self,
        peer: &Peer,
        shared: &mut DeviceTables,
        out: &mut Transmit,
        most: u32,
    ) -> Result<bool, ()> {
        let epoch = self.run_epoch;
        let Some(front) = self.queue.front_mut() else { return Ok(false) };
        out.begin(peer.addr);
        let finished = match front {
            PendingResponse::Ack { psn, syndrome, msn } => {
                let aeth = Aeth { syndrome: *syndrome, msn: *msn };
                header(out, peer, opcode::ACKNOWLEDGE, *psn, 0, Some(aeth));
                true
            }
            PendingResponse::SequenceNak { psn, msn, after_ack } => {
                let is_ack = std::mem::take(after_ack);
                let (psn, syndrome) = match is_ack {
                    true => (psn.minus(1), Syndrome::ACK),
                    false => (*psn, Syndrome::Nak(NakCode::PsnSequence)),
                };
                header(out, peer, opcode::ACKNOWLEDGE, psn, 0, Some(Aeth { syndrome, msn: *msn }));
                !is_ack
            }
            PendingResponse::Read { psn, packet, packets, source, len, msn, .. } => {
                let Some(piece) = response_piece(*packet, *source, *len, peer.mtu, shared) else {
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                    *front = PendingResponse::Ack { psn: psn.plus(*packet), syndrome, msn: *msn };
                    self.queue.truncate(1);
                    self.reads = 0;
                    return Err(());
                };
                let (first, last) = (*packet == 0, *packet + 1 == *packets);
                let op = match (first, last) {
                    (true, true) => opcode::READ_RESPONSE_ONLY,
                    (true, false) => opcode::READ_RESPONSE_FIRST,
                    (false, false) => opcode::READ_RESPONSE_MIDDLE,
                    (false, true) => opcode::READ_RESPONSE_LAST,
                };
                let aeth = (first || last).then_some(Aeth { syndrome: Syndrome::ACK, msn: *msn });
                header(out, peer, op, psn.plus(*packet), pad_of(piece.len as usize), aeth);
                if piece.len > 0 {
                    out.pieces.push(piece);
                    out.copy_first = true;
                }
                if !first && !last {
                    let more = (most - 1).min(*packets - *packet - 2);
                    // The caller sets `qpn`.
                    out.run = Run { more, responses: true, epoch, ..Run::default() };
                }
                *packet += 1 + out.run.more;
                last
            }
        };
        if finished {
            self.finish_oldest();
        }
        shared.counters.sent_pkts += 1 + u64::from(out.run.more);
        Ok(true)
    }
}

fn response_piece(
    packet: u32,
    source: Option<(MrRef, u64)>,
    len: u32,
    mtu: u32,
    shared: &DeviceTables,
) -> Option<Piece> {
    let Some((mr, base)) = source else {
        return Some(Piece { region: crate::memory::RegionId(0), offset: 0, len: 0 });
    };
    let region = shared.mrs.still(mr, Want::RemoteRead)?;
    let start = packet * mtu;
    Some(Piece { region, offset: base + u64::from(start), len: (len - start).min(mtu) })
}

fn header(out: &mut Transmit, peer: &Peer, opcode: u8, psn: Psn, pad: u8, aeth: Option<Aeth>) {
    out.header.push(&Bth { opcode, psn, pad, ..peer.bth() }.encode());
    if let Some(aeth) = aeth {
        out.header.push(&aeth.encode());
    }
}
