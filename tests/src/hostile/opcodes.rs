//! Requests in an order or of a length that no requester sends.

use roce::{
    opcode,
    wire::{Packet, Reth},
};

use super::{
    bare_qp_server::{RECEIVE, RW},
    case::{Case, Observation, Run, Text},
    environment::Environment,
    memory::{calling, same, unchanged},
    raw::{Offer, SILENCE},
    wire::{Answer, NAK_INVALID, Wire},
};
use crate::slow::SLOW;

const MTU: usize = 1024;

const fn invalid(name: Text, sent: Text, run: Run) -> Case {
    Case::new(name, sent, NAK_INVALID, &["send_invalid_request"], run)
}

pub(super) const CASES: &[Case] = &[
    invalid("MIDDLE or LAST without FIRST", "SEND and WRITE MIDDLE, LAST, LAST with immediate", |env| {
        let sequences: &[&[(u8, usize)]] = &[
            &[(opcode::SEND_MIDDLE, MTU)],
            &[(opcode::SEND_LAST, 64)],
            &[(opcode::SEND_LAST_WITH_IMM, 64)],
            &[(opcode::WRITE_MIDDLE, MTU)],
            &[(opcode::WRITE_LAST, 64)],
            &[(opcode::WRITE_LAST_WITH_IMM, 64)],
        ];
        sequences_refused(env, sequences, 2 * MTU as u32)
    }),
    invalid(
        "a message within a message",
        "FIRST FIRST; SEND in a WRITE; WRITE in a SEND; READ in either",
        |env| {
            let first = (opcode::WRITE_FIRST, MTU);
            let send = (opcode::SEND_FIRST, MTU);
            let sequences: &[&[(u8, usize)]] = &[
                &[first, first],
                &[send, send],
                &[first, (opcode::SEND_ONLY, 8)],
                &[first, (opcode::SEND_LAST, 8)],
                &[first, (opcode::WRITE_ONLY, 8)],
                &[send, (opcode::WRITE_LAST, 8)],
                &[send, (opcode::WRITE_ONLY, 8)],
                &[first, (opcode::READ_REQUEST, 0)],
                &[send, (opcode::READ_REQUEST, 0)],
            ];
            sequences_refused(env, sequences, 2 * MTU as u32)
        },
    ),
    invalid(
        "packets of a wrong size",
        "FIRST and MIDDLE not full, empty LAST, FIRST of a message that one packet holds",
        |env| {
            let first = (opcode::WRITE_FIRST, MTU);
            let sequences: &[&[(u8, usize)]] = &[
                &[(opcode::WRITE_FIRST, 512)],
                &[(opcode::SEND_FIRST, MTU + 4)],
                &[first, (opcode::WRITE_MIDDLE, 512)],
                &[first, (opcode::WRITE_LAST, 0)],
                &[(opcode::WRITE_ONLY, MTU + 4)],
                &[(opcode::SEND_ONLY, MTU + 4)],
            ];
            sequences_refused(env, sequences, 3 * MTU as u32)
        },
    ),
    invalid(
        "length that does not match",
        "WRITE ONLY and LAST shorter and longer than the RETH says, MIDDLE beyond it",
        |env| {
            let first = (opcode::WRITE_FIRST, MTU);
            // The RETH says 1088.
            let sequences: &[&[(u8, usize)]] = &[
                &[(opcode::WRITE_ONLY, 8)],
                &[(opcode::WRITE_ONLY, MTU)],
                &[first, (opcode::WRITE_LAST, 60)],
                &[first, (opcode::WRITE_LAST, 68)],
                &[first, (opcode::WRITE_MIDDLE, MTU)],
            ];
            sequences_refused(env, sequences, MTU as u32 + 64)
        },
    ),
    invalid("SEND longer than the receive", "SEND of 2048 bytes to receives of 1024", |env| {
        sequences_refused(env, &[&[(opcode::SEND_FIRST, MTU), (opcode::SEND_LAST, RECEIVE)]], 0)
    }),
    invalid("atomics and invalidates", "COMPARE_SWAP, FETCH_ADD, SEND with invalidate", atomics),
    Case::silent(
        "opcodes of other services",
        "all opcodes that are neither RC nor UD SEND nor CNP",
        &["rx_malformed"],
        |peer, wire| {
            for code in (0..=255).filter(|code| opcode::info(*code).is_none()) {
                for len in [0, 16, 28, 64] {
                    let mut packet = wire.packet(opcode::SEND_ONLY, wire.psn);
                    packet.bth.opcode = code;
                    packet.payload = &[0xee; 64][..len];
                    peer.queue(wire.peer, &peer.sealed(wire.peer, &packet))?;
                }
            }
            peer.flush()
        },
    ),
    Case::silent(
        "datagrams to a connected queue pair",
        "UD SEND ONLY with the right QPN",
        &["rx_malformed"],
        |peer, wire| {
            let mut packet = wire.packet(opcode::UD_SEND_ONLY, wire.psn);
            packet.deth = Some(roce::wire::Deth { q_key: 0x8001_0000, reserved: 0, src_qp: 1 });
            packet.payload = &[0; 256];
            peer.send(wire.peer, &packet)
        },
    ),
    Case::new(
        "request during a call",
        "WRITE with immediate while the function runs",
        "RNR NAK",
        &["send_rnr_err"],
        |env| {
            let (mut peer, mut wire) = calling(env)?;
            super::memory::call(&mut peer, &mut wire, SLOW, 1)?;
            Ok(peer.verdict(&mut wire)?.into())
        },
    ),
    invalid("more READs than agreed", "400 READs of 4000 bytes at once, 16 agreed", too_many_reads),
];

