//! Tests of the scratch memory of built-in functions. A call must not allocate more memory than `bounds::extra_bytes`
//! states. A call must be refused if the session's quota has no room for the scratch memory of the call.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{calls, calls::TestCall};
use mrsp::{
    ReturnCode,
    builtin::{Arguments, BLOCK_BYTES, Element, FftDirection, SortOrder, StatusBlock},
};
use naa_server::functions::bounds;

/// An allocator that counts the bytes that each thread has allocated and not freed.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // `try_with` fails if the thread ends and its thread-local variables are already destroyed. This function then
    // counts nothing.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed on unchanged to `System`, which is an allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`, which is the same for `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::dealloc`, and `at` was allocated by `System.alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`. Returns the maximum number of bytes that `work` had allocated and not yet freed at any one time.
fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

/// The number of bytes that a call may allocate in addition to its scratch memory. They are for lists of parameters,
/// texts of errors, and thread-local variables of libraries.
const SLACK: usize = 16 << 10;

/// Returns calls that make functions allocate as much scratch memory as they can. Each element has the arguments of a
/// call, its inputs, and the size of its output in bytes.
fn greedy() -> Vec<(Arguments, Vec<Vec<u8>>, usize)> {
    let mut all = Vec::new();
    let mut lengths: Vec<usize> = (1..300).chain((300..66_000).step_by(641)).collect();
    // These lengths include primes, powers of small primes, and products of a prime and a small number. Some of them
    // are close to 65536. Up to this length, the crate rustfft computes a transform as a whole. A longer transform is
    // composed of shorter ones.
    lengths.extend([2187, 2197, 16_381, 32_749, 40_487, 49_999, 65_519, 65_521, 65_536, 65_537, 1 << 17]);
    lengths.extend([4 * 65_519, 3 * 65_537, 100_003, 300_007]);
    for n in lengths {
        let arguments = Arguments::Fft { n: n as u64, direction: FftDirection::Forward };
        all.push((arguments, vec![vec![0; 16 * n]], 16 * n));
    }
    for [m, n, k] in [[1, 1, 1], [63, 65, 3], [64, 1024, 256], [100, 1500, 300], [1, 1025, 257], [2000, 3, 1]]
    {
        let arguments = Arguments::Dgemm { m: m as u64, n: n as u64, k: k as u64 };
        all.push((arguments, vec![vec![0; 8 * m * k], vec![0; 8 * k * n]], 8 * m * n));
    }
    for len in [0, 1, 70_000, 300_000, 5 << 20] {
        let (data, bytes) = (calls::random_bytes(len), len as u64);
        all.push((Arguments::Lz4Compress { bytes }, vec![data.clone()], len + 100_000));
        for level in if len > 1 << 20 { &[1, 3][..] } else { &[-5, 12, 19] } {
            all.push((Arguments::ZstdCompress { bytes, level: *level }, vec![data.clone()], len + 100_000));
        }
        all.push((Arguments::Sha256 { bytes }, vec![data.clone()], 32));
        all.push((Arguments::Crc32c { bytes }, vec![data.clone()], 4));
        let sort = Arguments::Sort { n: bytes / 4, element: Element::U32, order: SortOrder::Descending };
        all.push((sort, vec![data.clone()], len));
        all.push((
            Arguments::VectorAdd { n: bytes, element: Element::U8 },
            vec![data.clone(), data.clone()],
            len,
        ));
        let lz4 = {
            let mut frame = vec![0; len + 100_000];
            let len = naa_server::functions::lz4::compress(&data, &mut frame).unwrap();
            frame.truncate(len);
            frame
        };
        all.push((Arguments::Lz4Decompress { bytes: lz4.len() as u64 }, vec![lz4], len));
    }
    let block =
        [&100_u32.to_le_bytes()[..], &[0x1f, 0, 1, 0], &[255; 90], &[0, 0x50, 0, 0, 0, 0, 0]].concat();
    let block = [&(block.len() as u32 - 4).to_le_bytes(), &block[4..]].concat();
    // The decoder needs more memory for the second frame, which has linked blocks of 4 MiB, than for the first frame,
    // which has independent blocks of 64 KiB.
    let linked = calls::lz4_block_frame(0x40, 0x70, &block);
    let both = [calls::lz4_block_frame(0x60, 0x40, &block), linked].concat();
    all.push((Arguments::Lz4Decompress { bytes: both.len() as u64 }, vec![both], 100_000));
    let legacy = [&[0x02, 0x21, 0x4c, 0x18][..], &block].concat();
    all.push((Arguments::Lz4Decompress { bytes: legacy.len() as u64 }, vec![legacy], 100_000));
    let bins = 1000;
    let histogram = Arguments::Histogram {
        n: 1 << 20,
        element: Element::U8,
        bins,
        lo: 0.0_f64.to_bits(),
        hi: 1.0_f64.to_bits(),
    };
    all.push((histogram, vec![vec![0; 1 << 20]], 8 * (bins as usize + 3)));
    all
}

