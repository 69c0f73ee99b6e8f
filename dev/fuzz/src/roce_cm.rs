//! A connection manager against a network that says anything, while the application dials, listens, answers,
//! disconnects and destroys.

use std::net::SocketAddr;

use roce::{
    Time,
    cm::embedded_guid,
    psn::Psn,
    wire::mad::{
        Answered, CmMessage, CmaHeader, CommIds, Dreq, MAD_LEN, Mad, Mra, Rej, Rep, Req, gid, service_id,
    },
};

use crate::{cm_watch::Watched, program::Program};

const MAX_STEPS: usize = 256;

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let mut cm = Watched::new(1, true);
    let mut now = Time(1);
    let peers: [SocketAddr; 2] = [([10, 0, 0, 2], 4791).into(), ([10, 0, 0, 3], 4000).into()];
    cm.listen(&mut program);
    for _ in 0..MAX_STEPS {
        if program.is_over() {
            break;
        }
        let peer = program.pick(&peers);
        match program.byte() % 16 {
            0..8 => {
                let mad = mad(&mut program, &cm, peer);
                cm.handle(now, peer, &mad);
            }
            8..13 => cm.ask(now, &mut program, peer),
            13 => {
                now = Time(now.0 + (u64::from(program.byte()) << (program.byte() % 34)));
                cm.expire(now);
            }
            14 => {
                now = cm.cm.poll_timeout().map_or(now, |at| at.max(now));
                cm.expire(now);
            }
            _ => {
                cm.cm.send_failed(peer);
                cm.expire(now);
            }
        }
    }
    cm.wind_up(now);
}

fn mad(program: &mut Program<'_>, cm: &Watched, peer: SocketAddr) -> [u8; MAD_LEN] {
    if program.rarely(16) {
        let mut raw = [0; MAD_LEN];
        let bytes = program.bytes(MAD_LEN);
        raw[..bytes.len()].copy_from_slice(bytes);
        return raw;
    }
    let kind = program.byte();
    let ids = CommIds { local: 1 + u32::from(kind >> 4 & 3), remote: own_id(program, cm) };
    let mut raw = Mad::new(kind.into(), message(program, kind, ids, cm, peer)).encode();
    for _ in 0..program.byte().saturating_sub(250) {
        raw[program.below(MAD_LEN)] = program.byte();
    }
    raw
}

/// A communication ID the manager used lately, or one it does not know.
fn own_id(program: &mut Program<'_>, cm: &Watched) -> u32 {
    let back = program.below(8);
    let sent = cm.sent.len().checked_sub(back + 1).and_then(|at| cm.sent.get(at));
    sent.map_or(back as u32, |(_, mad)| u32::from_be_bytes([mad[24], mad[25], mad[26], mad[27]]))
}

fn message(program: &mut Program<'_>, kind: u8, ids: CommIds, cm: &Watched, peer: SocketAddr) -> CmMessage {
    let about = [Answered::Req, Answered::Rep, Answered::Other(2), Answered::Other(3)][program.below(4)];
    match kind & 15 {
        0..4 => CmMessage::Req(req(program, ids.local, cm, peer)),
        4 => CmMessage::Mra(Mra { ids, about, service_timeout: program.byte() & 0x1f }),
        5 => CmMessage::Rej(rej(ids, about, guid(program), program.byte().into())),
        6 => CmMessage::Rej(rej(CommIds { remote: 0, ..ids }, Answered::Other(2), guid(program), 4)),
        7..10 => CmMessage::Rep(rep(program, ids)),
        10..12 => CmMessage::Rtu(ids),
        12..14 => {
            let qpn = cm.bindings.last().map_or(0, |binding| binding.qpn);
            CmMessage::Dreq(Dreq {
                ids,
                remote_qpn: qpn.wrapping_sub(u32::from(program.byte() / 64)) & 0xff_ffff,
            })
        }
        _ => CmMessage::Drep(ids),
    }
}

fn guid(program: &mut Program<'_>) -> u64 {
    program.pick(&[embedded_guid(1), embedded_guid(2), 0x1234])
}

fn rej(ids: CommIds, about: Answered, guid: u64, reason: u16) -> Rej {
    let mut ari = [0; 72];
    ari[..8].copy_from_slice(&guid.to_be_bytes());
    Rej { ids, about, ari_len: 8, reason, ari, private_data: [0; Rej::PRIVATE] }
}

fn rep(program: &mut Program<'_>, ids: CommIds) -> Rep {
    Rep {
        ids,
        q_key: 0,
        qpn: program.below(6) as u32,
        starting_psn: Psn::new(program.u16().into()),
        responder_resources: program.byte(),
        initiator_depth: program.byte(),
        target_ack_delay: 15,
        failover: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        ca_guid: guid(program),
        private_data: [0; Rep::PRIVATE],
    }
}

fn req(program: &mut Program<'_>, local_comm_id: u32, cm: &Watched, peer: SocketAddr) -> Req {
    let mut private_data = [0; Req::PRIVATE];
    let header = CmaHeader { port: program.byte().into(), src: peer.ip(), dst: cm.addr.ip() };
    private_data[..CmaHeader::LEN].copy_from_slice(&header.encode());
    Req {
        local_comm_id,
        service_id: service_id(u16::from(program.byte() % 3)),
        ca_guid: guid(program),
        q_key: 0,
        qpn: program.below(6) as u32,
        responder_resources: program.byte(),
        initiator_depth: program.byte(),
        remote_cm_timeout: 20,
        transport: 0,
        flow_control: false,
        starting_psn: Psn::new(program.u16().into()),
        local_cm_timeout: 18,
        retry_count: 7,
        p_key: 0xffff,
        mtu: program.pick(&[1, 2, 3, 3, 5, 0]),
        rnr_retry: 7,
        max_cm_retries: 15,
        srq: false,
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: gid(peer.ip()),
        remote_gid: gid(cm.addr.ip()),
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
        ack_timeout: program.byte() & 0x1f,
        private_data,
    }
}
