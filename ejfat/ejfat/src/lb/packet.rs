//! Finds the headers of a packet.
//!
//! ```text
//! IPv4  version, length of header u4 u4 | _ u8 | total length u16 | _ u16 | fragment u16 | TTL u8 | protocol u8
//!       | checksum u16 | source 4 | destination 4 | options
//! IPv6  version u4 | _ u28 | payload length u16 | next header u8 | hop limit u8 | source 16 | destination 16
//! UDP   source port u16 | destination port u16 | length u16 | checksum u16
//! ```

use std::net::IpAddr;

use super::DropCause;
use crate::{
    segment::IpVersion,
    wire::{LbHeader, is_data_port},
};

pub(super) const UDP_HEADER: usize = 8;

const UDP: u8 = 17;
/// The mask of the flag "more fragments" and of the fragment offset, which are in the same 16-bit field of the IPv4
/// header.
const FRAGMENT: u16 = 0x3fff;

/// The location of the headers in an IP packet. The packet's length is equal to the length in its IP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpPacket {
    pub(super) version: IpVersion,
    /// True if the packet is not a fragment and its protocol is UDP.
    is_udp: bool,
    /// The offset at which the IP header ends.
    pub(super) payload: usize,
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn address<const N: usize>(bytes: &[u8], at: usize) -> IpAddr
where
    IpAddr: From<[u8; N]>,
{
    let mut octets = [0; N];
    octets.copy_from_slice(&bytes[at..at + N]);
    octets.into()
}

impl IpPacket {
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DropCause> {
        let parsed = match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            _ => None,
        };
        parsed.ok_or(DropCause::NotIp)
    }

    #[inline]
    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let payload = usize::from(bytes[0] & 0xf) * 4;
        if payload < 20 || bytes.len() < payload || usize::from(u16_at(bytes, 2)) != bytes.len() {
            return None;
        }
        let whole = u16_at(bytes, 6) & FRAGMENT == 0;
        Some(Self { version: IpVersion::V4, is_udp: whole && bytes[9] == UDP, payload })
    }

    #[inline]
    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        let payload = 40;
        if bytes.len() < payload || payload + usize::from(u16_at(bytes, 4)) != bytes.len() {
            return None;
        }
        Some(Self { version: IpVersion::V6, is_udp: bytes[6] == UDP, payload })
    }

    /// Returns the packet's source address. `bytes` starts with the packet, and may have further bytes behind the
    /// packet.
    #[inline]
    pub(super) fn from(&self, bytes: &[u8]) -> IpAddr {
        match self.version {
            IpVersion::V4 => address::<4>(bytes, 12),
            IpVersion::V6 => address::<16>(bytes, 8),
        }
    }

    /// Returns the packet's destination address.
    #[inline]
    pub(super) fn to(&self, bytes: &[u8]) -> IpAddr {
        match self.version {
            IpVersion::V4 => address::<4>(bytes, 16),
            IpVersion::V6 => address::<16>(bytes, 24),
        }
    }

    /// Returns the packet's TTL (IPv4) or hop limit (IPv6).
    #[inline]
    pub(super) fn hops(&self, bytes: &[u8]) -> u8 {
        match self.version {
            IpVersion::V4 => bytes[8],
            IpVersion::V6 => bytes[7],
        }
    }

    /// Returns the LB header of a packet that contains a whole UDP datagram to a data port.
    #[inline]
    pub(super) fn lb_header(&self, bytes: &[u8]) -> Result<LbHeader, DropCause> {
        let datagram = &bytes[self.payload..];
        let sound = self.is_udp
            && datagram.len() >= UDP_HEADER
            && usize::from(u16_at(datagram, 4)) == datagram.len()
            && is_data_port(u16_at(datagram, 2));
        if !sound {
            return Err(DropCause::NoUdplbHdr);
        }
        Ok(LbHeader::decode(&datagram[UDP_HEADER..])?.0)
    }
}
