//! Sums, histograms and sorting are compared with the simplest code that does the same.

use mrsp::builtin::{Element, SortOrder};
use naa_server::{
    call::CallFailure,
    functions::{
        histogram::{self, Bins},
        sort, vector_add,
    },
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

const SEED: u64 = 0x6e61_6102;
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 17, 1000, 65_537, 300_000];

fn random() -> ChaCha8Rng {
    println!("seed {SEED:#x}");
    ChaCha8Rng::seed_from_u64(SEED)
}

/// Returns words with random bits. The tests also read these words as floats, some of which are NaN or subnormal
/// numbers.
fn words(random: &mut ChaCha8Rng, len: usize) -> Vec<u64> {
    (0..len).map(|_| random.next_u64()).collect()
}

fn bytes_of(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}

#[test]
fn sums_agree_with_the_definition() {
    let mut random = random();
    for len in LENGTHS {
        let (a, b) = (words(&mut random, len), words(&mut random, len));
        let sum = |element| {
            let mut c = vec![7_u64; len];
            let out = bytemuck::cast_slice_mut(&mut c);
            vector_add::compute(element, bytes_of(&a), bytes_of(&b), out).unwrap();
            c
        };
        let doubles: Vec<_> =
            a.iter().zip(&b).map(|(&a, &b)| (f64::from_bits(a) + f64::from_bits(b)).to_bits()).collect();
        let same =
            |(x, y): (&u64, &u64)| x == y || f64::from_bits(*x).is_nan() && f64::from_bits(*y).is_nan();
        assert!(sum(Element::F64).iter().zip(&doubles).all(same));
        let wide: Vec<_> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
        assert!(sum(Element::U64) == wide && sum(Element::I64) == wide);
        for element in [Element::U32, Element::I32] {
            let narrow = sum(element);
            for (at, &found) in narrow.iter().enumerate() {
                let low = (a[at] as u32).wrapping_add(b[at] as u32);
                let high = ((a[at] >> 32) as u32).wrapping_add((b[at] >> 32) as u32);
                assert_eq!(found, u64::from(high) << 32 | u64::from(low));
            }
        }
        let small = sum(Element::U8);
        let all = bytes_of(&small).iter().zip(bytes_of(&a)).zip(bytes_of(&b));
        assert!(all.into_iter().all(|((c, a), b)| *c == a.wrapping_add(*b)));
    }
    let mut c = [0.0_f32];
    let (one, two) = ([1.5_f32], [2.25_f32]);
    let out = bytemuck::cast_slice_mut(&mut c);
    vector_add::compute(Element::F32, bytemuck::cast_slice(&one), bytemuck::cast_slice(&two), out).unwrap();
    assert_eq!(c, [3.75]);
    let uneven = vector_add::compute(Element::U8, &[1], &[1, 2], &mut [0, 0]);
    assert!(matches!(uneven, Err(CallFailure::Arguments(_))));
}

