//! Datagrams that are no packets, or not for whom they name, or not from whom they claim.

use roce::{
    opcode,
    psn::Psn,
    wire::{Bth, Reth},
};

use super::{
    bare_qp_server::{LEN, RW},
    case::{Case, Observation},
    environment::Environment,
    memory::{same, unchanged},
    raw::{Offer, RawPeer, SILENCE},
    wire::{Answer, NAK_INVALID, NAK_SEQUENCE, Wire},
};

const MALFORMED: &[&str] = &["rx_malformed"];

pub(super) const CASES: &[Case] = &[
    Case::silent(
        "pad longer than the payload",
        "WRITE and SEND with 0 to 2 bytes and a pad count above",
        MALFORMED,
        |peer, wire| {
            for (pad, len) in [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)] {
                for opcode in [opcode::WRITE_ONLY, opcode::SEND_ONLY] {
                    let body = padded(wire, opcode, pad, len);
                    peer.queue(wire.peer, &peer.seal(wire.peer, &body))?;
                }
            }
            peer.flush()
        },
    ),
    Case::new(
        "forged pad",
        "WRITE of 4 bytes of which the pad count takes 1 to 3",
        NAK_INVALID,
        &["send_invalid_request"],
        |env| {
            let mut peer = env.attacker()?;
            let mut answers = Vec::new();
            for pad in 1..=3 {
                let mut wire = peer.connect(env.target(), &Offer::default())?;
                let body = padded(&wire, opcode::WRITE_ONLY, pad, 4);
                peer.raw(wire.peer, &peer.seal(wire.peer, &body))?;
                answers.push(peer.verdict(&mut wire)?);
            }
            unchanged(env)?;
            same(answers)
        },
    ),
    Case::silent("datagrams of 0 to 40 bytes", "random bytes", MALFORMED, |peer, wire| {
        for len in 0..=40 {
            for _ in 0..10 {
                let mut bytes = vec![0; len];
                peer.random.fill(&mut bytes);
                peer.queue(wire.peer, &bytes)?;
            }
        }
        peer.flush()
    }),
    Case::silent(
        "truncated headers",
        "a WRITE with immediate cut after every byte of its headers, ICRC right",
        MALFORMED,
        |peer, wire| {
            let whole = padded(wire, opcode::WRITE_ONLY_WITH_IMM, 0, 4);
            for len in 0..whole.len() - 4 {
                peer.queue(wire.peer, &peer.seal(wire.peer, &whole[..len]))?;
            }
            peer.flush()
        },
    ),
    Case::silent(
        "wrong ICRC",
        "a WRITE with each bit of it flipped in turn",
        &["rx_icrc_encapsulated"],
        |peer, wire| {
            let right = peer.seal(wire.peer, &padded(wire, opcode::WRITE_ONLY, 0, 4));
            for bit in 0..right.len() * 8 {
                let mut wrong = right.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                // Bits that routers change are not covered (IBTA vol. 1, A17.3).
                if bit / 8 != 4 {
                    peer.queue(wire.peer, &wrong)?;
                }
            }
            peer.flush()
        },
    ),
    Case::silent(
        "P_Key and version",
        "P_Key 0, 0x1234, 0x7ffe; transport version 1 to 15",
        MALFORMED,
        |peer, wire| {
            for p_key in [0, 0x1234, 0x7ffe] {
                spoiled(peer, wire, |bth| bth.p_key = p_key)?;
            }
            (1..=15).try_for_each(|tver| spoiled(peer, wire, |bth| bth.tver = tver))
        },
    ),
    Case::silent(
        "queue pairs of nobody",
        "WRITE to QP 0, 1, 0xffffff and 1000 random ones",
        &["rx_unknown_qp", "rx_malformed"],
        |peer, wire| {
            for n in 0..1000 {
                let qpn = match n {
                    0 | 1 => n,
                    2 => 0xff_ffff,
                    _ => peer.random.next_u32() & 0xff_ffff,
                };
                spoiled(peer, wire, |bth| bth.dest_qp = qpn)?;
            }
            Ok(())
        },
    ),
    Case::new(
        "64 KiB datagrams",
        "WRITE ONLY of 60000 bytes; 100 of 65000 random bytes",
        NAK_INVALID,
        &["send_invalid_request"],
        |env| {
            let (mut peer, mut wire) = env.connected()?;
            for _ in 0..100 {
                let mut bytes = vec![0; 65_000];
                peer.random.fill(&mut bytes);
                peer.raw(wire.peer, &bytes)?;
            }
            peer.raw(wire.peer, &peer.seal(wire.peer, &padded(&wire, opcode::WRITE_ONLY, 0, 60_000)))?;
            let answer = peer.verdict(&mut wire)?;
            unchanged(env)?;
            Ok(answer.into())
        },
    ),
    Case::new(
        "spoofed source",
        "WRITE with the right QPN, PSN and RKey from another address",
        "silence",
        &["rx_wrong_source"],
        |env| {
            let mut other = env.attacker()?;
            silent(env, |_, wire| {
                let body = padded(wire, opcode::WRITE_ONLY, 0, 4);
                for ahead in 0..64 {
                    let mut body = body.clone();
                    renumber(&mut body, wire.psn.plus(ahead));
                    other.queue(wire.peer, &other.seal(wire.peer, &body))?;
                }
                other.flush()
            })
        },
    ),
    Case::new(
        "PSN ahead",
        "WRITE 1, 1000, 2^23 - 1 ahead of the expected PSN",
        NAK_SEQUENCE,
        &["out_of_seq_request", "send_seq_err"],
        |env| out_of_order(env, |expected| [1, 1000, (1 << 23) - 1].map(|n| expected.plus(n)).into()),
    ),
    Case::new(
        "PSN behind",
        "WRITE 1, 1000, 2^23 behind the expected PSN",
        "ACK",
        &["duplicate_request"],
        |env| out_of_order(env, |expected| [1, 1000, 1 << 23].map(|n| expected.minus(n)).into()),
    ),
    Case::new(
        "duplicate with other bytes",
        "a WRITE again, with the same PSN and other bytes",
        "ACK",
        &["duplicate_request"],
        duplicate,
    ),
    Case::silent(
        "READ behind, never asked before",
        "READ of more packets than were executed, of a forged RKey",
        &["duplicate_request"],
        |peer, wire| {
            let region = wire.regions[RW];
            for (behind, reth) in [
                (1, Reth { addr: region.addr, rkey: region.rkey, length: LEN as u32 }),
                (1 << 23, Reth { addr: region.addr, rkey: region.rkey ^ 1, length: 8 }),
                (500, Reth { addr: region.addr, rkey: region.rkey, length: u32::MAX }),
            ] {
                let mut packet = wire.packet(opcode::READ_REQUEST, wire.psn.minus(behind));
                packet.reth = Some(reth);
                peer.send(wire.peer, &packet)?;
            }
            Ok(())
        },
    ),
];

