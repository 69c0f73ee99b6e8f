//! The LB header of a segment, which is for the load balancer.
//!
//! ```text
//! v2   'L' 'B' | 2 | protocol u8 | zero u16        | entropy u16     | tick u64
//! v3   'L' 'B' | 3 | protocol u8 | slot select u16 | port select u16 | tick u64
//! ```
//!
//! The fields `protocol` and `zero` may have any value, because the P4 data plane checks neither of them.

use super::Malformed;

const MAGIC: u16 = 0x4c42;

/// The fields that select the calendar slot and the UDP port of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Select {
    /// In version 2, the tick selects the calendar slot, and `entropy` selects the UDP port.
    V2 {
        /// The number that selects the UDP port of the worker.
        entropy: u16,
    },
    /// In version 3, `slot` selects the calendar slot, and `port` selects the UDP port.
    V3 {
        /// The slot select, which selects the calendar slot.
        slot: u16,
        /// The port select, which selects the UDP port of the worker.
        port: u16,
    },
}

/// The header in front of every segment on its way from a sender to the load balancer. All segments of an event have
/// the same LB header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LbHeader {
    /// The version of the header, with the fields that select the calendar slot and the UDP port.
    pub select: Select,
    /// The protocol of the bytes behind the header, which is usually [`LbHeader::REASSEMBLY`].
    pub protocol: u8,
    /// The tick, which selects the epoch. In version 2, the tick also selects the calendar slot. Senders use UNIX
    /// microseconds as ticks.
    pub tick: u64,
}

impl LbHeader {
    /// The length of the header in bytes.
    pub const LEN: usize = 16;
    /// The value of `protocol` if an RE header follows the LB header.
    pub const REASSEMBLY: u8 = 1;

    /// Returns the version of the header, which is 2 or 3.
    #[inline]
    pub fn version(&self) -> u8 {
        match self.select {
            Select::V2 { .. } => 2,
            Select::V3 { .. } => 3,
        }
    }

    /// Returns the 16 bits from which the calendar slot is computed.
    #[inline]
    pub fn slot_select(&self) -> u16 {
        match self.select {
            Select::V2 { .. } => self.tick as u16,
            Select::V3 { slot, .. } => slot,
        }
    }

    /// Returns the 16 bits from which the worker's UDP port is computed.
    #[inline]
    pub fn port_select(&self) -> u16 {
        match self.select {
            Select::V2 { entropy } => entropy,
            Select::V3 { port, .. } => port,
        }
    }

    /// Returns the 16 bytes of the header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (upper, lower) = match self.select {
            Select::V2 { entropy } => (0, entropy),
            Select::V3 { slot, port } => (slot, port),
        };
        let first = u64::from(MAGIC) << 48
            | u64::from(self.version()) << 40
            | u64::from(self.protocol) << 32
            | u64::from(upper) << 16
            | u64::from(lower);
        (u128::from(first) << 64 | u128::from(self.tick)).to_be_bytes()
    }

    /// Returns the header and the bytes behind the header.
    ///
    /// # Errors
    /// Fails if `bytes` are shorter than the header, have other magic bytes, or have a version other than 2 and 3.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (header, rest) =
            bytes.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Short(bytes.len()))?;
        let bits = u128::from_be_bytes(*header);
        let (first, tick) = ((bits >> 64) as u64, bits as u64);
        let magic = (first >> 48) as u16;
        if magic != MAGIC {
            return Err(Malformed::Magic(magic));
        }
        let (upper, lower) = ((first >> 16) as u16, first as u16);
        let select = match (first >> 40) as u8 {
            2 => Select::V2 { entropy: lower },
            3 => Select::V3 { slot: upper, port: lower },
            version => return Err(Malformed::Version(version)),
        };
        Ok((Self { select, protocol: (first >> 32) as u8, tick }, rest))
    }

    /// Returns true if a datagram begins with an LB header. The function compares only the first two bytes. These two
    /// bytes distinguish an LB header from an RE header. An LB header begins with 0x4c, and an RE header of version 0
    /// to 3 begins with a byte below 0x40.
    #[inline]
    pub fn leads(datagram: &[u8]) -> bool {
        datagram.starts_with(&MAGIC.to_be_bytes())
    }
}

/// Returns true if the data plane accepts packets to this UDP destination port. The accepted ports are 16384 to 32767.
pub fn is_data_port(port: u16) -> bool {
    port & 0xc000 == 0x4000
}
