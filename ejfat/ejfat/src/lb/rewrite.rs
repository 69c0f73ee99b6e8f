//! Rewrites the headers of packets that the load balancer forwards.

use std::net::IpAddr;

use super::{
    DropCause, LbTables, Route, Tables,
    checksum::{Change, put},
    packet::{IpPacket, UDP_HEADER},
    tables::RouteRef,
};
use crate::{segment::IpVersion, wire::LbHeader};

/// A rewritten packet, which the caller must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The offset at which the rewritten packet begins in the bytes of the original packet. The offset is 16 if the LB
    /// header was removed, otherwise 0.
    pub start: usize,
    /// The destination of the packet.
    pub route: Route,
}

/// Chooses the member that gets an IP packet, and rewrites the headers of the packet in place. `bytes` is the whole
/// packet, which is IPv4 with any options, or IPv6 without extension headers before UDP.
///
/// The load balancer's address becomes the source address, and the member's address becomes the destination address.
/// The TTL or hop limit decreases by one. If the LB header is removed, the IP and UDP headers move towards the payload,
/// and the payload stays in place. Checksums are only updated for the changed bytes, so a wrong checksum stays wrong. A
/// UDP checksum of 0, which stands for no checksum, stays 0, also over IPv6.
///
/// Unlike the P4 data plane, this function drops fragments. It also drops packets for which the length in the IP or UDP
/// header does not match the length of `bytes`. A dropped packet is not changed.
///
/// # Errors
/// Fails with the cause for which the packet is dropped.
pub fn rewrite(tables: &Tables, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
    let packet = IpPacket::parse(bytes)?;
    let lb = tables.lb(packet.to(bytes)).ok_or(DropCause::BadIp)?;
    let header = packet.lb_header(bytes);
    let tables = tables.of(lb);
    let is_allowed = tables.allows(packet.from(bytes));
    let (start, found) = forward(tables, is_allowed, packet, header, bytes)?;
    Ok(Forwarded { start, route: found.route() })
}

/// Forwards a packet to a member of a known load balancer. Returns the offset at which the packet to send begins, and
/// the member.
#[inline(always)]
pub(super) fn forward<'a>(
    tables: &'a LbTables,
    is_allowed: bool,
    packet: IpPacket,
    header: Result<LbHeader, DropCause>,
    bytes: &mut [u8],
) -> Result<(usize, RouteRef<'a>), DropCause> {
    if !is_allowed {
        return Err(DropCause::BlockedSrc);
    }
    let header = header?;
    if packet.hops(bytes) <= 1 {
        return Err(DropCause::TtlExpired);
    }
    let found = tables.find(packet.version, &header)?;
    Ok((write(packet, &found, bytes), found))
}

/// Writes the new headers, and returns the offset at which the new headers begin.
#[inline(always)]
fn write(packet: IpPacket, found: &RouteRef<'_>, bytes: &mut [u8]) -> usize {
    let headers = packet.payload + UDP_HEADER;
    let (start, change) = if found.forward.keep_lb_header {
        (0, Change::default())
    } else {
        (LbHeader::LEN, Change::removed(&bytes[headers..headers + LbHeader::LEN]))
    };
    let new = New { len: bytes.len() - start, to: found.forward.address, port: found.port, change };
    match (packet.version, bytes.first_chunk::<V4>(), bytes.first_chunk::<V6>()) {
        (IpVersion::V4, Some(&(mut all)), _) if headers == V4 => {
            new.put_v4(&mut all, V4 - UDP_HEADER);
            bytes[start..start + V4].copy_from_slice(&all);
        }
        (IpVersion::V6, _, Some(&(mut all))) if headers == V6 => {
            new.put_v6(&mut all);
            bytes[start..start + V6].copy_from_slice(&all);
        }
        _ => {
            // IPv4 headers with options have no constant length, so no array has their size. They are moved inside `bytes`
            // first, and changed there afterwards.
            bytes.copy_within(..headers, start);
            new.put_v4(&mut bytes[start..start + headers], packet.payload);
        }
    }
    start
}

/// The length of an IPv4 header without options together with the UDP header. Headers of this length are changed in a
/// local array of constant length, which the compiler can keep in registers.
const V4: usize = 20 + UDP_HEADER;
const V6: usize = 40 + UDP_HEADER;
/// The checksum field of a UDP header that has no checksum.
const NO_CHECKSUM: [u8; 2] = [0; 2];

/// The values from which the headers of a forwarded packet are written.
#[derive(Clone, Copy)]
struct New {
    /// The length of the whole packet in bytes.
    len: usize,
    to: IpAddr,
    port: u16,
    /// The change that the removal of the LB header causes in the UDP checksum.
    change: Change,
}

impl New {
    /// Writes the new values into `headers`, which has an IPv4 header and a UDP header. `udp` is the offset of the UDP
    /// header.
    #[inline(always)]
    fn put_v4(self, headers: &mut [u8], udp: usize) {
        let IpAddr::V4(to) = self.to else { return };
        let mut lb = [0; 4];
        lb.copy_from_slice(&headers[16..20]);
        let addresses = put(headers, 12, lb) + put(headers, 16, to.octets());
        let length = put(headers, 2, (self.len as u16).to_be_bytes());
        let hops = put(headers, 8, [headers[8] - 1, headers[9]]);
        let checksum = (addresses + length + hops).apply([headers[10], headers[11]]);
        headers[10..12].copy_from_slice(&checksum);
        self.put_udp(&mut headers[udp..], self.len - udp, addresses);
    }

    #[inline(always)]
    fn put_v6(self, headers: &mut [u8; V6]) {
        let IpAddr::V6(to) = self.to else { return };
        let len = self.len - (V6 - UDP_HEADER);
        let mut lb = [0; 16];
        lb.copy_from_slice(&headers[24..40]);
        headers[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        headers[7] -= 1;
        let addresses = put(headers, 8, lb) + put(headers, 24, to.octets());
        self.put_udp(&mut headers[V6 - UDP_HEADER..], len, addresses);
    }

    #[inline(always)]
    fn put_udp(self, header: &mut [u8], len: usize, addresses: Change) {
        let port = put(header, 2, self.port.to_be_bytes());
        let length = put(header, 4, (len as u16).to_be_bytes());
        // The length is added twice, because the pseudo-header contains the length, too.
        let change = self.change + addresses + port + length + length;
        let checksum = match [header[6], header[7]] {
            NO_CHECKSUM => NO_CHECKSUM,
            checksum => match change.apply(checksum) {
                NO_CHECKSUM => [0xff; 2],
                checksum => checksum,
            },
        };
        header[6..8].copy_from_slice(&checksum);
    }
}
