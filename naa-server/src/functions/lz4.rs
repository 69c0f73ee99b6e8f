//! LZ4 in the frame format (LZ4 Frame Format Description 1.6), which the `lz4` tool reads and writes.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use mrsp::builtin::Arguments;

use super::{
    blocks::{Data, foreign},
    output::Bounded,
};
use crate::call::{Failure, Stop};

/// Bytes between two looks at the time.
const STRIDE: usize = 4 << 20;
/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Compresses `data` into one frame with content size and checksum. Gives its length.
///
/// # Errors
/// [`Failure::OutputTooSmall`] of output 0 with the length of the frame if `out` is shorter.
pub fn compress(data: &[u8], out: &mut [u8]) -> Result<usize, Failure> {
    compress_with(data, out, 0, &Stop::never())
}

/// Decompresses the frames of `data`, one after the other, into `out`. Gives the number of bytes.
///
/// # Errors
/// [`Failure::Input`] if `data` is anything but whole frames without dictionary, [`Failure::OutputTooSmall`]
/// of output 0 if `out` is full, with the size needed if `data` is one frame that states it.
pub fn decompress(data: &[u8], out: &mut [u8]) -> Result<usize, Failure> {
    decompress_with(data, out, 0, &Stop::never())
}

fn compress_with(data: &[u8], out: &mut [u8], output: usize, stop: &Stop) -> Result<usize, Failure> {
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

fn internal(error: impl ToString) -> Failure {
    Failure::Internal(error.to_string().into())
}

fn decompress_with(data: &[u8], out: &mut [u8], output: usize, stop: &Stop) -> Result<usize, Failure> {
    let mut decoder = FrameDecoder::new(Source { data, starved: false });
    let mut produced = 0;
    loop {
        stop.check()?;
        let mut spare = [0];
        let end = out.len().min(produced + STRIDE);
        let full = produced == out.len();
        let room = if full { &mut spare[..] } else { &mut out[produced..end] };
        match decoder.read(room).map_err(|error| Failure::Input(error.to_string().into()))? {
            0 if decoder.get_ref().starved => return Err(Failure::Input("LZ4 frame is cut off".into())),
            0 if decoder.get_ref().data.is_empty() => return Ok(produced),
            0 => {} // Between two frames.
            _ if full => return Err(Failure::OutputTooSmall { output, needed: stated_size(data, produced) }),
            n => produced += n,
        }
    }
}

/// The content size in the header of the first frame, if that is more than the `produced` bytes already seen.
fn stated_size(data: &[u8], produced: usize) -> Option<u64> {
    let has_size = data.get(4)? & 8 != 0;
    let size = u64::from_le_bytes(data.get(6..14)?.try_into().ok()?);
    (data.starts_with(&MAGIC) && has_size && size > produced as u64).then_some(size)
}

/// The input, remembering whether more was wanted than there is: the decoder takes the end of its input for
/// the end of a frame.
struct Source<'a> {
    data: &'a [u8],
    starved: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.data.read(out)?;
        self.starved |= n == 0 && !out.is_empty();
        Ok(n)
    }
}

pub(super) fn run_compress(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Lz4Compress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    compress_with(input, data.output()?, 1, data.stop)
}

pub(super) fn run_decompress(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Lz4Decompress { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    decompress_with(input, data.output()?, 1, data.stop)
}
