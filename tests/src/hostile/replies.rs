//! Peers that answer wrongly or not at all, and acknowledgements from strangers.

use roce::{
    opcode,
    wire::{Aeth, NakCode, Syndrome, mad::CmMessage},
};

use super::{
    bare_qp_server::RW,
    case::{Case, Observation},
    environment::Environment,
    memory::{region, same},
    raw::{Offer, RawPeer, SOON, blank, in_words},
    wire::{Answer, Wire},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "never acknowledges",
        "nothing, to the server's advertisement",
        "DREQ",
        &["retry_exceeded_err", "sessions_failed"],
        |env| unacknowledged(env, |_, _| Ok(())),
    ),
    Case::new(
        "NAK codes 1 to 4 and reserved",
        "instead of acknowledging the advertisement",
        "DREQ",
        &["sessions_failed"],
        |env| {
            let codes = [
                NakCode::InvalidRequest,
                NakCode::RemoteAccess,
                NakCode::RemoteOperation,
                NakCode::InvalidRdRequest,
                NakCode::Reserved(31),
            ];
            let mut answers = Vec::new();
            for code in codes {
                let nak = |peer: &mut RawPeer, wire: &Wire| peer.acknowledge(wire, Syndrome::Nak(code));
                answers.push(unacknowledged(env, nak)?.answer);
            }
            same(answers)
        },
    ),
    Case::new(
        "sequence NAK for ever",
        "1000 of them, to the advertisement",
        "DREQ",
        &["rcvd_seq_err", "retry_exceeded_err"],
        |env| {
            unacknowledged(env, |peer, wire| {
                for _ in 0..1000 {
                    let mut nak = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, wire.epsn.minus(1));
                    nak.aeth = Some(Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 0 });
                    peer.queue(wire.peer, &peer.sealed(wire.peer, &nak))?;
                }
                peer.flush()
            })
        },
    ),
    Case::new(
        "RNR NAK for ever",
        "RNR NAKs of timer code 1 until it gives up",
        "DREQ",
        &["rcvd_rnr_err", "retry_rnr_exceeded_err"],
        rnr_for_ever,
    ),
    Case::new(
        "reserved syndromes",
        "AETH syndromes 0x40 to 0x5f and 0x80 to 0xff",
        "silence",
        &["rx_stray_ack"],
        |env| {
            outstanding(env, |peer, wire| {
                for syndrome in (0x40..0x60).chain(0x80..=0xff) {
                    let mut ack = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, wire.epsn.minus(1));
                    ack.aeth = Some(Aeth { syndrome: Syndrome::Reserved(syndrome), msn: 0 });
                    peer.queue(wire.peer, &peer.sealed(wire.peer, &ack))?;
                }
                peer.flush()
            })
        },
    ),
    Case::new(
        "ACK of what was never sent",
        "ACK, NAK 2 and RNR for PSNs 1, 1000, 2^23 ahead and behind",
        "silence",
        &["rx_stray_ack"],
        |env| {
            outstanding(env, |peer, wire| {
                for distance in [1, 1000, (1 << 23) - 1] {
                    for psn in [wire.epsn.plus(distance), wire.epsn.minus(distance + 1)] {
                        for syndrome in
                            [Syndrome::ACK, Syndrome::Nak(NakCode::RemoteAccess), Syndrome::RnrNak(1)]
                        {
                            let mut ack = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, psn);
                            ack.aeth = Some(Aeth { syndrome, msn: 77 });
                            peer.queue(wire.peer, &peer.sealed(wire.peer, &ack))?;
                        }
                    }
                }
                peer.flush()
            })
        },
    ),
    Case::new(
        "credits and message numbers",
        "ACKs with every credit and random MSNs",
        "silence",
        &[],
        |env| {
            outstanding(env, |peer, wire| {
                for credits in 0..=0x1f {
                    let mut ack = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, wire.epsn.minus(1));
                    ack.aeth = Some(Aeth {
                        syndrome: Syndrome::Ack(credits),
                        msn: peer.random.next_u32() & 0xff_ffff,
                    });
                    peer.send(wire.peer, &ack)?;
                }
                Ok(())
            })
        },
    ),
    Case::new(
        "NAK from another address",
        "NAK 2 and RNR for the packet outstanding",
        "silence",
        &["rx_wrong_source"],
        |env| {
            let mut other = env.attacker()?;
            outstanding(env, |_, wire| {
                for syndrome in [Syndrome::Nak(NakCode::RemoteAccess), Syndrome::RnrNak(0), Syndrome::ACK] {
                    other.acknowledge(wire, syndrome)?;
                }
                Ok(())
            })
        },
    ),
    Case::new(
        "READ responses nobody asked for",
        "FIRST, MIDDLE, LAST and ONLY with right and wrong PSNs",
        "silence",
        &["rx_stray_ack"],
        |env| {
            outstanding(env, |peer, wire| {
                for code in [
                    opcode::READ_RESPONSE_FIRST,
                    opcode::READ_RESPONSE_MIDDLE,
                    opcode::READ_RESPONSE_LAST,
                    opcode::READ_RESPONSE_ONLY,
                ] {
                    for ahead in [0, 1, 1000] {
                        let mut response = blank(code, wire.remote_qpn, wire.epsn.plus(ahead));
                        response.aeth = (code != opcode::READ_RESPONSE_MIDDLE)
                            .then_some(Aeth { syndrome: Syndrome::ACK, msn: 0 });
                        response.payload = &[0xee; 1024];
                        peer.send(wire.peer, &response)?;
                    }
                }
                Ok(())
            })
        },
    ),
    Case::new("flood of congestion notifications", "20000 CNPs", "silence", &["rx_cnp"], |env| {
        let (mut peer, mut wire) = env.connected()?;
        let mut cnp = blank(opcode::CNP, wire.remote_qpn, wire.psn);
        cnp.other = &[0; 16];
        let bytes = peer.sealed(wire.peer, &cnp);
        for _ in 0..20_000 {
            peer.queue(wire.peer, &bytes)?;
        }
        peer.flush()?;
        let answer = peer.verdict(&mut wire)?;
        super::packets::still_alive(env, &mut peer, &mut wire)?;
        Ok(answer.into())
    }),
];

