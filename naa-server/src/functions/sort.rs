//! Sorts arrays of numbers.

mod radix;

use bytemuck::Pod;
use mrsp::builtin::{Arguments, Element, SortOrder};

use super::{
    blocks::{CallData, foreign},
    bytes_of, numbers_mut, pieces,
};
use crate::call::{CallFailure, Stop};
use radix::Key;

/// Sorts `data` in place. The bytes in `data` are an array of numbers of the type `element`. Floats are sorted by the
/// total order of IEEE 754. In ascending order, the negative NaNs come first, then the numbers, and then the positive
/// NaNs. The number -0 comes before 0. Sorting moves floats without changing their bits.
///
/// # Errors
/// Fails with [`CallFailure::Internal`] if `data` is not an aligned array of `element`.
pub fn compute(element: Element, order: SortOrder, data: &mut [u8]) -> Result<(), CallFailure> {
    compute_until(element, order, data, &Stop::never())
}

fn compute_until(
    element: Element,
    order: SortOrder,
    data: &mut [u8],
    stop: &Stop,
) -> Result<(), CallFailure> {
    match element {
        Element::U8 => {
            bytes(data, stop)?;
            turn::<u8>(data, order, stop)
        }
        Element::U32 => plain::<u32>(data, order, stop),
        Element::I32 => plain::<i32>(data, order, stop),
        Element::U64 => plain::<u64>(data, order, stop),
        Element::I64 => plain::<i64>(data, order, stop),
        Element::F32 => {
            each(data, f32_key, stop)?;
            plain::<i32>(data, order, stop)?;
            each(data, f32_key, stop)
        }
        Element::F64 => {
            each(data, f64_key, stop)?;
            plain::<i64>(data, order, stop)?;
            each(data, f64_key, stop)
        }
    }
}

/// Maps the bits of a float to an integer, so that the integers have the order of the floats by `f32::total_cmp`.
/// `f32_key` is its own inverse, so it also maps the integer back to the bits of the float. Sorting integers is several
/// times faster than sorting by a comparison of floats.
fn f32_key(bits: i32) -> i32 {
    bits ^ (((bits >> 31).cast_unsigned() >> 1).cast_signed())
}

fn f64_key(bits: i64) -> i64 {
    bits ^ (((bits >> 63).cast_unsigned() >> 1).cast_signed())
}

fn each<T: Pod>(data: &mut [u8], key: impl Fn(T) -> T, stop: &Stop) -> Result<(), CallFailure> {
    pieces::each(numbers_mut(data)?, stop, |piece| piece.iter_mut().for_each(|number| *number = key(*number)))
}

fn plain<T: Pod + Key>(data: &mut [u8], order: SortOrder, stop: &Stop) -> Result<(), CallFailure> {
    radix::sort::<T>(numbers_mut(data)?, stop)?;
    turn::<T>(data, order, stop)
}

fn turn<T: Pod>(data: &mut [u8], order: SortOrder, stop: &Stop) -> Result<(), CallFailure> {
    if order == SortOrder::Descending {
        radix::reverse::<T>(numbers_mut(data)?, stop)?;
    }
    Ok(())
}

/// Sorts bytes by counting, because bytes have only 256 values.
fn bytes(data: &mut [u8], stop: &Stop) -> Result<(), CallFailure> {
    let mut counts = [0_usize; 256];
    pieces::each(data, stop, |piece| piece.iter().for_each(|byte| counts[usize::from(*byte)] += 1))?;
    let mut rest = data;
    for (byte, count) in (0..=u8::MAX).zip(counts) {
        let (run, later) = rest.split_at_mut(count);
        pieces::fill(run, byte, stop)?;
        rest = later;
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Sort { n, element, order } = arguments else { return Err(foreign(arguments)) };
    let output = data.input_in_output(bytes_of(n, 1, element.bytes() as u64))?;
    data.stop.check()?;
    compute_until(element, order, output, data.stop)?;
    Ok(output.len())
}
