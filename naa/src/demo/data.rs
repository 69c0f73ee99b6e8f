//! Generated inputs: the same in every run.

/// SplitMix64 (Steele, Lea, Flood 2014), for data that only has to look irregular.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Makes blocks of 4 KiB that are in turn random and of few different bytes, so that half of the data can be
/// compressed.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    const RUN: usize = 4096;
    const FEW: u64 = 0x0303_0303_0303_0303;
    let mut random = SplitMix(len as u64);
    let mut out = vec![0; len];
    for (index, run) in out.chunks_mut(RUN).enumerate() {
        let mask = if index % 2 == 0 { FEW } else { u64::MAX };
        for word in run.chunks_mut(8) {
            word.copy_from_slice(&(random.next() & mask).to_le_bytes()[..word.len()]);
        }
    }
    out
}

/// Numbers from -1 to 1.
pub(crate) fn numbers(len: usize, seed: u64) -> Vec<f64> {
    let mut random = SplitMix(seed);
    // The mantissa of an f64 has 53 bits.
    (0..len).map(|_| (random.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0).collect()
}

/// Makes arbitrary bits, so that floats of every kind occur.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix(seed);
    let mut out = vec![0; len];
    for word in out.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    out
}

/// The numbers as bytes, as they lie in a region.
pub(crate) fn to_bytes(numbers: impl IntoIterator<Item = f64>) -> Vec<u8> {
    numbers.into_iter().flat_map(f64::to_le_bytes).collect()
}

/// Whether `found` is `expected`: to the last bit, or as f64s whose differences are below 1e-9 of the largest.
pub(crate) fn is_close(found: &[u8], expected: &[u8]) -> bool {
    if found == expected {
        return true;
    }
    let numbers =
        |bytes: &[u8]| bytes.as_chunks().0.iter().copied().map(f64::from_le_bytes).collect::<Vec<_>>();
    let (found_numbers, expected_numbers) = (numbers(found), numbers(expected));
    let largest = expected_numbers.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * largest;
    found.len() == expected.len() && found_numbers.iter().zip(&expected_numbers).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_the_same_each_time_and_irregular() {
        assert_eq!(bytes(10_001), bytes(10_001));
        assert_ne!(bytes(8192)[..4096], bytes(8192)[4096..]);
        let numbers = numbers(1000, 1);
        assert!(numbers.iter().all(|x| (-1.0..1.0).contains(x)));
    }

    #[test]
    fn closeness_is_relative_to_the_largest() {
        let of = |numbers: &[f64]| to_bytes(numbers.iter().copied());
        assert!(is_close(&of(&[1e6, 1.0]), &of(&[1e6, 1.000_1])));
        assert!(!is_close(&of(&[1.0, 1.0]), &of(&[1.0, 1.000_1])));
        assert!(!is_close(&of(&[1.0]), &of(&[1.0, 1.0])));
        assert!(!is_close(&of(&[f64::NAN]), &of(&[1.0])));
    }
}
