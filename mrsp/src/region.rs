//! Memory regions as MRSP describes them: flags, addresses, limits.

use std::{fmt, ops::BitOr};

/// Regions are aligned to pages of the accelerator.
pub const PAGE_BYTES: u64 = 4096;
/// The largest region: the largest InfiniBand message (IBTA vol. 1, C9-9).
pub const MAX_REGION_BYTES: u64 = 1 << 31;
/// Regions a host announces unless configured: as many as the C library's 768-byte buffer holds.
pub const HOST_MAX_REGIONS: u8 = 31;
/// Regions a server accepts unless configured: as many as the FPGA handles.
pub const SERVER_MAX_REGIONS: u8 = 32;
/// The most the count field can say.
pub const MAX_REGIONS: u8 = u8::MAX;

/// Bytes of a receive buffer for messages with up to `max_regions` regions.
pub const fn message_buffer_bytes(max_regions: u8) -> usize {
    4 + 24 * max_regions as usize
}

/// Bytes of a receive buffer for every message a host may send: a layout block follows the regions.
pub const HOST_MESSAGE_BYTES: usize =
    message_buffer_bytes(MAX_REGIONS) + crate::layout::block::block_bytes(MAX_REGIONS);

/// What a region is for. Bits without a meaning are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RegionFlags(u8);

impl RegionFlags {
    pub const NONE: Self = Self(0);
    /// Exists on the accelerator only.
    pub const INTERNAL: Self = Self(1);
    /// Is sent with the first call and stays on the accelerator.
    pub const SINGLE_SEND: Self = Self(2);
    /// Is sent to the accelerator with each call.
    pub const INPUT: Self = Self(4);
    /// Is sent back to the host after each call.
    pub const OUTPUT: Self = Self(8);

    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    /// All flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for RegionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Debug for RegionFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(RegionFlags, &str); 4] = [
            (RegionFlags::INTERNAL, "INTERNAL "),
            (RegionFlags::SINGLE_SEND, "SINGLE_SEND "),
            (RegionFlags::INPUT, "INPUT "),
            (RegionFlags::OUTPUT, "OUTPUT "),
        ];
        for (flag, name) in NAMES {
            if self.contains(flag) {
                f.write_str(name)?;
            }
        }
        write!(f, "{:#04x}", self.0)
    }
}

/// An address in the accelerator's memory, 56 bits. Servers may treat it as a mere label of the session.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NaaAddress(u64);

impl NaaAddress {
    pub const ZERO: Self = Self(0);
    /// Where the address space ends, exclusive.
    pub const END: u64 = 1 << 56;

    /// `None` beyond 56 bits.
    pub const fn new(address: u64) -> Option<Self> {
        if address < Self::END { Some(Self(address)) } else { None }
    }

    /// The lower 56 bits of `word`.
    pub const fn truncate(word: u64) -> Self {
        Self(word & (Self::END - 1))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// `bytes` from here on lie inside the address space.
    pub const fn holds(self, bytes: u64) -> bool {
        bytes <= Self::END - self.0
    }
}

impl fmt::Debug for NaaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#016x}", self.0)
    }
}

/// Memory of one side that the other may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Virtual address of the first byte.
    pub addr: u64,
    pub rkey: u32,
    /// In bytes.
    pub size: u32,
}

impl RemoteRegion {
    /// Its last byte has an address.
    pub const fn fits_address_space(&self) -> bool {
        self.size == 0 || self.addr.checked_add(self.size as u64 - 1).is_some()
    }
}

/// One entry of an AAR: a region a host asks for and, unless INTERNAL, the one it announces in return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionRequest {
    pub flags: RegionFlags,
    pub naa_addr: NaaAddress,
    /// The host's region; address and rkey are 0 for INTERNAL ones. Its size is the size asked for.
    pub host: RemoteRegion,
}

impl RegionRequest {
    pub const fn is_internal(&self) -> bool {
        self.flags.contains(RegionFlags::INTERNAL)
    }
}
