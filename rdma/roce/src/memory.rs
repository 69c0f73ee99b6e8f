//! The core never owns application memory: it names places, the driver copies.

/// The driver's name for a registered region: its slot in the MR table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// A run of bytes in a registered region, already checked against its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub region: RegionId,
    pub offset: u64,
    pub len: u32,
}

/// Carries out the core's Place commands.
pub trait Memory {
    /// Copies `bytes` to `offset` of `region`. Bounds and permission were checked.
    fn place(&mut self, region: RegionId, offset: u64, bytes: &[u8]);
}
