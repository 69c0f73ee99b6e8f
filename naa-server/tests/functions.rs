//! Tests that call functions as hosts do: with regions, argument blocks and status blocks.

mod common;

use std::time::Instant;

use common::{calls::TestCall, function};
use mrsp::{
    FunctionCode, RegionFlags, ReturnCode,
    builtin::{self, ArgumentBlock, Arguments, Element, FftDirection, SortOrder, StatusBlock},
    catalogue::{Catalogue, HEADER_BYTES, Header},
    plan::Part,
};
use naa_server::{
    call::{CallFailure, Stop},
    function::{Execution, Registry, RegistryError},
    functions::{self, crc32c, dgemm, sha256},
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

const IN: RegionFlags = RegionFlags::INPUT;
const OUT: RegionFlags = RegionFlags::OUTPUT;
const SEED: u64 = 0x6e61_6101;

fn registry() -> Registry {
    functions::builtins().unwrap()
}

/// The flags and content of a region before a call.
type Given<'a> = (RegionFlags, &'a [u8]);

/// The result of a call that has ended, and the content of the call's regions at the end.
struct CallResult {
    result: Result<Vec<Option<Part>>, CallFailure>,
    /// The number of status bytes, which are the first bytes of the first output. If the call failed, the host gets
    /// only these bytes.
    status_bytes: u32,
    regions: Vec<Vec<u8>>,
}

impl CallResult {
    #[track_caller]
    fn code(&self) -> ReturnCode {
        self.result.as_ref().unwrap_err().code()
    }

    #[track_caller]
    fn status(&self, region: usize) -> StatusBlock {
        StatusBlock::decode(&self.regions[region]).unwrap()
    }
}

