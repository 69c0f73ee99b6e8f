//! Connection management: messages that are none, out of turn, or about the connections of others.

use roce::wire::mad::{Answered, CmMessage, CommIds, Dreq, MAD_LEN, Mad, Mra};
use std::time::Duration;

use super::{
    case::{Case, Observation},
    packets::{silent, still_alive},
    raw::{Offer, RawPeer, SILENCE, rej, rep},
    wire::Wire,
};

const MALFORMED: &[&str] = &["cm_rx_malformed"];

pub(super) const CASES: &[Case] = &[
    Case::silent(
        "no messages",
        "wrong base version, class, class version, method; all zeros, all ones",
        MALFORMED,
        |peer, wire| {
            let right = peer.request(wire.to, &Offer::default()).encode();
            for (at, value) in [(0, 2), (1, 3), (1, 0x81), (2, 1), (3, 1), (3, 0x81)] {
                let mut wrong = right;
                wrong[at] = value;
                peer.send_mad_bytes(wire.to.ip(), &wrong)?;
            }
            peer.send_mad_bytes(wire.to.ip(), &[0; MAD_LEN])?;
            peer.send_mad_bytes(wire.to.ip(), &[0xff; MAD_LEN])?;
            peer.flush()
        },
    ),
    Case::silent(
        "unknown attributes",
        "SIDR_REQ, SIDR_REP, LAP, APR and all IDs from 0 to 0x200 but the known",
        MALFORMED,
        |peer, wire| {
            let right = peer.request(wire.to, &Offer::default()).encode();
            for attribute in (0..0x200_u16).filter(|id| !(0x10..=0x16).contains(id)) {
                let mut wrong = right;
                wrong[16..18].copy_from_slice(&attribute.to_be_bytes());
                peer.send_mad_bytes(wire.to.ip(), &wrong)?;
            }
            peer.flush()
        },
    ),
    Case::new(
        "slow handshake",
        "RTU a second after the REP, which is repeated meanwhile",
        "REP",
        &["cm_tx_retries"],
        |env| {
            let mut peer = env.attacker()?;
            let (req, rep) = peer.half_open(env.target(), &Offer::default())?;
            let mut wire = Wire::new(env.target(), &req, &rep);
            std::thread::sleep(Duration::from_secs(1));
            let answer = peer.mad_answer(SILENCE)?;
            peer.send_mad(wire.to.ip(), &Mad::new(req.tid, CmMessage::Rtu(wire.ids)))?;
            still_alive(env, &mut peer, &mut wire)?;
            Ok(answer.into())
        },
    ),
    Case::new("no RTU ever", "a REQ and nothing more for 13 s", "REJ 3", &["cm_tx_retries"], |env| {
        let mut peer = env.attacker()?;
        peer.half_open(env.server(), &Offer::default())?;
        let mut last = None;
        while let Some(mad) = peer.receive_mad(Duration::from_secs(3))? {
            last = Some(super::raw::in_words(&mad.message));
        }
        Ok(last.unwrap_or_else(|| "silence".into()).into())
    })
    .long(),
    Case::new(
        "goodbyes for others",
        "DREQ, REJ, RTU, DREP, MRA with right IDs, from another address",
        "silence",
        &["cm_rx_wrong_source"],
        |env| {
            let mut other = env.attacker()?;
            silent(env, |_, wire| {
                for message in about(wire.ids, wire.remote_qpn) {
                    other.send_mad(wire.to.ip(), &Mad::new(wire.tid, message))?;
                }
                quiet(&mut other)
            })
        },
    ),
    Case::new(
        "goodbyes with guessed IDs",
        "REJ, RTU, DREP, MRA, REP with 20000 random IDs",
        "silence",
        &["cm_rx_unknown_id"],
        |env| {
            let mut other = env.attacker()?;
            silent(env, |_, wire| {
                for _ in 0..20_000 / 4 {
                    let ids = CommIds { local: other.random.next_u32(), remote: other.random.next_u32() | 1 };
                    for message in about(ids, wire.remote_qpn) {
                        if !matches!(message, CmMessage::Dreq(_)) {
                            let mad = Mad::new(other.random.next_u64(), message);
                            other.send_mad_bytes(wire.to.ip(), &mad.encode())?;
                        }
                    }
                }
                other.flush()?;
                quiet(&mut other)
            })
        },
    ),
    Case::new(
        "DREQ for nobody",
        "a DREQ with IDs that do not exist, which a forgetful server confirms",
        "DREP",
        &["cm_rx_unknown_id"],
        |env| {
            let mut peer = env.attacker()?;
            let dreq = Dreq { ids: CommIds { local: 7, remote: peer.random.next_u32() }, remote_qpn: 9 };
            let to = env.server().ip();
            peer.send_mad(to, &Mad::new(1, CmMessage::Dreq(dreq)))?;
            Ok(peer.mad_answer(SILENCE)?.into())
        },
    ),
    Case::silent(
        "DREQ with a wrong QPN",
        "a DREQ of the peer itself for another queue pair",
        &["cm_rx_unexpected"],
        |peer, wire| {
            for remote_qpn in [0, 1, wire.remote_qpn ^ 1, 0xff_ffff] {
                let dreq = CmMessage::Dreq(Dreq { ids: wire.ids, remote_qpn });
                peer.send_mad(wire.to.ip(), &Mad::new(wire.tid, dreq))?;
            }
            quiet(peer)
        },
    ),
    Case::silent(
        "REP unasked",
        "REPs for an established connection, from its peer",
        &["cm_rx_unexpected"],
        |peer, wire| {
            let req = peer.request(wire.to, &Offer::default());
            let CmMessage::Req(req) = req.message else { return Err("no REQ".into()) };
            for qpn in [wire.qpn, 0, 0xff_ffff] {
                let rep = rep(wire.ids, qpn, req.starting_psn, req.ca_guid);
                peer.send_mad(wire.to.ip(), &Mad::new(wire.tid, CmMessage::Rep(rep)))?;
            }
            quiet(peer)
        },
    ),
    Case::new("MRA flood", "20000 MRAs of the longest timeout for a REP", "silence", &["cm_rx_mra"], |env| {
        let mut peer = env.attacker()?;
        let (req, rep) = peer.half_open(env.target(), &Offer::default())?;
        let mut wire = Wire::new(env.target(), &req, &rep);
        let mra = Mra { ids: wire.ids, about: Answered::Rep, service_timeout: 31 };
        for _ in 0..20_000 {
            peer.send_mad_bytes(wire.to.ip(), &Mad::new(req.tid, CmMessage::Mra(mra)).encode())?;
        }
        peer.flush()?;
        let answer = peer.mad_answer(SILENCE)?;
        peer.send_mad(wire.to.ip(), &Mad::new(req.tid, CmMessage::Rtu(wire.ids)))?;
        still_alive(env, &mut peer, &mut wire)?;
        Ok(answer.into())
    }),
    Case::new(
        "more sessions than one address may",
        "300 sessions that are never used nor left, 256 permitted",
        "REJ 28",
        &["sessions_rejected"],
        |env| {
            let mut peer = env.attacker()?;
            let mut wires = Vec::new();
            let refusal = loop {
                match peer.connect(env.server(), &Offer::default()) {
                    Ok(wire) => wires.push(wire),
                    Err(why) => break why,
                }
                if wires.len() == 300 {
                    break "none".into();
                }
            };
            for wire in &wires {
                peer.send_mad(wire.to.ip(), &wire.disconnect_request())?;
            }
            Ok(Observation::noted(refusal, format!("after {} sessions", wires.len())))
        },
    )
    .growth(24),
];

/// Messages that would end or change a connection.
fn about(ids: CommIds, remote_qpn: u32) -> [CmMessage; 5] {
    [
        CmMessage::Dreq(Dreq { ids, remote_qpn }),
        CmMessage::Rej(rej(ids, Answered::Rep, 28)),
        CmMessage::Rtu(ids),
        CmMessage::Drep(ids),
        CmMessage::Mra(Mra { ids, about: Answered::Rep, service_timeout: 31 }),
    ]
}

/// Nothing may come back.
fn quiet(peer: &mut RawPeer) -> Result<(), String> {
    match peer.mad_answer(SILENCE)?.as_str() {
        "silence" => Ok(()),
        other => Err(format!("answered by {other}")),
    }
}
