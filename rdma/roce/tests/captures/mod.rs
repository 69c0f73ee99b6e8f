//! Reads the captures in `tests/captures`, which are Ethernet frames with UDP datagrams.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

pub(crate) const CAPTURES: [&str; 2] = ["rxe-rping-v4-v6-perftest-write.pcap", "naaice-library-calls.pcap"];

pub(crate) struct Datagram {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// The IPv4 identification; `None` for IPv6.
    pub(crate) ip_id: Option<u16>,
    pub(crate) payload: Vec<u8>,
}

/// Returns the IP packets of a capture. The capture is a little-endian pcap file with Ethernet frames that contain UDP
/// packets.
pub(crate) fn packets(capture: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(capture);
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "pcap, little-endian");
    let mut rest = &file[24..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let ip = &rest[16 + 14..16 + len];
        all.push(ip[..length(ip)].to_vec());
        rest = &rest[16 + len..];
    }
    all
}

fn be16(b: &[u8]) -> u16 {
    u16::from_be_bytes([b[0], b[1]])
}

/// Returns the length of an IP packet without the padding of its frame.
fn length(ip: &[u8]) -> usize {
    if ip[0] >> 4 == 4 { be16(&ip[2..]).into() } else { 40 + usize::from(be16(&ip[4..])) }
}

/// Returns the UDP datagram of an IP packet that has no options and no extension headers.
pub(crate) fn datagram(ip: &[u8]) -> Datagram {
    let (src, dst, ip_id, udp): (IpAddr, IpAddr, _, _) = if ip[0] >> 4 == 4 {
        let v4 = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()).into();
        (v4(12), v4(16), Some(be16(&ip[4..])), &ip[20..])
    } else {
        let v6 = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()).into();
        (v6(8), v6(24), None, &ip[40..])
    };
    Datagram {
        src: (src, be16(udp)).into(),
        dst: (dst, be16(&udp[2..])).into(),
        ip_id,
        payload: udp[8..].to_vec(),
    }
}
