//! The function that counts how many numbers of an array lie in each of several bins of equal width.

use bytemuck::AnyBitPattern;
use mrsp::builtin::{Arguments, Element};

use super::{
    blocks::{CallData, foreign},
    bytes_of, numbers, numbers_mut,
    pieces::fill,
};
use crate::call::{CallFailure, Stop};

/// The number of bytes of `data` between two calls of [`Stop::check`]. `STRIDE` is small, because counting may be slow.
/// The counts of two successive numbers may be far apart in memory, so the processor may have to wait for memory at
/// each number.
const STRIDE: usize = 256 << 10;
/// The number of additional counts, which follow the counts of the bins in the output. These are three counts: of the
/// values below the range, of the values at or above its upper bound, and of the NaNs.
const REST: u64 = 3;

/// Bins of equal width over the range lo <= x < hi.
#[derive(Clone, Copy, Debug)]
pub struct Bins {
    lo: f64,
    hi: f64,
    count: usize,
}

impl Bins {
    /// Makes `count` bins of equal width over the range `lo` <= x < `hi`.
    ///
    /// # Errors
    /// Fails with [`CallFailure::Arguments`] if `count` is 0 or the range is empty. Fails with the same error if
    /// `count` times the width of the range is not a finite 64-bit floating-point number.
    pub fn new(count: usize, lo: f64, hi: f64) -> Result<Self, CallFailure> {
        if count == 0 {
            return Err(CallFailure::Arguments("a histogram needs a bin".into()));
        }
        // After this check, no step of computing the bin of a number in the range can overflow.
        if !(lo < hi && ((hi - lo) * count as f64).is_finite()) {
            let text = format!("bins from {lo} to {hi} are not possible: the range is empty or not finite");
            return Err(CallFailure::Arguments(text.into()));
        }
        Ok(Self { lo, hi, count })
    }

    /// Returns the index of the count that the number `x` increases. This is the index of the bin that contains `x`. If
    /// no bin contains `x`, it is the index of one of the three counts after the bins.
    fn place(self, x: f64) -> usize {
        // The conversion to `usize` turns a negative result into 0. If `x` is just below `hi`, rounding may make the
        // result `count`, so the result is limited to the index of the last bin.
        let bin = (((x - self.lo) * self.count as f64 / (self.hi - self.lo)) as usize).min(self.count - 1);
        if x < self.lo {
            self.count
        } else if x >= self.hi {
            self.count + 1
        } else if x.is_nan() {
            self.count + 2
        } else {
            bin
        }
    }
}

/// Counts how many numbers of `data` lie in each bin. `element` is the type of the numbers in `data`. `counts` gets one
/// count for each bin. Three more counts follow: of the numbers below the range, of the numbers at or above the upper
/// bound of the range, and of the NaNs.
///
/// # Errors
/// Fails with [`CallFailure::Arguments`] if the length of `counts` is not the number of bins plus 3. Fails with the
/// same error if `data` is not empty and an f64 cannot represent all values of `element`. Fails with
/// [`CallFailure::Internal`] if `data` is not an aligned array of `element`.
pub fn compute(element: Element, bins: Bins, data: &[u8], counts: &mut [u64]) -> Result<(), CallFailure> {
    compute_until(element, bins, data, counts, &Stop::never())
}

fn compute_until(
    element: Element,
    bins: Bins,
    data: &[u8],
    counts: &mut [u64],
    stop: &Stop,
) -> Result<(), CallFailure> {
    if counts.len() != bins.count + REST as usize {
        return Err(CallFailure::Arguments("the counts are not as many as the bins and three more".into()));
    }
    fill(counts, 0, stop)?;
    if element == Element::U8 {
        return of_bytes(bins, data, counts, stop);
    }
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        match element {
            Element::U32 => count::<u32>(bins, piece, counts)?,
            Element::I32 => count::<i32>(bins, piece, counts)?,
            Element::F32 => count::<f32>(bins, piece, counts)?,
            Element::F64 => count::<f64>(bins, piece, counts)?,
            Element::U8 | Element::U64 | Element::I64 => {
                let text = format!("no histogram of {}s: an f64 does not hold them", element.name());
                return Err(CallFailure::Arguments(text.into()));
            }
        }
    }
    Ok(())
}

/// Counts how often each byte value occurs, and adds the count of each value to its bin afterwards. There are four
/// counts for each byte value, and successive bytes use them in turn. With a single count for each value, each addition
/// in a run of equal values would wait for the addition before it.
fn of_bytes(bins: Bins, data: &[u8], counts: &mut [u64], stop: &Stop) -> Result<(), CallFailure> {
    let mut of = [[0_u64; 256]; 4];
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        let (fours, rest) = piece.as_chunks::<4>();
        for four in fours {
            for (of, &byte) in of.iter_mut().zip(four) {
                of[usize::from(byte)] += 1;
            }
        }
        for &byte in rest {
            of[0][usize::from(byte)] += 1;
        }
    }
    for byte in 0..=u8::MAX {
        counts[bins.place(byte.into())] += of.iter().map(|of| of[usize::from(byte)]).sum::<u64>();
    }
    Ok(())
}

fn count<T: AnyBitPattern + Into<f64>>(
    bins: Bins,
    data: &[u8],
    counts: &mut [u64],
) -> Result<(), CallFailure> {
    /// The number of elements whose indexes in `counts` are computed together, so that the compiler can use vector
    /// division.
    const LANES: usize = 16;
    let (groups, rest) = numbers::<T>(data)?.as_chunks::<LANES>();
    for group in groups {
        for place in group.map(|x| bins.place(x.into())) {
            counts[place] += 1;
        }
    }
    for &x in rest {
        counts[bins.place(x.into())] += 1;
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Histogram { n, element, bins, lo, hi } = arguments else {
        return Err(foreign(arguments));
    };
    let input = data.input(1, bytes_of(n, 1, element.bytes() as u64))?;
    let output = data.output_of(bins.checked_add(REST).and_then(|counts| bytes_of(counts, 1, 8)))?;
    let wide = |_| CallFailure::Arguments("more bins than any region holds".into());
    let bins = Bins::new(usize::try_from(bins).map_err(wide)?, f64::from_bits(lo), f64::from_bits(hi))?;
    compute_until(element, bins, input, numbers_mut(output)?, data.stop)?;
    Ok(output.len())
}
