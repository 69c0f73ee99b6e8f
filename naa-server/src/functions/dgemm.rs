//! Product of two matrices of f64, C = A·B (BLAS dgemm with alpha 1 and beta 0).

use mrsp::builtin::Arguments;
use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};

use super::{
    blocks::{Data, foreign},
    bytes_of, numbers, numbers_mut,
};
use crate::call::{Failure, Stop};

/// Multiplications between two looks at the time, a fraction of a second.
const STRIDE: usize = 1 << 30;

/// Multiplies `a`, m rows of k, with `b`, k rows of n, into `c`, m rows of n. All are row-major.
///
/// # Errors
/// [`Failure::Arguments`] if a slice has another length than its shape says.
pub fn compute(shape: [usize; 3], a: &[f64], b: &[f64], c: &mut [f64]) -> Result<(), Failure> {
    compute_until(shape, a, b, c, &Stop::never())
}

fn compute_until(
    [m, n, k]: [usize; 3],
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
    stop: &Stop,
) -> Result<(), Failure> {
    for (name, slice, rows, columns) in [("A", a, m, k), ("B", b, k, n), ("C", &*c, m, n)] {
        if rows.checked_mul(columns) != Some(slice.len()) {
            let text = format!("{name} has {} elements, not {rows} by {columns}", slice.len());
            return Err(Failure::Arguments(text.into()));
        }
    }
    if m == 0 || n == 0 || k == 0 {
        c.fill(0.0);
        return Ok(());
    }
    // Bands of rows, so that a long product can be given up. The shapes were checked, so views always fit.
    let misfit = |error: ndarray::ShapeError| Failure::Internal(error.to_string().into());
    let b = ArrayView2::from_shape((k, n), b).map_err(misfit)?;
    let rows = (STRIDE / k / n).clamp(64, m.max(64));
    for (a, c) in a.chunks(rows.saturating_mul(k)).zip(c.chunks_mut(rows.saturating_mul(n))) {
        stop.check()?;
        let height = c.len() / n;
        let a = ArrayView2::from_shape((height, k), a).map_err(misfit)?;
        let mut c = ArrayViewMut2::from_shape((height, n), c).map_err(misfit)?;
        general_mat_mul(1.0, &a, &b, 0.0, &mut c);
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Dgemm { m, n, k } = arguments else { return Err(foreign(arguments)) };
    let a = data.input(1, bytes_of(m, k, 8))?;
    let b = data.input(2, bytes_of(k, n, 8))?;
    let c = data.output_of(bytes_of(m, n, 8))?;
    let wide = |_| Failure::Arguments("m, n or k is larger than any region".into());
    let shape = [
        usize::try_from(m).map_err(wide)?,
        usize::try_from(n).map_err(wide)?,
        usize::try_from(k).map_err(wide)?,
    ];
    compute_until(shape, numbers(a)?, numbers(b)?, numbers_mut(c)?, data.stop)?;
    Ok(c.len())
}
