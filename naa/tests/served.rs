//! What a server counts, and what a host reports of a call that was cut.

mod common;

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use common::{Process, TempFolder, hard, naa, run, scrape, stderr, stdout_of};
use serde_json::Value;

#[test]
fn look_ups_and_calls_that_were_cut_are_counted_apart() {
    let bind =
        ["serve", "--bind", "127.0.5.68", "--port", "0", "--json", "--metrics", "127.0.0.1:0", "--until-eof"];
    let mut server = Process::spawn(naa(&bind).stderr(Stdio::piped()));
    let (name, at) = (server.text("/address"), server.text("/metrics"));
    let folder = TempFolder::new("served");
    let (data, slow, out) =
        (folder.with("data", b"abc"), folder.with("slow", &hard(16 << 20)), folder.file("out"));

    stdout_of(&["functions", "--server", name]);
    assert_eq!(run(&["call", "no-such", "--server", name, "--in", &data]).status.code(), Some(1));
    stdout_of(&["call", "sha256", "--server", name, "--in", &data]);
    let text = scrape(at);
    for line in [
        "naa_server_calls_total 1",
        "naa_server_catalogue_lookups_total 2",
        "naa_server_calls_failed_total 0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }

    let call = ["call", "zstd-compress", "--level", "19", "--json", "--timeout", "3", "--server", name];
    let failed = run(&[&call[..], &["--in", &slow, "--out", &out]].concat());
    let said = stderr(&failed);
    assert!(
        failed.status.code() == Some(1) && said.contains("zstd-compress") && said.contains(name),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&failed.stdout).expect("a report of the call");
    assert_eq!((&report["status"], &report["code"]), (&"failed".into(), &Value::Null), "{report}");
    assert!(report["error"].as_str().is_some_and(|error| error.contains("--timeout")), "{report}");
    let cut = "\nnaa_server_calls_cut_total{cause=\"host_left\"} 1\n";
    let start = Instant::now();
    while !scrape(at).contains(cut) {
        assert!(start.elapsed() < Duration::from_secs(5), "{}", scrape(at));
        std::thread::sleep(Duration::from_millis(20));
    }

    let (end, log) = (server.last(), server.errors());
    assert_eq!((&end["calls"], &end["catalogue_lookups"]), (&2.into(), &2.into()), "{end}");
    let expected =
        serde_json::json!({"time_up": 0, "host_left": 1, "connection_failed": 0, "server_ended": 0});
    assert_eq!(end["calls_cut"], expected, "{end}");
    let told = |line: &&str| {
        ["WARN", "a call was cut", "zstd-compress", "host_left"].iter().all(|part| line.contains(part))
    };
    assert_eq!(log.lines().filter(told).count(), 1, "{log}");
}