/// Returns a copy of `bytes` in which the elements of type `T` are sorted by `compare`. The sort is stable, which makes
/// no difference because equal elements have equal bits.
fn sorted<T: bytemuck::Pod>(bytes: &[u8], compare: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<u8> {
    let mut all: Vec<T> = bytemuck::cast_slice(bytes).to_vec();
    all.sort_by(compare);
    bytemuck::cast_slice(&all).to_vec()
}

#[test]
fn everything_is_sorted_as_the_standard_library_does() {
    let mut random = random();
    for len in LENGTHS {
        let mut data = words(&mut random, len);
        // The data starts with six special floats, or with fewer if it is shorter: NaNs, zeros of both signs, and
        // infinity. The value 0.0 occurs twice among the six floats.
        for (word, special) in data.iter_mut().zip([f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, 0.0]) {
            *word = special.to_bits();
        }
        let given = bytes_of(&data);
        for (element, expected) in [
            (Element::U8, sorted::<u8>(given, u8::cmp)),
            (Element::U32, sorted::<u32>(given, u32::cmp)),
            (Element::I32, sorted::<i32>(given, i32::cmp)),
            (Element::U64, sorted::<u64>(given, u64::cmp)),
            (Element::I64, sorted::<i64>(given, i64::cmp)),
            (Element::F32, sorted::<f32>(given, f32::total_cmp)),
            (Element::F64, sorted::<f64>(given, f64::total_cmp)),
        ] {
            let mut found = data.clone();
            sort::compute(element, SortOrder::Ascending, bytemuck::cast_slice_mut(&mut found)).unwrap();
            assert!(bytes_of(&found) == expected, "{len} {element:?}");
            let mut down = data.clone();
            sort::compute(element, SortOrder::Descending, bytemuck::cast_slice_mut(&mut down)).unwrap();
            let turned: Vec<_> = expected.rchunks(element.bytes()).flatten().copied().collect();
            assert!(bytes_of(&down) == turned, "{len} {element:?} down");
        }
    }
}

/// Returns the number of values in each bin. The function finds the bin of a value by comparing the value with the
/// edges of the bins. Three more numbers follow: the values below `lo`, the values from `hi` on, and the NaNs.
fn by_edges(values: &[f64], bins: usize, lo: f64, hi: f64) -> Vec<u64> {
    let mut counts = vec![0; bins + 3];
    for &x in values {
        let edge = |bin: usize| lo + (hi - lo) * bin as f64 / bins as f64;
        let place = match x {
            x if x.is_nan() => bins + 2,
            x if x < lo => bins,
            x if x >= hi => bins + 1,
            x => (0..bins).rfind(|&bin| edge(bin) <= x).unwrap_or(0),
        };
        counts[place] += 1;
    }
    counts
}

fn counted(element: Element, data: &[u8], bins: usize, lo: f64, hi: f64) -> Vec<u64> {
    let mut counts = vec![9; bins + 3];
    histogram::compute(element, Bins::new(bins, lo, hi).unwrap(), data, &mut counts).unwrap();
    counts
}

#[test]
fn histograms_agree_with_their_edges() {
    let mut random = random();
    for (bins, lo, hi) in
        [(1, 0.0, 49.0), (2, 0.0, 98.0), (7, -3.0, 11.0), (100, 0.0, 100.0), (256, 0.0, 256.0)]
    {
        // The values are whole numbers, some of which lie on the edge between two bins. A value on the edge between two
        // bins counts in the upper bin.
        let whole: Vec<i32> = (0..5003).map(|_| random.next_u32() as i32 % 300).collect();
        let values: Vec<_> = whole.iter().map(|&x| f64::from(x)).collect();
        let expected = by_edges(&values, bins, lo, hi);
        assert_eq!(counted(Element::I32, bytemuck::cast_slice(&whole), bins, lo, hi), expected);
        assert_eq!(counted(Element::F64, bytemuck::cast_slice(&values), bins, lo, hi), expected);
        let single: Vec<_> = whole.iter().map(|&x| x as f32).collect();
        assert_eq!(counted(Element::F32, bytemuck::cast_slice(&single), bins, lo, hi), expected);

        let bytes: Vec<_> = whole.iter().map(|&x| x as u8).collect();
        let values: Vec<_> = bytes.iter().map(|&x| f64::from(x)).collect();
        assert_eq!(counted(Element::U8, &bytes, bins, lo, hi), by_edges(&values, bins, lo, hi));
    }
    let any = words(&mut random, 10_000);
    for element in [Element::U8, Element::U32, Element::I32, Element::F32, Element::F64] {
        for (bins, lo, hi) in [(1, -1e300, 1e300), (1000, 0.0, 5e-324), (3, -1.0, 1.0), (50, 0.0, 4e9)] {
            let counts = counted(element, bytes_of(&any), bins, lo, hi);
            assert_eq!(counts.iter().sum::<u64>() as usize, 80_000 / element.bytes(), "{element:?}");
        }
    }
}

#[test]
fn the_edges_of_floats_are_counted_apart() {
    let below = 1.0_f64.next_down();
    let values = [0.0, -0.0, below, 1.0, -5e-324, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let counts = counted(Element::F64, bytemuck::cast_slice(&values), 3, 0.0, 1.0);
    assert_eq!(counts, [2, 0, 1, 2, 2, 2]);
}

#[test]
fn impossible_histograms_are_refused() {
    let nan = f64::NAN;
    for (count, lo, hi) in [
        (0, 0.0, 1.0),
        (1, 1.0, 1.0),
        (1, 2.0, 1.0),
        (1, nan, 1.0),
        (1, 0.0, nan),
        (1, 0.0, f64::INFINITY),
        (10, 0.0, f64::MAX),
    ] {
        assert!(matches!(Bins::new(count, lo, hi), Err(CallFailure::Arguments(_))), "{count} {lo} {hi}");
    }
    let bins = Bins::new(2, 0.0, 1.0).unwrap();
    for element in [Element::U64, Element::I64] {
        let refused = histogram::compute(element, bins, &[0; 8], &mut [0; 5]);
        assert!(matches!(refused, Err(CallFailure::Arguments(_))));
    }
    assert!(matches!(
        histogram::compute(Element::U8, bins, &[0; 8], &mut [0; 4]),
        Err(CallFailure::Arguments(_))
    ));
}
