//! What a server counts, and what a host reports of a call that was cut.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    time::{Duration, Instant},
};

use common::{TempFolder, hard, naa, run, stderr, stdout_of};
use serde_json::Value;

fn metrics(at: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("metrics are served");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn look_ups_and_calls_that_were_cut_are_counted_apart() {
    let bind =
        ["serve", "--bind", "127.0.5.68", "--port", "0", "--json", "--metrics", "127.0.0.1:0", "--until-eof"];
    let mut server = naa(&bind);
    let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.spawn().expect("a server");
    let mut told = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    told.read_line(&mut line).expect("the server speaks");
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    let (name, at) = (ready["address"].as_str().expect("it"), ready["metrics"].as_str().expect("it"));
    let folder = TempFolder::new("served");
    let (data, slow, out) =
        (folder.with("data", b"abc"), folder.with("slow", &hard(16 << 20)), folder.file("out"));

    stdout_of(&["functions", "--server", name]);
    assert_eq!(run(&["call", "no-such", "--server", name, "--in", &data]).status.code(), Some(1));
    stdout_of(&["call", "sha256", "--server", name, "--in", &data]);
    let text = metrics(at);
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
    while !metrics(at).contains(cut) {
        assert!(start.elapsed() < Duration::from_secs(5), "{}", metrics(at));
        std::thread::sleep(Duration::from_millis(20));
    }

    drop(server.stdin.take());
    line.clear();
    told.read_line(&mut line).expect("the server speaks");
    let mut log = String::new();
    server.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
    server.wait().expect("it ends");
    let end: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&end["calls"], &end["catalogue_lookups"]), (&2.into(), &2.into()), "{end}");
    let expected =
        serde_json::json!({"time_up": 0, "host_left": 1, "connection_failed": 0, "server_ended": 0});
    assert_eq!(end["calls_cut"], expected, "{end}");
    let told = |line: &&str| {
        ["WARN", "a call was cut", "zstd-compress", "host_left"].iter().all(|part| line.contains(part))
    };
    assert_eq!(log.lines().filter(told).count(), 1, "{log}");
}
