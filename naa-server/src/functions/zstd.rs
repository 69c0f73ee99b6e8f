//! Zstandard (RFC 8878) in the frame format that the `zstd` tool reads and writes.

mod frames;

use ::zstd::zstd_safe::{
    self, CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer,
    zstd_sys::ZSTD_ErrorCode::{ZSTD_error_dstSize_tooSmall, ZSTD_error_memory_allocation},
};
use mrsp::builtin::Arguments;

use super::{
    blocks::{CallData, foreign},
    output::Bounded,
};
use crate::call::{CallFailure, ScratchQuota, Stop};
use frames::Frame;

/// The lowest level at which data is compressed in blocks of [`SHORT_BLOCK`] bytes. At this level and above, a block of
/// full length may take more than 100 ms. That is too long, because [`Stop::check`] is called only between two blocks.
const SLOW_LEVEL: i32 = 13;
const SHORT_BLOCK: usize = 32 << 10;
/// The highest compression level that is used. A call that requests a higher level gets this level. Higher levels,
/// which the `zstd` tool accepts only with its option `--ultra`, take almost a gigabyte of memory.
const MAX_LEVEL: i32 = 19;
/// The error code for an output that is too small. The zstd library returns errors as negative numbers in an unsigned
/// type.
const TOO_SMALL: usize = (ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();
/// The error code for an allocation that failed.
const NO_MEMORY: usize = (ZSTD_error_memory_allocation as usize).wrapping_neg();
/// The number of bytes of the buffer between the compressor and the output.
const BUFFER: usize = 32 << 10;
/// The number of bytes that a decompressor allocates for its tables and one block. The decompressor allocates no
/// window, because it uses the output as its window.
pub(super) const DECOMPRESSOR_BYTES: usize = 256 << 10;
/// A frame that has at most this number of blocks and states its content size is decompressed in one step. A single
/// step is faster for small frames.
const FEW_BLOCKS: usize = 8;
/// The base-2 logarithm of the largest window of zstd in bytes. Because the decompressor uses the output as its window,
/// a large window takes no additional memory.
const LARGEST_WINDOW: u32 = if usize::BITS > 32 { 31 } else { 30 };
/// The number of bytes that the decompressor needs at the start of a frame, before it requests more bytes.
const FIRST_BYTES: usize = 5;

/// Compresses `data` into one frame with content size and checksum. Returns the length of the frame.
///
/// `level` is the compression level of zstd. A level above 19 has the same result as level 19. Level 0 is the default
/// of zstd.
///
/// # Errors
/// Fails with [`CallFailure::OutputTooSmall`] if `out` is shorter than the frame. If `out` is too short, the failure's
/// field `output` is 0, and the field `needed` is the length of the frame. Fails with [`CallFailure::OverLimit`] if the
/// machine does not have the memory that the level takes.
pub fn compress(level: i32, data: &[u8], out: &mut [u8]) -> Result<usize, CallFailure> {
    compress_with(level, data, out, 0, &Stop::never(), ScratchQuota::UNLIMITED)
}

fn compress_with(
    level: i32,
    data: &[u8],
    out: &mut [u8],
    output: usize,
    stop: &Stop,
    quota: ScratchQuota<'_>,
) -> Result<usize, CallFailure> {
    let level = level.clamp(*::zstd::compression_level_range().start(), MAX_LEVEL);
    let needed = compressor_bytes(level, data.len());
    let failed = |code| match code {
        NO_MEMORY => no_memory(needed),
        other => CallFailure::Internal(zstd_safe::get_error_name(other).into()),
    };
    let _context = quota.reserve(needed as u64)?;
    let (mut to, mut buffer) = (Bounded::new(out), Vec::new());
    buffer.try_reserve_exact(BUFFER).map_err(|_| no_memory(needed))?;
    let mut context = CCtx::try_create().ok_or_else(|| no_memory(needed))?;
    let block = if level >= SLOW_LEVEL { SHORT_BLOCK } else { frames::MOST_BLOCK };
    context.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
    context.set_parameter(CParameter::ChecksumFlag(true)).map_err(failed)?;
    context.set_parameter(CParameter::MaxBlockSize(block as u32)).map_err(failed)?;
    context.set_pledged_src_size(Some(data.len() as u64)).map_err(failed)?;
    // In its first step, the compressor clears up to 90 MiB of tables. This step compresses only one byte, so that
    // `stop.check` is called again soon.
    let (first, rest) = data.split_at(data.len().min(1));
    for piece in std::iter::once(first).chain(rest.chunks(block)) {
        stop.check()?;
        let mut from = InBuffer::around(piece);
        while from.pos() < piece.len() {
            context.compress_stream(&mut OutBuffer::around(&mut buffer), &mut from).map_err(failed)?;
            to.push(&buffer);
        }
    }
    stop.check()?;
    while context.end_stream(&mut OutBuffer::around(&mut buffer)).map_err(failed)? != 0 {
        to.push(&buffer);
    }
    to.push(&buffer);
    to.finish(output)
}

fn no_memory(needed: usize) -> CallFailure {
    let why = "the server's machine has not that much; ask for a lower level, or give the server more memory";
    CallFailure::OverLimit { needed: needed as u64, why: why.into() }
}

/// Returns an upper bound of the number of bytes that a compressor allocates for an input of `len` bytes. The tables of
/// the compressor grow with the input, up to a maximum size that depends on the level.
pub(super) fn compressor_bytes(level: i32, len: usize) -> usize {
    /// The maximum number of MiB that a compressor allocates at each level from 1 to 19. A negative level needs less
    /// memory than level 1. Level 0 stands for zstd's default level, which is level 3.
    const MOST: [usize; 19] = [2, 3, 4, 5, 6, 6, 8, 8, 16, 26, 26, 46, 38, 54, 70, 38, 58, 59, 91];
    /// The number of bytes that a compression allocates in addition to the tables that grow with the input. These bytes
    /// are the compressor's block buffers, its entropy tables, and the buffer between the compressor and the output.
    const FIXED: usize = 1280 << 10;
    /// If the input is short, the compressor has tables of this many bytes for each byte of the input.
    const TABLES: usize = 20;
    let level = if level == 0 { 3 } else { level.clamp(1, MAX_LEVEL) };
    let most = MOST[level as usize - 1] << 20;
    let short = len.max(1 << 10).checked_next_power_of_two().and_then(|len| len.checked_mul(TABLES));
    short.and_then(|tables| tables.checked_add(FIXED)).map_or(most, |bytes| bytes.min(most))
}

/// Decompresses the frames of `data` one after the other into `out`. Returns the number of decompressed bytes.
///
/// Frames are decompressed directly into `out`, so the window that a frame requests takes no additional memory.
///
/// # Errors
/// Fails with [`CallFailure::Input`] if `data` is not a sequence of whole frames, or if a frame needs a dictionary.
/// Fails with [`CallFailure::OutputTooSmall`] if `out` is too short. The failure's field `output` is then 0. Its field
/// `needed` is the sum of the content sizes, or `None` if a frame does not state its content size. Fails with
/// [`CallFailure::OverLimit`] if the machine does not have enough memory.
pub fn decompress(data: &[u8], out: &mut [u8]) -> Result<usize, CallFailure> {
    decompress_to(data, out, 0, &Stop::never(), ScratchQuota::UNLIMITED)
}

fn decompress_to(
    data: &[u8],
    out: &mut [u8],
    output: usize,
    stop: &Stop,
    quota: ScratchQuota<'_>,
) -> Result<usize, CallFailure> {
    let needed = frames::stated_size(data, stop)?;
    if needed.is_some_and(|needed| needed > out.len() as u64) {
        return Err(CallFailure::OutputTooSmall { output, needed });
    }
    let failed = |code| decompression_failure(code, output);
    let _context = quota.reserve(DECOMPRESSOR_BYTES as u64)?;
    let mut context = DCtx::try_create().ok_or_else(|| no_memory(DECOMPRESSOR_BYTES))?;
    context.set_parameter(DParameter::StableOutBuffer(true)).map_err(failed)?;
    context.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW)).map_err(failed)?;
    let mut to = OutBuffer::around(out);
    let mut rest = data;
    while !rest.is_empty() {
        let frame = Frame::first_of(rest, stop)?;
        let (bytes, behind) = rest.split_at(frame.len);
        rest = behind;
        if !frame.is_skippable {
            decompress_frame(&mut context, &frame, bytes, &mut to, stop)?.map_err(failed)?;
        }
    }
    Ok(to.pos())
}

