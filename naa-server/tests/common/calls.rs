//! Makes slow calls of built-in functions. Most other calls with regions of the same size take less time.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use mrsp::{
    FunctionCode, RegionFlags, U24,
    builtin::{self, Arguments, Element, FftDirection, SortOrder},
    plan::Part,
};
use naa_server::{
    call::{CallFailure, CallWork, ServerCall, SessionRegion, Stop},
    memory_budget::{MemoryBudget, Quota},
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

const IN: RegionFlags = RegionFlags::INPUT;
const OUT: RegionFlags = RegionFlags::OUTPUT;
const SEED: u64 = 0x6e61_6103;
/// A frame that the decompressors of zstd and of LZ4 skip. The frame consists only of its header.
const SKIPPED_FRAME: [u8; 8] = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];

/// A call that a test can make. The test can make the same call again, unless the call computes in place, because such
/// a call overwrites its input.
pub(crate) struct TestCall {
    pub(crate) what: String,
    pub(crate) call: ServerCall,
    pub(crate) quota: Quota,
}

impl TestCall {
    /// Creates a call with unlimited scratch memory.
    pub(crate) fn new(
        what: impl Into<String>,
        code: FunctionCode,
        regions: &[(RegionFlags, &[u8], usize)],
    ) -> Self {
        Self::limited(what, code, regions, u64::MAX)
    }

    /// Creates a call with at most `spare` bytes of scratch memory.
    pub(crate) fn limited(
        what: impl Into<String>,
        code: FunctionCode,
        regions: &[(RegionFlags, &[u8], usize)],
        spare: u64,
    ) -> Self {
        let page = |size: usize| size.max(1).next_multiple_of(4096) as u64;
        let taken: u64 = regions.iter().map(|(_, _, size)| page(*size)).sum();
        let quota = MemoryBudget::new(u64::MAX).quota(taken.saturating_add(spare));
        let regions = regions.iter().map(|&(flags, bytes, size)| {
            let mut allocation = quota.allocate(size as u64).unwrap();
            allocation.bytes_mut().unwrap()[..bytes.len()].copy_from_slice(bytes);
            SessionRegion { flags, allocation }
        });
        let regions: naa_server::call::SessionRegions = regions.collect();
        let deadline = Instant::now() + Duration::from_secs(3600);
        let call = ServerCall {
            work: CallWork::Function { function: super::function(code), process: None },
            regions: regions.with_quota(quota.clone()),
            session: 0,
            peer: std::net::IpAddr::from([127, 0, 0, 1]).into(),
            user: U24::ZERO,
            deadline,
        };
        Self { what: what.into(), call, quota }
    }

    /// Creates a call of a built-in function. The call has an argument block with `arguments`, and a status block.
    pub(crate) fn of(what: impl Into<String>, arguments: Arguments, inputs: &[&[u8]], output: usize) -> Self {
        Self::of_limited(what, arguments, inputs, output, u64::MAX)
    }

    pub(crate) fn of_limited(
        what: impl Into<String>,
        arguments: Arguments,
        inputs: &[&[u8]],
        output: usize,
        spare: u64,
    ) -> Self {
        let block = arguments.encode();
        let mut regions = vec![(IN, &block[..], 64), (OUT, &[], 64)];
        regions.extend(inputs.iter().map(|input| (IN, *input, input.len())));
        regions.push((OUT, &[], output));
        Self::limited(what, arguments.function(), &regions, spare)
    }

    /// Creates a call of a built-in function that computes in place: input 1 and output 1 are the same region.
    pub(crate) fn in_place(what: impl Into<String>, arguments: Arguments, data: &[u8]) -> Self {
        let block = arguments.encode();
        Self::new(
            what,
            arguments.function(),
            &[(IN, &block, 64), (OUT, &[], 64), (IN | OUT, data, data.len())],
        )
    }

    pub(crate) fn make(&mut self) -> Result<Vec<Option<Part>>, CallFailure> {
        self.make_until(&Stop::never())
    }

    pub(crate) fn make_until(&mut self, stop: &Stop) -> Result<Vec<Option<Part>>, CallFailure> {
        self.call.run(stop)
    }

    pub(crate) fn region(&self, at: usize) -> &[u8] {
        self.call.regions[at].allocation.bytes().unwrap()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.call.regions.iter().map(|region| region.allocation.len() as u64).sum()
    }
}

pub(crate) fn random_bytes(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ChaCha8Rng::seed_from_u64(SEED).fill_bytes(&mut bytes);
    bytes
}

