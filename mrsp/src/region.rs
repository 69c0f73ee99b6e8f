//! The memory regions of MRSP with their flags, addresses and limits.

use std::{fmt, ops::BitOr};

/// The size in bytes of a page of the accelerator's address space. [`AddressPlan`](crate::address::AddressPlan) rounds
/// the size of each region up to a multiple of `PAGE_BYTES`.
pub const PAGE_BYTES: u64 = 4096;
/// The maximum size of a region in bytes, which is the maximum size of an InfiniBand message (IBTA vol. 1, C9-9).
pub const MAX_REGION_BYTES: u64 = 1 << 31;
/// The maximum number of regions that a host announces by default. The C library's buffer of 768 bytes has room for 31
/// regions.
pub const HOST_MAX_REGIONS: u8 = 31;
/// The maximum number of regions that a server accepts by default.
pub const SERVER_MAX_REGIONS: u8 = 32;
/// The maximum number of regions that the count field of a message can express.
pub const MAX_REGIONS: u8 = u8::MAX;

/// Returns the size in bytes of a receive buffer for messages with up to `max_regions` regions.
pub const fn message_buffer_bytes(max_regions: u8) -> usize {
    4 + 24 * max_regions as usize
}

/// The size in bytes of a receive buffer that is large enough for any MRSP message of a host. The largest message is an
/// AAR with a layout block after its region requests.
pub const HOST_MESSAGE_BYTES: usize =
    message_buffer_bytes(MAX_REGIONS) + crate::layout::block::block_bytes(MAX_REGIONS);

/// The flags of a region, which describe its use. Bits that have no meaning are kept as they were received.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RegionFlags(u8);

impl RegionFlags {
    /// No flag is set.
    pub const NONE: Self = Self(0);
    /// The region exists on the accelerator only.
    pub const INTERNAL: Self = Self(1);
    /// The content of the region is sent to the accelerator with the first call only, and stays there.
    pub const SINGLE_SEND: Self = Self(2);
    /// The content of the region is sent to the accelerator with each call.
    pub const INPUT: Self = Self(4);
    /// The content of the region is sent back to the host after each call.
    pub const OUTPUT: Self = Self(8);

    /// Returns the flags for the byte `bits` of an AAR. Every value of `bits` is accepted, including unknown bits.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the flags as the byte that an AAR contains.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if at least one flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the flags that are set in `self`, in `other`, or in both.
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

/// A 56-bit address in the accelerator's memory. An accelerator need not place a region at the address that the host
/// requests, and may treat the address as a mere label.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NaaAddress(u64);

impl NaaAddress {
    /// The lowest accelerator address.
    pub const ZERO: Self = Self(0);
    /// The first number that is too large for an accelerator address.
    pub const END: u64 = 1 << 56;

    /// Returns the number `address` as an accelerator address, or `None` if the number has more than 56 bits.
    pub const fn new(address: u64) -> Option<Self> {
        if address < Self::END { Some(Self(address)) } else { None }
    }

    /// Returns the lower 56 bits of `word` as an address.
    pub const fn truncate(word: u64) -> Self {
        Self(word & (Self::END - 1))
    }

    /// Returns the address as a number below 2^56.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns true if `bytes` bytes that begin at this address lie inside the address space.
    pub const fn holds(self, bytes: u64) -> bool {
        bytes <= Self::END - self.0
    }
}

impl fmt::Debug for NaaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#016x}", self.0)
    }
}

/// A memory region of one side, which the other side may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The virtual address of the first byte.
    pub addr: u64,
    /// The RKey that the other side's WRITEs to the region must carry.
    pub rkey: u32,
    /// The size of the region in bytes.
    pub size: u32,
}

impl RemoteRegion {
    /// Returns true if the region ends inside the 64-bit address space of its side.
    pub const fn fits_address_space(&self) -> bool {
        self.size == 0 || self.addr.checked_add(self.size as u64 - 1).is_some()
    }
}

/// One entry of an AAR, which requests a region on the accelerator and describes the host's own region for the same
/// parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionRequest {
    /// The flags of the requested region.
    pub flags: RegionFlags,
    /// The accelerator address that the host requests for the region.
    pub naa_addr: NaaAddress,
    /// The host's region, whose size is also the requested size. If the region is INTERNAL, it exists on the
    /// accelerator only, so the host sets the address and RKey to 0.
    pub host: RemoteRegion,
}

impl RegionRequest {
    /// Returns true if the region has the flag INTERNAL, so that the region exists on the accelerator only.
    pub const fn is_internal(&self) -> bool {
        self.flags.contains(RegionFlags::INTERNAL)
    }
}
