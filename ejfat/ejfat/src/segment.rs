//! Segmentation of events.

use std::{net::IpAddr, ops::Range};

use crate::wire::{LbHeader, ReHeader, Select};

const UDP: u16 = 8;
const HEADERS: u16 = (LbHeader::LEN + ReHeader::LEN) as u16;

/// The IP version of a packet or of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpVersion {
    /// IPv4, with an IP header of 20 bytes.
    V4,
    /// IPv6, with an IP header of 40 bytes.
    V6,
}

impl IpVersion {
    /// Returns the IP version of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the length of the IP header in bytes, without options or extensions.
    pub const fn header(self) -> u16 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// The version of the LB header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LbVersion {
    /// Version 2, in which the calendar slot is computed from the low 16 bits of the tick.
    V2,
    /// Version 3, in which the calendar slot is computed from the slot select, a field of the header. [`Segments`]
    /// writes the low 16 bits of the tick into the slot select.
    V3,
}

/// The reason why an event cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The MTU is below [`SegmentSize::LEAST_MTU`].
    #[error("an MTU of {mtu} bytes leaves no payload behind {headers} bytes of headers; the least is {least}", least = SegmentSize::LEAST_MTU)]
    Mtu {
        /// The MTU that the caller gave, in bytes.
        mtu: u16,
        /// The length in bytes of the IP, UDP, LB and RE headers together.
        headers: u16,
    },
    /// The event has no bytes, so it would have no segment.
    #[error("an event of no bytes has no segment")]
    Empty,
    /// The length of the event does not fit into 32 bits. The value is the length of the event in bytes.
    #[error("an event of {0} bytes is too long, its length has 32 bits; send it as several")]
    TooLong(u64),
}

/// The number of payload bytes of every segment of an event, except the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSize(u16);

impl SegmentSize {
    /// The minimum MTU that is accepted. RFC 791 requires every receiver of IPv4 to accept datagrams of 576 bytes.
    pub const LEAST_MTU: u16 = 576;

    /// Returns the size of the payload that fits into a packet of `mtu` bytes with IP, UDP, LB and RE
    /// headers. If the MTU is 1500 and the packet is IPv4, the payload has 1436 bytes.
    ///
    /// # Errors
    /// Fails with [`SegmentError::Mtu`] if `mtu` is below [`Self::LEAST_MTU`].
    pub fn of_mtu(mtu: u16, ip: IpVersion) -> Result<Self, SegmentError> {
        let headers = ip.header() + UDP + HEADERS;
        match mtu.checked_sub(headers) {
            Some(size) if mtu >= Self::LEAST_MTU => Ok(Self(size)),
            _ => Err(SegmentError::Mtu { mtu, headers }),
        }
    }

    /// Returns the number of payload bytes of every segment except the last segment of an event.
    pub fn bytes(self) -> u16 {
        self.0
    }
}

/// The headers of a segment, and the range of the event's bytes that is the segment's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The LB header, followed by the RE header.
    pub headers: [u8; LbHeader::LEN + ReHeader::LEN],
    /// The range of the event's bytes that follows the headers in the datagram.
    pub payload: Range<usize>,
}

/// The numbers of an event that are in the headers of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFields {
    /// The tick by which the load balancer routes the event. A sender can get its ticks from [`Ticks`].
    pub tick: u64,
    /// The event number. A worker identifies an event by event number and data id.
    pub event: u64,
    /// The data id, which is the number of the stream to which the event belongs.
    pub data_id: u16,
    /// The number that selects the worker's UDP port. All segments of an event have the same entropy, and each event
    /// should get a random entropy.
    pub entropy: u16,
}

/// The segments of one event, in order.
#[derive(Clone, Debug)]
pub struct Segments {
    lb: [u8; LbHeader::LEN],
    re: ReHeader,
    size: u32,
}

impl Segments {
    /// Cuts an event of `length` bytes into segments.
    ///
    /// # Errors
    /// Fails with [`SegmentError::Empty`] if `length` is 0, and with [`SegmentError::TooLong`] if `length` does not fit
    /// into 32 bits.
    pub fn new(
        version: LbVersion,
        size: SegmentSize,
        fields: EventFields,
        length: u64,
    ) -> Result<Self, SegmentError> {
        if length == 0 {
            return Err(SegmentError::Empty);
        }
        let length = u32::try_from(length).map_err(|_| SegmentError::TooLong(length))?;
        let EventFields { tick, event, data_id, entropy } = fields;
        let select = match version {
            LbVersion::V2 => Select::V2 { entropy },
            LbVersion::V3 => Select::V3 { slot: tick as u16, port: entropy },
        };
        let lb = LbHeader { select, protocol: LbHeader::REASSEMBLY, tick }.encode();
        Ok(Self { lb, re: ReHeader { data_id, offset: 0, length, event }, size: size.0.into() })
    }
}

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let left = self.re.length - self.re.offset;
        if left == 0 {
            return None;
        }
        let mut headers = [0; LbHeader::LEN + ReHeader::LEN];
        headers[..LbHeader::LEN].copy_from_slice(&self.lb);
        headers[LbHeader::LEN..].copy_from_slice(&self.re.encode());
        let start = self.re.offset;
        self.re.offset += left.min(self.size);
        Some(Segment { headers, payload: start as usize..self.re.offset as usize })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.re.length - self.re.offset).div_ceil(self.size) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Segments {}

/// A generator of the ticks that a sender writes into LB headers. Ticks are UNIX microseconds, as in E2SAR, but each
/// tick is higher than the previous tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    next: u64,
}

impl Ticks {
    /// Returns the tick for an event at the time `unix_micros`, in microseconds of UNIX time. If `unix_micros` is not
    /// above the previous tick, the returned tick is one above the previous tick.
    pub fn next(&mut self, unix_micros: u64) -> u64 {
        let tick = unix_micros.max(self.next);
        self.next = tick.wrapping_add(1);
        tick
    }
}
