//! Measures the processor time that a device takes while it has nothing to do. The test measures the processor time of
//! its whole process, so no other test runs in this process.
#![allow(unsafe_code)]

mod side;

use std::{
    thread,
    time::{Duration, Instant},
};

use side::{Side, connect};
use verbs::{WaitMode, Wake};

/// Returns the processor time that this process has taken so far.
fn cpu() -> Duration {
    // SAFETY: an rusage consists of integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` lives through the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(result, 0);
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn an_idle_device_costs_next_to_nothing() {
    const TIME: Duration = Duration::from_secs(2);
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    thread::sleep(Duration::from_millis(20));
    let before = cpu();
    thread::sleep(TIME);
    let idle = cpu() - before;
    let before = cpu();
    let wake = a.cq.wait(WaitMode::Block, Some(Instant::now() + TIME)).unwrap();
    let waiting = cpu() - before;
    println!("in {TIME:?}: {idle:?} with nobody waiting, {waiting:?} with one thread blocked");
    assert_eq!(wake, Wake::TimedOut);
    assert!(idle.max(waiting) < TIME / 50, "{idle:?}, {waiting:?}");
}
