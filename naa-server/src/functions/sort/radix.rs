//! Sorts large arrays of integers in place (American flag sort), and calls [`Stop::check`] often. The elements are put
//! into 256 buckets by eight of their bits: the highest bit in which elements differ, and the seven bits below it. Each
//! bucket of more than `SMALL` elements is divided into buckets again, and each smaller bucket is sorted by the
//! standard library.

use crate::{
    call::{CallFailure, Stop},
    functions::pieces::touch,
};

/// The maximum number of elements that are sorted by the standard library, which takes about 30 ms for this number.
const SMALL: usize = 1 << 20;
/// The number of steps between two calls of [`Stop::check`]. A step handles one element or swaps two elements. The
/// number is so small that these calls are frequent even if the processor waits in each step for the memory of two
/// elements.
const STRIDE: usize = 1 << 17;
const BUCKETS: usize = 256;

/// An integer type whose values are in the same order as the numbers that [`bits`](Self::bits) returns for them.
pub(super) trait Key: Copy + Ord {
    fn bits(self) -> u64;
}

impl Key for u32 {
    fn bits(self) -> u64 {
        self.into()
    }
}

impl Key for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Key for i32 {
    fn bits(self) -> u64 {
        (self.cast_unsigned() ^ 1 << 31).into()
    }
}

impl Key for i64 {
    fn bits(self) -> u64 {
        self.cast_unsigned() ^ 1 << 63
    }
}

/// Sorts `data` in ascending order.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop. After an error, `data` has the same elements as
/// before, but their order is unspecified.
pub(super) fn sort<T: Key>(data: &mut [T], stop: &Stop) -> Result<(), CallFailure> {
    stop.check()?;
    if data.len() <= SMALL {
        data.sort_unstable();
        return Ok(());
    }
    match ordered(data, stop)? {
        Ordered::Up => Ok(()),
        Ordered::Down => reverse(data, stop),
        Ordered::No { differing: 0 } => Ok(()),
        Ordered::No { differing } => {
            // `partition` uses the eight bits from bit `shift` on. The uppermost of these bits is the highest bit in
            // which elements differ, unless `shift` is 0. In a recursive call of `sort`, `shift` is smaller than in the
            // outer call.
            let shift = (u64::BITS - differing.leading_zeros()).saturating_sub(BUCKETS.ilog2());
            touch(data, stop)?;
            let ends = partition(data, shift, stop)?;
            let mut from = 0;
            for end in ends {
                // If the shift is 0, all elements of a bucket are equal, so they need no sorting.
                if shift > 0 {
                    sort(&mut data[from..end], stop)?;
                }
                from = end;
            }
            Ok(())
        }
    }
}

#[derive(Debug)]
enum Ordered {
    Up,
    /// Each element is greater than or equal to the next element.
    Down,
    /// The data is neither ascending nor descending. A bit of `differing` is set if at least one element differs from
    /// the first element in this bit.
    No {
        differing: u64,
    },
}

fn ordered<T: Key>(data: &[T], stop: &Stop) -> Result<Ordered, CallFailure> {
    let first = data.first().map_or(0, |first| first.bits());
    let (mut up, mut down, mut differing) = (true, true, 0);
    for (at, piece) in data.chunks(STRIDE).enumerate() {
        stop.check()?;
        // The first element of the next piece is included, so that the order across the border is checked.
        let overlapping = &data[at * STRIDE..data.len().min(at * STRIDE + piece.len() + 1)];
        up = up && overlapping.is_sorted();
        down = down && overlapping.is_sorted_by(|a, b| a >= b);
        differing |= piece.iter().fold(0, |bits, element| bits | (element.bits() ^ first));
    }
    Ok(match (up, down) {
        (true, _) => Ordered::Up,
        (_, true) => Ordered::Down,
        _ => Ordered::No { differing },
    })
}

