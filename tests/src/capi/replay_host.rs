//! A captured connection with this library's C host in the place of NAAICE's: a program does what NAAICE's did, this side
//! answers with what NAAICE's server answered, and every message of the host is held against the captured one.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use roce::{
    psn::Psn,
    wire::{
        Aeth, Packet, ROCE_PORT, Syndrome,
        mad::{Answered, CmMessage as Cm, CommIds, Mad, Rej, Rep, Req},
    },
};

use super::{
    capture::{Assembler, Connection, Message},
    captured::{Agreement, INTERNAL, Region, difference, requested},
    process::Process,
};
use crate::hostile::{RawPeer, blank};

/// How long the program may take for its next message.
const TIME_LIMIT: Duration = Duration::from_secs(10);
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);
const INVALID_MTU: u16 = 26;
/// NAAICE's server's, of the capture: path MTU 1024.
const MTU: u8 = 3;
const OUR_QPN: u32 = 0x11;
const FIRST_PSN: u32 = 0xff_fff8;

/// The raw end that stands for NAAICE's server.
struct ServerModel {
    raw: RawPeer,
    host: SocketAddr,
    req: Req,
    received: Assembler,
    count: u32,
    next: Psn,
}

impl ServerModel {
    /// Takes a connection in, as the captured server did.
    fn accept(mut raw: RawPeer, host: IpAddr, connection: &Connection) -> Result<Self, String> {
        // The address's owner by all that the host knows, so not of this project's stack.
        raw.guid = connection.server_guid;
        loop {
            let mad = raw.receive_mad(TIME_LIMIT)?.ok_or("the program does not connect")?;
            let Cm::Req(req) = mad.message else { continue };
            let ids = CommIds { local: 0x5a5a, remote: req.local_comm_id };
            if req.mtu > MTU {
                let mut ari = [0; 72];
                ari[0] = MTU << 4;
                let private_data = [0; Rej::PRIVATE];
                let about = Answered::Req;
                let rej = Rej { ids, about, ari_len: 1, reason: INVALID_MTU, ari, private_data };
                raw.send_mad(host, &Mad::new(mad.tid, Cm::Rej(rej)))?;
                continue;
            }
            let rep = Rep {
                ids,
                q_key: 0,
                qpn: OUR_QPN,
                starting_psn: Psn::new(FIRST_PSN),
                responder_resources: 1,
                initiator_depth: 1,
                target_ack_delay: 15,
                failover: 0,
                flow_control: false,
                rnr_retry: 6,
                srq: false,
                ca_guid: raw.guid,
                private_data: [0; Rep::PRIVATE],
            };
            raw.send_mad(host, &Mad::new(mad.tid, Cm::Rep(rep)))?;
            let next = req.starting_psn;
            let received = Assembler::new(true, Psn::new(FIRST_PSN));
            return Ok(Self { raw, host: SocketAddr::new(host, ROCE_PORT), req, received, count: 0, next });
        }
    }

    /// The host's next message, acknowledged at once, as a device does.
    fn receive(&mut self) -> Result<Message, String> {
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let bytes = self.raw.receive_bytes(left)?.ok_or("the program says no more")?;
            let Ok(packet) = Packet::decode(&bytes) else { continue };
            if packet.bth.dest_qp != OUR_QPN {
                continue;
            }
            let message = self.received.take(&packet);
            self.count += u32::from(message.is_some());
            if packet.bth.ack_req || message.is_some() {
                let mut ack = blank(roce::opcode::ACKNOWLEDGE, self.req.qpn, self.received.last());
                ack.bth.ack_req = false;
                ack.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: self.count & Psn::MASK });
                self.raw.send(self.host, &ack)?;
            }
            if let Some(message) = message {
                return Ok(message);
            }
        }
    }

    /// Says what the captured server said, to the region of the program that stands for the captured one.
    fn say(&mut self, message: &Message, target: Option<(u64, u32)>) -> Result<(), String> {
        let mut at = 0;
        for (index, opcode) in message.opcodes.iter().enumerate() {
            let is_last = index + 1 == message.opcodes.len();
            let len = if is_last { message.bytes.len() - at } else { 128 << MTU };
            let mut packet = blank(*opcode, self.req.qpn, self.next);
            packet.bth.solicited = message.solicited && is_last;
            packet.bth.ack_req = is_last;
            if index == 0 {
                let length = message.bytes.len() as u32;
                packet.reth = target.map(|(addr, rkey)| roce::wire::Reth { addr, rkey, length });
            }
            packet.imm = message.immediate.filter(|_| is_last);
            packet.payload = &message.bytes[at..at + len];
            self.raw.send(self.host, &packet)?;
            self.next = self.next.plus(1);
            at += len;
        }
        Ok(())
    }
}

