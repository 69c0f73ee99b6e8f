//! LZ4 in the frame format (LZ4 Frame Format Description 1.6), which the `lz4` tool reads and writes.

mod frames;

use std::io::{Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use mrsp::builtin::Arguments;

use super::{
    blocks::{CallData, foreign},
    frame_sequence,
    output::Bounded,
};
use crate::{
    call::{CallFailure, ScratchQuota, Stop},
    memory_budget::Reservation,
};
use frames::Frame;

/// The number of bytes between two calls of [`Stop::check`]. The largest block of the frame format has this length, but
/// a block of a legacy frame may have 8 MiB.
const STRIDE: usize = 4 << 20;
/// The first bytes of a frame in the legacy format.
const LEGACY_MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
/// The maximum sizes in bytes that blocks can have in the frame format. In the header of a frame, the numbers 4 to 7
/// stand for these four sizes.
const BLOCKS: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, MOST_BLOCK];
const MOST_BLOCK: usize = 4 << 20;
const MOST_LEGACY_BLOCK: usize = 8 << 20;
/// An upper bound for the size in bytes of the encoder's table, and also of the decoder's window. The window has the
/// last bytes of earlier blocks, to which a block may refer.
const FIXED_BYTES: usize = 192 << 10;

/// Compresses `data` into one frame with content size and checksum. Returns the length of the frame.
///
/// # Errors
/// Fails with [`CallFailure::OutputTooSmall`] if `out` is shorter than the frame. If `out` is too short, the failure's
/// field `output` is 0, and the field `needed` is the length of the frame. Fails with [`CallFailure::OverLimit`] if the
/// machine does not have enough memory.
pub fn compress(data: &[u8], out: &mut [u8]) -> Result<usize, CallFailure> {
    compress_with(data, out, 0, &Stop::never(), ScratchQuota::UNLIMITED)
}

/// Decompresses the frames of `data` one after the other into `out`, and skips skippable frames. Returns the number of
/// decompressed bytes.
///
/// # Errors
/// Fails with [`CallFailure::Input`] if `data` is not a sequence of whole frames without dictionary. Fails with
/// [`CallFailure::OutputTooSmall`] if `out` is too short. If `out` is too short, the failure's field `output` is 0, and
/// the field `needed` is the sum of the content sizes that the frames state. `needed` is `None` if a frame does not
/// state its content size. `needed` is also `None` if this sum is at most the length of `out`. Such a sum must be
/// wrong, because the content did not fit into `out`. Fails with [`CallFailure::OverLimit`] if the machine does not
/// have enough memory.
pub fn decompress(data: &[u8], out: &mut [u8]) -> Result<usize, CallFailure> {
    decompress_with(data, out, 0, &Stop::never(), ScratchQuota::UNLIMITED)
}

/// Returns the maximum number of bytes that the encoder allocates for an input of `len` bytes. The encoder allocates a
/// block, a compressed block and a table. The encoder chooses the block size by the length of its first write. The
/// first write has `len` bytes or [`STRIDE`] bytes, whichever is less.
pub(super) fn encoder_bytes(len: usize) -> usize {
    // The encoder chooses a block size of 64 KiB, 256 KiB or 4 MiB, but never 1 MiB.
    let block = BLOCKS[..2].iter().copied().find(|block| len <= *block).unwrap_or(MOST_BLOCK);
    2 * block + block / 8 + FIXED_BYTES
}

fn compress_with(
    data: &[u8],
    out: &mut [u8],
    output: usize,
    stop: &Stop,
    quota: ScratchQuota<'_>,
) -> Result<usize, CallFailure> {
    let _buffers = quota.reserve_for_library(encoder_bytes(data.len()))?;
    let info = FrameInfo::new()
        .block_size(BlockSize::Auto)
        .block_mode(BlockMode::Independent)
        .content_size(Some(data.len() as u64))
        .content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Bounded::new(out));
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        encoder.write_all(piece).map_err(internal)?;
    }
    encoder.finish().map_err(internal)?.finish(output)
}

