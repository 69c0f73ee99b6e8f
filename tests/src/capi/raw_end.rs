//! The raw end of a connection that stands for NAAICE's.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use roce::{
    opcode,
    psn::Psn,
    wire::{Aeth, Packet, Reth, Syndrome},
};

use super::capture::{Assembler, Message};
use crate::hostile::{RawPeer, blank};

pub(super) struct RawEnd {
    pub(super) raw: RawPeer,
    pub(super) peer: SocketAddr,
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    /// Bytes of a packet.
    pub(super) mtu: usize,
    /// The PSN of the next packet that this end sends.
    pub(super) next: Psn,
    pub(super) received: Assembler,
    /// Messages received.
    pub(super) count: u32,
}

impl RawEnd {
    /// The other side's next message, acknowledged at once, as a device does. Each of its packets must pass `check`.
    pub(super) fn receive(
        &mut self,
        within: Duration,
        check: impl Fn(&Packet<'_>) -> Result<(), String>,
    ) -> Result<Option<Message>, String> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(bytes) = self.raw.receive_bytes(left)? else { return Ok(None) };
            let Ok(packet) = Packet::decode(&bytes) else { continue };
            if packet.bth.dest_qp != self.qpn {
                continue;
            }
            check(&packet)?;
            let message = self.received.take(&packet);
            self.count += u32::from(message.is_some());
            if packet.bth.ack_req || message.is_some() {
                let mut ack = blank(opcode::ACKNOWLEDGE, self.remote_qpn, self.received.last());
                ack.bth.ack_req = false;
                ack.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: self.count & Psn::MASK });
                self.raw.send(self.peer, &ack)?;
            }
            if message.is_some() {
                return Ok(message);
            }
        }
    }

    /// The captured message, packet by packet, to the region that stands for the captured one: address and RKey.
    pub(super) fn say(&mut self, message: &Message, target: Option<(u64, u32)>) -> Result<(), String> {
        let mut at = 0;
        for (index, opcode) in message.opcodes.iter().enumerate() {
            let is_last = index + 1 == message.opcodes.len();
            let len = if is_last { message.bytes.len() - at } else { self.mtu };
            let mut packet = blank(*opcode, self.remote_qpn, self.next);
            packet.bth.solicited = message.solicited && is_last;
            packet.bth.ack_req = is_last;
            if index == 0 {
                let length = message.bytes.len() as u32;
                packet.reth = target.map(|(addr, rkey)| Reth { addr, rkey, length });
            }
            packet.imm = message.immediate.filter(|_| is_last);
            packet.payload = &message.bytes[at..at + len];
            self.raw.send(self.peer, &packet)?;
            self.next = self.next.plus(1);
            at += len;
        }
        Ok(())
    }
}
