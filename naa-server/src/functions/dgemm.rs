//! The product of two matrices of 64-bit floating-point numbers, C = A·B (BLAS dgemm with alpha 1 and beta 0).

use std::ops::Range;

use mrsp::builtin::Arguments;
use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul, s};

use super::{
    blocks::{CallData, foreign},
    bytes_of, numbers, numbers_mut,
    pieces::{fill, touch},
};
use crate::call::{CallFailure, Stop};

/// The maximum number of multiplications in a tile. [`Stop::check`] is called before each tile. The computation of a
/// tile with this number of multiplications takes about 10 ms.
const TILE: usize = 1 << 27;
/// The maximum number of columns of B in a tile. The crate matrixmultiply divides B into blocks of at most 1024
/// columns, too, so it does not divide the columns of a tile further.
const COLUMNS: usize = 1024;
/// The maximum number of rows of B in a tile. The crate matrixmultiply also divides B into blocks of at most this many
/// rows, so the tiles do not change the order in which products are added.
const DEPTH: usize = 256;
/// The maximum number of rows of A in a tile. If a tile has few columns, [`TILE`] alone would allow very many rows.
/// Each row of A and of C may lie on pages of its own, so the processor may have to wait for memory at each row. A tile
/// with very many rows would then take too long.
const MOST_ROWS: usize = 8192;
/// The maximum number of rows of A that matrixmultiply copies to a buffer at a time.
const PACKED_ROWS: usize = 64;

/// Stores the product of the matrices `a` and `b` in `c`. `shape` is `[m, n, k]`. `a` has m rows of k numbers, `b` has
/// k rows of n numbers, and `c` has m rows of n numbers. All matrices are row-major.
///
/// # Errors
/// Fails with [`CallFailure::Arguments`] if the length of a slice does not fit `shape`.
pub fn compute(shape: [usize; 3], a: &[f64], b: &[f64], c: &mut [f64]) -> Result<(), CallFailure> {
    compute_until(shape, a, b, c, &Stop::never())
}

fn compute_until(
    [m, n, k]: [usize; 3],
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
    stop: &Stop,
) -> Result<(), CallFailure> {
    for (name, slice, rows, columns) in [("A", a, m, k), ("B", b, k, n), ("C", &*c, m, n)] {
        if rows.checked_mul(columns) != Some(slice.len()) {
            let text = format!("{name} has {} elements, not {rows} by {columns}", slice.len());
            return Err(CallFailure::Arguments(text.into()));
        }
    }
    if m == 0 || n == 0 || k == 0 {
        return fill(c, 0.0, stop);
    }
    touch(c, stop)?;
    // The product is computed in tiles, so that a long computation can be stopped between two tiles. `from_shape` never
    // fails here, because the lengths of the slices were checked above.
    let misfit = |error: ndarray::ShapeError| CallFailure::Internal(error.to_string().into());
    let a = ArrayView2::from_shape((m, k), a).map_err(misfit)?;
    let b = ArrayView2::from_shape((k, n), b).map_err(misfit)?;
    let mut c = ArrayViewMut2::from_shape((m, n), c).map_err(misfit)?;
    for column in tiles(n, COLUMNS) {
        for depth in tiles(k, DEPTH) {
            let b = b.slice(s![depth.clone(), column.clone()]);
            // The product of A and the first rows of B replaces the old numbers in C. The products of A and the later
            // rows of B are added to C.
            let beta = if depth.start == 0 { 0.0 } else { 1.0 };
            let rows = (TILE / b.len().max(1)).min(MOST_ROWS);
            for row in tiles(m, rows) {
                stop.check()?;
                let a = a.slice(s![row.clone(), depth.clone()]);
                general_mat_mul(1.0, &a, &b, beta, &mut c.slice_mut(s![row, column.clone()]));
            }
        }
    }
    Ok(())
}

fn tiles(len: usize, tile: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(tile).map(move |from| from..from.saturating_add(tile).min(len))
}

/// Returns an upper bound of the number of bytes that matrixmultiply allocates for one block of A and one block of B.
/// The crate matrixmultiply copies both blocks to buffers. The bound assumes that the number of rows of A and the
/// number of columns of B are rounded up to multiples of 16 in these buffers.
pub(super) fn packed_bytes([m, n, k]: [usize; 3]) -> usize {
    let round = |size: usize| size.next_multiple_of(16);
    k.min(DEPTH) * (round(m.min(PACKED_ROWS)) + round(n.min(COLUMNS))) * 8 + 4096
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Dgemm { m, n, k } = arguments else { return Err(foreign(arguments)) };
    let a = data.input(1, bytes_of(m, k, 8))?;
    let b = data.input(2, bytes_of(k, n, 8))?;
    let c = data.output_of(bytes_of(m, n, 8))?;
    let wide = |_| CallFailure::Arguments("m, n or k is larger than any region".into());
    let shape = [
        usize::try_from(m).map_err(wide)?,
        usize::try_from(n).map_err(wide)?,
        usize::try_from(k).map_err(wide)?,
    ];
    let _packed = data.quota.reserve_for_library(packed_bytes(shape))?;
    compute_until(shape, numbers(a)?, numbers(b)?, numbers_mut(c)?, data.stop)?;
    Ok(c.len())
}