fn internal(error: impl ToString) -> CallFailure {
    CallFailure::Internal(error.to_string().into())
}

fn decompress_with(
    data: &[u8],
    out: &mut [u8],
    output: usize,
    stop: &Stop,
    quota: ScratchQuota<'_>,
) -> Result<usize, CallFailure> {
    let mut decoder = FrameDecoder::new(&[][..]);
    let mut produced = 0;
    let mut charge = DecoderCharge { quota, bytes: 0, reserved: Vec::new() };
    let mut rest = data;
    loop {
        let frame = Frame::first_of(rest, stop)?;
        let (bytes, behind) = rest.split_at(frame.len);
        rest = behind;
        if !frame.is_skippable {
            charge.for_frame(bytes)?;
            *decoder.get_mut() = bytes;
            loop {
                stop.check()?;
                let mut spare = [0];
                let end = out.len().min(produced + STRIDE);
                let full = produced == out.len();
                let room = if full { &mut spare[..] } else { &mut out[produced..end] };
                match decoder.read(room).map_err(|error| CallFailure::Input(error.to_string().into()))? {
                    // The decoder returns 0 at the end of a frame, at the end of its input, and after a block that
                    // decompresses to no bytes.
                    0 if decoder.get_ref().is_empty() && frame.is_whole => break,
                    0 if decoder.get_ref().is_empty() => {
                        return Err(CallFailure::Input("LZ4 frame is cut off".into()));
                    }
                    // The decoder has read a block that decompresses to no bytes. The next pass of the loop reads the
                    // next block.
                    0 => {}
                    _ if full => {
                        let stated = frame_sequence::stated_size(data, |rest| {
                            Frame::first_of(rest, stop).map(|frame| (frame.len, frame.content))
                        });
                        let needed = stated?.filter(|size| *size > produced as u64);
                        return Err(CallFailure::OutputTooSmall { output, needed });
                    }
                    n => produced += n,
                }
            }
        }
        if rest.is_empty() {
            return Ok(produced);
        }
    }
}

/// The charge for the decoder's buffers, which become larger when a frame has larger blocks.
struct DecoderCharge<'a> {
    quota: ScratchQuota<'a>,
    bytes: usize,
    reserved: Vec<Option<Reservation>>,
}

impl DecoderCharge<'_> {
    /// Charges the memory for the frame `data`, which the decoder reads next.
    fn for_frame(&mut self, data: &[u8]) -> Result<(), CallFailure> {
        let needed = decoder_bytes(data);
        if needed > self.bytes {
            // If a frame needs more memory than any frame before it, the additional memory is reserved. Frames have
            // only a few block sizes, so the list of reservations stays short.
            self.reserved.push(self.quota.reserve_for_library(needed - self.bytes)?);
            self.bytes = needed;
        }
        Ok(())
    }
}

/// The maximum number of bytes that the decoder allocates.
pub(super) const MOST_DECODER_BYTES: usize = FIXED_BYTES + 3 * MOST_LEGACY_BLOCK;

/// Returns the maximum number of bytes that the decoder allocates for the frame `data`. The decoder allocates a
/// compressed block and a decompressed block. If the blocks of the frame refer to earlier blocks, the decoder also
/// allocates a second decompressed block and the window. The window has the last bytes of earlier blocks.
fn decoder_bytes(data: &[u8]) -> usize {
    let is_linked = data.get(4).is_some_and(|flags| flags & 0x20 == 0);
    let block = if data.starts_with(&LEGACY_MAGIC) {
        MOST_LEGACY_BLOCK
    } else {
        data.get(5).map_or(0, |sizes| BLOCKS[usize::from(sizes >> 4 & 3)])
    };
    FIXED_BYTES + block + if is_linked { 2 * block } else { block }
}

pub(super) fn run_compress(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Lz4Compress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    compress_with(input, data.output()?, 1, data.stop, data.quota)
}

pub(super) fn run_decompress(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Lz4Decompress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    decompress_with(input, data.output()?, 1, data.stop, data.quota)
}
