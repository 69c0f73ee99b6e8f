//! Environment variables: wrong values, and empty ones.

mod common;

use std::{
    net::UdpSocket,
    os::unix::net::UnixListener,
    process::Output,
    time::{Duration, Instant},
};

use common::{ServerProcess, TempFolder, naa, stderr};

fn with(variable: &str, value: &str, arguments: &[&str]) -> Output {
    naa(arguments).env(variable, value).output().expect("the binary runs")
}

#[test]
fn a_wrong_variable_is_a_usage_error_that_names_it_and_what_is_allowed() {
    let folder = TempFolder::new("environment");
    let data = folder.with("data", b"abc");
    let functions: &[&str] = &["functions", "--server", "127.0.5.70"];
    let call: &[&str] = &["call", "sha256", "--server", "127.0.5.70", "--in", &data];
    let many: &[&str] = &["call", "sha256", "--server", "127.0.5.70", "--in", &data, &data];
    let laid_out: &[&str] = &["ping", "--server", "127.0.5.70", "--layout", "auto"];
    let status: &[&str] = &["bridge", "status", "--server", "127.0.5.70"];
    let counters: &[&str] = &["lb", "counters", "mrsp://127.0.5.70"];
    let send: &[&str] = &["ejfat", "send", &data];
    let bench: &[&str] = &["bench", "offload", "--quick"];
    for (variable, value, arguments, allowed) in [
        ("NAA_LOCAL_IP", "nowhere", functions, "ip addr"),
        ("NAA_LOCAL_IP", "192.0.2.77", functions, "ip addr"),
        ("NAA_LOCAL_IP", "::1", call, "127.0.5.70"),
        ("NAA_LOCAL_IP", "nowhere", status, "ip addr"),
        ("NAA_LOCAL_IP", "nowhere", counters, "ip addr"),
        ("NAA_LOG", "loud", &["completions", "bash"], "error, warn, info, debug or trace"),
        ("NAA_LOG", "naa=loud", &["completions", "bash"], "naa_server=debug"),
        ("NAA_TIMEOUT", "soon", functions, "2.5"),
        ("NAA_TIMEOUT", "soon", call, "2.5"),
        ("NAA_TIMEOUT", "soon", many, "2.5"),
        ("NAA_TIMEOUT", "0", status, "2.5"),
        ("NAA_TIMEOUT", "-1", counters, "2.5"),
        ("NAA_PROVIDER", "rxe", functions, "verbs or embedded"),
        ("NAA_PROVIDER", "rxe", bench, "verbs or embedded"),
        ("NAA_LAYOUT_RULE", "packed", laid_out, "symmetric"),
        ("EJFAT_URI", "http://h", send, "ejfat://"),
        ("NAA_LB_TOKEN", "a\tb", counters, "ASCII"),
        ("NAA_LB_TOKEN", "", counters, "empty"),
    ] {
        let refused = with(variable, value, arguments);
        let said = stderr(&refused);
        let case = format!("{variable}={value} {arguments:?}: {said}");
        assert_eq!(refused.status.code(), Some(2), "{case}");
        assert!(said.contains(variable) && said.contains(allowed), "{case}");
    }
}

#[test]
fn an_empty_variable_is_as_one_that_is_not_set() {
    let server = ServerProcess::start("127.0.5.71");
    for variable in [
        "NAA_LOCAL_IP",
        "NAA_LOG",
        "NAA_TIMEOUT",
        "NAA_PROVIDER",
        "NAA_LAYOUT_RULE",
        "NAA_LIBRDMACM",
        "TMPDIR",
    ] {
        for value in ["", " "].into_iter().take(if variable == "NAA_LIBRDMACM" { 1 } else { 2 }) {
            let ping = ["ping", "--server", &server.name(), "-c", "1", "--layout", "auto"];
            let output = with(variable, value, &ping);
            let said = stderr(&output);
            assert!(output.status.success() && said.is_empty(), "{variable}={value:?}: {said}");
        }
    }
    let folder = TempFolder::new("environment-empty");
    let nowhere = with("EJFAT_URI", "", &["ejfat", "send", &folder.with("data", b"abc")]);
    let said = stderr(&nowhere);
    assert!(nowhere.status.code() == Some(2) && said.contains("--to, --uri or EJFAT_URI"), "{said}");
    let files = TempFolder::new("environment-files");
    let _no_file = UnixListener::bind(files.file("socket")).expect("a socket");
    files.with("data", b"abc");
    let call = ["call", "sha256", "--server", &server.name(), "--in-dir", &files.file("")];
    let said = stderr(&with("NAA_LOG", "", &call));
    assert!(said.contains("WARN") && said.contains("is no regular file"), "no warning is logged: {said}");
}

#[test]
fn the_time_limit_of_a_call_also_holds_while_its_function_is_looked_up() {
    // Takes what comes and says nothing.
    let _silent = UdpSocket::bind("127.0.5.72:4791").expect("the address is free");
    let folder = TempFolder::new("looked-up");
    let data = folder.with("data", b"abc");
    let call = ["call", "no-such", "--server", "127.0.5.72", "--local", "127.0.5.73", "--in", &data];
    let start = Instant::now();
    let failed = with("NAA_TIMEOUT", "60", &[&call[..], &["--timeout", "0.5"]].concat());
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {}", start.elapsed(), stderr(&failed));
}
