//! pcap files, written by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

use ejfat::segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments};

/// Makes a pcap file of Ethernet packets, each with its time in microseconds since the UNIX epoch.
pub(crate) fn pcap(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1].map(u32::to_le_bytes).concat();
    for (micros, packet) in packets {
        let (seconds, rest, len) = (micros / 1_000_000, micros % 1_000_000, packet.len() as u32);
        file.extend([seconds as u32, rest as u32, len, len].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    file
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16 + 8;
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &length.to_be_bytes(), &[0; 2], payload].concat()
}

/// Ethernet, IPv4.
pub(crate) fn v4(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let udp = udp(from.1, to.1, payload);
    let length = (udp.len() as u16 + 20).to_be_bytes();
    let ip = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, 17, 0, 0];
    [&[2; 12][..], &[0x08, 0x00], &ip, &from.0.octets(), &to.0.octets(), &udp].concat()
}

/// Ethernet, 802.1Q, IPv6.
pub(crate) fn v6(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16), payload: &[u8]) -> Vec<u8> {
    let udp = udp(from.1, to.1, payload);
    let length = (udp.len() as u16).to_be_bytes();
    let ip = [0x60, 0, 0, 0, length[0], length[1], 17, 64];
    let tag = [0x81, 0x00, 0x00, 0x2a, 0x86, 0xdd];
    [&[2; 12][..], &tag, &ip, &from.0.octets(), &to.0.octets(), &udp].concat()
}

/// The datagrams of an event on a path of an MTU of 1500.
pub(crate) fn datagrams(version: LbVersion, ip: IpVersion, name: EventFields, event: &[u8]) -> Vec<Vec<u8>> {
    let size = SegmentSize::of_mtu(1500, ip).unwrap();
    let segments = Segments::new(version, size, name, event.len() as u64).unwrap();
    segments.map(|segment| [&segment.headers[..], &event[segment.payload]].concat()).collect()
}
