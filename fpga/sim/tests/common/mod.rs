//! What the tests of several modules share.
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod tables;

use std::{net::SocketAddr, path::Path};

use simnet::Random;

/// A number from the environment, for longer runs.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Random bytes.
pub(crate) fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// The Ethernet frames of a capture of `tests/captures`, which are classic pcap files with little-endian numbers.
pub(crate) fn frames(capture: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(capture);
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(len);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

pub(crate) const CAPTURES: [&str; 2] = ["rxe-rping-v4-v6-perftest-write.pcap", "naaice-library-calls.pcap"];

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The source, the destination and the UDP payload of an IP packet without options and extension headers.
pub(crate) fn datagram(ip: &[u8]) -> (SocketAddr, SocketAddr, &[u8]) {
    let v4 = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
    let v6 = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
    let (from, to, udp): (std::net::IpAddr, std::net::IpAddr, _) =
        if ip[0] >> 4 == 4 { (v4(12), v4(16), &ip[20..]) } else { (v6(8), v6(24), &ip[40..]) };
    ((from, be16(udp, 0)).into(), (to, be16(udp, 2)).into(), &udp[8..])
}
