//! Fourier transforms of lengths that are a product of two short lengths (at most `direct::MOST`). The numbers to be
//! transformed are arranged as a matrix. First, the columns of the matrix are transformed, and each number is
//! multiplied by a root of unity. After the columns, the rows of the matrix are transformed, and the matrix is
//! transposed.
//!
//! The columns and the rows are processed in stripes, which are groups of whole columns or whole rows. Each stripe of
//! columns is copied to a buffer and transformed there. [`Stop::check`] is called before each stripe.

use rustfft::{FftDirection, num_complex::Complex64};

use super::{
    NUMBER,
    direct::{self, Direct, MOST},
    roots::{self, Roots},
};
use crate::{
    call::{CallFailure, ScratchQuota, Stop},
    memory_budget::Reservation,
};

/// The maximum number of complex numbers in a stripe, which consists of whole columns or whole rows. A stripe has at
/// least as many columns or rows as a cache line has complex numbers, unless fewer are left. If the columns or rows are
/// very long, a stripe can therefore exceed the maximum.
const STRIPE: usize = 1 << 15;
const LINE: usize = 64 / NUMBER;
/// The number of complex numbers in a block. `Staged::turn` multiplies the numbers of a column by the powers of a root
/// of unity, block by block. Each power is the product of two powers: the first power of the block, and one of the
/// first `POWERS` powers, which are computed once for each column.
const POWERS: usize = 32;

/// A transform of `column * row` numbers, which are arranged as a matrix. The columns are transformed first, and the
/// rows afterwards.
#[derive(Debug)]
pub(super) struct Staged {
    /// The length of a column, counted in complex numbers.
    column: usize,
    /// The length of a row, counted in complex numbers.
    row: usize,
    /// The transform of `column` numbers, which is applied to each column.
    columns: Direct,
    /// The transform of `row` numbers, which is applied to each row.
    rows: Direct,
    roots: Roots,
    _roots: Option<Reservation>,
}

/// Returns the two numbers whose product is `n` and that are nearest to each other, or `None` if one of them is above
/// [`MOST`]. The first number is not larger than the second one.
pub(super) fn factors(n: usize) -> Option<[usize; 2]> {
    let least = n.div_ceil(MOST).max(1);
    (least..=n.isqrt()).rev().find(|factor| n.is_multiple_of(*factor)).map(|factor| [factor, n / factor])
}

/// Returns the number of columns or rows of a stripe, and the distance in the buffer from the start of one column or
/// row to the start of the next. `len` is the length of a column or row. Length and distance are counted in complex
/// numbers. The distance is at least one cache line longer than a column or row. If the distance were a large power of
/// two, all columns or rows would compete for the same cache lines.
fn stripe(len: usize) -> (usize, usize) {
    ((STRIPE / len).max(LINE), len.next_multiple_of(LINE) + LINE)
}

/// Returns the length of the buffer for one stripe (a group of whole columns or rows), counted in complex numbers.
fn buffer(factors: [usize; 2]) -> usize {
    factors.map(stripe).into_iter().map(|(count, pitch)| count * pitch).fold(0, usize::max)
}

impl Staged {
    /// Returns the length in bytes that the argument `work` of [`transform`](Self::transform) must have.
    pub(super) fn work_bytes(factors: [usize; 2]) -> usize {
        NUMBER * buffer(factors) + factors.map(direct::scratch_bytes).into_iter().fold(0, usize::max)
    }

    /// Returns the size in bytes of the tables that a transform with the column and row lengths `factors` needs.
    pub(super) fn table_bytes(factors: [usize; 2]) -> usize {
        roots::table_bytes(factors[0] * factors[1])
            + factors.map(direct::table_bytes).into_iter().sum::<usize>()
    }

    /// Makes a transform of `column * row` numbers, with the tables that it needs.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if there is no memory for the tables.
    pub(super) fn new(
        [column, row]: [usize; 2],
        direction: FftDirection,
        quota: ScratchQuota<'_>,
    ) -> Result<Self, CallFailure> {
        let order = column * row;
        let charge = quota.reserve(roots::table_bytes(order) as u64)?;
        Ok(Self {
            column,
            row,
            columns: Direct::new(column, direction, quota)?,
            rows: Direct::new(row, direction, quota)?,
            roots: Roots::new(order, direction)?,
            _roots: charge,
        })
    }