/// Entries must be the captured ones, but for where the program has its memory.
fn same_request(captured: &[Region], live: &[Region]) -> Result<(), String> {
    let without = |region: &Region| (region.flags, region.wanted, region.size);
    if captured.iter().map(without).ne(live.iter().map(without)) {
        return Err(format!("the AAR is {live:x?} instead of {captured:x?}"));
    }
    let internal = live.iter().find(|r| r.flags & INTERNAL != 0 && (r.addr, r.rkey) != (0, 0));
    internal.map_or(Ok(()), |region| Err(format!("an internal region tells of memory: {region:x?}")))
}

/// What the REQ says, as NAAICE's host says it.
fn same_asking(captured: &Req, live: &Req) -> Result<(), String> {
    let what = |req: &Req| {
        let private = &req.private_data[36..];
        (
            req.service_id,
            req.retry_count,
            req.rnr_retry,
            req.transport,
            req.p_key,
            req.srq,
            private.iter().all(|b| *b == 0),
        )
    };
    if what(captured) == what(live) {
        Ok(())
    } else {
        Err(format!("the REQ says {:?} instead of {:?}", what(live), what(captured)))
    }
}

/// Plays the connection with `command`, a program that is given its scenario.
pub(super) fn replay(
    connection: &Connection,
    command: &mut Command,
    folder: &std::path::Path,
    (server, host): (IpAddr, IpAddr),
) -> Result<String, String> {
    let raw = RawPeer::open(server, 77)?;
    let mut program = Process::start(command, folder)?;
    let played = exchange(connection, raw, host);
    let ended = program.succeed(PROGRAM_LIMIT);
    match (played, ended) {
        (Ok(count), Ok(_)) => Ok(format!("{count} messages alike")),
        (Err(why), Ok(_)) => Err(why),
        (Ok(_), Err(program)) => Err(format!("the program: {program}")),
        (Err(why), Err(program)) => Err(format!("{why}; the program: {program}")),
    }
}

fn exchange(connection: &Connection, raw: RawPeer, host: IpAddr) -> Result<usize, String> {
    let agreement = Agreement::of(connection)?;
    let mut server = ServerModel::accept(raw, host, connection)?;
    same_asking(&connection.req, &server.req)?;
    let mut live_regions = Vec::new();
    let mut alike = 0;
    for (number, message) in connection.messages.iter().enumerate() {
        let numbered = |why: String| format!("message {number}: {why}");
        if !message.from_host {
            let target = message.target.map(|target| {
                let index = agreement.on_host(target).ok_or("a captured WRITE to no region");
                index.map(|index: usize| {
                    let region: &Region = &live_regions[index];
                    (region.addr, region.rkey)
                })
            });
            server.say(message, target.transpose()?)?;
            continue;
        }
        let live = server.receive().map_err(numbered)?;
        if let Some(why) = difference(message, &live) {
            return Err(numbered(why));
        }
        if message.is_send() {
            live_regions = requested(&live.bytes).map_err(numbered)?;
            same_request(&agreement.requested, &live_regions).map_err(numbered)?;
        } else if live.target != message.target {
            return Err(numbered(format!("a WRITE to {:x?} instead of {:x?}", live.target, message.target)));
        }
        alike += 1;
    }
    disconnect(&mut server)?;
    Ok(alike)
}

/// The program ends by a DREQ; NAAICE's server never answers it, and neither does this one.
fn disconnect(server: &mut ServerModel) -> Result<(), String> {
    server.raw.polite = false;
    let end = Instant::now() + TIME_LIMIT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match server.raw.receive_mad(left)? {
            Some(mad) if matches!(mad.message, Cm::Dreq(dreq) if dreq.remote_qpn == OUR_QPN) => return Ok(()),
            Some(_) => {}
            None => return Err("no DREQ at the end".into()),
        }
    }
}
