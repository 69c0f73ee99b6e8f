//! Finds the UDP datagram in the captured bytes of a packet.

use std::net::SocketAddr;

use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

const UDP_HEADER: usize = 8;
/// The link types that BSD systems use for raw IP.
const RAW_BSD: [Linktype; 2] = [Linktype(12), Linktype(14)];
/// The length of the address family, in either byte order. It is skipped, because the IP header has the same
/// information.
const NULL_HEADER: usize = 4;

pub(super) struct Udp<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// The captured part of the payload.
    pub(super) bytes: &'a [u8],
    /// The length of the payload on the wire.
    pub(super) len: usize,
}

/// Why a packet has no UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    NotUdp,
    Fragment,
    Link,
}

pub(super) fn datagram(link: Linktype, packet: &[u8]) -> Result<Udp<'_>, Other> {
    let sliced = slice(link, packet)?;
    let (from, to, ip) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), ip.payload())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), ip.payload())
        }
        _ => return Err(Other::NotUdp),
    };
    if ip.fragmented && ip.ip_number == IpNumber::UDP {
        return Err(Other::Fragment);
    }
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return Err(Other::NotUdp) };
    let bytes = udp.payload();
    Ok(Udp {
        from: SocketAddr::new(from, udp.source_port()),
        to: SocketAddr::new(to, udp.destination_port()),
        bytes,
        len: usize::from(udp.length()).saturating_sub(UDP_HEADER).max(bytes.len()),
    })
}

fn slice(link: Linktype, packet: &[u8]) -> Result<LaxSlicedPacket<'_>, Other> {
    let ip = |packet| LaxSlicedPacket::from_ip(packet).map_err(|_| Other::NotUdp);
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(packet).map_err(|_| Other::NotUdp),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => ip(packet),
        link if RAW_BSD.contains(&link) => ip(packet),
        Linktype::NULL | Linktype::LOOP => ip(packet.get(NULL_HEADER..).ok_or(Other::NotUdp)?),
        Linktype::LINUX_SLL => cooked(packet, 14, 16),
        Linktype::LINUX_SLL2 => cooked(packet, 0, 20),
        _ => Err(Other::Link),
    }
}

/// Reads a packet with a "cooked" header of Linux, which has an EtherType at the offset `protocol`.
fn cooked(packet: &[u8], protocol: usize, header: usize) -> Result<LaxSlicedPacket<'_>, Other> {
    let (header, rest) = packet.split_at_checked(header).ok_or(Other::NotUdp)?;
    let protocol = u16::from_be_bytes([header[protocol], header[protocol + 1]]);
    Ok(LaxSlicedPacket::from_ether_type(EtherType(protocol), rest))
}
