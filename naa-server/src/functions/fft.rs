//! Discrete Fourier transform of complex f64, any length.

use mrsp::builtin::{self, Arguments};
use rustfft::{FftDirection, FftPlanner, num_complex::Complex64};

use super::{
    blocks::{Data, foreign},
    bytes_of, numbers_mut,
};
use crate::call::Failure;

/// Transforms `data` in place. Neither direction scales, as in FFTW: forward, then inverse multiplies by the
/// length.
///
/// Needs as much memory again for its tables and scratch space, and a few times that for lengths with large
/// prime factors.
pub fn compute(direction: FftDirection, data: &mut [Complex64]) {
    if !data.is_empty() {
        FftPlanner::new().plan_fft(data.len(), direction).process(data);
    }
}

pub(super) fn run(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Fft { n, direction } = arguments else { return Err(foreign(arguments)) };
    let output = data.input_in_output(bytes_of(n, 16, 1))?;
    let direction = match direction {
        builtin::FftDirection::Forward => FftDirection::Forward,
        builtin::FftDirection::Inverse => FftDirection::Inverse,
    };
    data.stop.check()?;
    compute(direction, numbers_mut(output)?);
    Ok(output.len())
}
