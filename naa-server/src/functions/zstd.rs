//! Zstandard (RFC 8878), frames as the `zstd` tool reads and writes them.

use std::io::Write;

use ::zstd::{
    stream::write::Encoder,
    zstd_safe::{self, DCtx, zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall},
};
use mrsp::builtin::Arguments;

use super::{
    blocks::{Data, foreign},
    output::Bounded,
};
use crate::call::{Failure, Stop};

/// Bytes between two looks at the time.
const STRIDE: usize = 1 << 20;
/// Levels above (`--ultra`) take most of a gigabyte of memory, which is on nobody's account.
const MAX_LEVEL: i32 = 19;
/// zstd returns errors as negative numbers in an unsigned type.
const TOO_SMALL: usize = (ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();

/// Compresses `data` into one frame with content size and checksum. Gives its length.
///
/// `level` is zstd's, at most 19; 0 is its default.
///
/// # Errors
/// [`Failure::OutputTooSmall`] of output 0 with the length of the frame if `out` is shorter.
pub fn compress(level: i32, data: &[u8], out: &mut [u8]) -> Result<usize, Failure> {
    compress_with(level, data, out, 0, &Stop::never())
}

fn compress_with(
    level: i32,
    data: &[u8],
    out: &mut [u8],
    output: usize,
    stop: &Stop,
) -> Result<usize, Failure> {
    let internal = |error: std::io::Error| Failure::Internal(error.to_string().into());
    let level = level.clamp(*::zstd::compression_level_range().start(), MAX_LEVEL);
    let mut encoder = Encoder::new(Bounded::new(out), level).map_err(internal)?;
    encoder.include_checksum(true).map_err(internal)?;
    encoder.set_pledged_src_size(Some(data.len() as u64)).map_err(internal)?;
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        encoder.write_all(piece).map_err(internal)?;
    }
    encoder.finish().map_err(internal)?.finish(output)
}

/// Decompresses the frames of `data`, one after the other, into `out`. Gives the number of bytes.
///
/// Frames are decompressed in one step straight into `out`, so whatever window a frame claims to need takes
/// no memory.
///
/// # Errors
/// [`Failure::Input`] if `data` is anything but whole frames without dictionary, [`Failure::OutputTooSmall`]
/// of output 0 if `out` is too short, with the size needed if all frames state theirs.
pub fn decompress(data: &[u8], out: &mut [u8]) -> Result<usize, Failure> {
    decompress_to(data, out, 0)
}

fn decompress_to(data: &[u8], out: &mut [u8], output: usize) -> Result<usize, Failure> {
    let needed = stated_size(data)?;
    if needed.is_some_and(|needed| needed > out.len() as u64) {
        return Err(Failure::OutputTooSmall { output, needed });
    }
    let mut context = DCtx::try_create().ok_or(Failure::Internal("no memory to decompress zstd".into()))?;
    context.decompress(out, data).map_err(|error| match error {
        TOO_SMALL => Failure::OutputTooSmall { output, needed: None },
        other => Failure::Input(zstd_safe::get_error_name(other).into()),
    })
}

/// The sum of what frames state as their content sizes, if all do.
fn stated_size(mut data: &[u8]) -> Result<Option<u64>, Failure> {
    let broken = || Failure::Input("not a sequence of whole zstd frames".into());
    if data.is_empty() {
        return Err(broken());
    }
    let mut sum = Some(0_u64);
    while !data.is_empty() {
        let size = zstd_safe::get_frame_content_size(data).map_err(|_| broken())?;
        let length = zstd_safe::find_frame_compressed_size(data).map_err(|_| broken())?;
        sum = sum.zip(size).and_then(|(sum, size)| sum.checked_add(size));
        data = data.get(length.max(1)..).ok_or_else(broken)?;
    }
    Ok(sum)
}

pub(super) fn run_compress(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::ZstdCompress { bytes, level } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    compress_with(level, input, data.output()?, 1, data.stop)
}

pub(super) fn run_decompress(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::ZstdDecompress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    decompress_to(input, data.output()?, 1)
}
