//! What an attacker says to the naa server as a host, and what it hears.

use std::time::{Duration, Instant};

use mrsp::{Message as Mrsp, NaaAddress, RegionFlags, RegionRequest, RemoteRegion, codec};
use roce::{
    opcode,
    wire::{Reth, mad::CmMessage},
};

use super::{
    case::Observation,
    environment::Environment,
    memory::same,
    raw::{Offer, RawPeer, SILENCE, SOON},
    wire::{Answer, Wire},
};

/// How a conversation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The server disconnects.
    Disconnected,
    /// Nothing comes any more.
    Quiet,
    /// A call was answered.
    Response,
}

/// A region with every field as given.
pub(super) fn entry(flags: u8, naa_addr: u64, addr: u64, size: u32) -> RegionRequest {
    RegionRequest {
        flags: RegionFlags::from_bits(flags),
        naa_addr: NaaAddress::truncate(naa_addr),
        host: RemoteRegion { addr, rkey: 0x77, size },
    }
}

/// An ordinary region, sent and returned.
pub(super) fn plain(size: u32) -> RegionRequest {
    entry(RegionFlags::INPUT.union(RegionFlags::OUTPUT).bits(), 0, 0x10_0000, size)
}

pub(super) fn request(regions: &[RegionRequest]) -> Vec<u8> {
    codec::encode_request(regions).expect("few regions")
}

/// A request for as many regions as `count` says.
pub(super) fn request_of(count: u8) -> Vec<u8> {
    request(&vec![plain(64); count.into()])
}

/// A SEND of as many packets as it takes.
pub(super) fn say(peer: &mut RawPeer, wire: &mut Wire, message: &[u8]) -> Result<(), String> {
    let packets = message.len().div_ceil(wire.mtu).max(1);
    for (n, payload) in (0..packets).zip(message.chunks(wire.mtu).chain([&[][..]])) {
        let code = match (n == 0, n + 1 == packets) {
            (true, true) => opcode::SEND_ONLY,
            (true, false) => opcode::SEND_FIRST,
            (false, false) => opcode::SEND_MIDDLE,
            (false, true) => opcode::SEND_LAST,
        };
        let mut packet = wire.next(code);
        packet.bth.ack_req = n + 1 == packets;
        packet.bth.solicited = n + 1 == packets;
        packet.payload = payload;
        let bytes = peer.sealed(wire.peer, &packet);
        peer.queue(wire.peer, &bytes)?;
    }
    peer.flush()
}

/// A WRITE_WITH_IMM of no bytes, whatever the immediate means.
pub(super) fn immediate(peer: &mut RawPeer, wire: &mut Wire, imm: u32) -> Result<(), String> {
    let region = wire.regions.first().copied().unwrap_or_default();
    let mut packet = wire.next(opcode::WRITE_ONLY_WITH_IMM);
    packet.bth.solicited = true;
    packet.reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: 0 });
    packet.imm = Some(imm);
    peer.send(wire.peer, &packet)
}

/// A WRITE of one packet to the start of a region.
pub(super) fn fill(peer: &mut RawPeer, wire: &mut Wire, region: usize, bytes: &[u8]) -> Result<(), String> {
    let to = *wire.regions.get(region).ok_or("no such region")?;
    let mut packet = wire.next(opcode::WRITE_ONLY);
    packet.reth = Some(Reth { addr: to.addr, rkey: to.rkey, length: bytes.len() as u32 });
    packet.payload = bytes;
    peer.send(wire.peer, &packet)
}

/// What comes on a connection, in words: `A`, `ERR 2`, `success`, `code 0x10`, refusals, `DREQ`; `silence` if nothing.
pub(super) fn listen(peer: &mut RawPeer, wire: &mut Wire, until: Until) -> Result<String, String> {
    let limit = if until == Until::Quiet { SILENCE } else { SOON };
    let mut said: Vec<String> = Vec::new();
    let mut deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(answer) = peer.receive(wire, Duration::from_millis(2))? {
            let response = matches!(answer, Answer::Write { imm: Some(_), .. });
            if let Some(word) = in_words(&answer) {
                said.push(word);
                deadline = Instant::now() + limit;
            }
            if response && until == Until::Response {
                break;
            }
        }
        if let Some(mad) = peer.receive_mad(Duration::ZERO)?
            && matches!(&mad.message, CmMessage::Dreq(dreq) if dreq.ids.remote == wire.ids.local)
        {
            said.push("DREQ".into());
            break;
        }
    }
    said.dedup();
    Ok(if said.is_empty() { "silence".into() } else { said.join(", ") })
}

fn in_words(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Ack { .. } => None,
        Answer::Send(bytes) => Some(match codec::decode(bytes) {
            Ok(Mrsp::Advertisement(_)) => "A".into(),
            Ok(Mrsp::Error(code)) => format!("ERR {}", u8::from(code)),
            other => format!("{other:?}"),
        }),
        Answer::Write { imm: None, .. } => None,
        Answer::Write { imm: Some(0), .. } => Some("success".into()),
        Answer::Write { imm: Some(code), .. } => Some(format!("code {:#04x}", code >> 8)),
        other => Some(other.to_string()),
    }
}

/// Each message on a connection of its own, after those that make a session if `ready`.
pub(super) fn messages(
    env: &mut Environment,
    ready: bool,
    until: Until,
    messages: impl IntoIterator<Item = Vec<u8>>,
) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let server = env.server();
    let mut answers = Vec::new();
    for message in messages {
        let offer = Offer::default();
        let mut wire =
            if ready { peer.session(server, &offer, &[plain(4096)])? } else { peer.connect(server, &offer)? };
        say(&mut peer, &mut wire, &message)?;
        let answer = listen(&mut peer, &mut wire, until)?;
        if !answer.ends_with("DREQ") {
            peer.disconnect(&wire)?;
        }
        answers.push(answer);
    }
    same(answers)
}

/// Each step on one session: all must be answered alike, and the session must be good for a call afterwards.
pub(super) fn steps(
    env: &mut Environment,
    regions: &[RegionRequest],
    steps: impl IntoIterator<Item = impl FnOnce(&mut RawPeer, &mut Wire) -> Result<(), String>>,
) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut wire = peer.session(env.server(), &Offer::default(), regions)?;
    let mut answers = Vec::new();
    for step in steps {
        step(&mut peer, &mut wire)?;
        answers.push(listen(&mut peer, &mut wire, Until::Response)?);
    }
    immediate(&mut peer, &mut wire, 0x83)?;
    let last = listen(&mut peer, &mut wire, Until::Response)?;
    if last != "success" {
        return Err(format!("the next call of the session was answered {last:?}"));
    }
    peer.disconnect(&wire)?;
    same(answers)
}