/// A session whose host does not acknowledge the advertisement, but does this. What the server says at last.
fn unacknowledged(
    env: &mut Environment,
    instead: impl FnOnce(&mut RawPeer, &Wire) -> Result<(), String>,
) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    peer.acknowledges = false;
    // 1 ms, so that eight tries take little.
    let offer = Offer { ack_timeout: 8, ..Offer::default() };
    let wire = peer.session(env.server(), &offer, &[region(4096)])?;
    instead(&mut peer, &wire)?;
    last_words(&mut peer)
}

/// What the server says at last.
fn last_words(peer: &mut RawPeer) -> Result<Observation, String> {
    while let Some(mad) = peer.receive_mad(SOON)? {
        if matches!(mad.message, CmMessage::Dreq(_) | CmMessage::Rej(_)) {
            return Ok(in_words(&mad.message).into());
        }
    }
    Ok("silence".into())
}

fn rnr_for_ever(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    peer.acknowledges = false;
    let offer = Offer { rnr_retry: 3, ..Offer::default() };
    let mut wire = peer.session(env.server(), &offer, &[region(4096)])?;
    // Every repetition is refused again.
    for _ in 0..8 {
        let mut nak = blank(opcode::ACKNOWLEDGE, wire.remote_qpn, wire.epsn.minus(1));
        nak.aeth = Some(Aeth { syndrome: Syndrome::RnrNak(1), msn: 0 });
        peer.send(wire.peer, &nak)?;
        peer.receive(&mut wire, std::time::Duration::from_millis(20))?;
    }
    last_words(&mut peer)
}

/// A session whose advertisement is not acknowledged yet when `lies` are told. It must come to no harm by them: a
/// call succeeds afterwards.
fn outstanding(
    env: &mut Environment,
    lies: impl FnOnce(&mut RawPeer, &Wire) -> Result<(), String>,
) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    peer.acknowledges = false;
    let mut wire = peer.session(env.server(), &Offer::default(), &[region(64)])?;
    // The acknowledgement of our own message may come after the advertisement.
    peer.verdict(&mut wire)?;
    lies(&mut peer, &wire)?;
    let answer = peer.verdict(&mut wire)?;
    peer.acknowledges = true;
    peer.acknowledge(&wire, Syndrome::ACK)?;
    if !peer.is_alive(&mut wire, RW)? {
        return Err("the session did not survive".into());
    }
    call_succeeds(&mut peer, &mut wire)?;
    Ok(answer.into())
}

/// Function 1 adds 1 to every byte.
fn call_succeeds(peer: &mut RawPeer, wire: &mut Wire) -> Result<(), String> {
    super::memory::call(peer, wire, mrsp::FunctionCode::constant(1), 0)?;
    while let Some(answer) = peer.receive(wire, SOON)? {
        match answer {
            Answer::Write { imm: Some(0), bytes: 64 } => return Ok(()),
            Answer::Write { imm: Some(code), .. } => return Err(format!("the call failed: {code:#x}")),
            refusal if refusal.is_refusal() => return Err(format!("the call was refused: {refusal}")),
            _ => {}
        }
    }
    Err("the call was not answered".into())
}
