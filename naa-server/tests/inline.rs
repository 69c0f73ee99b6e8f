//! Tests that the CPU time of inline calls is bounded for any input. The server loop does nothing else while it
//! executes an inline call.

mod common;

use std::time::Duration;

use common::{calls, cpu_time, function};
use mrsp::builtin;
use naa_server::{
    function::Execution,
    functions::bounds::{self, BOUNDS},
};

/// The CPU time that an inline call may take in this test. An inline call should take at most 100 microseconds, as
/// docs/reference/functions.md says, but slower machines need more time.
const BOUND: Duration = Duration::from_micros(500);
/// The maximum total size of a call's regions in this test, in bytes. A function whose inline calls may be larger is
/// tested with this size.
const LARGE: u64 = 4 << 20;

#[test]
fn the_worst_calls_that_run_in_the_loop_are_short() {
    for (code, name) in builtin::NAMES {
        let most = bounds::of(*code).unwrap().inline_bytes.min(LARGE);
        if most == 0 {
            continue;
        }
        for mut call in calls::worst_of_size(*code, most as usize) {
            let at_most = call.bytes();
            assert!(at_most <= most && at_most >= most / 2, "{name}, {}: {at_most} bytes", call.what);
            assert_eq!(function(*code).execution(at_most), Execution::Inline);
            let time = || {
                let begin = cpu_time();
                let _ = call.make();
                cpu_time() - begin
            };
            let best = std::iter::repeat_with(time).take(5).min().unwrap();
            println!("{name}, {}, {at_most} bytes: {best:?}", call.what);
            assert!(best < BOUND, "{name}, {}, {at_most} bytes: {best:?}", call.what);
        }
    }
}

#[test]
fn longer_calls_run_on_the_pool() {
    for bounds in BOUNDS.iter().filter(|bounds| bounds.inline_bytes < u64::MAX) {
        let function = function(bounds.code);
        assert_eq!(function.execution(bounds.inline_bytes + 1), Execution::Pooled, "{bounds:?}");
    }
    // The compression of a few KiB at level 19 takes milliseconds, so even a small call of this function runs on the
    // pool.
    assert_eq!(function(builtin::ZSTD_COMPRESS).execution(128), Execution::Pooled);
}
