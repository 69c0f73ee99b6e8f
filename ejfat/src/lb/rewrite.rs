//! Packets on their way through the load balancer.

use std::net::IpAddr;

use super::{
    DropCause, LbId, Route, Tables,
    checksum::{Change, put},
    packet::{Packet, UDP_HEADER, u16_at},
    version,
};
use crate::{segment::IpVersion, wire::LbHeader};

/// A packet that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The packet to send is what begins here: at 0, or at 16 where the LB header was cut out.
    pub start: usize,
    pub route: Route,
}

/// Forwards a whole IP packet in place: IPv4 with any options, or IPv6 that UDP follows at once.
///
/// The source becomes the load balancer's address, the destination the member's, TTL or hop limit one less. Where
/// the LB header is cut out, the IP and UDP headers move towards the payload, which stays. Checksums follow the
/// changes: a wrong one stays wrong, and UDP's 0 for "none" stays 0, over IPv6 too.
///
/// Unlike in the P4 data plane, fragments and packets whose IP or UDP length is not that of the bytes are dropped. A
/// dropped packet is as it was.
pub fn rewrite(tables: &Tables, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
    let packet = Packet::parse(bytes)?;
    let lb = tables.lb(packet.to).ok_or(DropCause::BadIp)?;
    let header = packet.lb_header(bytes);
    forward(tables, lb, &packet, header, bytes)
}

/// What follows when the load balancer is known.
pub(super) fn forward(
    tables: &Tables,
    lb: LbId,
    packet: &Packet,
    header: Result<LbHeader, DropCause>,
    bytes: &mut [u8],
) -> Result<Forwarded, DropCause> {
    if !tables.allows(lb, packet.from) {
        return Err(DropCause::BlockedSrc);
    }
    let header = header?;
    if packet.hops <= 1 {
        return Err(DropCause::TtlExpired);
    }
    let route = tables.assign(lb, version(packet.from), &header)?;
    Ok(Forwarded { start: write(packet, &route, bytes), route })
}

/// The new headers; where they begin.
fn write(packet: &Packet, route: &Route, bytes: &mut [u8]) -> usize {
    let headers = packet.payload + UDP_HEADER;
    let (start, mut change) = if route.keep_lb_header {
        (0, Change::default())
    } else {
        (LbHeader::LEN, Change::removed(&bytes[headers..headers + LbHeader::LEN]))
    };
    bytes.copy_within(..headers, start);
    let bytes = &mut bytes[start..];
    change = change + write_ip(packet, route, bytes);

    let datagram = &mut bytes[packet.payload..];
    let length = (datagram.len() as u16).to_be_bytes();
    change = change + put(datagram, 2, &route.to.port().to_be_bytes());
    let of_length = put(datagram, 4, &length);
    // The pseudo-header has it once more.
    change = change + of_length + of_length;
    let checksum = u16_at(datagram, 6);
    if checksum != 0 {
        let checksum = match change.apply(checksum) {
            0 => u16::MAX,
            checksum => checksum,
        };
        put(datagram, 6, &checksum.to_be_bytes());
    }
    start
}

/// The change is that of the addresses.
fn write_ip(packet: &Packet, route: &Route, bytes: &mut [u8]) -> Change {
    let hops = packet.hops - 1;
    match version(packet.from) {
        IpVersion::V4 => {
            let addresses = put_address(bytes, 12, packet.to) + put_address(bytes, 16, route.to.ip());
            let (total, protocol) = (bytes.len() as u16, bytes[9]);
            let length = put(bytes, 2, &total.to_be_bytes());
            let hops = put(bytes, 8, &[hops, protocol]);
            let checksum = (addresses + length + hops).apply(u16_at(bytes, 10));
            put(bytes, 10, &checksum.to_be_bytes());
            addresses
        }
        IpVersion::V6 => {
            let length = (bytes.len() - packet.payload) as u16;
            put(bytes, 4, &length.to_be_bytes());
            bytes[7] = hops;
            put_address(bytes, 8, packet.to) + put_address(bytes, 24, route.to.ip())
        }
    }
}

fn put_address(header: &mut [u8], at: usize, address: IpAddr) -> Change {
    match address {
        IpAddr::V4(address) => put(header, at, &address.octets()),
        IpAddr::V6(address) => put(header, at, &address.octets()),
    }
}
