//! Peers that send without end, or hold what they have, on connections that are in order otherwise.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use roce::{
    opcode,
    wire::{Reth, mad::CmMessage},
};

use super::{
    bare_qp_server::{LEN, RW},
    case::{Case, Observation, Run, Text, Texts},
    environment::Environment,
    memory::region,
    packets::still_alive,
    raw::{Offer, RawPeer, SOON},
    wire::{Answer, Wire},
};

/// What the bystanders' calls may take while attacker and victim share two busy cores with them.
const BUSY: Duration = Duration::from_millis(250);

const fn busy(name: Text, sent: Text, counters: Texts, run: Run) -> Case {
    Case::new(name, sent, "alive", counters, run).p99(BUSY)
}

pub(super) const CASES: &[Case] = &[
    busy("valid WRITEs", "WRITEs of 8 bytes at full rate, an ACK awaited every 64", &[], valid_writes),
    busy(
        "duplicates",
        "one WRITE of 8 bytes at full rate, ACKs asked for and not read",
        &["duplicate_request"],
        |env| {
            let (mut peer, mut wire) = env.connected()?;
            let region = wire.regions[RW];
            let mut write = wire.packet(opcode::WRITE_ONLY, wire.psn.minus(1));
            write.reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: 8 });
            write.payload = b"deadbeef";
            // Sent again and again it is a duplicate, which is answered like the first.
            let bytes = peer.sealed(wire.peer, &write);
            at_full_rate(env, &mut peer, &mut wire, |_| bytes.clone())
        },
    ),
    busy(
        "packets behind a gap",
        "SENDs at full rate, all ahead of one that never comes",
        &["out_of_seq_request"],
        |env| {
            let (mut peer, mut wire) = env.connected()?;
            let mut send = wire.packet(opcode::SEND_ONLY, wire.psn.plus(9));
            send.payload = &[7; 512];
            let bytes = peer.sealed(wire.peer, &send);
            at_full_rate(env, &mut peer, &mut wire, |_| bytes.clone())
        },
    ),
    busy(
        "READs whose answers nobody reads",
        "READs of 4000 bytes at full rate, again and again the same",
        &["duplicate_request"],
        |env| {
            let (mut peer, mut wire) = env.connected()?;
            let region = wire.regions[RW];
            let mut read = wire.packet(opcode::READ_REQUEST, wire.psn);
            read.reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: LEN as u32 });
            peer.send(wire.peer, &read)?;
            wire.psn = wire.psn.plus((LEN as u32).div_ceil(wire.mtu as u32));
            let bytes = peer.sealed(wire.peer, &read);
            at_full_rate(env, &mut peer, &mut wire, |_| bytes.clone())
        },
    ),
    busy("garbage", "random datagrams of up to 1400 bytes at full rate", &["rx_malformed"], |env| {
        let (mut peer, mut wire) = env.connected()?;
        let mut bytes = vec![0; 1400];
        peer.random.fill(&mut bytes);
        at_full_rate(env, &mut peer, &mut wire, |n| {
            let start = n * 13 % 1000;
            bytes[start..start + n * 7 % (1400 - start)].to_vec()
        })
    }),
    busy(
        "garbage for a connection",
        "packets with the right QPN and a wrong ICRC at full rate",
        &["rx_icrc_encapsulated"],
        |env| {
            let (mut peer, mut wire) = env.connected()?;
            let mut packet = wire.packet(opcode::SEND_ONLY, wire.psn);
            packet.payload = &[0; 1024];
            let mut bytes = peer.sealed(wire.peer, &packet);
            bytes[100] ^= 1;
            at_full_rate(env, &mut peer, &mut wire, |_| bytes.clone())
        },
    ),
    Case::new(
        "64 sessions that never acknowledge",
        "advertisements left unacknowledged, sockets never read",
        "DREQ",
        &["retry_exceeded_err"],
        |env| {
            let mut peer = env.attacker()?;
            peer.acknowledges = false;
            let mut wires = Vec::new();
            for _ in 0..64 {
                wires.push(peer.session(
                    env.server(),
                    &Offer { ack_timeout: 12, ..Offer::default() },
                    &[region(4096)],
                )?);
            }
            given_up(&mut peer, &wires, Duration::from_secs(5))
        },
    )
    .growth(8),
    Case::new(
        "sessions never left",
        "200 sessions with regions, idle, their sockets open but silent",
        "DREQ",
        &["retry_exceeded_err"],
        |env| {
            let mut peer = env.attacker()?;
            let offer = Offer { ack_timeout: 12, ..Offer::default() };
            let mut wires = Vec::new();
            for _ in 0..200 {
                wires.push(peer.session(env.server(), &offer, &[region(4096)])?);
            }
            peer.drain()?;
            // The server asks for a sign of life every two seconds and gets none.
            given_up(&mut peer, &wires, Duration::from_secs(8))
        },
    )
    .growth(16)
    .long(),
];

