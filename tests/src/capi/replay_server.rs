//! A captured connection with this library's C server in the place of NAAICE's: packets of NAAICE's host are sent again,
//! and every message of the server is held against the captured one.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use roce::{
    psn::Psn,
    wire::{Aeth, Packet, Syndrome},
};

use super::{
    capture::{Assembler, Connection, Message},
    captured::{Agreement, Placed, advertised, difference},
};
use crate::hostile::{Offer, RawPeer, Wire, blank};

const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How long nothing more must come at the end.
const SILENCE: Duration = Duration::from_millis(50);

/// The raw end that stands for NAAICE's host.
struct HostModel {
    raw: RawPeer,
    wire: Wire,
    received: Assembler,
    count: u32,
}

impl HostModel {
    /// The server's next message, acknowledged at once, as a device does.
    fn receive(&mut self, within: Duration) -> Result<Option<Message>, String> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(bytes) = self.raw.receive_bytes(left)? else { return Ok(None) };
            let Ok(packet) = Packet::decode(&bytes) else { continue };
            if packet.bth.dest_qp != self.wire.qpn {
                continue;
            }
            if packet.aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_))) {
                return Err(format!("the server refuses: {:?}", packet.aeth));
            }
            let message = self.received.take(&packet);
            self.count += u32::from(message.is_some());
            if packet.bth.ack_req || message.is_some() {
                let mut ack = blank(roce::opcode::ACKNOWLEDGE, self.wire.remote_qpn, self.received.last());
                ack.bth.ack_req = false;
                ack.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: self.count & Psn::MASK });
                self.raw.send(self.wire.peer, &ack)?;
            }
            if message.is_some() {
                return Ok(message);
            }
        }
    }

    /// The captured message, packet by packet, to the region that stands for the captured one.
    fn say(&mut self, message: &Message, target: Option<Placed>) -> Result<(), String> {
        let mut at = 0;
        for (index, opcode) in message.opcodes.iter().enumerate() {
            let is_last = index + 1 == message.opcodes.len();
            let len = if is_last { message.bytes.len() - at } else { self.wire.mtu };
            let mut packet = self.wire.next(*opcode);
            packet.bth.solicited = message.solicited && is_last;
            packet.bth.ack_req = is_last;
            if index == 0 {
                let length = message.bytes.len() as u32;
                packet.reth = target.map(|t| roce::wire::Reth { addr: t.addr, rkey: t.rkey, length });
            }
            packet.imm = message.immediate.filter(|_| is_last);
            packet.payload = &message.bytes[at..at + len];
            self.raw.send(self.wire.peer, &packet)?;
            at += len;
        }
        Ok(())
    }
}

/// Plays the connection against the server at `server`.
pub(super) fn replay(
    connection: &Connection,
    mut raw: RawPeer,
    server: SocketAddr,
) -> Result<String, String> {
    let agreement = Agreement::of(connection)?;
    raw.guid = connection.req.ca_guid;
    let offer = Offer {
        retry_count: connection.req.retry_count,
        rnr_retry: connection.req.rnr_retry,
        ack_timeout: connection.req.ack_timeout,
        mtu: connection.req.mtu,
        user_data: Vec::new(),
    };
    let wire = raw.connect(server, &offer)?;
    let received = Assembler::new(false, wire.epsn);
    let mut host = HostModel { raw, wire, received, count: 0 };
    let mut placed = Vec::new();
    let mut alike = 0;
    for (number, message) in connection.messages.iter().enumerate() {
        let numbered = |why: String| format!("message {number}: {why}");
        if message.from_host {
            let target = match message.target {
                Some(target) => {
                    let index = agreement.on_accelerator(target).ok_or("a captured WRITE to no region")?;
                    placed.get(index).copied()
                }
                None => None,
            };
            host.say(message, target)?;
            continue;
        }
        let live = host.receive(TIME_LIMIT)?.ok_or_else(|| numbered("the server says no more".into()))?;
        if let Some(why) = difference(message, &live) {
            return Err(numbered(why));
        }
        if message.is_send() {
            placed = advertised(&live.bytes).map_err(numbered)?;
            let sizes = |regions: &[Placed]| regions.iter().map(|region| region.size).collect::<Vec<_>>();
            if sizes(&placed) != sizes(&agreement.placed) {
                return Err(numbered(format!("the A is {placed:x?} instead of {:x?}", agreement.placed)));
            }
        } else if live.target != message.target {
            return Err(numbered(format!("a WRITE to {:x?} instead of {:x?}", live.target, message.target)));
        }
        alike += 1;
    }
    if let Some(more) = host.receive(SILENCE)? {
        return Err(format!("the server says more: {}", more.name()));
    }
    // NAAICE's server never confirms; a better one does.
    host.raw.disconnect(&host.wire)?;
    Ok(format!("{alike} messages alike"))
}