/// Returns the failure of a call for the error code `code` of the decompressor.
fn decompression_failure(code: usize, output: usize) -> CallFailure {
    match code {
        TOO_SMALL => CallFailure::OutputTooSmall { output, needed: None },
        NO_MEMORY => no_memory(DECOMPRESSOR_BYTES),
        other => CallFailure::Input(zstd_safe::get_error_name(other).into()),
    }
}

/// Decompresses one frame, which is `bytes`, and appends the content of the frame to `to`. In each step, the
/// decompressor gets at most the number of bytes that it requested, which is one block. If the frame is small and
/// states its content size, the decompressor gets the whole frame in one step.
fn decompress_frame(
    context: &mut DCtx<'_>,
    frame: &Frame,
    bytes: &[u8],
    to: &mut OutBuffer<'_, [u8]>,
    stop: &Stop,
) -> Result<Result<(), usize>, CallFailure> {
    let at_once = frame.content.is_some() && frame.blocks <= FEW_BLOCKS;
    let (mut fed, mut wanted) = (0, if at_once { bytes.len() } else { FIRST_BYTES });
    loop {
        stop.check()?;
        let end = bytes.len().min(fed + wanted);
        let mut from = InBuffer::around(&bytes[fed..end]);
        wanted = match context.decompress_stream(to, &mut from) {
            Ok(0) => return Ok(Ok(())),
            Ok(wanted) => wanted,
            Err(code) => return Ok(Err(code)),
        };
        let read = from.pos();
        fed += read;
        if read == 0 && fed == bytes.len() {
            return Err(frames::broken());
        }
    }
}

