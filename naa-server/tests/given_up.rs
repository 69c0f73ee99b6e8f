//! Tests that an abandoned call ends soon, whatever its function computes.

mod common;

use std::{fs, sync::mpsc, thread, time::Duration};

use common::{calls, calls::TestCall, cpu_time};
use mrsp::{
    RegionFlags,
    builtin::{self, Arguments, Element, SortOrder},
};
use naa_server::call::{CallFailure, Stop};

/// The maximum CPU time that a call may take after it was abandoned. An abandoned call should end in less than 100 ms,
/// as docs/reference/functions.md says, but slower machines need more time.
const BOUND: Duration = Duration::from_millis(300);

/// Returns the CPU time of thread `id` of this process, or `None` if the thread has ended.
fn cpu_time_of(id: rustix::process::Pid) -> Option<Duration> {
    let path = format!("/proc/self/task/{}/schedstat", id.as_raw_nonzero());
    let text = fs::read_to_string(path).ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

fn given_up(mut call: TestCall, after: Duration) -> Duration {
    let stop = Stop::never();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let stop = &stop;
        let caller = scope.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            let result = call.make_until(stop);
            let end = cpu_time();
            (result.err(), end, call.what)
        });
        let id = receiver.recv().unwrap();
        thread::sleep(after);
        let given_up = cpu_time_of(id);
        stop.abandon();
        let (why, end, what) = caller.join().unwrap();
        let had_ended = matches!(why, None | Some(CallFailure::OutputTooSmall { .. }));
        assert!(had_ended || why == Some(CallFailure::Abandoned), "{what}: {why:?}");
        let took = given_up.map_or(Duration::ZERO, |given_up| end.saturating_sub(given_up));
        println!(
            "{what}, given up after {after:?}: {took:?} more{}",
            if had_ended { ", had ended" } else { "" }
        );
        took
    })
}
const MIB: usize = 1 << 20;

fn long_calls() -> Vec<Box<dyn Fn() -> TestCall>> {
    let sort = |element: Element| {
        move || {
            let data = calls::random_bytes(64 * MIB);
            let n = (data.len() / element.bytes()) as u64;
            TestCall::in_place(
                format!("sort {element:?}"),
                Arguments::Sort { n, element, order: SortOrder::Descending },
                &data,
            )
        }
    };
    let fft = |n: usize| move || calls::transform(n);
    let dgemm = |m: usize, n: usize, k: usize| move || calls::product([m, n, k]);
    let zstd = |level: i32| {
        move || {
            let what = format!("zstd-compress {level}");
            calls::compress_zstd(&what, level, &calls::few_symbols(8 * MIB), 0)
        }
    };
    vec![
        Box::new(sort(Element::U8)),
        Box::new(sort(Element::U32)),
        Box::new(sort(Element::F64)),
        Box::new(fft(1 << 23)),
        Box::new(fft(4_194_319)),
        Box::new(fft(32 * 65_519)),
        Box::new(dgemm(64, 4000, 4000)),
        Box::new(dgemm(2000, 2000, 2000)),
        Box::new(dgemm(3000, 3000, 0)),
        Box::new(zstd(3)),
        Box::new(zstd(12)),
        Box::new(zstd(15)),
        Box::new(zstd(19)),
        Box::new(|| TestCall::new("increment", builtin::INCREMENT, &[(RegionFlags::INPUT, &[], 512 * MIB)])),
        Box::new(|| {
            TestCall::of("sha256", Arguments::Sha256 { bytes: 128 << 20 }, &[&vec![0; 128 * MIB]], 32)
        }),
        Box::new(|| {
            TestCall::of("crc32c", Arguments::Crc32c { bytes: 128 << 20 }, &[&vec![0; 128 * MIB]], 4)
        }),
        Box::new(|| calls::compress_lz4("lz4-compress", &calls::few_symbols(32 * MIB), 0)),
        Box::new(|| {
            let half = vec![1; 128 * MIB];
            TestCall::of(
                "vector-add",
                Arguments::VectorAdd { n: 128 << 20, element: Element::U8 },
                &[&half, &half],
                128 * MIB,
            )
        }),
        Box::new(|| {
            let input = calls::random_bytes(32 * MIB);
            let (n, bins) = (8 << 20, 64_u64 << 20);
            let (lo, hi) = (f64::from(i32::MIN).to_bits(), f64::from(i32::MAX).to_bits());
            let arguments = Arguments::Histogram { n, element: Element::I32, bins, lo, hi };
            TestCall::of("histogram", arguments, &[&input], 8 * (bins as usize + 3))
        }),
    ]
}

#[test]
fn a_call_that_is_given_up_takes_little_more_time() {
    for make in long_calls() {
        for after in [5, 40] {
            let call = make();
            let what = call.what.clone();
            let took = given_up(call, Duration::from_millis(after));
            assert!(took < BOUND, "{what}, given up after {after} ms, took {took:?} more");
        }
    }
    for call in calls::zstd_frames(16 * MIB).into_iter().chain(calls::lz4_frames(16 * MIB)) {
        let what = call.what.clone();
        let took = given_up(call, Duration::from_millis(20));
        assert!(took < BOUND, "{what} took {took:?} more");
    }
}
