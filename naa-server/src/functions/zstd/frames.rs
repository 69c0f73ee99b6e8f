//! Finds the beginning and the end of zstd frames without decompressing them (RFC 8878, section 3.1).

use ::zstd::zstd_safe;

use crate::{
    call::{CallFailure, Stop},
    functions::frame_sequence::{self, is_skippable, skippable_len, word},
};

/// The maximum number of bytes to which one block decompresses.
pub(super) const MOST_BLOCK: usize = 128 << 10;
/// The number of blocks and frames between two calls of [`Stop::check`]. Reading a block takes about as long as one
/// cache miss, because only the header of the block is read.
const STRIDE: usize = 1 << 16;
const MAGIC: u32 = 0xfd2f_b528;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The length of the frame in bytes, including its checksum.
    pub(super) len: usize,
    /// The number of bytes to which the frame decompresses, or `None` if the frame does not state this number.
    pub(super) content: Option<u64>,
    pub(super) blocks: usize,
    pub(super) is_skippable: bool,
}

pub(super) fn broken() -> CallFailure {
    CallFailure::Input("not a sequence of whole zstd frames".into())
}

impl Frame {
    /// Reads the headers of the first frame of `data`.
    ///
    /// # Errors
    /// Fails with [`CallFailure::Input`] if `data` does not begin with a whole frame, or with the error of
    /// [`Stop::check`] if the call should stop.
    pub(super) fn first_of(data: &[u8], stop: &Stop) -> Result<Self, CallFailure> {
        if is_skippable(data) {
            let len = skippable_len(data).ok_or_else(broken)?;
            return Ok(Self { len, content: Some(0), blocks: 0, is_skippable: true });
        }
        let descriptor =
            usize::from(*data.get(4).filter(|_| word(data, 0) == Some(MAGIC)).ok_or_else(broken)?);
        let content = zstd_safe::get_frame_content_size(data).map_err(|_| broken())?;
        let single_segment = descriptor & 0x20 != 0;
        let window = usize::from(!single_segment);
        let dictionary = [0, 1, 2, 4][descriptor & 3];
        let size = [usize::from(single_segment), 2, 4, 8][descriptor >> 6];
        let checksum = if descriptor & 4 != 0 { 4 } else { 0 };
        let mut at = 5 + window + dictionary + size;
        for blocks in 1.. {
            if blocks % STRIDE == 0 {
                stop.check()?;
            }
            let Some(&[low, middle, high]) = data.get(at..).and_then(<[u8]>::first_chunk) else { break };
            let header = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
            let (last, kind, size) = (header & 1 != 0, header >> 1 & 3, header >> 3);
            at += 3 + match kind {
                // A block of kind 1 (RLE) has only one byte after its header. The decompressor repeats this byte `size`
                // times.
                1 => 1,
                3 => return Err(broken()),
                _ => size,
            };
            if last {
                let len = at + checksum;
                return if len <= data.len() {
                    Ok(Self { len, content, blocks, is_skippable: false })
                } else {
                    Err(broken())
                };
            }
        }
        Err(broken())
    }
}

/// Returns the sum of the content sizes that the frames of `data` state. Returns `None` if a frame states no size, or
/// if the sum does not fit in a `u64`.
///
/// # Errors
/// Fails with [`CallFailure::Input`] if `data` is not a sequence of whole frames, or with the error of [`Stop::check`]
/// if the call should stop.
pub(super) fn stated_size(data: &[u8], stop: &Stop) -> Result<Option<u64>, CallFailure> {
    // `read` is the number of frames and blocks since the last call of `Stop::check`.
    let mut read = 0;
    frame_sequence::stated_size(data, |rest| {
        let frame = Frame::first_of(rest, stop)?;
        read += 1 + frame.blocks;
        if read >= STRIDE {
            read = 0;
            stop.check()?;
        }
        Ok((frame.len, frame.content))
    })
}
