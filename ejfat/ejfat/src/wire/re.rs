//! The reassembly (RE) header.
//!
//! ```text
//! version u4 | reserved u12 | data id u16 | offset u32 | length u32 | event number u64
//! ```

use super::Malformed;

/// The header in front of every segment's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReHeader {
    /// The number of the stream to which the event belongs.
    pub data_id: u16,
    /// The offset of the payload in the event, in bytes.
    pub offset: u32,
    /// The length of the whole event, in bytes.
    pub length: u32,
    /// The event number. An event is identified by its event number and its data id.
    pub event: u64,
}

/// The accepted versions of RE headers. Versions 0 to 2 of the RE header have the same fields. E2SAR sends RE headers
/// of version 1, udplbd's sender sends version 0, and older senders send version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions(u16);

impl Versions {
    /// The set that contains only version 1, which is the only version that E2SAR accepts.
    pub const ONE: Self = Self(1 << 1);

    /// Creates the set of the versions in `versions`.
    ///
    /// # Panics
    /// Panics if a version does not fit into 4 bits.
    pub fn of(versions: &[u8]) -> Self {
        Self(versions.iter().fold(0, |bits, &version| {
            assert!(version < 16, "version {version} does not fit into 4 bits");
            bits | 1 << version
        }))
    }

    fn accepts(self, version: u8) -> bool {
        self.0 >> version & 1 == 1
    }
}

impl Default for Versions {
    fn default() -> Self {
        Self(0b111)
    }
}

impl ReHeader {
    /// The length of the header in bytes.
    pub const LEN: usize = 20;
    /// The version in encoded headers.
    pub const VERSION: u8 = 1;

    /// Returns the 20 bytes of the header, with version [`ReHeader::VERSION`].
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let first = u128::from(Self::VERSION) << 124
            | u128::from(self.data_id) << 96
            | u128::from(self.offset) << 64
            | u128::from(self.length) << 32
            | u128::from(self.event >> 32);
        bytes[..16].copy_from_slice(&first.to_be_bytes());
        bytes[16..].copy_from_slice(&(self.event as u32).to_be_bytes());
        bytes
    }

    /// Returns the header and the payload. The caller must check that offset, length and payload match each other.
    ///
    /// # Errors
    /// Fails if `bytes` are shorter than the header, or if the version is not in `accept`.
    #[inline]
    pub fn decode(bytes: &[u8], accept: Versions) -> Result<(Self, &[u8]), Malformed> {
        let (header, payload) =
            bytes.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Short(bytes.len()))?;
        let [version, _, d0, d1, o0, o1, o2, o3, l0, l1, l2, l3, event @ ..] = *header;
        let version = version >> 4;
        if !accept.accepts(version) {
            return Err(Malformed::Version(version));
        }
        let header = Self {
            data_id: u16::from_be_bytes([d0, d1]),
            offset: u32::from_be_bytes([o0, o1, o2, o3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            event: u64::from_be_bytes(event),
        };
        Ok((header, payload))
    }
}
