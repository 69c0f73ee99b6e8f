//! Regions of the application's memory, and offsets in regions. This crate never accesses the application's memory. The
//! caller copies the payload between packets and memory, and this crate tells it which regions and offsets to use.

/// The number of a registered region, which is the region's slot in the table of memory regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// A range of bytes in a registered region. The range is inside the bounds of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The region that contains the bytes.
    pub region: RegionId,
    /// The offset of the first byte in the region.
    pub offset: u64,
    /// The number of bytes in the range.
    pub len: u32,
}

/// The caller's memory, into which received payload is copied.
pub trait RegionWriter {
    /// Copies `bytes` to the offset `offset` of `region`. Bounds and access rights were checked before the call.
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]);
}
