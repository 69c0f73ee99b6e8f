//! The sync header, which is the whole content of a sync datagram. About once a second, a sender sends a sync datagram
//! with its current tick to the control plane.
//!
//! ```text
//! 'L' 'C' | 2 | zero u8 | source id u32 | tick u64 | ticks per second u32 | UNIX nanoseconds u64
//! ```

use super::Malformed;

const MAGIC: u16 = 0x4c43;
const VERSION: u8 = 2;

/// The content of a sync datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SyncHeader {
    /// The id of the sender, which the sender chooses.
    pub source: u32,
    /// The current tick of the sender.
    pub tick: u64,
    /// The number of ticks by which the sender's tick increases in one second.
    pub ticks_per_second: u32,
    /// The time at which the tick was current, in nanoseconds of UNIX time.
    pub unix_nanos: u64,
}

impl SyncHeader {
    /// The length of the header in bytes.
    pub const LEN: usize = 28;

    /// Returns the 28 bytes of the header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = VERSION;
        bytes[4..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tick.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.ticks_per_second.to_be_bytes());
        bytes[20..].copy_from_slice(&self.unix_nanos.to_be_bytes());
        bytes
    }

    /// Decodes a datagram. The datagram must have exactly the length of the header.
    ///
    /// # Errors
    /// Fails if the length, the magic bytes or the version of the datagram are not those of a sync header.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let wrong = if datagram.len() < Self::LEN { Malformed::Short } else { Malformed::Long };
        let bytes: &[u8; Self::LEN] = datagram.try_into().map_err(|_| wrong(datagram.len()))?;
        let [m0, m1, version, _, s0, s1, s2, s3, rest @ ..] = *bytes;
        let magic = u16::from_be_bytes([m0, m1]);
        if magic != MAGIC {
            return Err(Malformed::Magic(magic));
        }
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let [t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, nanos @ ..] = rest;
        Ok(Self {
            source: u32::from_be_bytes([s0, s1, s2, s3]),
            tick: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            ticks_per_second: u32::from_be_bytes([r0, r1, r2, r3]),
            unix_nanos: u64::from_be_bytes(nanos),
        })
    }
}
