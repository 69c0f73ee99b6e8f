//! How much room results can need.

/// A zstd frame of `len` bytes: `ZSTD_compressBound` allows 1/256 and 64 bytes per block of 128 KiB more.
pub(crate) fn for_zstd(len: usize) -> usize {
    len.saturating_add(len / 128).saturating_add(1024)
}

/// An LZ4 frame of `len` bytes: a block that cannot be compressed is stored with its length, per 64 KiB at the
/// most; header, end mark and checksums are some tens of bytes.
pub(crate) fn for_lz4(len: usize) -> usize {
    len.saturating_add(len / 8192).saturating_add(1024)
}
