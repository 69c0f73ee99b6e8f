//! Roots of unity, which are computed from two small tables.

use rustfft::{FftDirection, num_complex::Complex64};

use crate::call::CallFailure;

/// The roots of unity e^(-2πi r/order) for any r below `order`, or their conjugates for the inverse direction. Each
/// root is the product of an element of `high` and an element of `low`. The tables `high` and `low` each have about as
/// many elements as the square root of `order`.
#[derive(Debug)]
pub(super) struct Roots {
    /// The number of bits of an index in the table `low`. The lowest `bits` bits of the number of a root are the index
    /// in the table `low`, and the other bits are the index in the table `high`.
    bits: u32,
    high: Vec<Complex64>,
    low: Vec<Complex64>,
}

/// Returns the number of bytes that the tables `high` and `low` need together for the roots of unity of order `order`.
pub(super) fn table_bytes(order: usize) -> usize {
    let (_, low, high) = split(order);
    (low + high) * size_of::<Complex64>()
}

fn split(order: usize) -> (u32, usize, usize) {
    let bits = order.max(1).ilog2().div_ceil(2);
    let low = 1 << bits;
    (bits, low, order.div_ceil(low))
}

impl Roots {
    /// Makes the tables for the roots of unity of order `order`.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if there is no memory for the tables.
    pub(super) fn new(order: usize, direction: FftDirection) -> Result<Self, CallFailure> {
        let (bits, low, high) = split(order);
        let table = |len: usize, step: usize| {
            let mut table = Vec::new();
            table.try_reserve_exact(len).map_err(|error| CallFailure::OverLimit {
                needed: table_bytes(order) as u64,
                why: format!("{error}; give the call less to do").into(),
            })?;
            table.extend((0..len).map(|at| root(at * step, order, direction)));
            Ok(table)
        };
        Ok(Self { bits, high: table(high, low)?, low: table(low, 1)? })
    }

    /// Returns the root of unity with the number `r`.
    ///
    /// # Panics
    /// Panics if the table `high` has no element for `r`. The table has an element for each `r` below the order of the
    /// roots.
    #[inline]
    pub(super) fn at(&self, r: usize) -> Complex64 {
        self.high[r >> self.bits] * self.low[r & (self.low.len() - 1)]
    }
}

/// Computes the root of unity with the number `r`: e^(-2πi r/order), or its conjugate for the inverse direction. The
/// function reduces the angle to the first eighth of the circle in integer arithmetic, so the reduction has no rounding
/// error.
fn root(r: usize, order: usize, direction: FftDirection) -> Complex64 {
    let (eighth, rest) = (8 * r / order % 8, 8 * r % order);
    let angle = |part: usize| part as f64 / order as f64 * std::f64::consts::FRAC_PI_4;
    // Here an eighth of the circle has the length `order`. The distance of the root from the start of its eighth is
    // `rest`, and its distance from the end is `order - rest`. One of these two borders lies at a multiple of 90
    // degrees, and the angle is measured from there: from the start of an even eighth, or from the end of an odd
    // eighth.
    let (sin, cos) = angle(if eighth % 2 == 0 { rest } else { order - rest }).sin_cos();
    let (re, im) = match eighth {
        0 => (cos, sin),
        1 => (sin, cos),
        2 => (-sin, cos),
        3 => (-cos, sin),
        4 => (-cos, -sin),
        5 => (-sin, -cos),
        6 => (sin, -cos),
        _ => (cos, -sin),
    };
    match direction {
        FftDirection::Forward => Complex64::new(re, -im),
        FftDirection::Inverse => Complex64::new(re, im),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_lie_where_they_should() {
        for order in [1, 2, 3, 8, 12, 1000, 65_537] {
            let roots = Roots::new(order, FftDirection::Forward).unwrap();
            let back = Roots::new(order, FftDirection::Inverse).unwrap();
            for r in 0..order {
                let (sin, cos) = (std::f64::consts::TAU * (r as f64 / order as f64)).sin_cos();
                let found = roots.at(r);
                assert!((found - Complex64::new(cos, -sin)).norm() < 2e-15, "{r}/{order}: {found}");
                assert_eq!(back.at(r), found.conj());
            }
        }
    }
}
