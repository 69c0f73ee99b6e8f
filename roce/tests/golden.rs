//! Captures of kernel peers (rxe, rdma_cm) decode, check and re-encode to the same bytes.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use roce::{
    icrc::{Checked, Flow, IdRule, Solver, compute},
    wire::{Bth, Packet},
};

const CAPTURES: [&str; 2] = ["rxe-rping-v4-v6-perftest-write.pcap", "naaice-library-calls.pcap"];

struct Datagram {
    src: SocketAddr,
    dst: SocketAddr,
    /// `None` on IPv6.
    ip_id: Option<u16>,
    payload: Vec<u8>,
}

/// Reads an Ethernet pcap of UDP packets, little-endian with microseconds.
fn datagrams(name: &str) -> Vec<Datagram> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures").join(name);
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "pcap, little-endian");
    let mut rest = &file[24..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        all.push(datagram(&rest[16 + 14..16 + len]));
        rest = &rest[16 + len..];
    }
    all
}

fn datagram(ip: &[u8]) -> Datagram {
    let be16 = |b: &[u8]| u16::from_be_bytes([b[0], b[1]]);
    let (src, dst, ip_id, udp): (IpAddr, IpAddr, _, _) = if ip[0] >> 4 == 4 {
        let v4 = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()).into();
        (v4(12), v4(16), Some(be16(&ip[4..])), &ip[20..be16(&ip[2..]).into()])
    } else {
        let v6 = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()).into();
        (v6(8), v6(24), None, &ip[40..40 + usize::from(be16(&ip[4..]))])
    };
    Datagram {
        src: (src, be16(udp)).into(),
        dst: (dst, be16(&udp[2..])).into(),
        ip_id,
        payload: udp[8..].to_vec(),
    }
}

fn all() -> Vec<Datagram> {
    CAPTURES.iter().flat_map(|name| datagrams(name)).collect()
}

#[test]
fn every_icrc_is_right_and_every_identification_is_solved() {
    let mut solver = Solver::new();
    let (mut v4, mut v6) = (0, 0);
    for (n, packet) in all().iter().enumerate() {
        let flow = Flow::new(packet.src, packet.dst).unwrap();
        let known = packet.ip_id.map_or(IdRule::Any, IdRule::Exact);
        *if packet.ip_id.is_some() { &mut v4 } else { &mut v6 } += 1;
        for rule in [known, IdRule::Any] {
            let got = solver.verify(&flow, &packet.payload, rule, 0);
            assert_eq!(got, Ok(Checked { ip_id: packet.ip_id }), "packet {n} {rule:?}");
        }
        let (body, icrc) = packet.payload.split_last_chunk::<4>().unwrap();
        let (header, rest) = body.split_at(Bth::LEN);
        assert_eq!(compute(&flow, packet.ip_id.unwrap_or(0), header, rest.chunks(7)), *icrc, "packet {n}");
    }
    assert!(v4 > 100 && v6 > 20, "{v4} IPv4 and {v6} IPv6 packets");
}

#[test]
fn every_packet_reencodes_to_its_bytes() {
    for (n, packet) in all().iter().enumerate() {
        let decoded = Packet::decode(&packet.payload).unwrap_or_else(|e| panic!("packet {n}: {e}"));
        let mut bytes = Vec::new();
        decoded.encode(&mut bytes);
        assert_eq!(bytes, packet.payload, "packet {n}");
    }
}
