//! Events that a killed worker held, which go to workers with `--again`.

mod bridge_common;
mod common;

use std::time::{Duration, Instant};

use bridge_common::{BridgeProcess, WorkerProcess};
use common::{TempFolder, json_of, run, stderr, stdout_of};
use serde_json::Value;

const EVENTS: usize = 3;

fn status(bridge: &BridgeProcess) -> Value {
    json_of(&["bridge", "status", "--server", bridge.workers(), "--provider", "embedded", "--json"])
}

/// Asks for the status of a bridge, which is a moment old, until `is_so` returns true for it.
fn until(bridge: &BridgeProcess, what: &str, is_so: impl Fn(&Value) -> bool) {
    let begin = Instant::now();
    loop {
        let now = status(bridge);
        if is_so(&now) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(40), "{what}: {now}");
    }
}

/// Starts a worker that keeps the first event while its command runs and does not read the other ones, sends all events, and waits
/// until the worker has them.
fn holds_all(bridge: &BridgeProcess, source: &str, folder: &TempFolder, more: &[&str]) -> WorkerProcess {
    let words = [&["--exec", "cat > /dev/null; sleep 20"], more].concat();
    let worker = WorkerProcess::start_with(source, "dies", &words);
    let files: Vec<_> = (0..EVENTS).map(|n| folder.with(&format!("event-{n}"), &[n as u8; 5000])).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let output = run(&[&["ejfat", "send", "--to", bridge.segments()][..], &files].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    until(bridge, "the events are with the worker", |now| now["sent"] == EVENTS);
    worker
}

fn flags(lines: &[String]) -> Vec<(u64, bool)> {
    let event = |line: &String| -> Value { serde_json::from_str(line).expect("JSON") };
    let its = |of: Value| (of["event"].as_u64().expect("a number"), of["again"].as_bool().expect("a flag"));
    let mut all: Vec<_> = lines.iter().map(event).map(its).collect();
    all.sort_unstable();
    all
}

const LIST: [&str; 3] = ["--list", "-n", "3"];

#[test]
fn who_comes_back_is_given_what_was_held() {
    let folder = TempFolder::new("bridge-again");
    let bridge = BridgeProcess::start("127.0.14.5", &folder, &[]);
    let dies = holds_all(&bridge, bridge.local(), &folder, &["--again"]);
    dies.kill();
    until(&bridge, "the events wait", |now| now["waiting_again"] == EVENTS);
    let back = WorkerProcess::start_with(bridge.local(), "back", &[&["--again"], &LIST[..]].concat());
    assert_eq!(flags(&back.lines()), [(0, true), (1, true), (2, true)]);
    until(&bridge, "they are released", |now| now["released"] == EVENTS);
    let table = stdout_of(&["bridge", "status", "--server", bridge.workers(), "--provider", "embedded"]);
    assert!(table.contains("3 with workers that ended, of which 3 were delivered again"), "{table}");
    let end = bridge.end();
    let counts = ["sent", "held_by_ended", "delivered_again", "waiting_again", "released", "wrong_credits"];
    assert_eq!(counts.map(|key| end[key].as_u64().unwrap()), [3, 3, 3, 0, 3, 0], "{end}");
}

#[test]
fn another_worker_is_given_what_was_held_from_the_twin() {
    let folder = TempFolder::new("bridge-again-remote");
    let bridge = BridgeProcess::start("127.0.14.6", &folder, &[]);
    // The worker that is killed does not need the option.
    let dies = holds_all(&bridge, bridge.workers(), &folder, &[]);
    let other = WorkerProcess::start_with(bridge.workers(), "other", &[&["--again"], &LIST[..]].concat());
    dies.kill();
    assert_eq!(flags(&other.lines()), [(0, true), (1, true), (2, true)]);
    until(&bridge, "they are released", |now| now["released"] == EVENTS);
    let end = bridge.end();
    assert_eq!((&end["held_by_ended"], &end["delivered_again"]), (&3.into(), &3.into()), "{end}");
}

#[test]
fn who_does_not_ask_is_given_nothing_again() {
    let folder = TempFolder::new("bridge-once");
    let bridge = BridgeProcess::start("127.0.14.7", &folder, &[]);
    let dies = holds_all(&bridge, bridge.local(), &folder, &[]);
    let other = WorkerProcess::start_with(bridge.local(), "other", &["--list", "-n", "1"]);
    dies.kill();
    until(&bridge, "the worker is gone", |now| now["held_by_ended"] == EVENTS);
    let file = folder.with("new", b"bytes");
    assert!(run(&["ejfat", "send", "--to", bridge.segments(), "--first", "9", &file]).status.success());
    assert_eq!(flags(&other.lines()), [(9, false)]);
    let end = bridge.end();
    assert_eq!((&end["held_by_ended"], &end["delivered_again"]), (&3.into(), &0.into()), "{end}");
    assert_eq!((&end["lost_events"], &end["lost_with_workers"]), (&3.into(), &3.into()), "{end}");
}

#[test]
fn what_ended_workers_took_along_is_told_as_lost() {
    let folder = TempFolder::new("bridge-lost");
    let bridge = BridgeProcess::start("127.0.14.8", &folder, &[]);
    let text = || stdout_of(&["bridge", "status", "--server", bridge.workers(), "--provider", "embedded"]);
    let dies = holds_all(&bridge, bridge.local(), &folder, &[]);
    dies.kill();
    until(&bridge, "the events are lost", |now| now["lost_with_workers"] == EVENTS);
    // A worker that asks for them comes too late: nobody asked when the first one ended.
    let late = WorkerProcess::start_with(bridge.local(), "late", &["--again", "--list", "--for", "0.5"]);
    assert_eq!(late.lines(), <[String; 0]>::default());
    assert!(text().contains("lost: 3 events: 3 with workers that ended"), "{}", text());
}

#[test]
fn events_that_are_too_long_are_told_as_lost() {
    let folder = TempFolder::new("bridge-long");
    let bridge = BridgeProcess::start("127.0.14.11", &folder, &["--max-event", "64K"]);
    let ring = ["--slots", "2", "--slot-bytes", "16K", "--list", "-n", "1"];
    let worker = WorkerProcess::start_with(bridge.local(), "small", &ring);
    for (number, bytes) in [("1", 70_000), ("2", 100_000), ("3", 50_000), ("4", 10_000)] {
        let file = folder.with(number, &vec![7; bytes]);
        let output = run(&["ejfat", "send", "--to", bridge.segments(), "--first", number, &file]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(flags(&worker.lines()), [(4, false)]);
    until(&bridge, "all are counted", |now| now["lost"]["too_long"] == 2 && now["lost"]["too_large"] == 1);
    let text = stdout_of(&["bridge", "status", "--server", bridge.workers(), "--provider", "embedded"]);
    for part in
        ["lost: 3 events", "2 too_long", "--max-event", "1 too_large", "--slot-bytes", "segments dropped"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let end = bridge.end();
    assert_eq!((&end["lost_events"], &end["opened"]), (&3.into(), &2.into()), "{end}");
}

#[test]
fn a_second_bridge_at_an_address_is_told_the_option_for_another_one() {
    let folder = TempFolder::new("bridge-second");
    let _first = BridgeProcess::start("127.0.14.13", &folder, &[]);
    let listen = ["bridge", "--bind", "127.0.14.13", "--listen", "127.0.14.13:0", "--provider", "embedded"];
    let second = run(&listen);
    let said = stderr(&second);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("--bind") && said.contains("is held by"), "{said}");
}