fn as_bytes<T: bytemuck::NoUninit>(numbers: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

/// Returns bytes with few different values, for which compressors take long.
pub(crate) fn few_symbols(len: usize) -> Vec<u8> {
    random_bytes(len).into_iter().map(|byte| byte & 3).collect()
}

/// Returns arrays, each of which is hard to sort for some algorithm.
fn arrays(n: usize) -> Vec<(&'static str, Vec<u64>)> {
    let random: Vec<u64> =
        random_bytes(8 * n).chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    let n = n as u64;
    vec![
        ("random", random.clone()),
        ("in order", (0..n).collect()),
        ("in opposite order", (0..n).rev().collect()),
        ("organ pipe", (0..n).map(|i| i.min(n - i)).collect()),
        ("saw", (0..n).map(|i| i % 37).collect()),
        ("nearly in order", (0..n).map(|i| if i % 100 == 0 { random[i as usize] } else { i }).collect()),
        ("few values", random.iter().map(|r| r % 5).collect()),
        ("one byte differs", random.iter().map(|r| r & 0xff00_0000).collect()),
    ]
}

/// Returns calls of the function `code`. The regions of each call have `bytes` bytes in total, or a little less. The
/// slowest of the returned calls is expected to take as long as the slowest possible call with regions of this size.
pub(crate) fn worst_of_size(code: FunctionCode, bytes: usize) -> Vec<TestCall> {
    let room = bytes - 128;
    match code {
        builtin::INCREMENT | builtin::INCREMENT_BY_TWO | builtin::NOTHING => {
            vec![TestCall::new("one region", code, &[(IN | OUT, &[], bytes)])]
        }
        builtin::CATALOGUE => vec![TestCall::new("the table", code, &[(OUT, &[], bytes)])],
        builtin::SHA256 => {
            let data = random_bytes(room - 32);
            vec![TestCall::of("random", Arguments::Sha256 { bytes: data.len() as u64 }, &[&data], 32)]
        }
        builtin::CRC32C => {
            let data = random_bytes(room - 4);
            vec![TestCall::of("random", Arguments::Crc32c { bytes: data.len() as u64 }, &[&data], 4)]
        }
        builtin::DGEMM => products(room),
        builtin::FFT => (0..24).map(|less| transform(room / 16 - less)).collect(),
        builtin::LZ4_COMPRESS => texts(room).map(|(what, data)| compress_lz4(what, &data, 0)).into(),
        builtin::ZSTD_COMPRESS => texts(room).map(|(what, data)| compress_zstd(what, 19, &data, 0)).into(),
        builtin::LZ4_DECOMPRESS => lz4_frames(room),
        builtin::ZSTD_DECOMPRESS => zstd_frames(room),
        builtin::VECTOR_ADD => [Element::U8, Element::F32, Element::F64]
            .map(|element| {
                let n = room / 3 / element.bytes();
                let data = vec![1; n * element.bytes()];
                let arguments = Arguments::VectorAdd { n: n as u64, element };
                TestCall::of(format!("{element:?}"), arguments, &[&data, &data], data.len())
            })
            .into(),
        builtin::HISTOGRAM => histograms(room),
        builtin::SORT => sorts(room),
        other => panic!("{other:?}"),
    }
}

fn products(room: usize) -> Vec<TestCall> {
    let numbers = room / 8;
    let side = (numbers / 3).isqrt();
    [[side, side, side], [numbers / 2 - 1, 1, 1], [1, numbers / 2 - 1, 1], [1, 1, numbers / 2 - 1]]
        .map(product)
        .into()
}

/// Creates a call that multiplies a matrix of m rows of k numbers by a matrix of k rows of n numbers.
pub(crate) fn product([m, n, k]: [usize; 3]) -> TestCall {
    let [a, b] = [vec![0; 8 * m * k], vec![0; 8 * k * n]];
    let arguments = Arguments::Dgemm { m: m as u64, n: n as u64, k: k as u64 };
    TestCall::of(format!("dgemm {m} {n} {k}"), arguments, &[&a, &b], 8 * m * n)
}

pub(crate) fn transform(n: usize) -> TestCall {
    let arguments = Arguments::Fft { n: n as u64, direction: FftDirection::Forward };
    TestCall::in_place(format!("fft {n}"), arguments, &vec![0; 16 * n])
}

pub(crate) fn compress_lz4(what: &str, data: &[u8], output: usize) -> TestCall {
    TestCall::of(what, Arguments::Lz4Compress { bytes: data.len() as u64 }, &[data], output)
}

pub(crate) fn compress_zstd(what: &str, level: i32, data: &[u8], output: usize) -> TestCall {
    TestCall::of(what, Arguments::ZstdCompress { bytes: data.len() as u64, level }, &[data], output)
}

fn texts(len: usize) -> [(&'static str, Vec<u8>); 3] {
    [("random", random_bytes(len)), ("zeros", vec![0; len]), ("few symbols", few_symbols(len))]
}

pub(crate) fn histograms(room: usize) -> Vec<TestCall> {
    let half = room / 2;
    [
        (Element::U8, 1),
        (Element::F64, 3),
        (Element::F32, half / 8 - 3),
        (Element::U8, half / 8 - 3),
        (Element::I32, 1),
    ]
    .into_iter()
    .map(|(element, bins)| {
        let input = random_bytes(room - 8 * (bins + 3));
        let n = (input.len() / element.bytes()) as u64;
        let (lo, hi) = ((-1e9_f64).to_bits(), 1e9_f64.to_bits());
        let arguments = Arguments::Histogram { n, element, bins: bins as u64, lo, hi };
        TestCall::of(format!("{element:?}, {bins} bins"), arguments, &[&input], 8 * (bins + 3))
    })
    .collect()
}

pub(crate) fn sorts(room: usize) -> Vec<TestCall> {
    let mut made = Vec::new();
    for (what, array) in arrays(room / 16) {
        let data = as_bytes(&array);
        for element in [Element::U64, Element::F64, Element::U32, Element::F32, Element::U8] {
            for order in [SortOrder::Ascending, SortOrder::Descending] {
                let n = (data.len() / element.bytes()) as u64;
                let arguments = Arguments::Sort { n, element, order };
                made.push(TestCall::of(format!("{element:?} {what}"), arguments, &[&data], data.len()));
            }
        }
    }
    made
}

pub(crate) fn lz4_block_frame(flags: u8, sizes: u8, blocks: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, flags, sizes];
    // The last byte of the header is a checksum of `flags` and `sizes`: the second byte of their xxHash32. Instead of
    // computing the checksum, the loop below tries all values until the decoder accepts the frame.
    for check in 0..=255_u8 {
        let mut whole = frame.clone();
        whole.push(check);
        whole.extend([0, 0, 0, 0]);
        if naa_server::functions::lz4::decompress(&whole, &mut []).is_ok() {
            frame.push(check);
            frame.extend(blocks);
            frame.extend([0; 4]);
            return frame;
        }
    }
    panic!("one of them is right");
}

/// Returns a compressed block of at most `len` bytes that decompresses to as many zeros as `len` allows, up to about 4
/// MiB.
fn lz4_bomb(len: usize) -> Vec<u8> {
    // The block has a literal, a match at distance 1, and literals at the end.
    let mut block = vec![0x1f, 0, 1, 0];
    block.extend(vec![255; len.saturating_sub(20).min((4 << 20) / 255 - 2)]);
    block.push(0);
    block.extend([0x50, 0, 0, 0, 0, 0]);
    let mut sized = (block.len() as u32).to_le_bytes().to_vec();
    sized.extend(block);
    sized
}

pub(crate) fn lz4_frames(room: usize) -> Vec<TestCall> {
    let made = |what: &str, data: &[u8], output| {
        TestCall::of(what, Arguments::Lz4Decompress { bytes: data.len() as u64 }, &[data], output)
    };
    let bomb = lz4_block_frame(0x60, 0x70, &lz4_bomb(room - 40));
    let empty = lz4_block_frame(0x60, 0x40, &[]).repeat(room / 11);
    // The blocks of the frame `nothing` decompress to no bytes.
    let nothing = lz4_block_frame(0x60, 0x40, &[1, 0, 0, 0, 0].repeat((room - 11) / 5));
    vec![
        made("bomb", &bomb, 8),
        made("empty frames", &empty, 0),
        made("blocks of nothing", &nothing, 0),
        made("skipped frames", &SKIPPED_FRAME.repeat(room / 8), 0),
    ]
}

pub(crate) fn zstd_frame(blocks: &[u8]) -> Vec<u8> {
    // The header states a window of 2 MiB, but no content size and no checksum.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 11 << 3];
    frame.extend(blocks);
    frame
}

/// Returns a compressed block of four bytes that decompresses to `len` zeros.
fn zeros(last: bool, len: u32) -> [u8; 4] {
    let [a, b, c, _] = (u32::from(last) | 1 << 1 | len << 3).to_le_bytes();
    [a, b, c, 0]
}

pub(crate) fn zstd_frames(room: usize) -> Vec<TestCall> {
    let made = |what: &str, data: &[u8], output: usize| {
        TestCall::of(what, Arguments::ZstdDecompress { bytes: data.len() as u64 }, &[data], output)
    };
    let mut bomb = zeros(false, 128 << 10).repeat(room / 8 / 4);
    bomb.extend(zeros(true, 1));
    let tiny = zstd_frame(&zeros(true, 1)).repeat(room / 12);
    let empty = zstd_frame(&[1, 0, 0]).repeat(room / 9);
    let mut nothing = [0, 0, 0].repeat((room - 20) / 3);
    nothing.extend([1, 0, 0]);
    let skipped = SKIPPED_FRAME.repeat(room / 8);
    // Each zstd frame in `tables` has entropy-coding tables of its own.
    let (mut tables, mut produced) = (Vec::new(), 0);
    let text =
        b"to be or not to be, that is the question whether tis nobler in the mind to suffer the slings";
    for at in 0.. {
        let mut piece = text.to_vec();
        piece.rotate_left(at * 7 % text.len());
        piece.extend(&text[..40]);
        let mut frame = vec![0; 1000];
        let len = naa_server::functions::zstd::compress(19, &piece, &mut frame).unwrap();
        produced += piece.len();
        if tables.len() + len > room / 2 || produced > (room / 2).min(1 << 20) {
            break;
        }
        tables.write_all(&frame[..len]).unwrap();
    }
    let half = room - room / 2;
    vec![
        made("bomb", &zstd_frame(&bomb), half),
        made("tiny frames", &tiny, room / 12),
        made("empty frames", &empty, 0),
        made("empty blocks", &zstd_frame(&nothing), 0),
        made("skipped frames", &skipped, 0),
        made("many tables", &tables, half),
    ]
}
