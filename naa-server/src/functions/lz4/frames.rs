//! Finds the beginning and the end of LZ4 frames without decompressing them (LZ4 Frame Format Description 1.6).

use super::LEGACY_MAGIC;
use crate::{
    call::{CallFailure, Stop},
    functions::frame_sequence::{is_skippable, skippable_len, word},
};

/// The number of blocks between two calls of [`Stop::check`]. The function reads only the header of each block, which
/// takes about as long as one cache miss. The headers of so many blocks take some milliseconds.
const STRIDE: usize = 1 << 16;
/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The length of the frame in bytes, including its checksum. If the frame is cut off, or if its magic number is
    /// unknown, `len` is the length of all data.
    pub(super) len: usize,
    /// The number of bytes to which the frame decompresses, or `None` if the frame does not state this number.
    pub(super) content: Option<u64>,
    pub(super) is_skippable: bool,
    /// True if the end of the frame was found. A frame in the legacy format has no end mark. Such a frame ends where
    /// all data ends, and its end counts as found if the last block is complete.
    pub(super) is_whole: bool,
}

impl Frame {
    /// Reads the headers of the first frame of `data`. A skippable frame that is cut off does not count as skippable,
    /// so the decoder gets it and refuses it.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    pub(super) fn first_of(data: &[u8], stop: &Stop) -> Result<Self, CallFailure> {
        if is_skippable(data) {
            stop.check()?;
            let whole = skippable_len(data);
            let (len, content) = whole.map_or((data.len(), None), |len| (len, Some(0)));
            let is_whole = whole.is_some();
            return Ok(Self { len, content, is_skippable: is_whole, is_whole });
        }
        // A frame in the legacy format has neither flags nor checksums.
        let is_legacy = data.starts_with(&LEGACY_MAGIC);
        let flags = data.get(4).copied().filter(|_| data.starts_with(&MAGIC)).unwrap_or(0);
        let bytes_if = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
        let [dictionary, size] = [bytes_if(1, 4), bytes_if(8, 8)];
        let [checksum, block_checksum] = [bytes_if(4, 4), bytes_if(16, 4)];
        let stated = data.get(6..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes);
        let content = stated.filter(|_| size != 0);
        let cut = Self { len: data.len(), content, is_skippable: false, is_whole: false };
        if flags == 0 && !is_legacy {
            return Ok(cut);
        }
        let mut at = if is_legacy { LEGACY_MAGIC.len() } else { 7 + size + dictionary };
        for blocks in 0.. {
            if blocks % STRIDE == 0 {
                stop.check()?;
            }
            let Some(header) = word(data, at) else { break };
            at += 4;
            // A block of length 0 is the end mark. The highest bit says whether the block is compressed.
            if header == 0 {
                let len = at + checksum;
                return Ok(if len <= data.len() { Self { len, is_whole: true, ..cut } } else { cut });
            }
            at = at.saturating_add((header & 0x7fff_ffff) as usize + block_checksum);
        }
        Ok(Self { is_whole: is_legacy && at == data.len(), ..cut })
    }
}
