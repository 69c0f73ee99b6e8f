//! The replies that a responder still has to send: acknowledgements and READ responses. Replies are sent in the order
//! of their requests, because an acknowledgement between the responses of one READ is a fatal error for the requester.

use std::collections::VecDeque;

use super::{Peer, Shared};
use crate::{
    memory::Piece,
    mr_table::{MrRef, Want},
    opcode,
    psn::Psn,
    transmit::Transmit,
    wire::{Aeth, Bth, NakCode, Syndrome, pad_of},
};

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Ack {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// The next response packet to be sent is number `packet` of `packets`, counted from 0. `source` is `None` for a
    /// READ of no bytes. If `repeated` is true, the reply does not count towards the limit of outstanding READs,
    /// because the network may duplicate a READ request without a fault of the peer.
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

impl Reply {
    pub(super) fn with_msn(mut self, new: u32) -> Self {
        match &mut self {
            Self::Ack { msn, .. } | Self::Read { msn, .. } => *msn = new,
        }
        self
    }

    fn takes_resource(&self) -> bool {
        matches!(self, Self::Read { repeated: false, .. })
    }

    /// Returns the last PSN that an ACK acknowledges; `None` if the reply is a NAK, RNR NAK or READ response.
    fn acknowledged(&self) -> Option<Psn> {
        match self {
            Self::Ack { psn, syndrome: Syndrome::Ack(_), .. } => Some(*psn),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    reads: usize,
}

impl Replies {
    /// The maximum number of replies that may wait. The limit is higher than the number of replies that a requester can
    /// cause in one window. When the queue is full, a further reply is dropped, and the requester repeats its request.
    const MAX: usize = 256;

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if each reply in the queue is an ACK. The result is also true if the queue is empty.
    pub(super) fn are_acks(&self) -> bool {
        self.queue.iter().all(|reply| reply.acknowledged().is_some())
    }

    /// Returns the number of outstanding READs, without repeated READs.
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    pub(super) fn push(&mut self, reply: Reply) {
        // An ACK also acknowledges all earlier PSNs, so a new ACK replaces an ACK that is the last reply in the queue.
        if let Some(back) = self.queue.back_mut()
            && let (Some(new), Some(old)) = (reply.acknowledged(), back.acknowledged())
        {
            if new.since(old) >= 0 {
                *back = reply;
            }
            return;
        }
        if self.queue.len() >= Self::MAX {
            return;
        }
        self.reads += usize::from(reply.takes_resource());
        self.queue.push_back(reply);
    }

    /// Returns the reply that was pushed last; `None` if the queue is empty, or if this reply was returned before. If
    /// the returned reply is an ACK, NAK or RNR NAK, it is removed from the queue. The reply to a READ stays in the
    /// queue until [`Replies::finish_oldest`] removes it.
    pub(super) fn take_newest(&mut self) -> Option<Reply> {
        match self.queue.back_mut()? {
            Reply::Ack { .. } => self.queue.pop_back(),
            reply => {
                let newest = *reply;
                let Reply::Read { packet: packet @ 0, .. } = reply else { return None };
                *packet = 1;
                Some(newest)
            }
        }
    }

    /// Withdraws the ACK of packet `psn` if this ACK is the newest reply in the queue.
    pub(super) fn withdraw_ack(&mut self, psn: Psn) {
        if self.queue.back().and_then(Reply::acknowledged) == Some(psn) {
            self.queue.pop_back();
        }
    }

    /// Removes the oldest reply, which has been sent. Returns true if the removed reply counted towards the limit of
    /// outstanding READs.
    pub(super) fn finish_oldest(&mut self) -> bool {
        let took = self.queue.pop_front().is_some_and(|reply| reply.takes_resource());
        self.reads -= usize::from(took);
        took
    }

    /// Removes all READ replies whose PSNs overlap `from..end`, and adds the reply to a repeated READ with the PSNs
    /// `from..end`.
    pub(super) fn restart_read(&mut self, from: Psn, end: Psn, reply: Reply) {
        self.queue.retain(|queued| match queued {
            Reply::Read { psn, packets, .. } => psn.plus(*packets).since(from) <= 0 || psn.since(end) >= 0,
            Reply::Ack { .. } => true,
        });
        self.reads = self.queue.iter().filter(|r| r.takes_resource()).count();
        self.push(reply);
    }

    /// Builds the next packet of the oldest reply. Returns `Ok(false)` if no reply waits. Returns `Err` if the region
    /// of a READ was deregistered, or its access rights revoked, before all responses were sent.
    pub(super) fn next_packet(
        &mut self,
        peer: &Peer,
        shared: &mut Shared,
        out: &mut Transmit,
    ) -> Result<bool, ()> {
        let Some(front) = self.queue.front_mut() else { return Ok(false) };
        out.begin(peer.addr);
        let finished = match front {
            Reply::Ack { psn, syndrome, msn } => {
                header(
                    out,
                    peer,
                    opcode::ACKNOWLEDGE,
                    *psn,
                    0,
                    Some(Aeth { syndrome: *syndrome, msn: *msn }),
                );
                true
            }
            Reply::Read { psn, packet, packets, source, len, msn, .. } => {
                let Some(piece) = response_piece(*packet, *source, *len, peer.mtu, shared) else {
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                    *front = Reply::Ack { psn: psn.plus(*packet), syndrome, msn: *msn };
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
                *packet += 1;
                last
            }
        };
        if finished {
            self.finish_oldest();
        }
        shared.counters.sent_pkts += 1;
        Ok(true)
    }
}

fn response_piece(
    packet: u32,
    source: Option<(MrRef, u64)>,
    len: u32,
    mtu: u32,
    shared: &Shared,
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
