//! The bounds of the memory and time of each built-in function. They are the function's scratch memory, its longest
//! work between two calls of [`Stop::check`](crate::call::Stop::check), and the maximum total size of the regions of an
//! inline call.
//!
//! Scratch memory is charged to the calling session before it is allocated. The limits of the session, of its source
//! network and of the server include scratch memory. If a call's scratch memory would exceed one of these three limits,
//! the call is refused with [`OVER_LIMIT`](mrsp::ReturnCode::OVER_LIMIT).

use mrsp::{
    FunctionCode,
    builtin::{self, Arguments},
};

use super::{dgemm, fft, lz4, zstd};
use crate::function::Execution;

/// The bounds of the memory and time of a built-in function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The function code of the built-in function.
    pub code: FunctionCode,
    /// The scratch memory of the function, as text for people. [`extra_bytes`] computes the size of a call's scratch
    /// memory.
    pub memory: &'static str,
    /// The longest work between two calls of [`Stop::check`](crate::call::Stop::check), as text for people.
    pub between_checks: &'static str,
    /// A call may run in the server loop if its regions have at most this number of bytes together. Even with the
    /// slowest input, a call with at most this number of bytes takes at most 100 microseconds.
    pub inline_bytes: u64,
}

/// The value of `inline_bytes` for functions whose calls take only microseconds with regions of any size.
const ANY: u64 = u64::MAX;
const NONE: &str = "none";

/// The bounds of all built-in functions, in the order of their function codes.
pub const BOUNDS: &[Bounds] = &[
    row(builtin::INCREMENT, NONE, "4 MiB", 16 << 10),
    row(builtin::INCREMENT_BY_TWO, NONE, "4 MiB", 16 << 10),
    row(builtin::NOTHING, NONE, "does no work", ANY),
    row(builtin::SHA256, NONE, "4 MiB", 16 << 10),
    row(builtin::CRC32C, NONE, "16 MiB", 16 << 10),
    row(
        builtin::DGEMM,
        "packed blocks: 8·min(k, 256)·(min(m, 64) + min(n, 1024)) bytes, at most 2.2 MiB",
        "a tile of 2^27 multiplications",
        16 << 10,
    ),
    row(
        builtin::FFT,
        "n up to 65536: 80·n bytes and 5 KiB, 352·n if n has a prime factor above 7; above, for a product of two factors \
         up to 65536: 16·n bytes and tables and buffers of up to 30 MiB; for any other n: 32·m bytes and tables and \
         buffers of up to 6 MiB, where m is between 2·n and 2.5·n",
        "n up to 65536: one transform; above: a stripe of 32768 numbers, or four rows or columns",
        16 << 10,
    ),
    row(builtin::LZ4_COMPRESS, "two blocks and a table: at most 8.7 MiB", "4 MiB", 16 << 10),
    row(
        builtin::LZ4_DECOMPRESS,
        "two or three blocks as the frame says: at most 12.2 MiB, of the legacy format 24.2 MiB",
        "a block of at most 8 MiB",
        0,
    ),
    row(
        builtin::ZSTD_COMPRESS,
        "by level, at most 91 MiB for level 19; at most 1.3 MiB and 40 bytes per byte of input",
        "a block of 128 KiB, from level 13 on of 32 KiB; clearing the tables",
        0,
    ),
    row(builtin::ZSTD_DECOMPRESS, "256 KiB", "8 blocks of 128 KiB", 4 << 10),
    row(builtin::VECTOR_ADD, NONE, "64 KiB", 16 << 10),
    row(builtin::HISTOGRAM, NONE, "256 KiB", 16 << 10),
    row(builtin::SORT, NONE, "2^20 numbers", 16 << 10),
    row(builtin::CATALOGUE, NONE, "copies the table, some KiB", ANY),
];

const fn row(
    code: FunctionCode,
    memory: &'static str,
    between_checks: &'static str,
    inline_bytes: u64,
) -> Bounds {
    Bounds { code, memory, between_checks, inline_bytes }
}

/// Returns the bounds of a function's memory and time, or `None` if [`BOUNDS`] does not contain the function code
/// `code`.
pub fn of(code: FunctionCode) -> Option<&'static Bounds> {
    BOUNDS.iter().find(|bounds| bounds.code == code)
}

/// Returns whether a call runs in the server loop or on the pool. `bytes` is the total size of the call's regions. If
/// [`BOUNDS`] does not contain the function, the call runs on the pool.
pub(super) fn execution(code: FunctionCode, bytes: u64) -> Execution {
    let is_short = of(code).is_some_and(|bounds| bytes <= bounds.inline_bytes);
    if is_short { Execution::Inline } else { Execution::Pooled }
}

/// Returns the maximum number of bytes of scratch memory that a call with these arguments takes.
pub fn extra_bytes(arguments: &Arguments) -> usize {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    match *arguments {
        Arguments::Dgemm { m, n, k } => dgemm::packed_bytes([m, n, k].map(size)),
        Arguments::Fft { n, .. } => fft::extra_bytes(size(n)),
        Arguments::Lz4Compress { bytes } => lz4::encoder_bytes(size(bytes)),
        Arguments::Lz4Decompress { .. } => lz4::MOST_DECODER_BYTES,
        Arguments::ZstdCompress { bytes, level } => zstd::compressor_bytes(level, size(bytes)),
        Arguments::ZstdDecompress { .. } => zstd::DECOMPRESSOR_BYTES,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_bounds() {
        assert!(BOUNDS.iter().map(|bounds| bounds.code).eq(builtin::NAMES.iter().map(|(code, _)| *code)));
    }
}
