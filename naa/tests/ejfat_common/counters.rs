//! Waits for what processes have received and counted, so that tests depend on no speed.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::common::scrape;

/// No test waits longer for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// # Panics
/// If `is_so` stays false for [`LIMIT`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the samples of `counter` add up to `count`, at the `metrics` that an object of `naa` names.
#[track_caller]
pub(crate) fn wait_for(ready: &Value, counter: &str, count: u64) {
    let at = ready["metrics"].as_str().expect("an address of metrics");
    let mut now = 0;
    let begin = Instant::now();
    while now < count {
        assert!(begin.elapsed() < LIMIT, "{counter} is {now} and not {count} after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
        now = sum(&scrape(at), counter);
    }
    assert_eq!(now, count, "{counter}");
}

fn sum(text: &str, counter: &str) -> u64 {
    let samples = text.lines().filter_map(|line| line.strip_prefix(counter)?.rsplit_once(' '));
    let samples = samples.filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'));
    samples.map(|(_, value)| value.parse::<u64>().expect("a number")).sum()
}

/// Waits until the process that listens at `at`, an IPv4 address, has read all that came there.
#[track_caller]
pub(crate) fn wait_until_read(at: SocketAddr) {
    let IpAddr::V4(ip) = at.ip() else { panic!("{at} is no IPv4 address") };
    let socket = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), at.port());
    wait_until("a receive queue is empty", || {
        // Reading stops at the socket: there may be thousands behind it.
        let table = BufReader::new(File::open("/proc/net/udp").expect("sockets")).lines();
        let mut sockets = table.map(|line| line.expect("a socket"));
        let socket = sockets.find(|line| line.split_whitespace().nth(1) == Some(&socket));
        socket.is_none_or(|line| line.split_whitespace().nth(4).is_some_and(|of| of.ends_with(":00000000")))
    });
}
