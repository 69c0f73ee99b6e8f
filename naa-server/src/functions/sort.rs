//! Arrays in order.

use bytemuck::Pod;
use mrsp::builtin::{Arguments, Element, SortOrder};

use super::{
    blocks::{Data, foreign},
    bytes_of, numbers_mut,
};
use crate::call::Failure;

/// Sorts `data`, an array of `element`, in place. Floats are in the total order of IEEE 754: negative NaNs, numbers
/// with -0 before 0, positive NaNs; no bit of them changes.
///
/// # Errors
/// [`Failure::Internal`] if `data` is not an array of `element`, aligned.
pub fn compute(element: Element, order: SortOrder, data: &mut [u8]) -> Result<(), Failure> {
    match element {
        Element::U8 => {
            bytes(data);
            turn::<u8>(data, order)
        }
        Element::U32 => plain::<u32>(data, order),
        Element::I32 => plain::<i32>(data, order),
        Element::U64 => plain::<u64>(data, order),
        Element::I64 => plain::<i64>(data, order),
        Element::F32 => {
            each(data, f32_key)?;
            plain::<i32>(data, order)?;
            each(data, f32_key)
        }
        Element::F64 => {
            each(data, f64_key)?;
            plain::<i64>(data, order)?;
            each(data, f64_key)
        }
    }
}

/// Floats as integers of the same order, and back (`f32::total_cmp`). Sorting integers is several times faster than
/// sorting by a comparison of floats.
fn f32_key(bits: i32) -> i32 {
    bits ^ (((bits >> 31).cast_unsigned() >> 1).cast_signed())
}

fn f64_key(bits: i64) -> i64 {
    bits ^ (((bits >> 63).cast_unsigned() >> 1).cast_signed())
}

fn each<T: Pod>(data: &mut [u8], key: impl Fn(T) -> T) -> Result<(), Failure> {
    for number in numbers_mut(data)? {
        *number = key(*number);
    }
    Ok(())
}

fn plain<T: Pod + Ord>(data: &mut [u8], order: SortOrder) -> Result<(), Failure> {
    numbers_mut::<T>(data)?.sort_unstable();
    turn::<T>(data, order)
}

fn turn<T: Pod>(data: &mut [u8], order: SortOrder) -> Result<(), Failure> {
    if order == SortOrder::Descending {
        numbers_mut::<T>(data)?.reverse();
    }
    Ok(())
}

/// There are so few values that counting them is enough.
fn bytes(data: &mut [u8]) {
    let mut counts = [0_usize; 256];
    for &byte in &*data {
        counts[usize::from(byte)] += 1;
    }
    let mut rest = data;
    for (byte, count) in (0..=u8::MAX).zip(counts) {
        let (run, later) = rest.split_at_mut(count);
        run.fill(byte);
        rest = later;
    }
}

pub(super) fn run(arguments: &Arguments, mut data: Data<'_>) -> Result<usize, Failure> {
    let &Arguments::Sort { n, element, order } = arguments else { return Err(foreign(arguments)) };
    let output = data.input_in_output(bytes_of(n, 1, element.bytes() as u64))?;
    data.stop.check()?;
    compute(element, order, output)?;
    Ok(output.len())
}
