//! Counts of numbers by bins of equal width.

use bytemuck::AnyBitPattern;
use mrsp::builtin::{Arguments, Element};

use super::{
    blocks::{Data, foreign},
    bytes_of, numbers, numbers_mut,
    pieces::fill,
};
use crate::call::{Failure, Stop};

/// Bytes between two checks whether to stop. Each number may count in a place far from that of the number before.
const STRIDE: usize = 256 << 10;
/// The number of counts beside the bins: below the range, above it, not a number.
const REST: u64 = 3;

/// Bins of equal width over lo <= x < hi.
#[derive(Clone, Copy, Debug)]
pub struct Bins {
    lo: f64,
    hi: f64,
    count: usize,
}

impl Bins {
    /// # Errors
    /// [`Failure::Arguments`] if there is no bin, or the range is empty or too wide for a 64-bit floating-point number.
    pub fn new(count: usize, lo: f64, hi: f64) -> Result<Self, Failure> {
        if count == 0 {
            return Err(Failure::Arguments("a histogram needs a bin".into()));
        }
        // This check ensures that no step of computing a bin overflows.
        if !(lo < hi && ((hi - lo) * count as f64).is_finite()) {
            let text = format!("bins from {lo} to {hi} are not possible: the range is empty or not finite");
            return Err(Failure::Arguments(text.into()));
        }
        Ok(Self { lo, hi, count })
    }

    /// The index at which `x` is counted: its bin, or one of the three counts after the bins.
    fn place(self, x: f64) -> usize {
        // The bin is never negative. A number just below hi may be rounded up to it, hence the minimum.
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

/// Counts the numbers of `data`, an array of `element`: `counts` gets one count for each bin, then the counts of
/// numbers below the range, of numbers above it, and of NaNs.
///
/// # Errors
/// [`Failure::Arguments`] for an element whose values an f64 does not hold, or `counts` of another length.
pub fn compute(element: Element, bins: Bins, data: &[u8], counts: &mut [u64]) -> Result<(), Failure> {
    compute_until(element, bins, data, counts, &Stop::never())
}

fn compute_until(
    element: Element,
    bins: Bins,
    data: &[u8],
    counts: &mut [u64],
    stop: &Stop,
) -> Result<(), Failure> {
    if counts.len() != bins.count + REST as usize {
        return Err(Failure::Arguments("the counts are not as many as the bins and three more".into()));
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
                return Err(Failure::Arguments(text.into()));
            }
        }
    }
    Ok(())
}

/// Counts each byte value first, and then adds the count of each value to its bin. There are four counts for each
/// value, since with one count a run of equal values would have to wait for each addition.
fn of_bytes(bins: Bins, data: &[u8], counts: &mut [u64], stop: &Stop) -> Result<(), Failure> {
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

fn count<T: AnyBitPattern + Into<f64>>(bins: Bins, data: &[u8], counts: &mut [u64]) -> Result<(), Failure> {
    /// Places are computed for several numbers at a time, so that the compiler can use vector division.
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

pub(super) fn run(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Histogram { n, element, bins, lo, hi } = arguments else {
        return Err(foreign(arguments));
    };
    let input = data.input(1, bytes_of(n, 1, element.bytes() as u64))?;
    let output = data.output_of(bins.checked_add(REST).and_then(|counts| bytes_of(counts, 1, 8)))?;
    let wide = |_| Failure::Arguments("more bins than any region holds".into());
    let bins = Bins::new(usize::try_from(bins).map_err(wide)?, f64::from_bits(lo), f64::from_bits(hi))?;
    compute_until(element, bins, input, numbers_mut(output)?, data.stop)?;
    Ok(output.len())
}