#[test]
fn functions_allocate_no_more_than_their_bounds_say() {
    for (arguments, inputs, output) in greedy() {
        let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        let bound = bounds::extra_bytes(&arguments);
        // The session's quota for scratch memory is exactly the number of bytes that the function may allocate.
        let mut call = TestCall::of_limited("", arguments, &inputs, output, bound as u64);
        let before = call.quota.used();
        let mut result = None;
        let peak = peak(|| result = Some(call.make()));
        // `done` is false only if the call fails with `OVER_LIMIT`.
        let done =
            result.is_some_and(|result| !result.is_err_and(|why| why.code() == ReturnCode::OVER_LIMIT));
        assert!(done, "{arguments:?} is refused with {bound} bytes to spare");
        assert!(peak <= bound + SLACK, "{arguments:?} allocates {peak} bytes, and is charged {bound}");
        assert_eq!(call.quota.used(), before, "{arguments:?} gives back what it was charged");
    }
}

#[test]
fn the_bounds_of_transforms_hold_for_processors_without_vectors_too() {
    for n in (1..600).chain((600..20_000).step_by(371)).chain([2187, 15_625, 16_807, 32_768, 65_519, 65_536])
    {
        let mut scratch = 0;
        let peak = peak(|| {
            let plan = rustfft::FftPlannerScalar::<f64>::new().plan_fft(n, rustfft::FftDirection::Forward);
            scratch = 16 * plan.get_inplace_scratch_len().max(plan.get_outofplace_scratch_len());
        });
        let bound = bounds::extra_bytes(&Arguments::Fft { n: n as u64, direction: FftDirection::Forward });
        assert!(peak + scratch <= bound + SLACK, "{n}: {peak} and {scratch}, of {bound}");
    }
}

#[test]
fn a_call_whose_memory_the_session_may_not_have_is_refused() {
    let mut refused = Vec::new();
    for (arguments, inputs, output) in greedy() {
        let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        if bounds::extra_bytes(&arguments) == 0 {
            continue;
        }
        let mut call = TestCall::of_limited("", arguments, &inputs, output, 0);
        let before = call.quota.used();
        let mut why = None;
        let peak = peak(|| why = call.make().err());
        let why = why.unwrap_or_else(|| panic!("{arguments:?} is not refused"));
        assert_eq!(why.code(), ReturnCode::OVER_LIMIT, "{arguments:?}");
        assert!(peak <= SLACK, "{arguments:?} is refused before it allocates, not after {peak} bytes");
        assert_eq!(call.quota.used(), before);
        let status = StatusBlock::decode(&call.region(1)[..BLOCK_BYTES]).unwrap();
        assert_eq!(status.code, Some(ReturnCode::OVER_LIMIT));
        // The field `detail` of the status block tells the host how many bytes the call needed.
        assert!(status.detail > 0 && status.detail <= bounds::extra_bytes(&arguments) as u64);
        // The failure's text, which is for the log, contains the number of needed bytes and mentions the limit per
        // session.
        let text = why.to_string();
        assert!(text.contains(&status.detail.to_string()) && text.contains("limit per session"), "{text}");
        refused.push(arguments.function());
    }
    refused.dedup();
    assert!(refused.len() >= 5, "{refused:?}");
}