/// A request of `len` bytes of payload, pad included, that would be permitted but for its pad.
fn padded(wire: &Wire, opcode: u8, pad: u8, len: usize) -> Vec<u8> {
    let region = wire.regions[RW];
    let mut packet = wire.packet(opcode, wire.psn);
    packet.bth.pad = pad;
    let mut body = packet.bth.encode().to_vec();
    if opcode != opcode::SEND_ONLY {
        body.extend(Reth { addr: region.addr, rkey: region.rkey, length: len as u32 }.encode());
    }
    if opcode == opcode::WRITE_ONLY_WITH_IMM {
        body.extend([0; 4]);
    }
    body.resize(body.len() + len, 0xee);
    body
}

fn renumber(body: &mut [u8], psn: Psn) {
    if let Some(bth) = body.first_chunk_mut::<{ Bth::LEN }>() {
        *bth = Bth { psn, ..Bth::decode(bth) }.encode();
    }
}

/// A WRITE that would be permitted but for its base header.
fn spoiled(peer: &mut RawPeer, wire: &Wire, spoil: impl FnOnce(&mut Bth)) -> Result<(), String> {
    let mut body = padded(wire, opcode::WRITE_ONLY, 0, 4);
    if let Some(first) = body.first_chunk_mut::<{ Bth::LEN }>() {
        let mut bth = Bth::decode(first);
        spoil(&mut bth);
        *first = bth.encode();
    }
    peer.raw(wire.peer, &peer.seal(wire.peer, &body))
}

/// Sends what nobody is to answer. The connection it is about lives on, and no byte changes.
pub(super) fn silent(
    env: &mut Environment,
    send: impl FnOnce(&mut RawPeer, &mut Wire) -> Result<(), String>,
) -> Result<Observation, String> {
    let (mut peer, mut wire) = env.connected()?;
    send(&mut peer, &mut wire)?;
    let answer = peer.verdict(&mut wire)?;
    unchanged(env)?;
    still_alive(env, &mut peer, &mut wire)?;
    Ok(answer.into())
}

pub(super) fn still_alive(env: &mut Environment, peer: &mut RawPeer, wire: &mut Wire) -> Result<(), String> {
    if !peer.is_alive(wire, RW)? {
        return Err("the connection did not survive".into());
    }
    // That it lives was shown by a WRITE.
    env.victim.changed().map(drop)
}

/// WRITEs with PSNs that are not expected.
fn out_of_order(env: &mut Environment, psns: fn(Psn) -> Vec<Psn>) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut answers = Vec::new();
    let first = peer.connect(env.target(), &Offer::default())?;
    for n in 0..psns(first.psn).len() {
        let mut wire = peer.connect(env.target(), &Offer::default())?;
        let mut body = padded(&wire, opcode::WRITE_ONLY, 0, 4);
        renumber(&mut body, psns(wire.psn)[n]);
        peer.raw(wire.peer, &peer.seal(wire.peer, &body))?;
        answers.push(peer.verdict(&mut wire)?);
        unchanged(env)?;
        still_alive(env, &mut peer, &mut wire)?;
    }
    same(answers)
}

fn duplicate(env: &mut Environment) -> Result<Observation, String> {
    let (mut peer, mut wire) = env.connected()?;
    let region = wire.regions[RW];
    let reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: 8 });
    let mut packet = wire.next(opcode::WRITE_ONLY);
    (packet.reth, packet.payload) = (reth, b"original");
    peer.send(wire.peer, &packet)?;
    peer.verdict(&mut wire)?;
    packet.payload = b"imposter";
    peer.send(wire.peer, &packet)?;
    let answer = peer.verdict(&mut wire)?;
    let mut packet = wire.next(opcode::READ_REQUEST);
    packet.reth = reth;
    peer.send(wire.peer, &packet)?;
    let there = peer.receive(&mut wire, SILENCE * 10)?;
    env.victim.changed()?;
    match there {
        Some(Answer::Read(bytes)) if bytes == b"original" => Ok(answer.into()),
        other => Err(format!("the region then holds {other:?}")),
    }
}