/// The packet that follows, with `len` bytes of payload.
fn step<'a>(wire: &mut Wire, code: u8, len: usize, announced: u32) -> Packet<'a> {
    let mut packet = wire.next(code);
    let region = wire.regions[RW];
    let info = opcode::info(code).expect("an opcode of this stack");
    packet.reth = info.reth.then_some(Reth { addr: region.addr, rkey: region.rkey, length: announced });
    packet.imm = info.immdt.then_some(1);
    packet.payload = &PATTERN[..len];
    packet
}

/// What the region holds anyway, so that permitted parts of a message change nothing.
const PATTERN: &[u8] = &{
    let mut bytes = [0; MTU + 64];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = super::bare_qp_server::pattern(4096 + at);
        at += 1;
    }
    bytes
};

/// Sequences of opcodes and payload lengths, a connection each, whose last packet is refused.
fn sequences_refused(
    env: &mut Environment,
    sequences: &[&[(u8, usize)]],
    announced: u32,
) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut answers = Vec::new();
    for sequence in sequences {
        let mut wire = peer.connect(env.target(), &Offer::default())?;
        for (code, len) in *sequence {
            let packet = step(&mut wire, *code, *len, announced);
            peer.queue(wire.peer, &peer.sealed(wire.peer, &packet))?;
        }
        peer.flush()?;
        answers.push(peer.verdict(&mut wire)?);
    }
    unchanged(env)?;
    same(answers)
}

fn atomics(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut answers = Vec::new();
    for code in [0x13, 0x14, 0x16, 0x17] {
        let mut wire = peer.connect(env.target(), &Offer::default())?;
        let region = wire.regions[RW];
        let mut headers = region.addr.to_be_bytes().to_vec();
        headers.extend(region.rkey.to_be_bytes());
        headers.resize(28, 0xee);
        let mut packet = wire.next(code);
        packet.other = &headers[..opcode::info(code).expect("known").other];
        peer.send(wire.peer, &packet)?;
        answers.push(peer.verdict(&mut wire)?);
    }
    unchanged(env)?;
    same(answers)
}

fn too_many_reads(env: &mut Environment) -> Result<Observation, String> {
    let (mut peer, mut wire) = env.connected()?;
    for _ in 0..400 {
        let packet = step(&mut wire, opcode::READ_REQUEST, 0, 4000);
        // Each READ takes as many PSNs as its response has packets.
        wire.psn = wire.psn.plus(3);
        peer.queue(wire.peer, &peer.sealed(wire.peer, &packet))?;
    }
    peer.flush()?;
    let mut responses = 0;
    while let Some(answer) = peer.receive(&mut wire, SILENCE * 5)? {
        match answer {
            Answer::Read(_) => responses += 1,
            refusal if refusal.is_refusal() => {
                return Ok(Observation::noted(refusal.to_string(), format!("after {responses} packets")));
            }
            _ => {}
        }
    }
    Ok(Observation::noted("READ response", format!("{responses} packets")))
}
