//! Tests of built-in functions, whose results are compared with known results and with other implementations. Some
//! tests give damaged inputs to the functions.

use naa_server::{
    call::CallFailure,
    functions::{crc32c, dgemm, fft, lz4, sha256, zstd},
};
use num_complex::Complex64;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use rustfft::FftDirection::{Forward, Inverse};

const SEED: u64 = 0x6e61_6100;

fn random() -> ChaCha8Rng {
    println!("seed {SEED:#x}");
    ChaCha8Rng::seed_from_u64(SEED)
}

/// Returns a random number from -1 to 1.
fn unit(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.next_u32() as i32) / f64::from(i32::MAX)
}

/// Returns bytes with repetitions, like real data.
fn text(random: &mut ChaCha8Rng, len: usize) -> Vec<u8> {
    let words: Vec<u32> = (0..64).map(|_| random.next_u32()).collect();
    (0..len.div_ceil(4))
        .flat_map(|_| words[random.next_u32() as usize % 64].to_le_bytes())
        .take(len)
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sha256_gives_the_digests_of_fips_180() {
    assert_eq!(
        hex(&sha256::compute(b"abc")),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(
        hex(&sha256::compute(b"")),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_eq!(
        hex(&sha256::compute(&vec![b'a'; 1_000_000])),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
    );
}

#[test]
fn crc32c_gives_the_sums_of_rfc_3720() {
    // The first three of these checksums are in section B.4 of RFC 3720. The RFC lists the bytes of each checksum as
    // they are on the wire, with the least significant byte first.
    assert_eq!(crc32c::compute(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c::compute(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c::compute(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    assert_eq!(crc32c::compute(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c::compute(b""), 0);
}

#[test]
fn dgemm_agrees_with_the_definition() {
    let mut random = random();
    for shape in
        [[1, 1, 1], [2, 3, 4], [65, 1, 7], [1, 130, 3], [129, 31, 67], [3, 0, 2], [0, 5, 5], [4, 4, 0]]
    {
        let [m, n, k] = shape;
        let a: Vec<f64> = (0..m * k).map(|_| unit(&mut random)).collect();
        let b: Vec<f64> = (0..k * n).map(|_| unit(&mut random)).collect();
        // The old content of C must not change the product. C contains NaNs before the call, so any use of the old
        // content would make the product NaN.
        let mut c = vec![f64::NAN; m * n];
        dgemm::compute(shape, &a, &b, &mut c).unwrap();
        for (at, &got) in c.iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let want: f64 = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
            assert!((got - want).abs() < 1e-12, "{shape:?} at {row}, {column}: {got} instead of {want}");
        }
    }
}

#[test]
fn dgemm_in_tiles_gives_the_bits_of_a_product_without_tiles() {
    let mut random = random();
    // For each of m, n and k, at least one of these shapes needs several tiles, and the last of these tiles is only
    // partly full.
    for [m, n, k] in [[130, 2048, 1030], [700, 1025, 257], [3, 1024, 512], [9000, 70, 300]] {
        let mut numbers = |len| (0..len).map(|_| f64::from(random.next_u32()) - 2e9).collect::<Vec<_>>();
        let (a, b) = (numbers(m * k), numbers(k * n));
        let mut c = vec![f64::NAN; m * n];
        dgemm::compute([m, n, k], &a, &b, &mut c).unwrap();
        let expected = {
            let a = ndarray::ArrayView2::from_shape((m, k), &a).unwrap();
            a.dot(&ndarray::ArrayView2::from_shape((k, n), &b).unwrap())
        };
        assert!(expected.as_slice() == Some(&c[..]), "{m} by {n} by {k}");
    }
}

#[test]
fn dgemm_refuses_shapes_that_do_not_fit() {
    let mut c = [0.0; 4];
    for shape in
        [[2, 2, 3], [2, 3, 2], [usize::MAX, 2, 2], [1 << 33, 1 << 33, 0], [0, usize::MAX, usize::MAX]]
    {
        let result = dgemm::compute(shape, &[0.0; 4], &[0.0; 4], &mut c);
        assert!(matches!(result, Err(CallFailure::Arguments(_))), "{shape:?}");
    }
}

#[test]
fn fft_agrees_with_the_definition_and_undoes_itself() {
    let mut random = random();
    for len in [0, 1, 2, 3, 8, 12, 97, 128, 1000] {
        let data: Vec<_> = (0..len).map(|_| Complex64::new(unit(&mut random), unit(&mut random))).collect();
        let mut got = data.clone();
        fft::compute(Forward, &mut got).unwrap();
        for (at, got) in got.iter().enumerate() {
            let turn = -std::f64::consts::TAU / len as f64;
            let want: Complex64 =
                data.iter().enumerate().map(|(i, x)| x * Complex64::cis(turn * (at * i % len) as f64)).sum();
            assert!(
                (got - want).norm() < 1e-10 * len as f64,
                "length {len} at {at}: {got} instead of {want}"
            );
        }
        fft::compute(Inverse, &mut got).unwrap();
        for (got, want) in got.iter().zip(&data) {
            assert!((got / len as f64 - want).norm() < 1e-12);
        }
    }
}

/// A compression format: LZ4 or zstd.
struct Codec {
    compress: fn(&[u8], &mut [u8]) -> Result<usize, CallFailure>,
    decompress: fn(&[u8], &mut [u8]) -> Result<usize, CallFailure>,
    /// Returns compressed frames of `TOOL_TEXT`. The command-line tool `lz4` or `zstd` made the frames with different
    /// options.
    tool: fn() -> Vec<Vec<u8>>,
}

const CODECS: [Codec; 2] = [
    Codec { compress: lz4::compress, decompress: lz4::decompress, tool: lz4_frames },
    Codec {
        compress: |data, out| zstd::compress(0, data, out),
        decompress: zstd::decompress,
        tool: zstd_frames,
    },
];

impl Codec {
    fn compressed(&self, data: &[u8]) -> Vec<u8> {
        let mut out = vec![0; data.len() + data.len() / 100 + 100];
        let n = (self.compress)(data, &mut out).unwrap();
        out.truncate(n);
        out
    }
}

/// The content of each frame that the command-line tools made: "accelerate " three times.
const TOOL_TEXT: &[u8] = b"accelerate accelerate accelerate ";

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn lz4_frames() -> Vec<Vec<u8>> {
    LZ4_FRAMES.map(unhex).into()
}

fn zstd_frames() -> Vec<Vec<u8>> {
    ZSTD_FRAMES.map(unhex).into()
}

#[test]
fn what_is_compressed_comes_back() {
    let mut random = random();
    for codec in CODECS {
        for len in [0, 1, 100, 65_536, 5 << 20, (9 << 20) + 3] {
            let data = text(&mut random, len);
            let packed = codec.compressed(&data);
            assert!(len < 1000 || packed.len() < len);
            let mut out = vec![1; len];
            assert_eq!((codec.decompress)(&packed, &mut out), Ok(len));
            assert!(out == data);
        }
    }
}

#[test]
fn frames_of_the_tools_are_read() {
    for codec in CODECS {
        let frames = (codec.tool)();
        let mut out = [0; 200];
        for frame in &frames {
            assert_eq!((codec.decompress)(frame, &mut out), Ok(TOOL_TEXT.len()));
            assert_eq!(&out[..TOOL_TEXT.len()], TOOL_TEXT);
        }
        let all = frames.concat();
        assert_eq!((codec.decompress)(&all, &mut out), Ok(TOOL_TEXT.len() * frames.len()));
        assert_eq!(out[..TOOL_TEXT.len() * frames.len()], TOOL_TEXT.repeat(frames.len()));
    }
}

#[test]
fn a_short_output_is_told_the_size_it_needs() {
    let mut random = random();
    for codec in CODECS {
        let data = text(&mut random, 100_000);
        let packed = codec.compressed(&data);
        let too_small =
            |needed: usize| Err(CallFailure::OutputTooSmall { output: 0, needed: Some(needed as u64) });
        for room in [0, 1, packed.len() - 1] {
            assert_eq!((codec.compress)(&data, &mut vec![0; room]), too_small(packed.len()));
        }
        assert_eq!((codec.compress)(&data, &mut vec![0; packed.len()]), Ok(packed.len()));
        for room in [0, 1, 99_999] {
            assert_eq!((codec.decompress)(&packed, &mut vec![0; room]), too_small(100_000));
        }
        // The second of these frames does not state its content size, so the field `needed` of the failure can be
        // `None`. This test therefore does not check the field.
        let frames = (codec.tool)().concat();
        let result = (codec.decompress)(&frames, &mut [0; 40]);
        assert!(matches!(result, Err(CallFailure::OutputTooSmall { .. })), "{result:?}");
    }
}

#[test]
fn the_size_that_is_needed_counts_all_frames() {
    for codec in CODECS {
        let frames = [codec.compressed(&[1; 1000]), codec.compressed(&[2; 500])].concat();
        for room in [0, 999, 1000, 1499] {
            let result = (codec.decompress)(&frames, &mut vec![0; room]);
            assert_eq!(result, Err(CallFailure::OutputTooSmall { output: 0, needed: Some(1500) }), "{room}");
        }
        assert_eq!((codec.decompress)(&frames, &mut [0; 1500]), Ok(1500));
    }
}

#[test]
fn skippable_frames_are_skipped() {
    for codec in CODECS {
        let packed = codec.compressed(b"data");
        for magic in 0x50..=0x5f {
            let skipped = [magic, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'a', b'n', b'y'];
            let all = [&skipped[..], &packed, &skipped, &skipped, &packed, &skipped].concat();
            let mut out = [0; 8];
            assert_eq!((codec.decompress)(&all, &mut out), Ok(8));
            assert_eq!(&out, b"datadata");
            let short = (codec.decompress)(&all, &mut [0; 7]);
            assert_eq!(short, Err(CallFailure::OutputTooSmall { output: 0, needed: Some(8) }));
            assert_eq!((codec.decompress)(&skipped, &mut []), Ok(0));
            for len in 1..skipped.len() {
                let result = (codec.decompress)(&[&packed, &skipped[..len]].concat(), &mut out);
                assert!(matches!(result, Err(CallFailure::Input(_))), "{len} bytes: {result:?}");
            }
        }
    }
}

#[test]
fn a_skippable_frame_between_two_blocks_is_refused() {
    let (begin, end) = LZ4_FRAMES[1].split_at(14);
    // The frame begins with a block that decompresses to no bytes.
    let whole = unhex(&[begin, "0100000000", end].concat());
    assert_eq!(lz4::decompress(&whole, &mut [0; 100]), Ok(TOOL_TEXT.len()));
    let broken = unhex(&[begin, "0100000000", "502a4d1800000000", end].concat());
    let result = lz4::decompress(&broken, &mut [0; 100]);
    assert!(matches!(result, Err(CallFailure::Input(_))), "{result:?}");
}

#[test]
fn a_frame_that_is_cut_off_behind_an_empty_block_is_refused() {
    let (begin, _) = LZ4_FRAMES[1].split_at(14);
    for empty in ["00000080", "0100000000"] {
        let result = lz4::decompress(&unhex(&[begin, empty].concat()), &mut [0; 100]);
        assert!(matches!(result, Err(CallFailure::Input(_))), "{empty}: {result:?}");
    }
}

#[test]
fn a_frame_in_the_legacy_format_is_read_to_the_end_of_its_last_block() {
    let frame = unhex("02214c18060000005068656c6c6f06000000502c20796f75");
    let mut out = [0; 10];
    assert_eq!(lz4::decompress(&frame, &mut out), Ok(10));
    assert_eq!(&out, b"hello, you");
    for len in 1..frame.len() {
        let result = lz4::decompress(&frame[..len], &mut out);
        match len {
            4 => assert_eq!(result, Ok(0)),
            14 => assert_eq!(result, Ok(5)),
            _ => assert!(matches!(result, Err(CallFailure::Input(_))), "{len} bytes: {result:?}"),
        }
    }
}

#[test]
fn a_bomb_stops_at_the_end_of_the_output() {
    let zeros = vec![0; 64 << 20];
    for codec in CODECS {
        let packed = codec.compressed(&zeros);
        assert!(packed.len() < 1 << 19);
        let result = (codec.decompress)(&packed, &mut [0; 1000]);
        assert_eq!(result, Err(CallFailure::OutputTooSmall { output: 0, needed: Some(64 << 20) }));
    }
}

#[test]
fn damaged_frames_are_refused_and_never_read_as_whole() {
    let mut random = random();
    for codec in CODECS {
        let data = text(&mut random, 3000);
        let packed = codec.compressed(&data);
        let mut out = vec![0; 4000];
        for len in 0..packed.len() {
            let result = (codec.decompress)(&packed[..len], &mut out);
            assert!(
                matches!(result, Err(CallFailure::Input(_))),
                "{len} bytes of {}: {result:?}",
                packed.len()
            );
        }
        for garbage in [&b"x"[..], b"garbage after the frame", &[0; 64]] {
            let result = (codec.decompress)(&[&packed, garbage].concat(), &mut out);
            assert!(matches!(result, Err(CallFailure::Input(_))), "{result:?}");
        }
        for _ in 0..20_000 {
            let mut bad = packed.clone();
            for _ in 0..=random.next_u32() % 3 {
                let at = random.next_u32() as usize % bad.len();
                bad[at] ^= 1 << (random.next_u32() % 8);
            }
            // The decompressor may accept a damaged frame, because the damage may clear the bit that announces a
            // checksum. Even from a damaged frame, the decompressor produces at most `out.len()` bytes.
            if let Ok(n) = (codec.decompress)(&bad, &mut out) {
                assert!(n <= out.len());
            }
        }
    }
}

#[test]
fn zstd_takes_any_level() {
    let data = text(&mut random(), 50_000);
    let mut out = vec![0; 60_000];
    for level in [i32::MIN, -1, 0, 1, 19, i32::MAX] {
        let n = zstd::compress(level, &data, &mut out).unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(zstd::decompress(&out[..n], &mut back), Ok(data.len()));
        assert!(back == data);
    }
}

/// Frames that `lz4` 1.9.4 made. The first frame has a content checksum. The second frame has no checksums. The third
/// frame has a content size, block checksums and a content checksum.
const LZ4_FRAMES: [&str; 3] = [
    "04224d186440a714000000bd616363656c6572617465200b0050726174652000000000b52524da",
    "04224d1860408214000000bd616363656c6572617465200b0050726174652000000000",
    "04224d187c402100000000000000a914000000bd616363656c6572617465200b005072617465208a250f4300000000b52524da",
];

/// Frames that `zstd` 1.5.4 made. The first frame has a content size and a checksum. The second frame has a checksum
/// and no content size, because `zstd` read the text from a pipe and did not know the size of the text. The third frame
/// has a content size and no checksum.
const ZSTD_FRAMES: [&str; 3] = [
    "28b52ffd24218d000058616363656c6572617465200100568a1701c78f6b",
    "28b52ffd04588d000058616363656c6572617465200100568a1701c78f6b",
    "28b52ffd20218d000058616363656c6572617465200100568a17",
];
