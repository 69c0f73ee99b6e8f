//! Requests with nonsense in them, repeated ones, and those that claim to be another's.

use roce::wire::mad::{CmMessage, CommIds, Dreq, Mad, Req};

use super::{
    case::{Case, Observation},
    environment::Environment,
    memory::same,
    packets::still_alive,
    raw::{Offer, SILENCE},
    wire::Wire,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "REQ for other services",
        "service IDs of UDP port space, of other ports, 0, all ones",
        "REJ 8",
        &["cm_no_listener"],
        |env| {
            rejected(
                env,
                &[
                    |req| req.service_id ^= 0x0011_0000,
                    |req| req.service_id ^= 1,
                    |req| req.service_id = 0,
                    |req| req.service_id = u64::MAX,
                ],
            )
        },
    ),
    Case::new("REQ for other transports", "transport 1, 2, 3", "REJ 9", &["cm_tx_rej"], |env| {
        rejected(env, &[|req| req.transport = 1, |req| req.transport = 2, |req| req.transport = 3])
    }),
    Case::new("REQ with nonsense MTUs", "MTU codes 0, 6, 7, 15", "REJ 26", &["cm_tx_rej"], |env| {
        rejected(env, &[|req| req.mtu = 0, |req| req.mtu = 6, |req| req.mtu = 7, |req| req.mtu = 15])
    }),
    Case::new(
        "REQ with nonsense identity",
        "QPN 0 and 1; no header of rdma_cm, one of IP version 0, 5, 15",
        "REJ 5",
        &["cm_tx_rej"],
        |env| {
            rejected(
                env,
                &[
                    |req| req.qpn = 0,
                    |req| req.qpn = 1,
                    |req| req.private_data[0] = 0xff,
                    |req| req.private_data[1] = 0,
                    |req| req.private_data[1] = 0x50,
                    |req| req.private_data[1] = 0xf0,
                ],
            )
        },
    ),
    Case::new(
        "REQ with extreme values",
        "timeouts 0 and 31, retries 0 and 7, depths 0 and 255, LIDs, GIDs and P_Key of nobody",
        "REP",
        &["sessions_accepted"],
        |env| {
            rejected(
                env,
                &[
                    |req| (req.ack_timeout, req.local_cm_timeout, req.remote_cm_timeout) = (0, 0, 0),
                    |req| (req.ack_timeout, req.local_cm_timeout, req.remote_cm_timeout) = (31, 31, 31),
                    |req| (req.retry_count, req.rnr_retry, req.max_cm_retries) = (0, 0, 0),
                    |req| (req.retry_count, req.rnr_retry, req.max_cm_retries) = (7, 7, 15),
                    |req| (req.responder_resources, req.initiator_depth) = (0, 0),
                    |req| (req.responder_resources, req.initiator_depth) = (255, 255),
                    |req| (req.p_key, req.local_lid, req.remote_lid, req.q_key) = (1, 0, 0, u32::MAX),
                    |req| (req.local_gid, req.remote_gid) = ([0xff; 16], [0; 16]),
                    |req| (req.srq, req.flow_control, req.hop_limit) = (true, true, 0),
                ],
            )
        },
    ),
    Case::new(
        "REQ of a queue pair in use",
        "the GUID and QPN of another's connection, from another address: a connection of its own",
        "REP",
        &[],
        squatted,
    ),
    Case::silent(
        "messages of a wrong length",
        "REQ of 0, 1, 255, 257 and 4000 bytes",
        &["rx_malformed"],
        |peer, wire| {
            let mut bytes = peer.request(wire.to, &Offer::default()).encode().to_vec();
            bytes.resize(4000, 0);
            for len in [0, 1, 255, 257, 4000] {
                peer.send_mad_bytes(wire.to.ip(), &bytes[..len])?;
            }
            peer.flush()
        },
    ),
    Case::new(
        "REQ again",
        "the same REQ five times, then with another QPN and MTU",
        "REP, silence",
        &["cm_rx_duplicate_req"],
        repeated,
    ),
    Case::new(
        "REQ again once established",
        "the same REQ ten times after the RTU",
        "silence",
        &["cm_rx_duplicate_req"],
        |env| {
            let mut peer = env.attacker()?;
            let (req, rep) = peer.half_open(env.target(), &Offer::default())?;
            let mut wire = Wire::new(env.target(), &req, &rep);
            peer.send_mad(wire.to.ip(), &Mad::new(req.tid, CmMessage::Rtu(wire.ids)))?;
            for _ in 0..10 {
                peer.send_mad(wire.to.ip(), &req)?;
            }
            let answer = peer.mad_answer(SILENCE)?;
            still_alive(env, &mut peer, &mut wire)?;
            Ok(answer.into())
        },
    ),
];

type Spoil = fn(&mut Req);

/// One REQ for each, spoiled. What is accepted is left again.
fn rejected(env: &mut Environment, spoils: &[Spoil]) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut answers = Vec::new();
    for spoil in spoils {
        let mut mad = peer.request(env.server(), &Offer::default());
        let CmMessage::Req(req) = &mut mad.message else { return Err("no REQ".into()) };
        spoil(req);
        let ids = CommIds { local: req.local_comm_id, remote: 0 };
        peer.send_mad(env.server().ip(), &mad)?;
        let answer = peer.receive_mad(super::raw::SOON)?.ok_or("no answer to a REQ")?;
        answers.push(super::raw::in_words(&answer.message));
        if let CmMessage::Rep(rep) = answer.message {
            let ids = CommIds { remote: rep.ids.local, ..ids };
            peer.send_mad(env.server().ip(), &Mad::new(mad.tid, CmMessage::Rtu(ids)))?;
            let dreq = CmMessage::Dreq(Dreq { ids, remote_qpn: rep.qpn });
            peer.send_mad(env.server().ip(), &Mad::new(mad.tid, dreq))?;
            peer.receive_mad(super::raw::SOON)?;
        }
        peer.drain()?;
    }
    same(answers)
}

fn squatted(env: &mut Environment) -> Result<Observation, String> {
    let (mut owner, mut squatter) = (env.attacker()?, env.attacker()?);
    let mut wire = owner.connect(env.target(), &Offer::default())?;
    squatter.guid = owner.guid;
    let mut mad = squatter.request(env.target(), &Offer::default());
    if let CmMessage::Req(req) = &mut mad.message {
        req.qpn = wire.qpn;
    }
    squatter.send_mad(wire.to.ip(), &mad)?;
    let answer = squatter.mad_answer(super::raw::SOON)?;
    still_alive(env, &mut owner, &mut wire)?;
    Ok(answer.into())
}

fn repeated(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let (req, rep) = peer.half_open(env.target(), &Offer::default())?;
    let mut wire = Wire::new(env.target(), &req, &rep);
    for n in 0..6 {
        let mut again = req.clone();
        if let (5, CmMessage::Req(req)) = (n, &mut again.message) {
            (req.qpn, req.mtu) = (req.qpn ^ 1, 1);
        }
        peer.send_mad(wire.to.ip(), &again)?;
        let mad = peer.receive_mad(super::raw::SOON)?.ok_or("no answer to a REQ")?;
        if mad.message != CmMessage::Rep(rep.clone()) {
            return Err(format!("a repeated REQ was answered by {}", super::raw::in_words(&mad.message)));
        }
    }
    peer.send_mad(wire.to.ip(), &Mad::new(req.tid, CmMessage::Rtu(wire.ids)))?;
    let answer = peer.mad_answer(SILENCE)?;
    still_alive(env, &mut peer, &mut wire)?;
    Ok(format!("REP, {answer}").into())
}
