//! Fourier transforms of lengths that are not a product of two short lengths, for example multiples of a large prime.
//! Each transform is computed as a convolution whose length has no large prime factors (Bluestein's algorithm).
//!
//! For a forward transform of n numbers, the chirp is c(k) = e^(-πi k²/n). For an inverse transform, c(k) is the
//! conjugate of this number, e^(πi k²/n). If x(j) is number j of the input, number k of the transform is c(k) times the
//! sum of x(j) c(j) conj(c(k-j)) over all j.

use rustfft::{FftDirection, num_complex::Complex64};

use super::{
    roots::{self, Roots},
    staged::{self, Staged},
};
use crate::{
    call::{CallFailure, ScratchQuota, Stop},
    memory_budget::Reservation,
};

/// The number of complex numbers that are processed between two calls of [`Stop::check`].
const STRIPE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Chirp {
    n: usize,
    staged: Staged,
    /// The roots of unity of order 2n, or their conjugates for an inverse transform. Each number of the chirp is one of
    /// these roots.
    roots: Roots,
    _roots: Option<Reservation>,
}

/// Returns two factors, whose product is the length of the convolution for a transform of `n` numbers. The length of
/// the convolution has no prime factors except 2, 3 and 5, and is at least 2n - 1. The length of the convolution is
/// less than 1.25 times (2n - 1).
pub(super) fn length(n: usize) -> [usize; 2] {
    let least = 2 * n - 1;
    let lengths = [1, 3, 5, 9, 15].map(|odd: usize| least.div_ceil(odd).next_power_of_two() * odd);
    let shortest = lengths.into_iter().fold(usize::MAX, usize::min);
    staged::factors(shortest).expect("both factors of so smooth a length are short")
}

impl Chirp {
    /// Makes the tables of a transform of `n` numbers.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if there is no memory for the tables.
    pub(super) fn new(
        n: usize,
        factors: [usize; 2],
        direction: FftDirection,
        quota: ScratchQuota<'_>,
    ) -> Result<Self, CallFailure> {
        let charge = quota.reserve(roots::table_bytes(2 * n) as u64)?;
        let staged = Staged::new(factors, FftDirection::Forward, quota)?;
        Ok(Self { n, staged, roots: Roots::new(2 * n, direction)?, _roots: charge })
    }

    /// Computes the Fourier transform of `input` and stores the result in `output`. If `input` is `None`, the method
    /// transforms `output` in place. `signal` and `kernel` must have the length of the convolution, and must contain
    /// only zeros before the call.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    pub(super) fn transform(
        &self,
        input: Option<&[Complex64]>,
        output: &mut [Complex64],
        [signal, kernel]: [&mut [Complex64]; 2],
        work: &mut [Complex64],
        stop: &Stop,
    ) -> Result<(), CallFailure> {
        let length = signal.len();
        let from = input.unwrap_or(output);
        let parts = signal.chunks_mut(STRIPE).zip(from.chunks(STRIPE));
        for ((to, from), first) in parts.zip((0..).step_by(STRIPE)) {
            stop.check()?;
            for ((to, from), chirp) in to.iter_mut().zip(from).zip(self.chirps(first)) {
                *to = from * chirp;
            }
        }
        for first in (0..self.n).step_by(STRIPE) {
            stop.check()?;
            let last = (first + STRIPE).min(self.n);
            for (k, chirp) in (first..last).zip(self.chirps(first)) {
                kernel[k] = chirp.conj();
                kernel[(length - k) % length] = chirp.conj();
            }
        }
        self.staged.reorder(signal, work, stop)?;
        self.staged.reorder(kernel, work, stop)?;
        // A convolution needs two forward transforms and an inverse transform, but `self.staged` computes only forward
        // transforms. The inverse transform of the products is the conjugate of the forward transform of their
        // conjugates. Therefore, the products are conjugated here, and the results are conjugated below.
        for (signal, kernel) in signal.chunks_mut(STRIPE).zip(kernel.chunks(STRIPE)) {
            stop.check()?;
            for (signal, kernel) in signal.iter_mut().zip(kernel) {
                *signal = (*signal * kernel).conj();
            }
        }
        self.staged.restore(signal, work, stop)?;
        let scale = 1.0 / length as f64;
        let parts = output.chunks_mut(STRIPE).zip(signal.chunks(STRIPE));
        for ((to, from), first) in parts.zip((0..).step_by(STRIPE)) {
            stop.check()?;
            for ((to, from), chirp) in to.iter_mut().zip(from).zip(self.chirps(first)) {
                *to = from.conj() * chirp * scale;
            }
        }
        Ok(())
    }

    /// Returns the numbers c(k) of the chirp for all k from `first` on. Each c(k) depends only on the remainder of k²
    /// modulo 2n. This remainder is computed with integers, so it is exact.
    fn chirps(&self, first: usize) -> impl Iterator<Item = Complex64> {
        let order = 2 * self.n;
        let mut square = (first as u128 * first as u128 % order as u128) as usize;
        let mut step = (2 * first + 1) % order;
        std::iter::repeat_with(move || {
            let chirp = self.roots.at(square);
            square += step;
            square -= if square >= order { order } else { 0 };
            step += 2;
            step -= if step >= order { order } else { 0 };
            chirp
        })
    }
}
