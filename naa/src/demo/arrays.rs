//! Sums, histograms and sorting of arrays, computed as a program without accelerator would do it: by the standard
//! library, and by other code than the accelerator's.

use std::time::Duration;

use anyhow::bail;
use mrsp::{
    FunctionCode,
    builtin::{self, Arguments, Element, SortOrder},
};

use super::{
    data,
    prepare::{Prepared, built_in, timed},
};

const BINS: usize = 1000;

pub(super) fn prepare(function: FunctionCode, n: usize, element: Element) -> anyhow::Result<Prepared> {
    let count = n as u64;
    let len = n * element.bytes();
    match function {
        builtin::VECTOR_ADD => {
            let [a, b] = [1, 2].map(|seed| values(n, element, seed));
            let (sum, local) = sum(element, &a, &b);
            let arguments = Arguments::VectorAdd { n: count, element };
            Ok(built_in(arguments, vec![a, b], len, sum, local))
        }
        builtin::HISTOGRAM => {
            let (lo, hi, bins) = if element == Element::U8 { (0.0, 256.0, 256) } else { (-1.0, 1.0, BINS) };
            let input = values(n, element, 4);
            let (counts, local) = histogram(element, &input, bins, lo, hi)?;
            let (lo, hi) = (lo.to_bits(), hi.to_bits());
            let arguments = Arguments::Histogram { n: count, element, bins: bins as u64, lo, hi };
            let expected: Vec<_> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
            Ok(built_in(arguments, vec![input], expected.len(), expected, local))
        }
        builtin::SORT => {
            let input = data::noise(len, 5);
            let (sorted, local) = sort(element, &input);
            let arguments = Arguments::Sort { n: count, element, order: SortOrder::Ascending };
            Ok(built_in(arguments, vec![input], len, sorted, local))
        }
        other => bail!("function {other} does not take arrays"),
    }
}

/// Makes `n` elements: numbers from -1 to 1 if they are f64s, otherwise arbitrary bits.
fn values(n: usize, element: Element, seed: u64) -> Vec<u8> {
    match element {
        Element::F64 => data::to_bytes(data::numbers(n, seed)),
        _ => data::noise(n * element.bytes(), seed),
    }
}

fn read<const N: usize, T>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().copied().map(from).collect()
}

fn written<const N: usize, T: Copy>(numbers: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| to(number)).collect()
}

/// Computes the sum of two arrays. Only the computation is timed, not the conversion from and to bytes.
fn sum(element: Element, a: &[u8], b: &[u8]) -> (Vec<u8>, Duration) {
    fn of<const N: usize, T: Copy>(
        [a, b]: [&[u8]; 2],
        from: fn([u8; N]) -> T,
        to: fn(T) -> [u8; N],
        add: impl Fn(T, T) -> T,
    ) -> (Vec<u8>, Duration) {
        let (a, b) = (read(a, from), read(b, from));
        let mut c = a.clone();
        let ((), local) = timed(|| c.iter_mut().zip(&a).zip(&b).for_each(|((c, a), b)| *c = add(*a, *b)));
        (written(&c, to), local)
    }
    match element {
        Element::U8 => of([a, b], u8::from_le_bytes, u8::to_le_bytes, u8::wrapping_add),
        Element::U32 => of([a, b], u32::from_le_bytes, u32::to_le_bytes, u32::wrapping_add),
        Element::I32 => of([a, b], i32::from_le_bytes, i32::to_le_bytes, i32::wrapping_add),
        Element::U64 => of([a, b], u64::from_le_bytes, u64::to_le_bytes, u64::wrapping_add),
        Element::I64 => of([a, b], i64::from_le_bytes, i64::to_le_bytes, i64::wrapping_add),
        Element::F32 => of([a, b], f32::from_le_bytes, f32::to_le_bytes, |a, b| a + b),
        Element::F64 => of([a, b], f64::from_le_bytes, f64::to_le_bytes, |a, b| a + b),
    }
}

fn sort(element: Element, input: &[u8]) -> (Vec<u8>, Duration) {
    fn of<const N: usize, T: Copy>(
        input: &[u8],
        from: fn([u8; N]) -> T,
        to: fn(T) -> [u8; N],
        compare: fn(&T, &T) -> std::cmp::Ordering,
    ) -> (Vec<u8>, Duration) {
        let mut numbers = read(input, from);
        let ((), local) = timed(|| numbers.sort_unstable_by(compare));
        (written(&numbers, to), local)
    }
    match element {
        Element::U8 => of(input, u8::from_le_bytes, u8::to_le_bytes, u8::cmp),
        Element::U32 => of(input, u32::from_le_bytes, u32::to_le_bytes, u32::cmp),
        Element::I32 => of(input, i32::from_le_bytes, i32::to_le_bytes, i32::cmp),
        Element::U64 => of(input, u64::from_le_bytes, u64::to_le_bytes, u64::cmp),
        Element::I64 => of(input, i64::from_le_bytes, i64::to_le_bytes, i64::cmp),
        Element::F32 => of(input, f32::from_le_bytes, f32::to_le_bytes, f32::total_cmp),
        Element::F64 => of(input, f64::from_le_bytes, f64::to_le_bytes, f64::total_cmp),
    }
}

/// The counts of the bins, then the counts of numbers below the range, above it, and of NaNs. The code is the obvious
/// one: one number after the other.
fn histogram(
    element: Element,
    input: &[u8],
    bins: usize,
    lo: f64,
    hi: f64,
) -> anyhow::Result<(Vec<u64>, Duration)> {
    fn of<T: Copy>(
        numbers: Vec<T>,
        bins: usize,
        [lo, hi]: [f64; 2],
        to: fn(T) -> f64,
    ) -> (Vec<u64>, Duration) {
        let mut counts = vec![0; bins + 3];
        let ((), local) = timed(|| {
            for x in numbers.iter().map(|&x| to(x)) {
                let place = if x.is_nan() {
                    bins + 2
                } else if x < lo {
                    bins
                } else if x < hi {
                    (bins - 1).min(((x - lo) * bins as f64 / (hi - lo)) as usize)
                } else {
                    bins + 1
                };
                counts[place] += 1;
            }
        });
        (counts, local)
    }
    let range = [lo, hi];
    Ok(match element {
        Element::U8 => of(input.to_vec(), bins, range, f64::from),
        Element::U32 => of(read(input, u32::from_le_bytes), bins, range, f64::from),
        Element::I32 => of(read(input, i32::from_le_bytes), bins, range, f64::from),
        Element::F32 => of(read(input, f32::from_le_bytes), bins, range, f64::from),
        Element::F64 => of(read(input, f64::from_le_bytes), bins, range, |x| x),
        Element::U64 | Element::I64 => bail!("an f64 does not hold every {}", element.name()),
    })
}
