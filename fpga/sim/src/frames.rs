//! Frames, and what `lb_top` does with them, in Rust.

use std::net::IpAddr;

use ejfat::lb::DataPlane;
use etherparse::PacketBuilder;

use crate::Macs;

/// The types of frames: of IPv4, of ARP, and of IPv6.
pub const TYPE_V4: [u8; 2] = [0x08, 0x00];
pub const TYPE_ARP: [u8; 2] = [0x08, 0x06];
pub const TYPE_V6: [u8; 2] = [0x86, 0xdd];

const HEADER: usize = 14;
/// The TTL or hop limit of frames that [`of_datagram`] makes.
pub const HOPS: u8 = 64;
/// The source and the destination port of their datagrams. Hosts may send to any port, but the hardware takes only ports from 16384 to 32767.
const PORTS: (u16, u16) = (49_152, 19_522);

/// The type of frames that carry an IP packet.
pub fn type_of(packet: &[u8]) -> [u8; 2] {
    if packet.first().is_some_and(|first| first >> 4 == 6) { TYPE_V6 } else { TYPE_V4 }
}

/// A frame from one station to another with a UDP datagram, all headers of which are sound. The ports are a sender's: one of its own, and one that
/// load balancers take. Returns `None` if the datagram is too long, or the addresses are not of one IP version.
pub fn of_datagram(
    [source, destination]: [[u8; 6]; 2],
    [from, to]: [IpAddr; 2],
    datagram: &[u8],
) -> Option<Vec<u8>> {
    let builder = PacketBuilder::ethernet2(source, destination);
    let builder = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), HOPS),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), HOPS),
        _ => return None,
    };
    let builder = builder.udp(PORTS.0, PORTS.1);
    let mut bytes = Vec::with_capacity(builder.size(datagram.len()));
    builder.write(&mut bytes, datagram).ok()?;
    Some(bytes)
}

/// The IP packet at the begin of these bytes, without padding behind it. Bytes that are not as long as their header says are left alone.
pub fn without_padding(bytes: &[u8]) -> &[u8] {
    let be16 = |at: usize| {
        bytes.get(at..at + 2).map_or(0, |bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let length = match bytes.first().map(|first| first >> 4) {
        Some(4) => be16(2),
        Some(6) => be16(4) + 40,
        _ => 0,
    };
    bytes.get(..length).filter(|packet| !packet.is_empty()).unwrap_or(bytes)
}

/// The frame that a load balancer makes of a frame, and what the balancer counts for it. `is_bad`: the check sequence of the frame is wrong.
///
/// Requests of ARP, neighbour discovery and ICMP are answered elsewhere. The balancer counts requests of ICMP as dropped, and the hardware
/// does not count them.
pub fn forward(balancer: &mut DataPlane, macs: Macs, frame: &[u8], is_bad: bool) -> Option<Vec<u8>> {
    let (header, packet) = frame.split_at_checked(HEADER)?;
    if packet.is_empty() || header[..6] != macs.own || header[12..] == TYPE_ARP {
        return None;
    }
    let version = packet[0] >> 4;
    let is_ip = header[12..] == TYPE_V4 && version == 4 || header[12..] == TYPE_V6 && version == 6;
    let mut packet = without_padding(packet).to_vec();
    if !is_ip || is_bad {
        // It is counted as no IP packet.
        packet.truncate(1);
    }
    let forwarded = balancer.forward(&mut packet).ok()?;
    let to = forwarded.route.mac.unwrap_or(macs.hop);
    Some([&to[..], &macs.own, &type_of(&packet), &packet[forwarded.start..]].concat())
}
