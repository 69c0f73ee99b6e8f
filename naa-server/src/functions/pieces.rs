//! Functions that copy, fill or touch large memory piece by piece. [`Stop::check`] is called before each piece.

use crate::call::{CallFailure, Stop};

/// The number of bytes of a piece, which a function processes between two calls of [`Stop::check`]. If the pages of a
/// piece were never touched, the Linux kernel needs about a microsecond for each of the 1024 pages. The time between
/// the two calls is then about a millisecond.
const STRIDE: usize = 4 << 20;

/// Copies `from` to `to`, which have the same length.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop.
pub(super) fn copy(to: &mut [u8], from: &[u8], stop: &Stop) -> Result<(), CallFailure> {
    for (to, from) in to.chunks_mut(STRIDE).zip(from.chunks(STRIDE)) {
        stop.check()?;
        to.copy_from_slice(from);
    }
    Ok(())
}

/// Calls `work` with each piece of `all`, one after the other.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop.
pub(super) fn each<T>(all: &mut [T], stop: &Stop, mut work: impl FnMut(&mut [T])) -> Result<(), CallFailure> {
    for piece in all.chunks_mut((STRIDE / size_of::<T>().max(1)).max(1)) {
        stop.check()?;
        work(piece);
    }
    Ok(())
}

/// Sets every element to `value`.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop.
pub(super) fn fill<T: Copy>(all: &mut [T], value: T, stop: &Stop) -> Result<(), CallFailure> {
    each(all, stop, |piece| piece.fill(value))
}

/// Touches each page of `all`, so that the Linux kernel provides all pages now. Call this function before work that
/// accesses the pages of `all` in another order than from start to end. This work then does not wait for pages. A page
/// that was never touched may be a huge page, which takes up to a millisecond to clear.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop.
pub(super) fn touch<T: Copy>(all: &mut [T], stop: &Stop) -> Result<(), CallFailure> {
    /// The size in bytes of the smallest memory page that the Linux kernel uses.
    const PAGE: usize = 4 << 10;
    each(all, stop, |piece| {
        for page in piece.chunks_mut((PAGE / size_of::<T>().max(1)).max(1)) {
            page[0] = std::hint::black_box(page[0]);
        }
    })
}
