//! What LZ4 and zstd have in common: data that is a sequence of frames, and skippable frames (RFC 8878, section 3.1.2).

use crate::call::CallFailure;

/// The lowest magic number of a skippable frame. The sixteen magic numbers of skippable frames differ only in the
/// lowest four bits.
const SKIPPABLE: u32 = 0x184d_2a50;

/// Returns the little-endian number in the 4 bytes at the offset `at`, or `None` if `data` ends before the fourth byte.
pub(super) fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// Returns true if `data` begins with the magic number of a skippable frame.
pub(super) fn is_skippable(data: &[u8]) -> bool {
    word(data, 0).is_some_and(|magic| magic & !15 == SKIPPABLE)
}

/// Returns the length of the skippable frame with which `data` begins, or `None` if the frame is cut off.
pub(super) fn skippable_len(data: &[u8]) -> Option<usize> {
    let len = usize::try_from(word(data, 4)?).ok()?.checked_add(8)?;
    Some(len).filter(|len| *len <= data.len())
}

/// Returns the sum of the content sizes that are stated in the LZ4 or zstd frames of `data`. The content size of a
/// frame is the length of its decompressed data. Returns `None` if a frame states no content size, or if the sum does
/// not fit in a `u64`. `first_of` returns two numbers for the first frame of its argument: the length of the frame,
/// which is at least 1, and the content size that the frame states.
///
/// # Errors
/// Fails with the errors of `first_of`.
pub(super) fn stated_size(
    mut data: &[u8],
    mut first_of: impl FnMut(&[u8]) -> Result<(usize, Option<u64>), CallFailure>,
) -> Result<Option<u64>, CallFailure> {
    let mut sum = Some(0_u64);
    loop {
        let (len, content) = first_of(data)?;
        sum = sum.zip(content).and_then(|(sum, size)| sum.checked_add(size));
        data = &data[len..];
        if data.is_empty() {
            return Ok(sum);
        }
    }
}
