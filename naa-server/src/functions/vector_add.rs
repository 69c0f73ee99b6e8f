//! The sum of two vectors, element by element.

use std::ops::Add;

use bytemuck::Pod;
use mrsp::builtin::{Arguments, Element};

use super::{
    blocks::{CallData, foreign},
    bytes_of, numbers, numbers_mut,
};
use crate::call::{CallFailure, Stop};

/// The number of bytes of each vector that are processed between two calls of [`Stop::check`]. A piece of this length
/// is copied from the first vector to the output, unless the output already contains the first vector. Then the piece
/// of the second vector at the same offset is added to this piece of the output. The pieces are so small that the
/// copied piece is still in the CPU's cache when the second vector is added.
const STRIDE: usize = 64 << 10;

/// Adds the arrays `a` and `b` element by element, and stores the sums in `c`. The slices `a`, `b` and `c` have the
/// same length and contain numbers of the type `element`. Sums of integers wrap around if they overflow.
///
/// # Errors
/// Fails with [`CallFailure::Arguments`] if the lengths differ. Fails with [`CallFailure::Internal`] if `b` or `c` is
/// not aligned for the type `element`, or does not contain a whole number of elements.
pub fn compute(element: Element, a: &[u8], b: &[u8], c: &mut [u8]) -> Result<(), CallFailure> {
    if a.len() != c.len() || b.len() != c.len() {
        return Err(CallFailure::Arguments("the vectors have different lengths".into()));
    }
    compute_until(element, Some(a), b, c, &Stop::never())
}

/// Adds the arrays `a` and `b` element by element, and stores the sums in `c`. If `a` is `None`, `c` already contains
/// the first vector. All vectors have the same length.
fn compute_until(
    element: Element,
    a: Option<&[u8]>,
    b: &[u8],
    c: &mut [u8],
    stop: &Stop,
) -> Result<(), CallFailure> {
    let mut a = a.map(|a| a.chunks(STRIDE));
    for (c, b) in c.chunks_mut(STRIDE).zip(b.chunks(STRIDE)) {
        stop.check()?;
        if let Some(a) = a.as_mut().and_then(Iterator::next) {
            c.copy_from_slice(a);
        }
        add(element, c, b)?;
    }
    Ok(())
}

/// Adds each element of `b` to the element of `c` with the same index.
fn add(element: Element, c: &mut [u8], b: &[u8]) -> Result<(), CallFailure> {
    // Wrapping sums of signed and unsigned integers have the same bits, so one function adds both kinds of integers.
    match element {
        Element::U8 => each(c, b, u8::wrapping_add),
        Element::U32 | Element::I32 => each(c, b, u32::wrapping_add),
        Element::U64 | Element::I64 => each(c, b, u64::wrapping_add),
        Element::F32 => each(c, b, f32::add),
        Element::F64 => each(c, b, f64::add),
    }
}

fn each<T: Pod>(c: &mut [u8], b: &[u8], sum: impl Fn(T, T) -> T) -> Result<(), CallFailure> {
    for (c, b) in numbers_mut(c)?.iter_mut().zip(numbers(b)?) {
        *c = sum(*c, *b);
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::VectorAdd { n, element } = arguments else { return Err(foreign(arguments)) };
    let bytes = bytes_of(n, 1, element.bytes() as u64);
    let b = data.input(2, bytes)?;
    let in_place = data.is_in_place();
    let a = if in_place { None } else { Some(data.input(1, bytes)?) };
    let c = data.output_of(bytes)?;
    compute_until(element, a, b, c, data.stop)?;
    Ok(c.len())
}
