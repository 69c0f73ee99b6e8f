//! The discrete Fourier transform of complex 64-bit floating-point numbers, of any length.
//!
//! A transform uses the crate rustfft only for short lengths, which are lengths up to 65536, for two reasons. First,
//! the memory that rustfft needs grows with the length, and a failed allocation aborts the process. Second, a running
//! transform of rustfft cannot be stopped. Transforms of long lengths are composed of short transforms. If a long
//! length is a product of two short lengths, the numbers are arranged as a matrix, whose columns and rows are
//! transformed (module `staged`). If a long length is not a product of two short lengths, the transform is computed as
//! a convolution whose length is such a product (module `chirp`).

mod chirp;
mod direct;
mod roots;
mod staged;

use std::sync::Arc;

use mrsp::builtin::{self, Arguments};
use rustfft::{Fft, FftDirection, FftPlanner, num_complex::Complex64};

use super::{
    blocks::{CallData, foreign},
    bytes_of, numbers, numbers_mut,
    pieces::touch,
};
use crate::call::{CallFailure, ScratchQuota, Stop};
use chirp::Chirp;
use direct::{Direct, MOST};
use staged::Staged;

/// The number of bytes of a complex number.
const NUMBER: usize = size_of::<Complex64>();

/// The algorithm for transforms of a given length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Direct,
    /// Transforms of the columns and the rows of a matrix. The two numbers are the length of a column and the length of
    /// a row.
    Staged([usize; 2]),
    /// A convolution whose length is the product of these two numbers.
    Chirp([usize; 2]),
}

impl Algorithm {
    fn of(n: usize) -> Self {
        if n <= MOST {
            Self::Direct
        } else {
            staged::factors(n).map_or_else(|| Self::Chirp(chirp::length(n)), Self::Staged)
        }
    }
}

/// Returns the number of bytes of scratch memory that a transform of `n` numbers takes.
pub(super) fn extra_bytes(n: usize) -> usize {
    match Algorithm::of(n) {
        Algorithm::Direct => direct::table_bytes(n) + direct::scratch_bytes(n),
        Algorithm::Staged(factors) => {
            mapped(NUMBER * n + Staged::work_bytes(factors)) + Staged::table_bytes(factors)
        }
        Algorithm::Chirp(factors @ [columns, rows]) => {
            let memory = 2 * NUMBER * columns * rows + Staged::work_bytes(factors);
            mapped(memory) + Staged::table_bytes(factors) + roots::table_bytes(2 * n)
        }
    }
}

fn mapped(bytes: usize) -> usize {
    region::footprint(bytes).unwrap_or(usize::MAX)
}

/// Transforms `data` in place. The results of both directions are not scaled, as in FFTW, so a forward transform
/// followed by an inverse transform multiplies `data` by its length.
///
/// If `data` has more than 65536 numbers, the scratch memory depends on whether their number is a product of two
/// factors up to 65536. If it is such a product, the scratch memory is about as large as `data`. If not, the scratch
/// memory is four to five times as large as `data`.
///
/// # Errors
/// Fails with [`CallFailure::OverLimit`] if the machine does not have enough memory.
pub fn compute(direction: FftDirection, data: &mut [Complex64]) -> Result<(), CallFailure> {
    transform(direction, None, data, ScratchQuota::UNLIMITED, &Stop::never())
}

/// Returns the object with which the crate rustfft transforms `len` numbers, also for long lengths. Programs compare
/// the results and the speed of this crate's transforms with those of this object. If a program calls this function
/// instead of rustfft, the compiler does not compile the generic algorithms of rustfft a second time for the program.
pub fn plan(len: usize, direction: FftDirection) -> Arc<dyn Fft<f64>> {
    FftPlanner::new().plan_fft(len, direction)
}

