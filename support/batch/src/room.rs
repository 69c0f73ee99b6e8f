//! The most bytes that results can need.

/// The longest zstd frame of `len` bytes: `ZSTD_compressBound` allows 1/256 and 64 bytes per block of 128 KiB more.
pub fn for_zstd(len: usize) -> usize {
    len.saturating_add(len / 128).saturating_add(1024)
}

/// The longest LZ4 frame of `len` bytes. A block that cannot be compressed is stored with its length, and a block has
/// at least 64 KiB; header, end mark and checksums are some tens of bytes.
pub fn for_lz4(len: usize) -> usize {
    len.saturating_add(len / 8192).saturating_add(1024)
}