fn call(code: FunctionCode, regions: &[Given<'_>]) -> CallResult {
    call_until(code, regions, &Stop::never())
}

fn call_until(code: FunctionCode, regions: &[Given<'_>], stop: &Stop) -> CallResult {
    let regions: Vec<_> = regions.iter().map(|&(flags, bytes)| (flags, bytes, bytes.len())).collect();
    let TestCall { mut call, .. } = TestCall::new("a call of a host", code, &regions);
    let result = call.run(stop);
    let status_bytes = call.regions.take_status_bytes();
    let regions = call.regions.iter().map(|region| region.allocation.bytes().unwrap().to_vec()).collect();
    CallResult { result, status_bytes, regions }
}

/// Makes a call with an argument block and a status block. Input 0 is the argument block. Region 1 and the last region
/// are the outputs.
fn call_with(arguments: Arguments, inputs: &[&[u8]], output: usize) -> CallResult {
    let (block, output) = (arguments.encode(), vec![0; output]);
    let mut regions = vec![(IN, &block[..]), (OUT, &[0; 64])];
    regions.extend(inputs.iter().map(|input| (IN, *input)));
    regions.push((OUT, &output));
    call(arguments.function(), &regions)
}

/// Returns the arguments for a histogram of bytes.
fn histogram(n: u64, bins: u64, lo: f64, hi: f64) -> Arguments {
    Arguments::Histogram { n, element: Element::U8, bins, lo: lo.to_bits(), hi: hi.to_bits() }
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn naaice_functions_change_every_byte_of_every_parameter() {
    let regions: &[Given<'_>] =
        &[(IN, &[1, 255]), (OUT, &[7]), (IN | OUT, &[]), (RegionFlags::INTERNAL, &[3]), (IN | OUT, &[254])];
    let plus =
        |n: u8| [vec![1 + n, n.wrapping_sub(1)], vec![7 + n], vec![], vec![3], vec![254_u8.wrapping_add(n)]];
    for (code, amount) in [(builtin::INCREMENT, 1), (builtin::INCREMENT_BY_TWO, 2), (builtin::NOTHING, 0)] {
        let made = call(code, regions);
        assert_eq!(made.result, Ok(vec![None; 4]));
        assert_eq!(made.regions, plus(amount));
    }
    assert_eq!(call(builtin::NOTHING, &[]).result, Ok(vec![]));
}

#[test]
fn digests_and_checksums_cover_the_bytes_asked_for() {
    let data: Vec<u8> = (0..200_000).map(|i| (i * 7 % 251) as u8).collect();
    for bytes in [0, 1, 199_999, 200_000] {
        let part = &data[..bytes as usize];
        let made = call_with(Arguments::Sha256 { bytes }, &[&data], 40);
        assert_eq!(made.result, Ok(vec![None, Some(Part::prefix(64)), None, Some(Part::prefix(32))]));
        assert_eq!(made.status(1).produced, [64, 32, 0, 0, 0, 0]);
        assert_eq!(made.regions[3][..32], sha256::compute(part));
        assert_eq!(made.regions[3][32..], [0; 8]);
        let made = call_with(Arguments::Crc32c { bytes }, &[&data], 4);
        assert_eq!(made.regions[3], crc32c::compute(part).to_le_bytes());
    }
}

#[test]
fn matrices_are_multiplied() {
    let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.5, -1.0, 2.0, 0.0, 4.0]);
    let made = call_with(Arguments::Dgemm { m: 2, n: 2, k: 3 }, &[&f64s(&a), &f64s(&b)], 40);
    let mut c = [0.0; 4];
    dgemm::compute([2, 2, 3], &a, &b, &mut c).unwrap();
    assert_eq!(c, [-1.0, 16.5, -1.0, 36.0]);
    assert_eq!(made.regions[4][..32], f64s(&c));
    assert_eq!((made.status(1).produced[1], made.status(1).code), (32, None));
}

#[test]
fn a_transform_works_in_place_too() {
    let signal = f64s(&[1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0]);
    let spectrum = f64s(&[10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0]);
    let arguments = Arguments::Fft { n: 4, direction: FftDirection::Forward };
    assert_eq!(call_with(arguments, &[&signal], 64).regions[3], spectrum);
    let made = call(builtin::FFT, &[(IN, &arguments.encode()), (OUT, &[0; 64]), (IN | OUT, &signal)]);
    assert_eq!(made.regions[2], spectrum);
    let inverse = Arguments::Fft { n: 4, direction: FftDirection::Inverse };
    let scaled: Vec<_> = [4.0, 0.0, 8.0, 0.0, 12.0, 0.0, 16.0, 0.0].into();
    assert_eq!(call_with(inverse, &[&spectrum], 64).regions[3], f64s(&scaled));
}

#[test]
fn a_transform_in_place_gives_the_same_bits() {
    for n in [1000, 1 << 17, 65_537] {
        let signal: Vec<_> = (0..2 * n).map(|i| (i * 7919 % 1009) as f64).collect();
        let signal = f64s(&signal);
        let arguments = Arguments::Fft { n: n as u64, direction: FftDirection::Forward };
        let apart = call_with(arguments, &[&signal], 16 * n);
        assert!(apart.result.is_ok() && apart.regions[2] == signal, "the input stays");
        let regions = [(IN, &arguments.encode()[..]), (OUT, &[0; 64]), (IN | OUT, &signal)];
        assert!(call(builtin::FFT, &regions).regions[2] == apart.regions[3], "{n}");
    }
}

#[test]
fn vectors_are_added_in_place_too() {
    let (a, b) = (f64s(&[1.0, -2.0, 0.5]), f64s(&[1.0, 2.0, 0.25]));
    let arguments = Arguments::VectorAdd { n: 3, element: Element::F64 };
    let made = call_with(arguments, &[&a, &b], 30);
    assert_eq!((&made.regions[4][..24], &made.regions[4][24..]), (&f64s(&[2.0, 0.0, 0.75])[..], &[0; 6][..]));
    assert_eq!(made.status(1).produced, [64, 24, 0, 0, 0, 0]);
    let regions = [(IN, &arguments.encode()[..]), (OUT, &[0; 64]), (IN | OUT, &a), (IN, &b)];
    assert_eq!(call(builtin::VECTOR_ADD, &regions).regions[2], f64s(&[2.0, 0.0, 0.75]));
}

#[test]
fn numbers_are_counted_and_sorted() {
    let values = f64s(&[0.5, -1.0, f64::NAN, 0.25, 2.0]);
    let (lo, hi) = (0.0_f64.to_bits(), 1.0_f64.to_bits());
    let arguments = Arguments::Histogram { n: 5, element: Element::F64, bins: 2, lo, hi };
    let made = call_with(arguments, &[&values], 40);
    let counts: Vec<u8> = [1_u64, 1, 1, 1, 1].iter().flat_map(|count| count.to_le_bytes()).collect();
    assert_eq!((&made.regions[3], made.status(1).produced[1]), (&counts, 40));

    let down = Arguments::Sort { n: 4, element: Element::F64, order: SortOrder::Descending };
    let sorted = f64s(&[f64::NAN, 0.5, 0.25, -1.0]);
    // The fifth element is not sorted, because the arguments say that the array has four elements.
    assert_eq!(call_with(down, &[&values], 32).regions[3], sorted);
    let regions = [(IN, &down.encode()[..]), (OUT, &[0; 64]), (IN | OUT, &values)];
    let made = call(builtin::SORT, &regions);
    assert_eq!((&made.regions[2][..32], &made.regions[2][32..]), (&sorted[..], &f64s(&[2.0])[..]));
}

#[test]
fn blocks_may_share_a_region() {
    let block = Arguments::Crc32c { bytes: 9 }.encode();
    let made = call(builtin::CRC32C, &[(IN | OUT, &block), (IN, b"123456789"), (OUT, &[0; 4])]);
    assert_eq!(made.regions[2], 0xe306_9283_u32.to_le_bytes());
    assert_eq!(made.status(0).code, None);
}

#[test]
fn data_survives_compression() {
    let data = b"accelerate ".repeat(1000);
    let bytes = data.len() as u64;
    for (pack, unpack) in [
        (
            Arguments::Lz4Compress { bytes },
            (|bytes| Arguments::Lz4Decompress { bytes }) as fn(u64) -> Arguments,
        ),
        (Arguments::ZstdCompress { bytes, level: 3 }, |bytes| Arguments::ZstdDecompress { bytes }),
    ] {
        let packed = call_with(pack, &[&data], data.len());
        let length = packed.status(1).produced[1];
        assert!(length < bytes / 10);
        let unpacked = call_with(unpack(length), &[&packed.regions[3]], data.len());
        assert_eq!(unpacked.status(1).produced[1], bytes);
        assert_eq!(unpacked.regions[3], data);

        let short = call_with(unpack(length), &[&packed.regions[3]], 100);
        assert_eq!(short.code(), ReturnCode::OUTPUT_TOO_SMALL);
        assert_eq!(short.status_bytes, 64);
        let status = short.status(1);
        assert_eq!((status.code, status.detail), (Some(ReturnCode::OUTPUT_TOO_SMALL), bytes));
        let cut = call_with(unpack(length - 5), &[&packed.regions[3]], data.len());
        assert_eq!(
            (cut.code(), cut.status(1).code),
            (ReturnCode::MALFORMED_INPUT, Some(ReturnCode::MALFORMED_INPUT))
        );
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let big = u64::MAX;
    for (arguments, code) in [
        (Arguments::Sha256 { bytes: 65 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Crc32c { bytes: big }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Lz4Compress { bytes: 1 << 40 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::ZstdDecompress { bytes: big }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Dgemm { m: 2, n: 2, k: 5 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Dgemm { m: 1 << 61, n: 8, k: 8 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Dgemm { m: big, n: big, k: 0 }, ReturnCode::OUTPUT_TOO_SMALL),
        (Arguments::Dgemm { m: big, n: big, k: big }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Fft { n: 5, direction: FftDirection::Forward }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::Fft { n: 1 << 60, direction: FftDirection::Inverse }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::VectorAdd { n: 17, element: Element::I32 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::VectorAdd { n: 1 << 61, element: Element::F64 }, ReturnCode::BAD_ARGUMENTS),
        (Arguments::VectorAdd { n: 5, element: Element::U64 }, ReturnCode::OUTPUT_TOO_SMALL),
        (
            Arguments::Sort { n: big, element: Element::U8, order: SortOrder::Ascending },
            ReturnCode::BAD_ARGUMENTS,
        ),
        (
            Arguments::Sort { n: 33, element: Element::U8, order: SortOrder::Ascending },
            ReturnCode::OUTPUT_TOO_SMALL,
        ),
        (histogram(65, 1, 0.0, 1.0), ReturnCode::BAD_ARGUMENTS),
        (histogram(64, 2, 0.0, 1.0), ReturnCode::OUTPUT_TOO_SMALL),
        (histogram(64, big, 0.0, 1.0), ReturnCode::OUTPUT_TOO_SMALL),
        (histogram(64, 0, 0.0, 1.0), ReturnCode::BAD_ARGUMENTS),
        (histogram(64, 1, 1.0, 1.0), ReturnCode::BAD_ARGUMENTS),
        (histogram(64, 1, f64::NAN, 1.0), ReturnCode::BAD_ARGUMENTS),
        (histogram(64, 1, f64::MIN, f64::MAX), ReturnCode::BAD_ARGUMENTS),
        (histogram(64, 1, 0.0, f64::INFINITY), ReturnCode::BAD_ARGUMENTS),
    ] {
        let made = call_with(arguments, &[&[0; 64], &[0; 64]], 32);
        assert_eq!((made.code(), made.status(1).code), (code, Some(code)), "{arguments:?}");
    }
    let short = call_with(Arguments::Sha256 { bytes: 1 }, &[&[0; 64]], 31);
    assert_eq!((short.code(), short.status(1).detail), (ReturnCode::OUTPUT_TOO_SMALL, 32));
}

#[test]
fn regions_that_do_not_fit_are_refused() {
    let block = Arguments::Sha256 { bytes: 4 }.encode();
    let data: Given<'_> = (IN, &[1; 4]);
    let cases: &[(&[Given<'_>], u32)] = &[
        (&[], 0),
        (&[(IN, &block)], 0),
        (&[(OUT, &[0; 64])], 64),
        (&[(IN, &block), (OUT, &[0; 64])], 64),
        (&[(IN, &block), data, (OUT, &[0; 63]), (OUT, &[0; 32])], 0),
        (&[(IN, &block[..63]), data, (OUT, &[0; 64]), (OUT, &[0; 32])], 64),
        (&[(IN, &[0; 64]), data, (OUT, &[0; 64]), (OUT, &[0; 32])], 64),
        // Input 1 and output 1 are the same region.
        (&[(IN, &block), (OUT, &[0; 64]), (IN | OUT, &[0; 32])], 64),
    ];
    for (regions, status_bytes) in cases {
        let made = call(builtin::SHA256, regions);
        assert!(matches!(made.code(), ReturnCode::BAD_ARGUMENTS | ReturnCode::OUTPUT_TOO_SMALL));
        assert_eq!(made.status_bytes, *status_bytes, "{regions:?}");
    }
    // The argument block belongs to another function.
    let made = call(builtin::CRC32C, &[(IN, &block), data, (OUT, &[0; 64]), (OUT, &[0; 32])]);
    assert_eq!(made.code(), ReturnCode::BAD_ARGUMENTS);
}

#[test]
fn an_abandoned_call_computes_nothing() {
    let stop = Stop::never();
    stop.abandon();
    let block = Arguments::Sha256 { bytes: 4 }.encode();
    let regions: &[Given<'_>] = &[(IN, &block), (OUT, &[0; 64]), (IN, &[1; 4]), (OUT, &[0; 32])];
    let made = call_until(builtin::SHA256, regions, &stop);
    assert_eq!((made.code(), &made.regions[3]), (ReturnCode::ABANDONED, &vec![0; 32]));
    let made = call_until(builtin::SHA256, regions, &Stop::at(Instant::now()));
    assert_eq!(made.code(), ReturnCode::KERNEL_TIMEOUT);
}

#[test]
fn hostile_calls_never_panic() {
    println!("seed {SEED:#x}");
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let codes: Vec<_> = registry().iter().map(|function| function.info().code).collect();
    let sizes = [0, 1, 16, 32, 63, 64, 65, 200, 4096];
    for _ in 0..8000 {
        let code = codes[random.next_u32() as usize % codes.len()];
        let words = std::array::from_fn(|_| match random.next_u32() % 4 {
            0 => 0,
            1 => u64::from(random.next_u32() % 70),
            2 => 1 << (random.next_u32() % 64),
            _ => random.next_u64(),
        });
        let mut used = words;
        used[5..].fill(0);
        match random.next_u32() % 4 {
            0 => used[1..].fill(0),
            1 => used[3..].fill(0),
            // In the argument blocks of several functions, the word with the index 1 is the code of an element type.
            // All valid codes are below 8.
            2 => used[1] %= 8,
            _ => {}
        }
        let mut regions: Vec<(RegionFlags, Vec<u8>)> = (0..random.next_u32() % 5)
            .map(|_| {
                let mut bytes = vec![0; sizes[random.next_u32() as usize % sizes.len()]];
                random.fill_bytes(&mut bytes);
                (RegionFlags::from_bits(random.next_u32() as u8 & 15), bytes)
            })
            .collect();
        if random.next_u32() % 8 != 0 {
            let block = ArgumentBlock { function: code, words: used }.encode();
            regions.insert(0, (IN, block.into()));
        }
        let regions: Vec<_> = regions.iter().map(|(flags, bytes)| (*flags, &bytes[..])).collect();
        let made = call(code, &regions);
        if let Err(why) = made.result {
            assert_ne!(why.code(), ReturnCode::INTERNAL, "{code} {used:?}: {why}");
        }
    }
}

#[test]
fn the_catalogue_lists_every_function() {
    let registry = registry();
    let made = call(builtin::CATALOGUE, &[(OUT, &[0; mrsp::catalogue::USUAL_BYTES])]);
    let Ok([Some(table)]) = made.result.as_deref() else { panic!("{:?}", made.result) };
    let catalogue = Catalogue::decode(&made.regions[0]).unwrap();
    assert_eq!(catalogue, registry.catalogue());
    let listed: Vec<_> = catalogue.functions.iter().map(|entry| (entry.code, entry.name.as_str())).collect();
    assert_eq!(listed, builtin::NAMES);
    assert!(catalogue.functions.iter().all(|entry| !entry.description.is_empty()));

    let made = call(builtin::CATALOGUE, &[(OUT, &[0; 100])]);
    assert_eq!(made.code(), ReturnCode::OUTPUT_TOO_SMALL);
    assert_eq!(made.status_bytes as usize, HEADER_BYTES);
    assert_eq!(u64::from(Header::decode(&made.regions[0]).unwrap().bytes), table.bytes);
    for size in [0, 15] {
        let made = call(builtin::CATALOGUE, &[(OUT, &vec![0; size])]);
        assert_eq!((made.code(), made.status_bytes), (ReturnCode::OUTPUT_TOO_SMALL, 0));
    }
    assert_eq!(call(builtin::CATALOGUE, &[(IN, &[0; 99])]).code(), ReturnCode::BAD_ARGUMENTS);
}

#[test]
fn a_number_is_given_once() {
    let mut registry = registry();
    let again = registry.get(builtin::SHA256).unwrap().clone();
    assert!(matches!(registry.register(again.clone()), Err(RegistryError::Duplicate { .. })));
    assert!(matches!(functions::registry([again]), Err(RegistryError::Duplicate { .. })));
}

#[test]
fn small_calls_run_inline_and_large_ones_on_the_pool() {
    let sha256 = function(builtin::SHA256);
    assert_eq!(sha256.execution(1000), Execution::Inline);
    assert_eq!(sha256.execution(1 << 20), Execution::Pooled);
    assert_eq!(function(builtin::NOTHING).execution(1 << 30), Execution::Inline);
}
