//! `naa doctor` on the machine that tests it.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::UdpSocket,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use serde_json::Value;

use common::{TempFolder, naa, run};

fn doctor(options: &[&str]) -> Value {
    let output = run(&[&["doctor", "--json"], options].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let providers = report["providers"].as_array().expect("providers");
    let ready = providers.iter().any(|provider| provider["ready"] == true);
    assert_eq!(output.status.code(), Some(if ready { 0 } else { 1 }));
    report
}

#[track_caller]
fn named<'a>(report: &'a Value, list: &str, name: &str) -> &'a Value {
    let entries = report[list].as_array().expect("a list");
    entries.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn what_is_ready_has_tested_itself() {
    let report = doctor(&[]);
    let providers = report["providers"].as_array().expect("providers");
    assert_eq!(providers.len(), 2);
    for provider in providers.iter().filter(|provider| provider["ready"] == true) {
        let test = &provider["self_test"];
        assert_eq!(test["ok"], true, "{provider}");
        let sizes = test["sizes"].as_array().expect("sizes");
        assert_eq!(
            sizes.iter().map(|size| size["bytes"].as_u64()).collect::<Vec<_>>(),
            [Some(64), Some(1 << 20)]
        );
        assert!(test["calls"].as_u64() > Some(10) && test["microseconds"].as_u64() > Some(0), "{test}");
        assert!(provider["addresses"].as_array().is_some_and(|addresses| !addresses.is_empty()));
    }
    for name in
        ["device", "modules", "libraries", "memlock", "interface", "port-4791", "receive-buffer", "gso-gro"]
    {
        let check = named(&report, "checks", name);
        let level = check["level"].as_str().expect("a level");
        assert!(["ok", "note", "warn", "bad"].contains(&level), "{check}");
        assert!(check["finding"].as_str().is_some_and(|finding| !finding.contains('\n')), "{check}");
        assert!(check.get("remedy").is_some(), "{check}");
    }
}

#[test]
fn a_limit_for_the_calls_of_programs_is_none_of_the_self_test() {
    for value in ["0.000001", "soon"] {
        let output = naa(&["doctor", "--json"]).env("NAA_TIMEOUT", value).output().expect("the binary runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let providers = report["providers"].as_array().expect("providers");
        let tested: Vec<_> = providers.iter().map(|provider| &provider["self_test"]).collect();
        let tested: Vec<_> = tested.into_iter().filter(|test| !test.is_null()).collect();
        assert!(!tested.is_empty() && tested.iter().all(|test| test["ok"] == true), "{value}: {tested:?}");
    }
}

#[test]
fn without_a_self_test_there_is_none() {
    let report = doctor(&["--no-self-test"]);
    for provider in report["providers"].as_array().expect("providers") {
        assert!(provider["self_test"].is_null());
        let told = |key: &str| provider[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(told("why") && (provider["ready"] == true || told("remedy")), "{provider}");
    }
}

#[test]
fn a_server_is_named_as_the_holder_of_its_address() {
    let address = roce_udp::free_loopback().expect("a loopback address").to_string();
    let server = common::ServerProcess::start(&address);
    let report = doctor(&["--no-self-test"]);
    let held = report["checks"].as_array().expect("checks").iter().any(|check| {
        let finding = check["finding"].as_str().unwrap_or_default();
        check["name"] == "port-4791"
            && finding.contains(&format!("{address} is held by process {} (naa)", server.process.child.id()))
    });
    assert!(held, "{report}");
}

/// The memlock check under `ulimit -l 64`, run by `change`d command.
fn memlock_at_64_kib(program: &str, change: impl FnOnce(&mut Command)) -> Value {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64; exec \"$0\" doctor --json --no-self-test", program]);
    change(command.stdin(Stdio::null()));
    let output = command.output().expect("a shell");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    named(&report, "checks", "memlock").clone()
}

#[test]
fn a_limit_of_64_kib_is_told_and_whether_it_binds() {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t0"));
    let mine = memlock_at_64_kib(env!("CARGO_BIN_EXE_naa"), |_| {});
    let finding = mine["finding"].as_str().expect("a finding").to_owned();
    assert!(finding.contains("64 KiB"), "{finding}");
    if !root {
        assert!(!finding.contains("does not bind"), "{finding}");
        return;
    }
    // Where others can run it.
    let folder = TempFolder::new("doctor");
    let program = folder.file("naa");
    fs::copy(env!("CARGO_BIN_EXE_naa"), &program).expect("a copy");
    let users = memlock_at_64_kib(&program, |command| {
        command.uid(65534).gid(65534).current_dir("/");
    });
    let finding = users["finding"].as_str().expect("a finding");
    assert!(finding.contains("64 KiB may be locked"), "{finding}");
    assert!(users["remedy"].as_str().is_some_and(|remedy| remedy.contains("ulimit -l unlimited")), "{users}");
}

#[test]
fn people_get_plain_text_in_a_pipe_and_help_with_the_form() {
    let output = run(&["doctor", "--no-self-test"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains('\x1b'), "{text}");
    let headings = text.lines().filter(|line| !line.starts_with(' ') && !line.is_empty());
    assert_eq!(headings.collect::<Vec<_>>(), ["RDMA", "Network", "Machine", "Providers"]);
    let help = String::from_utf8(naa(&["doctor", "--help"]).output().expect("help").stdout).expect("text");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["\"checks\"", "self_test", "exit status", "--no-self-test"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn a_trace_says_why_packets_are_refused() {
    let address = roce_udp::free_loopback().expect("a loopback address").to_string();
    let mut doctor = naa(&["doctor", "--json", "--trace", &address, "--seconds", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // The note that the server listens is the first line of standard error.
    let mut note = String::new();
    BufReader::new(doctor.stderr.take().expect("a pipe")).read_line(&mut note).expect("a line");
    assert!(note.contains(&address), "{note}");
    let sender = UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
    // An acknowledgement to a queue pair that does not exist: BTH, AETH, ICRC.
    let mut stray = [0; 20];
    (stray[0], stray[2], stray[3], stray[7]) = (0x11, 0xff, 0xff, 0x77);
    for datagram in [&b"no packet"[..], &stray] {
        sender.send_to(datagram, (address.as_str(), 4791)).expect("a datagram");
    }
    let lines = BufReader::new(doctor.stdout.take().expect("a pipe")).lines().take(2);
    let lines: Vec<Value> =
        lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON")).collect();
    assert_eq!((&lines[0]["cause"], &lines[0]["opcode"]), (&"malformed".into(), &Value::Null), "{lines:?}");
    assert_eq!((&lines[1]["cause"], &lines[1]["qp"]), (&"unknown-qp".into(), &0x77.into()), "{lines:?}");
    for line in &lines {
        assert_eq!(line["from"], sender.local_addr().expect("an address").to_string(), "{line}");
        assert!(line["why"].as_str().is_some_and(|why| !why.is_empty()), "{line}");
    }
    doctor.kill().expect("it still runs");
    doctor.wait().expect("it ends");
}