/// Computes the Fourier transform of `input` and stores the result in `output`. If `input` is `None`, the function
/// transforms `output` in place.
fn transform(
    direction: FftDirection,
    input: Option<&[Complex64]>,
    output: &mut [Complex64],
    quota: ScratchQuota<'_>,
    stop: &Stop,
) -> Result<(), CallFailure> {
    stop.check()?;
    match Algorithm::of(output.len()) {
        Algorithm::Direct if output.is_empty() => Ok(()),
        Algorithm::Direct => {
            let direct = Direct::new(output.len(), direction, quota)?;
            let _scratch_charge = quota.reserve(direct::scratch_bytes(output.len()) as u64)?;
            let mut scratch = direct.scratch()?;
            if let Some(input) = input {
                output.copy_from_slice(input);
            }
            direct.in_place(output, &mut scratch);
            Ok(())
        }
        Algorithm::Staged(factors) => {
            let mut memory = quota.scratch(NUMBER * output.len() + Staged::work_bytes(factors))?;
            let staged = Staged::new(factors, direction, quota)?;
            let memory = numbers_mut(memory.bytes_mut())?;
            touch(memory, stop)?;
            touch(output, stop)?;
            let (turned, work) = memory.split_at_mut(output.len());
            staged.transform(input, output, turned, work, stop)
        }
        Algorithm::Chirp(factors @ [columns, rows]) => {
            let longer = columns * rows;
            let mut memory = quota.scratch(2 * NUMBER * longer + Staged::work_bytes(factors))?;
            let chirp = Chirp::new(output.len(), factors, direction, quota)?;
            let memory = numbers_mut(memory.bytes_mut())?;
            touch(memory, stop)?;
            let (signal, rest) = memory.split_at_mut(longer);
            let (kernel, work) = rest.split_at_mut(longer);
            chirp.transform(input, output, [signal, kernel], work, stop)
        }
    }
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Fft { n, direction } = arguments else { return Err(foreign(arguments)) };
    let bytes = bytes_of(n, NUMBER as u64, 1);
    let input = if data.is_in_place() { None } else { Some(data.input(1, bytes)?) };
    let output = data.output_of(bytes)?;
    let direction = match direction {
        builtin::FftDirection::Forward => FftDirection::Forward,
        builtin::FftDirection::Inverse => FftDirection::Inverse,
    };
    let input = input.map(numbers).transpose()?;
    transform(direction, input, numbers_mut(output)?, data.quota, data.stop)?;
    Ok(output.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_the_way_that_fits_them() {
        assert_eq!(Algorithm::of(1 << 16), Algorithm::Direct);
        assert_eq!(Algorithm::of(65_521), Algorithm::Direct);
        assert_eq!(Algorithm::of(1 << 17), Algorithm::Staged([256, 512]));
        assert_eq!(Algorithm::of(4 * 65_521), Algorithm::Staged([4, 65_521]));
        // These lengths are primes above `MOST`. Such a length is not a product of two lengths up to `MOST`, so the
        // transform is computed as a convolution.
        for n in [65_537, 16_777_259, 33_554_467, (1 << 27) - 39] {
            let Algorithm::Chirp([columns, rows]) = Algorithm::of(n) else { panic!("{n}") };
            assert!(columns * rows >= 2 * n - 1 && columns * rows <= 5 * n / 2, "{n}");
            assert!(columns.max(rows) <= MOST);
        }
    }

    #[test]
    fn memory_is_what_the_table_of_bounds_says() {
        assert_eq!(extra_bytes(65_536), 80 * 65_536 + (5 << 10));
        assert_eq!(extra_bytes(65_521), 352 * 65_521 + (5 << 10));
        for n in [1 << 17, 4 * 65_521, 2039 * 65_521, 1 << 26, 1 << 27, 300_007, 16_777_259, (1 << 27) - 39] {
            let (own, rest) = match Algorithm::of(n) {
                Algorithm::Chirp([columns, rows]) => (2 * NUMBER * columns * rows, 6 << 20),
                _ => (NUMBER * n, 30 << 20),
            };
            let extra = extra_bytes(n);
            assert!(extra > own && extra - own <= rest, "{n}: {} besides {own}", extra - own);
        }
    }
}
