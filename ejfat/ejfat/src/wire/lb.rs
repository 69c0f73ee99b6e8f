//! The load balancer's header.
//!
//! ```text
//! v2   'L' 'B' | 2 | protocol u8 | zero u16        | entropy u16     | tick u64
//! v3   'L' 'B' | 3 | protocol u8 | slot select u16 | port select u16 | tick u64
//! ```
//!
//! Any protocol and any value of version 2's reserved field are accepted. The P4 data plane checks neither.

use super::Malformed;

const MAGIC: u16 = 0x4c42;

/// The fields that choose the calendar slot and the UDP port of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Select {
    /// Version 2: the slot comes from the tick, the port from `entropy`.
    V2 { entropy: u16 },
    /// Version 3: both come from fields of their own.
    V3 { slot: u16, port: u16 },
}

/// The header that is in front of every segment on its way from a sender to the load balancer. It is the same in all
/// segments of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LbHeader {
    pub select: Select,
    /// The protocol of the bytes behind the header: [`LbHeader::REASSEMBLY`].
    pub protocol: u8,
    /// The tick, which decides the epoch, and in version 2 the slot. Senders use UNIX microseconds.
    pub tick: u64,
}

impl LbHeader {
    pub const LEN: usize = 16;
    /// The value of `protocol` if an RE header follows.
    pub const REASSEMBLY: u8 = 1;

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

    /// Returns the header and the bytes behind it.
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

    /// Whether a datagram begins with an LB header. The first two bytes tell, since the first bytes of an RE header are
    /// lower.
    #[inline]
    pub fn leads(datagram: &[u8]) -> bool {
        datagram.starts_with(&MAGIC.to_be_bytes())
    }
}

/// Whether the data plane takes packets to this UDP destination port: 16384 to 32767.
pub fn is_data_port(port: u16) -> bool {
    port & 0xc000 == 0x4000
}
