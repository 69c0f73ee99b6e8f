//! The layout block, which says where a session's parameters lie in the regions of an AAR. In an AAR, the layout block
//! follows the regions.
//!
//! ```text
//! block    "NAAL" | version u8 = 1 | count u8 | zero u16
//! entry    flags u8 | region u8 | zero u16 | offset u32 | host address u64 | rkey u32 | size u32     24 bytes each
//! ```
//!
//! Integers are big-endian, like all integers of MRSP. In an AAR with a layout block, the regions describe only memory
//! of the accelerator, because the layout entries describe the memory of the host. The flags and host addresses of
//! these regions are 0 and have no meaning, except the flags of INTERNAL regions. Each layout entry describes one
//! parameter, and the layout entries are in the order of the program's parameters. The flags of a layout entry have the
//! meaning that the flags of a region have in an AAR without a layout block. The host address and RKey in an output's
//! layout entry say where the accelerator writes the output.
//!
//! - The offset of each parameter is a multiple of [`ALIGNMENT`](super::ALIGNMENT). Each parameter lies inside a region
//!   that is not internal, and no two parameters overlap. No layout entry has the flag INTERNAL. The host's memory for
//!   each parameter ends inside the host's 64-bit address space.
//! - The gap between two consecutive parameters of a region can be shorter than [`ALIGNMENT`](super::ALIGNMENT) bytes.
//!   In this case, one WRITE may write both parameters and the gap. For two outputs, there are two further conditions.
//!   Both outputs must have the same RKey, and the distance between their host addresses must equal the distance
//!   between their offsets in the region.

use crate::{
    codec::TooManyEntries,
    region::{RegionFlags, RemoteRegion},
};

pub(crate) const MAGIC: [u8; 4] = *b"NAAL";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 24;

/// The maximum number of layout entries that the count field of a layout block can express.
pub const MAX_ENTRIES: usize = u8::MAX as usize;

/// Returns the size in bytes of a layout block with `entries` layout entries.
pub const fn block_bytes(entries: u8) -> usize {
    HEADER_BYTES + ENTRY_BYTES * entries as usize
}

/// A layout entry, which describes the location of one parameter on the accelerator and the memory of this parameter on
/// the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutEntry {
    /// The flags of the parameter, which have the same meaning as the flags of a region.
    pub flags: RegionFlags,
    /// The number of the parameter's region in the AAR, where the first region has the number 0.
    pub region: u8,
    /// The offset of the parameter's first byte in the region.
    pub offset: u32,
    /// The host's memory for the parameter. The address and RKey in `host` have a meaning only if the parameter is an
    /// output.
    pub host: RemoteRegion,
}

impl LayoutEntry {
    /// Returns the offset of the first byte after the parameter. If the layout entry is not valid, the returned offset
    /// may lie beyond the end of the region.
    pub const fn end(&self) -> u64 {
        self.offset as u64 + self.host.size as u64
    }
}

/// The layout entries of a layout block, as received and not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutEntries<'a>(&'a [[[u8; 8]; 3]]);

impl<'a> LayoutEntries<'a> {
    /// Returns the number of layout entries, which is the number of the session's parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the layout block has no layout entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator that decodes the layout entries one by one, in the order of the program's parameters.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LayoutEntry> + Clone + use<'a> {
        self.0.iter().map(|words| {
            let [info, addr, rest] = words.map(u64::from_be_bytes);
            LayoutEntry {
                flags: RegionFlags::from_bits((info >> 56) as u8),
                region: (info >> 48) as u8,
                offset: info as u32,
                host: RemoteRegion { addr, rkey: (rest >> 32) as u32, size: rest as u32 },
            }
        })
    }
}

/// Decodes a layout block without allocating memory. Returns `None` if `bytes` is not exactly one layout block.
pub(crate) fn decode(bytes: &[u8]) -> Option<LayoutEntries<'_>> {
    let (&[a, b, c, d, version, count, _, _], body) = bytes.split_first_chunk()?;
    let known = [a, b, c, d] == MAGIC && version == VERSION;
    let whole = body.len() == usize::from(count) * ENTRY_BYTES;
    (known && whole).then_some(LayoutEntries(body.as_chunks().0.as_chunks().0))
}

/// Appends a layout block with the layout entries `entries` to `message`.
///
/// # Errors
/// Returns an error if there are more than 255 layout entries. After an error, `message` is unchanged.
pub(crate) fn encode(entries: &[LayoutEntry], message: &mut Vec<u8>) -> Result<(), TooManyEntries> {
    let count = u8::try_from(entries.len()).map_err(|_| TooManyEntries(entries.len()))?;
    message.extend(MAGIC);
    message.extend([VERSION, count, 0, 0]);
    for entry in entries {
        let LayoutEntry { flags, region, offset, host } = entry;
        let info = u64::from(flags.bits()) << 56 | u64::from(*region) << 48 | u64::from(*offset);
        let rest = u64::from(host.rkey) << 32 | u64::from(host.size);
        message.extend([info, host.addr, rest].map(u64::to_be_bytes).as_flattened());
    }
    Ok(())
}

/// Returns the numbers of the layout entries, in the order in which the parameters lie in the regions. `entries` must
/// have at most 255 elements.
pub(crate) fn in_order(entries: &[LayoutEntry]) -> Vec<u8> {
    let mut order: Vec<_> = (0..=u8::MAX).take(entries.len()).collect();
    order.sort_by_key(|&number| {
        let LayoutEntry { region, offset, host, .. } = entries[usize::from(number)];
        (region, offset, host.size)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_as_documented() {
        let host = RemoteRegion { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, size: 0x10 };
        let flags = RegionFlags::INPUT | RegionFlags::OUTPUT;
        let entry = LayoutEntry { flags, region: 2, offset: 0x40, host };
        let mut bytes = Vec::new();
        encode(&[entry], &mut bytes).unwrap();
        let golden = b"NAAL\x01\x01\0\0\
            \x0c\x02\0\0\0\0\0\x40\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\0\0\0\x10";
        assert_eq!(bytes, golden);
        assert_eq!((bytes.len(), block_bytes(1), block_bytes(3)), (32, 32, 80));
        assert_eq!(decode(&bytes).unwrap().iter().collect::<Vec<_>>(), [entry]);
    }

    #[test]
    fn what_is_not_exactly_a_block_is_none() {
        let mut bytes = Vec::new();
        encode(&[LayoutEntry::default(); 2], &mut bytes).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len}");
        }
        for (at, wrong) in [(0, b'n'), (4, 0), (4, 2), (5, 1), (5, 3)] {
            let mut other = bytes.clone();
            other[at] = wrong;
            assert_eq!(decode(&other), None, "byte {at}");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), None);
    }
}