    /// Computes the Fourier transform of `input` and stores it in `output`. If `input` is `None`, the method transforms
    /// `output` in place. `between` holds intermediate numbers and has the same length as `output`.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    pub(super) fn transform(
        &self,
        input: Option<&[Complex64]>,
        output: &mut [Complex64],
        between: &mut [Complex64],
        work: &mut [Complex64],
        stop: &Stop,
    ) -> Result<(), CallFailure> {
        self.each_column(Some(input.unwrap_or(output)), between, work, stop, Self::transform_and_turn)?;
        let (buffer, scratch) = self.split(work);
        let (count, pitch) = stripe(self.row);
        for first in (0..self.column).step_by(count) {
            stop.check()?;
            let height = count.min(self.column - first);
            let rows = &mut between[first * self.row..(first + height) * self.row];
            for (from, to) in rows.chunks_mut(self.row).zip(buffer.chunks_mut(pitch)) {
                self.rows.to(from, &mut to[..self.row], scratch);
            }
            // The rows in the buffer become columns of `output`.
            for (at, line) in output.chunks_mut(self.column).enumerate() {
                for (to, from) in
                    line[first..first + height].iter_mut().zip(buffer[at..].iter().step_by(pitch))
                {
                    *to = *from;
                }
            }
        }
        Ok(())
    }

    /// Replaces the numbers of `data` by their Fourier transform, in transposed order. A caller that transposes the
    /// resulting matrix gets number k of the transform at index k.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    pub(super) fn reorder(
        &self,
        data: &mut [Complex64],
        work: &mut [Complex64],
        stop: &Stop,
    ) -> Result<(), CallFailure> {
        self.each_column(None, data, work, stop, Self::transform_and_turn)?;
        self.each_row(data, work, stop)
    }

    /// Replaces the numbers of `data` by their Fourier transform. Before the call, the numbers of `data` must be in the
    /// transposed order in which [`reorder`](Self::reorder) leaves its result. After the call, number k of the
    /// transform is at index k of `data`.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    pub(super) fn restore(
        &self,
        data: &mut [Complex64],
        work: &mut [Complex64],
        stop: &Stop,
    ) -> Result<(), CallFailure> {
        self.each_row(data, work, stop)?;
        self.each_column(None, data, work, stop, |staged, at, column, scratch| {
            staged.turn(at, column);
            staged.columns.in_place(column, scratch);
        })
    }

    /// Transforms `column`, and then multiplies its numbers by roots of unity as [`turn`](Self::turn) does.
    fn transform_and_turn(&self, at: usize, column: &mut [Complex64], scratch: &mut [Complex64]) {
        self.columns.in_place(column, scratch);
        self.turn(at, column);
    }

    /// Copies the columns of `from` to a buffer, several columns (a stripe) at a time, and calls `step` for each. The
    /// result is then copied to the same column of `data`. If `from` is `None`, the columns are those of `data`. The
    /// arguments of `step` are `self`, the index of the column in the matrix, the column, and scratch memory.
    ///
    /// # Errors
    /// Fails with the error of [`Stop::check`] if the call should stop.
    fn each_column(
        &self,
        from: Option<&[Complex64]>,
        data: &mut [Complex64],
        work: &mut [Complex64],
        stop: &Stop,
        step: impl Fn(&Self, usize, &mut [Complex64], &mut [Complex64]),
    ) -> Result<(), CallFailure> {
        let (buffer, scratch) = self.split(work);
        let (count, pitch) = stripe(self.column);
        for first in (0..self.row).step_by(count) {
            stop.check()?;
            let width = count.min(self.row - first);
            self.gather(from.unwrap_or(data), first, width, buffer);
            for (at, column) in buffer.chunks_mut(pitch).take(width).enumerate() {
                step(self, first + at, &mut column[..self.column], scratch);
            }
            self.scatter(data, first, width, buffer);
        }
        Ok(())
    }

    fn each_row(
        &self,
        data: &mut [Complex64],
        work: &mut [Complex64],
        stop: &Stop,
    ) -> Result<(), CallFailure> {
        let (_, scratch) = self.split(work);
        for rows in data.chunks_mut(stripe(self.row).0 * self.row) {
            stop.check()?;
            self.rows.in_place(rows, scratch);
        }
        Ok(())
    }

    /// Splits `work` into the buffer for one stripe of columns or rows and the scratch memory of rustfft.
    fn split<'w>(&self, work: &'w mut [Complex64]) -> (&'w mut [Complex64], &'w mut [Complex64]) {
        work.split_at_mut(buffer([self.column, self.row]))
    }

    /// Copies `width` columns of `from`, from column `first` on, into the buffer.
    fn gather(&self, from: &[Complex64], first: usize, width: usize, buffer: &mut [Complex64]) {
        let (_, pitch) = stripe(self.column);
        for (at, line) in from.chunks(self.row).enumerate() {
            for (to, from) in buffer[at..].iter_mut().step_by(pitch).zip(&line[first..first + width]) {
                *to = *from;
            }
        }
    }

    /// Copies `width` columns from the buffer into `to`, from column `first` of `to` on.
    fn scatter(&self, to: &mut [Complex64], first: usize, width: usize, buffer: &[Complex64]) {
        let (_, pitch) = stripe(self.column);
        for (at, line) in to.chunks_mut(self.row).enumerate() {
            for (to, from) in line[first..first + width].iter_mut().zip(buffer[at..].iter().step_by(pitch)) {
                *to = *from;
            }
        }
    }

    /// Multiplies the number at each index k of `column` by e^(-2πi·`at`·k/n), where n is the length of the transform.
    /// The factor for the inverse direction is the conjugate of e^(-2πi·`at`·k/n). `at` is the index of the column in
    /// the matrix.
    fn turn(&self, at: usize, column: &mut [Complex64]) {
        let powers: [Complex64; POWERS] = std::array::from_fn(|k| {
            // If the column has fewer than `POWERS` numbers, the last powers are not needed. They are not computed,
            // because their exponents may be too large for the tables of `roots`.
            if k < self.column { self.roots.at(at * k) } else { Complex64::ONE }
        });
        for (block, numbers) in column.chunks_mut(POWERS).enumerate() {
            let shift = self.roots.at(at * block * POWERS);
            for (number, power) in numbers.iter_mut().zip(&powers) {
                *number *= shift * power;
            }
        }
    }
}