/// Moves each element of `data` into the bucket whose number is in the bits `shift` to `shift` + 7 of the element. All
/// elements of `data` must have equal bits from bit `shift` + 8 on. Returns, for each bucket, the index in `data` after
/// the last element of the bucket.
fn partition<T: Key>(data: &mut [T], shift: u32, stop: &Stop) -> Result<[usize; BUCKETS], CallFailure> {
    let bucket = |element: T| (element.bits() >> shift) as usize % BUCKETS;
    let mut counts = [0_usize; BUCKETS];
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        piece.iter().for_each(|element| counts[bucket(*element)] += 1);
    }
    let mut sum = 0;
    let ends = counts.map(|count| {
        sum += count;
        sum
    });
    let mut next: [usize; BUCKETS] = std::array::from_fn(|at| ends[at] - counts[at]);
    let (mut steps, mut next_check) = (0, STRIDE);
    for at in 0..BUCKETS {
        while next[at] < ends[at] {
            // In each step of the inner loop, `held` is put into its bucket, and the element that was in this place
            // becomes the new `held`. The inner loop ends when `held` belongs to bucket `at`.
            let mut held = data[next[at]];
            let mut its = bucket(held);
            while its != at {
                std::mem::swap(&mut held, &mut data[next[its]]);
                next[its] += 1;
                its = bucket(held);
                steps += 1;
                if steps >= next_check {
                    next_check = steps + STRIDE;
                    if let Err(why) = stop.check() {
                        // The held element is stored in the place that is still free, so that no element is lost.
                        data[next[at]] = held;
                        return Err(why);
                    }
                }
            }
            data[next[at]] = held;
            next[at] += 1;
            steps += 1;
            if steps >= next_check {
                next_check = steps + STRIDE;
                stop.check()?;
            }
        }
        stop.check()?;
    }
    Ok(ends)
}

/// Reverses the order of `data`.
///
/// # Errors
/// Fails with the error of [`Stop::check`] if the call should stop.
pub(super) fn reverse<T: Copy>(data: &mut [T], stop: &Stop) -> Result<(), CallFailure> {
    let (front, back) = data.split_at_mut(data.len() / 2);
    // If the number of elements is odd, the middle element stays in its place.
    for (front, back) in front.chunks_mut(STRIDE).zip(back.rchunks_mut(STRIDE)) {
        stop.check()?;
        let len = front.len();
        let from = back.len() - len;
        for (a, b) in front.iter_mut().zip(back[from..].iter_mut().rev()) {
            std::mem::swap(a, b);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers that differ only in the bits of `mask`.
    fn numbers(mask: u64) -> Vec<u64> {
        let mut state = 0x6e61_6119_u64;
        (0..SMALL + SMALL / 2 + 12_345)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state ^ state >> 29) & mask
            })
            .collect()
    }

    #[test]
    fn many_numbers_are_sorted_as_the_standard_library_does() {
        for mask in [u64::MAX, 0x3ff, 1, 0x0000_f0f0_0000_0001] {
            let mut data = numbers(mask);
            let mut expected = data.clone();
            expected.sort_unstable();
            sort(&mut data, &Stop::never()).unwrap();
            assert!(data == expected, "{mask:#x}");
            let mut signed: Vec<_> = numbers(mask).into_iter().map(u64::cast_signed).collect();
            let mut expected = signed.clone();
            expected.sort_unstable();
            sort(&mut signed, &Stop::never()).unwrap();
            assert!(signed == expected, "{mask:#x}, signed");
            // The array is sorted before `reverse`, and in the opposite order afterwards.
            reverse(&mut signed, &Stop::never()).unwrap();
            assert!(signed.iter().rev().eq(&expected));
            sort(&mut signed, &Stop::never()).unwrap();
            assert!(signed == expected);
        }
    }

    #[test]
    fn a_sort_that_is_given_up_loses_no_number() {
        let mut data = numbers(u64::MAX);
        let mut expected = data.clone();
        expected.sort_unstable();
        let stop = Stop::never();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                stop.abandon();
            });
            let _ = sort(&mut data, &stop);
        });
        data.sort_unstable();
        assert!(data == expected);
    }
}
