//! The bridge and its workers as people use them.

mod bridge_common;
mod common;

use std::time::{Duration, Instant};

use bridge_common::{BridgeProcess, WorkerProcess};
use common::{TempFolder, json_of, run, stderr, stdout_of, text};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn keys(row: &Value) -> Vec<&str> {
    row.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn demo_bridge_accounts_for_each_event() {
    let report = json_of(&["demo", "bridge", "--events", "1000", "--json", "-"]);
    assert_eq!(report["verified"], true, "{report}");
    let head = ["kernel_drops", "losses", "rows", "seconds", "stage", "sums", "verified", "workers"];
    assert_eq!(keys(&report), head);
    let columns: [(&str, usize, &[&str]); 4] = [
        (
            "rows",
            3,
            &[
                "bytes", "events", "missing", "repeated", "segments", "sender", "streams", "taken",
                "verified", "wrong",
            ],
        ),
        ("workers", 4, &["bytes", "given_back", "killed", "placing", "sent", "taken", "verified", "worker"]),
        ("losses", 10, &["cause", "counted", "missing", "taken", "verified"]),
        ("sums", 7, &["left", "right", "verified", "what"]),
    ];
    for (part, count, columns) in columns {
        let rows = report[part].as_array().expect("rows");
        assert_eq!(rows.len(), count, "{part}: {rows:?}");
        for row in rows {
            assert_eq!(keys(row), columns, "{part}");
            assert_eq!(row["verified"], true, "{row}");
        }
    }
    let placings: Vec<_> =
        report["workers"].as_array().into_iter().flatten().map(|its| &its["placing"]).collect();
    assert_eq!(placings, ["store", "store", "store", "shared"]);
    let sent: u64 =
        report["rows"].as_array().into_iter().flatten().filter_map(|row| row["events"].as_u64()).sum();
    // The sum covers both senders, and the streams that share one address.
    assert_eq!(sent, 2000);
}

#[test]
fn files_go_through_a_bridge_to_workers() {
    for (placing, ip) in [("store", "127.0.14.1"), ("cut", "127.0.14.2")] {
        let folder = TempFolder::new(&format!("bridge-{placing}"));
        let bridge = BridgeProcess::start(ip, &folder, &["--placing", placing, "--route", "data-id"]);
        let contents = [text(300_000), b"short".to_vec()];
        let files = [folder.with("large", &contents[0]), folder.with("small", &contents[1])];
        let sums = |data_id: u16| {
            let sum = |(event, content): (usize, &Vec<u8>)| {
                let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{hex}  {data_id}-{event}")
            };
            contents.iter().enumerate().map(sum).collect::<Vec<_>>()
        };
        for (source, name) in [(bridge.workers(), "remote"), (bridge.local(), "local")] {
            let worker = WorkerProcess::start(source, 2, name);
            let send = ["ejfat", "send", "--to", bridge.segments(), "--rate", "0.5", &files[0], &files[1]];
            let output = run(&send);
            assert!(output.status.success(), "{}", stderr(&output));
            let mut lines = worker.lines();
            lines.sort_by(|a, b| a[64..].cmp(&b[64..]));
            assert_eq!(lines, sums(4321), "{name}, {placing}");
        }
        let end = bridge.end();
        assert_eq!(
            (&end["opened"], &end["sent"], &end["wrong_credits"]),
            (&4.into(), &4.into(), &0.into()),
            "{end}"
        );
    }
}

#[test]
fn a_bridge_tells_what_became_of_an_event() {
    let folder = TempFolder::new("bridge-trace");
    let bridge = BridgeProcess::start("127.0.14.3", &folder, &[]);
    let worker = WorkerProcess::start(bridge.workers(), 1, "only");
    let file = folder.with("event", b"some bytes");
    assert!(run(&["ejfat", "send", "--to", bridge.segments(), &file]).status.success());
    assert_eq!(worker.lines().len(), 1);
    let server = bridge.workers();
    let status = || json_of(&["bridge", "status", "--server", server, "--provider", "embedded", "--json"]);
    // A snapshot is up to a tenth of a second old, and the worker may have ended before or after its credit came.
    let begin = Instant::now();
    while status()["open"] != 0 || status()["sent"] != 1 {
        assert!(begin.elapsed() < Duration::from_secs(5), "{}", status());
    }
    assert_eq!(status()["opened"], 1);
    let table = stdout_of(&["bridge", "status", "--server", server, "--provider", "embedded"]);
    assert!(table.contains("1 events: 1 to workers"), "{table}");
    let output = run(&["bridge", "trace", "1", "--server", server, "--provider", "embedded"]);
    assert!(
        !output.status.success() && stderr(&output).contains("remembers no event"),
        "{}",
        stderr(&output)
    );
}