/// Each session gets its DREQ, which may come more than once, and none of them later than `limit` after another.
fn given_up(peer: &mut RawPeer, wires: &[Wire], limit: Duration) -> Result<Observation, String> {
    let all: BTreeSet<_> = wires.iter().map(|wire| wire.ids.local).collect();
    let mut over = BTreeSet::new();
    let mut deadline = Instant::now() + limit;
    while over.len() < all.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(mad) = peer.receive_mad(left)? else {
            return Err(format!("{} of {} sessions were given up", over.len(), all.len()));
        };
        if let CmMessage::Dreq(dreq) = mad.message
            && all.contains(&dreq.ids.remote)
            && over.insert(dreq.ids.remote)
        {
            deadline = Instant::now() + limit;
        }
    }
    Ok(Observation::noted("DREQ", format!("{} sessions given up", over.len())))
}

/// Windows of 64 in order; one that is not acknowledged goes out again.
fn valid_writes(env: &mut Environment) -> Result<Observation, String> {
    let (mut peer, mut wire) = env.connected()?;
    let region = wire.regions[RW];
    let time = full_time(env);
    let start = Instant::now();
    let mut acknowledged = 0;
    // The WRITE that shows that the connection works has the next PSN, so the last window must be acknowledged too.
    let mut is_open = false;
    while start.elapsed() < time || (is_open && start.elapsed() < time + SOON) {
        is_open = true;
        let last = wire.psn.plus(63);
        for n in 0..64 {
            let mut write = wire.packet(opcode::WRITE_ONLY, wire.psn.plus(n));
            write.bth.ack_req = n == 63;
            write.reth = Some(Reth { addr: region.addr, rkey: region.rkey, length: 8 });
            write.payload = b"deadbeef";
            peer.queue(wire.peer, &peer.sealed(wire.peer, &write))?;
        }
        peer.flush()?;
        while let Some(answer) = peer.receive(&mut wire, Duration::from_millis(5))? {
            if answer == (Answer::Ack { psn: last }) {
                acknowledged += 64;
                wire.psn = last.plus(1);
                is_open = false;
                break;
            }
        }
    }
    let rate = f64::from(acknowledged) / start.elapsed().as_secs_f64();
    peer.drain()?;
    still_alive(env, &mut peer, &mut wire)?;
    Ok(Observation::noted("alive", format!("{rate:.0} WRITEs/s")))
}

fn full_time(env: &Environment) -> Duration {
    Duration::from_secs(if env.quick { 1 } else { 3 })
}

/// For three seconds, one in a quick run, without reading. The connection then still works.
fn at_full_rate(
    env: &mut Environment,
    peer: &mut RawPeer,
    wire: &mut Wire,
    mut next: impl FnMut(usize) -> Vec<u8>,
) -> Result<Observation, String> {
    let to: SocketAddr = wire.peer;
    let time = full_time(env);
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < time {
        for _ in 0..64 {
            peer.queue(to, &next(sent))?;
            sent += 1;
        }
        peer.flush()?;
    }
    let rate = sent as f64 / start.elapsed().as_secs_f64();
    // The victim still answers packets that wait in its socket. A late NAK would be mistaken for the answer to the WRITE
    // that shows that the connection works.
    peer.wait_until_silent(wire)?;
    still_alive(env, peer, wire)?;
    Ok(Observation::noted("alive", format!("{rate:.0} datagrams/s")))
}
