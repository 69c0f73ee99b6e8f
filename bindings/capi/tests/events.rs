//! Programs on naa_events.h, beside a bridge of this process.

mod native_support;
// The same as of the tests of workers.
#[path = "../../../ejfat/events/tests/bridge/mod.rs"]
mod bridge;

use std::thread;

use bridge::{BridgeSide, RingModel, content, local, remote, until};
use native_support::{Library, Program};

/// As the program wants it.
const EVENTS: u64 = 601;

/// Runs a program beside what the bridge does with the one worker that comes.
fn beside<B: Sync, M: RingModel>(
    bridge: &B,
    accept: impl FnOnce(&B) -> BridgeSide<M> + Send,
    then: impl FnOnce(BridgeSide<M>) + Send,
    run: impl FnOnce() -> String,
) -> String {
    thread::scope(|scope| {
        scope.spawn(|| then(accept(bridge)));
        run()
    })
}

/// Waits until the program has released all events but `most`.
fn until_released<M: RingModel>(side: &mut BridgeSide<M>, most: u32) {
    until("credit is missing", || {
        side.look();
        side.slots.outstanding() <= most
    });
}

/// Events of many sizes, as fast as they are given back.
fn feed<M: RingModel>(mut side: BridgeSide<M>) {
    for event in 0..EVENTS {
        let bytes = content(event, event as usize * 11 % 190);
        until("no room", || side.put(event, &bytes));
    }
    until_released(&mut side, 1);
    assert_eq!(side.wrong, 0);
    // The connection stays until the program has its last event, since an event that was announced before the end is
    // still delivered.
}

fn calls(standard: &str, library: Library, name: &str, ip: &str) {
    let program = Program::build("tests/c/events_calls.c", standard, library);
    let here = local::LocalBridgeModel::start(name);
    let source = format!("unix:{}", here.path.display());
    beside(&here, local::LocalBridgeModel::accept, feed, || program.run(&[&source], &[]));
    let there = remote::RemoteBridgeModel::start(ip, 0);
    let run = || program.run(&[&there.address.to_string()], &[]);
    beside(&there, |bridge| bridge.accept(&[]), feed, run);
}

#[test]
fn every_function_from_c() {
    calls("c11", Library::Shared, "c11", "127.0.8.80");
    calls("c17", Library::Static, "c17", "127.0.8.81");
}

#[test]
fn every_function_from_cpp() {
    calls("c++17", Library::Shared, "cpp", "127.0.8.82");
}

#[test]
fn what_cannot_be_is_refused() {
    for standard in ["c11", "c++17"] {
        let program = Program::build("tests/c/events_errors.c", standard, Library::Shared);
        let here = local::LocalBridgeModel::start(&format!("errors-{standard}"));
        let source = format!("unix:{}", here.path.display());
        let put = |mut side: BridgeSide<_>| {
            assert!(side.put(0, &content(0, 64)));
            until_released(&mut side, 0);
        };
        let run = || program.run(&[&source, "127.0.8.83:9"], &[]);
        beside(&here, local::LocalBridgeModel::accept, put, run);
    }
}

#[test]
fn the_example_counts_what_was_sent() {
    let program = Program::build("../../examples/c/histogram.c", "c11", Library::Shared);
    let here = local::LocalBridgeModel::start("histogram");
    let source = format!("unix:{}", here.path.display());
    let samples: Vec<u8> = (0..1000_u16).flat_map(|n| (n * 60).to_le_bytes()).collect();
    let put = |mut side: BridgeSide<_>| {
        (0..8).for_each(|event| assert!(side.put(event, &samples)));
        until_released(&mut side, 0);
    };
    let said = beside(&here, local::LocalBridgeModel::accept, put, || program.said(&[&source, "8"]));
    assert!(said.contains("8 events, 16000 bytes"), "{said}");
    for data_id in 0..4 {
        let line = format!("data id {data_id}: 2 events, 2000 samples, mean 29970.00, 0 to 59940");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn the_example_that_takes_events_again_writes_each_to_a_file() {
    let program = Program::build("../../examples/c/again.c", "c11", Library::Shared);
    let here = local::LocalBridgeModel::start("again");
    let source = format!("unix:{}", here.path.display());
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("events-again-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let put = |mut side: BridgeSide<_>| {
        (0..4).for_each(|event| assert!(side.put(event, &content(event, 40))));
        until_released(&mut side, 0);
    };
    let run = || program.said(&[&source, folder.to_str().unwrap(), "4"]);
    let said = beside(&here, local::LocalBridgeModel::accept, put, run);
    assert_eq!(said.lines().count(), 4, "{said}");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    files.iter().for_each(|file| assert_eq!(std::fs::read(file).unwrap().len(), 40));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The program in the comment at the top of naa_events.h.
#[test]
fn the_example_of_the_header_runs() {
    let here = local::LocalBridgeModel::start("header");
    let header = include_str!("../include/naa_events.h");
    let lines = header.lines().skip_while(|line| !line.contains("#include <naa_events.h>"));
    let lines = lines.take_while(|line| !line.contains("Build:")).map(|line| line.trim_start_matches(" *"));
    let program: String = lines.map(|line| format!("{line}\n")).collect();
    let program = program.replace("10.9.0.1", &format!("unix:{}", here.path.display()));
    // It has no end: a worker that looks for its bridge does not get it back here.
    let program = program.replace("-1, &event", "500, &event").replace("return 1", "puts(\"ok\"); return 0");
    let program = Program::of("events-header", &program);
    let put = |mut side: BridgeSide<_>| {
        assert!(side.put(7, &content(7, 100)));
        until_released(&mut side, 0);
        // It would look for a bridge that is gone.
        thread::sleep(std::time::Duration::from_secs(1));
    };
    let said = beside(&here, local::LocalBridgeModel::accept, put, || program.run(&[], &[]));
    assert!(said.starts_with("event 7: 100 bytes\n"), "{said}");
}