pub(super) fn run_compress(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::ZstdCompress { bytes, level } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    compress_with(level, input, data.output()?, 1, data.stop, data.quota)
}

pub(super) fn run_decompress(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::ZstdDecompress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    decompress_to(input, data.output()?, 1, data.stop, data.quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decompressor_without_memory_is_over_the_limit() {
        let no_memory = (0..200_usize)
            .map(usize::wrapping_neg)
            .find(|&code| zstd_safe::get_error_name(code) == "Allocation error : not enough memory");
        let failure = decompression_failure(no_memory.unwrap(), 1);
        assert!(matches!(failure, CallFailure::OverLimit { .. }), "{failure}");
    }

    /// Starts to compress an input of `len` bytes, and returns the number of bytes that the compressor has then
    /// allocated. The compressor gets at most the first 100 bytes of the input.
    fn taken(level: i32, len: usize) -> usize {
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(level)).unwrap();
        context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
        context.set_pledged_src_size(Some(len as u64)).unwrap();
        let (data, mut out) = ([7; 100], [0; 1000]);
        let mut from = InBuffer::around(&data[..len.min(100)]);
        context.compress_stream(&mut OutBuffer::around(&mut out[..]), &mut from).unwrap();
        context.sizeof()
    }

    #[test]
    fn a_compressor_takes_no_more_than_is_charged() {
        for level in [-100, -5, -1].into_iter().chain(0..=MAX_LEVEL) {
            for len in [
                0,
                1,
                100,
                5000,
                16 << 10,
                16_385,
                100_000,
                128 << 10,
                200_000,
                256 << 10,
                300_000,
                1 << 20,
                3 << 20,
                16 << 20,
                1 << 31,
            ] {
                let (taken, charged) = (taken(level, len), compressor_bytes(level, len));
                assert!(taken <= charged, "level {level}, {len} bytes: {taken} > {charged}");
                assert!(
                    len < 1 << 20 || charged < 2 * taken + (2 << 20),
                    "level {level}, {len}: {taken}, {charged}"
                );
            }
        }
    }
}
