//! Computes transforms of short lengths with the crate rustfft.

use std::{fmt, sync::Arc};

use rustfft::{Fft, FftDirection, num_complex::Complex64};

use super::{NUMBER, plan};
use crate::{
    call::{CallFailure, ScratchQuota},
    memory_budget::Reservation,
};

/// The length of the longest transform that rustfft computes as a whole. A longer transform is composed of several
/// transforms of at most this length. A transform whose length is a prime number near `MOST` takes about 30 ms,
/// including the time for making its tables.
pub(super) const MOST: usize = 1 << 16;

/// A transform of a short length, with its tables.
pub(super) struct Direct {
    fft: Arc<dyn Fft<f64>>,
    _tables: Option<Reservation>,
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Direct({})", self.fft.len())
    }
}

/// Returns true if `len` has no prime factors except 2, 3, 5 and 7. If the result is true, rustfft needs little memory
/// for a transform of this length. If the result is false, rustfft may compute the transform by a convolution, which
/// needs more memory.
fn is_smooth(mut len: usize) -> bool {
    for factor in [2, 3, 5, 7] {
        while len > 0 && len.is_multiple_of(factor) {
            len /= factor;
        }
    }
    len == 1
}

/// Returns an upper bound of the number of bytes that rustfft allocates to make and keep its tables. If
/// `is_smooth(len)` is false, the tables take up to 11 times the size of the data.
pub(super) fn table_bytes(len: usize) -> usize {
    NUMBER * len * if is_smooth(len) { 3 } else { 16 } + 4096
}

/// Returns an upper bound of the number of bytes of scratch memory that one transform takes. The crate rustfft requests
/// up to 5 times the size of the data.
pub(super) fn scratch_bytes(len: usize) -> usize {
    NUMBER * (len * if is_smooth(len) { 2 } else { 6 } + 64)
}

impl Direct {
    /// Makes the tables that rustfft needs for transforms of `len` numbers.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if there is no memory for the tables.
    pub(super) fn new(
        len: usize,
        direction: FftDirection,
        quota: ScratchQuota<'_>,
    ) -> Result<Self, CallFailure> {
        let tables = quota.reserve_for_library(table_bytes(len))?;
        Ok(Self { fft: plan(len, direction), _tables: tables })
    }

    /// Allocates the scratch memory of one transform from the heap. Mapping pages for a short transform would take
    /// longer than an allocation from the heap.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if there is not enough memory.
    pub(super) fn scratch(&self) -> Result<Vec<Complex64>, CallFailure> {
        let len = self.fft.get_inplace_scratch_len();
        let mut scratch = Vec::new();
        scratch.try_reserve_exact(len).map_err(|error| CallFailure::OverLimit {
            needed: (len * NUMBER) as u64,
            why: format!("{error}; give the call less to do").into(),
        })?;
        scratch.resize(len, Complex64::ZERO);
        Ok(scratch)
    }

    /// Transforms `data` in place.
    ///
    /// # Panics
    /// Panics if `scratch` is shorter than rustfft needs. A `scratch` of [`scratch_bytes`] bytes is always long enough.
    pub(super) fn in_place(&self, data: &mut [Complex64], scratch: &mut [Complex64]) {
        self.fft.process_with_scratch(data, scratch);
    }

    /// Transforms `from` into `to`, and overwrites `from` with intermediate values.
    ///
    /// # Panics
    /// Panics if `scratch` is shorter than rustfft needs. A `scratch` of [`scratch_bytes`] bytes is always long enough.
    pub(super) fn to(&self, from: &mut [Complex64], to: &mut [Complex64], scratch: &mut [Complex64]) {
        self.fft.process_outofplace_with_scratch(from, to, scratch);
    }
}
