//! References to the application's memory. This crate never accesses that memory: it names the place, and the caller
//! copies.

/// The number of a registered region: its slot in the MR table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// A range of bytes in a registered region, already checked against the region's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub region: RegionId,
    pub offset: u64,
    pub len: u32,
}

/// The caller's memory, into which received payload is copied.
pub trait Memory {
    /// Copies `bytes` to `offset` of `region`. Bounds and rights have been checked.
    fn place(&mut self, region: RegionId, offset: u64, bytes: &[u8]);
}
