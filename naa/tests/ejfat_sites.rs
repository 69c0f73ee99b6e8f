//! `naa ejfat`, `naa bridge` and `naa lb forward` as EJFAT's sites run them: behind a load balancer, on ranges of ports.

mod common;
mod ejfat_common;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, UdpSocket},
    process::{Command, Stdio},
};

use common::{Process, TempFolder, naa, run, stderr, wait_at_most};
use ejfat_common::{
    counters::{LIMIT, wait_for, wait_until, wait_until_read},
    start_worker,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One segment for each data id: one half of an event of 200 bytes.
fn halves(streams: u16, half: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..streams).map(move |data_id| {
        let mut segment = [&b"\x10\0"[..], &data_id.to_be_bytes(), &(half * 100).to_be_bytes()].concat();
        segment.extend([&200u32.to_be_bytes()[..], &7u64.to_be_bytes(), &[data_id as u8; 100]].concat());
        segment
    })
}

/// Sends all segments from one address, with pauses so that no receive buffer overflows.
fn from_one_address(to: SocketAddr, streams: u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for half in 0..2 {
        for (n, segment) in halves(streams, half).enumerate() {
            socket.send_to(&segment, to).unwrap();
            // So many fit into the smallest receive buffer. An event may be open for 20 s, so there are few pauses.
            if n % 100 == 99 {
                wait_until_read(to);
            }
        }
    }
}

#[test]
fn many_senders_behind_a_load_balancer_evict_nothing() {
    for (extra, complete) in [(&["--behind-lb"][..], true), (&[], false)] {
        let arguments = [&["--timeout", "60000", "--metrics", "127.0.0.1:0"], extra].concat();
        let worker = start_worker(&arguments);
        from_one_address(worker.address().parse().unwrap(), 600);
        wait_for(&worker.ready, "naa_ejfat_segments_total", 1200);
        worker.signal(Signal::TERM);
        let report = worker.end();
        let evicted = &report["evicted_by"]["sender"];
        assert_eq!((report["events"] == 600, *evicted == 0), (complete, complete), "{report}");
        assert_eq!(report["senders"].as_array().unwrap().len(), if complete { 601 } else { 2 });
    }
}

#[test]
fn a_bridge_behind_a_load_balancer_evicts_nothing() {
    let bridge = Process::spawn(
        naa(&["bridge", "--listen", "127.0.34.1:0", "--bind", "127.0.34.1", "--port", "0", "--json"])
            .args(["--behind-lb", "--provider", "embedded", "--pressure", "drop-newest"])
            .args(["--timeout", "60000", "--metrics", "127.0.34.1:0"]),
    );
    from_one_address(bridge.text("/segments/0").parse().unwrap(), 600);
    wait_for(&bridge.ready, "naa_bridge_lost_events_total", 600);
    bridge.signal(Signal::TERM);
    let end = bridge.end();
    // No worker is there, so complete events count as lost.
    assert_eq!(
        (&end["opened"], &end["incomplete"], &end["lost_events"]),
        (&600.into(), &0.into(), &600.into())
    );
    assert_eq!(end["evicted_by"]["sender"], 0);
}

#[test]
fn limits_are_options_and_the_report_names_what_evicted() {
    let mut child = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--max-open-per-sender", "3"])
        .args(["--max-open", "8", "--max-senders", "4", "--timeout", "60000", "--metrics", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let (at, metrics) =
        first.split_once("receiving at ").unwrap().1.split_once(", metrics at http://").unwrap();
    let metrics = serde_json::json!({ "metrics": metrics.split('/').next() });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    halves(10, 0).for_each(|segment| assert_eq!(socket.send_to(&segment, at).unwrap(), segment.len()));
    wait_for(&metrics, "naa_ejfat_segments_total", 10);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let report = lines.collect::<Vec<_>>().join("\n");
    assert!(child.wait().unwrap().success());
    assert!(report.contains("7 evicted by their sender's limit, --max-open-per-sender"), "{report}");
}

#[test]
fn both_customary_ports_are_listened_to() {
    let commands: [(&[&str], &str); 3] = [
        (&["ejfat", "recv", "--listen", "127.0.34.2", "--json"], "addresses"),
        (
            &["bridge", "--listen", "127.0.34.2", "--bind", "127.0.34.2", "--provider", "embedded", "--json"],
            "segments",
        ),
        (&["lb", "forward", "--listen", "127.0.34.2", "--grpc", "127.0.34.2:0", "--json"], "addresses"),
    ];
    for (arguments, field) in commands {
        let process = Process::start(arguments);
        let both = serde_json::json!(["127.0.34.2:19522", "127.0.34.2:16384"]);
        assert_eq!(process.ready[field], both, "{arguments:?}");
    }
}

#[test]
fn a_customary_port_that_is_taken_names_holder_and_remedy() {
    let taken = UdpSocket::bind("127.0.34.3:16384").unwrap();
    for command in [&["ejfat", "recv"][..], &["bridge", "--provider", "embedded"], &["lb", "forward"]] {
        let output = run(&[command, &["--listen", "127.0.34.3"]].concat());
        let text = stderr(&output);
        let holder = format!("process {}", std::process::id());
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains("127.0.34.3:16384 is held by") && text.contains(&holder), "{text}");
        assert!(text.contains("stop it"), "{text}");
    }
    drop(taken);
}

#[test]
fn a_range_of_ports_has_one_grammar_and_skips_what_is_taken() {
    let taken = UdpSocket::bind("127.0.34.4:16386").unwrap();
    let bridge = &["bridge", "--bind", "127.0.34.4", "--port", "0", "--provider", "embedded"];
    let commands: [(&[&str], _, _); 3] = [
        (&["ejfat", "recv"], "addresses", "naa_ejfat_port_datagrams_total"),
        (bridge, "segments", "naa_bridge_port_datagrams_total"),
        (&["lb", "forward"], "addresses", "naa_lb_port_packets_total"),
    ];
    for (command, field, counter) in commands {
        let range =
            ["--listen", "127.0.34.4", "--ports", "16384-16388", "--json", "--metrics", "127.0.34.4:0"];
        let process = Process::start(&[command, &range].concat());
        let ready = &process.ready;
        assert_eq!(ready[field].as_array().unwrap().len(), 4, "{ready}");
        assert_eq!(ready["skipped"], serde_json::json!(["127.0.34.4:16386"]));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for port in [16384, 16388, 16388] {
            socket.send_to(b"segment", ("127.0.34.4", port)).unwrap();
        }
        wait_for(ready, counter, 3);
        process.signal(Signal::TERM);
        let end = process.end();
        let ports: Vec<_> = end["ports"].as_array().unwrap().iter().map(|of| &of["datagrams"]).collect();
        assert_eq!(ports, [1, 2], "{command:?}: {end}");
        let count = [command, &["--listen", "127.0.34.4:16385", "--ports", "1-2"]].concat();
        assert_eq!(run(&count).status.code(), Some(2), "a port and a range");
        let count = [command, &["--listen", "127.0.34.4", "--ports", "0"]].concat();
        let refused = run(&count);
        assert!(stderr(&refused).contains("such as 16384-16399"), "{}", stderr(&refused));
    }
    drop(taken);
}

/// One reader has all ports of a data plane, and gets what comes to the last of them.
#[test]
fn one_reader_has_all_ports_of_a_data_plane() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if limit.is_some_and(|files| files < 17_000) {
        eprintln!("skipped: a port takes an open file; raise the hard limit, `ulimit -Hn`, to 17000");
        return;
    }
    let ports = ["--listen", "127.0.34.5", "--ports", "16384-32767"];
    let arguments = [&ports[..], &["--json", "--events", "1", "--timeout", "60000"]].concat();
    let worker = Process::start(&[&["ejfat", "recv"][..], &arguments].concat());
    let [addresses, skipped] = ["addresses", "skipped"].map(|field| worker.ready[field].as_array().unwrap());
    assert_eq!(addresses.len() + skipped.len(), 16_384);
    let to = addresses.last().unwrap().as_str().unwrap();
    let sent = run(&["ejfat", "send", "--to", to, "--size", "9000", "--events", "1"]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert_eq!(worker.end()["events"], 1);
}

#[test]
fn sending_to_a_closed_port_fails() {
    let closed = UdpSocket::bind("127.0.34.6:0").unwrap().local_addr().unwrap().to_string();
    for events in ["1", "20"] {
        let send = ["ejfat", "send", "--to", &closed, "--size", "1K", "--events", events, "--json"];
        let output = run(&send);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains(&format!("nobody takes what is sent to {closed}")), "{text}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["refused"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn address_space_goes_with_what_comes_and_not_with_what_could() {
    // Otherwise each thread may reserve 64 MiB for `malloc`.
    let mut command = Command::new("env");
    command.args([
        "MALLOC_ARENA_MAX=1",
        env!("CARGO_BIN_EXE_naa"),
        "ejfat",
        "recv",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.args(["--memory", "64M", "--timeout", "60000", "--json", "--metrics", "127.0.0.1:0"]);
    let worker = Process::spawn(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", worker.child.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 512 << 10, "{kib} KiB of addresses before anything came");
    // Each of 200 events claims 64 MiB.
    claim(worker.address().parse().unwrap(), 0..200, 64 << 20);
    wait_for(&worker.ready, "naa_ejfat_segments_total", 200);
    worker.signal(Signal::TERM);
    let end = worker.end();
    assert!(end["evicted_by"]["claimed"].as_u64().unwrap() > 0, "{end}");
}

/// Sends the first 100 bytes of events that claim to have `bytes`.
fn claim(to: SocketAddr, events: std::ops::Range<u64>, bytes: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for event in events {
        let header = [&b"\x10\0\0\x01\0\0\0\0"[..], &bytes.to_be_bytes(), &event.to_be_bytes()];
        socket.send_to(&[&header.concat()[..], &[1; 100]].concat(), to).unwrap();
    }
    wait_until_read(to);
}

/// `naa ejfat recv` with 400 MB of addresses.
fn without_addresses(arguments: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.args(["--as=400000000", env!("CARGO_BIN_EXE_naa"), "ejfat", "recv", "--listen", "127.0.0.1:0"]);
    command.args(["--json", "--timeout", "60000"]).args(arguments);
    command.stderr(Stdio::piped());
    command
}

#[test]
fn a_receiver_without_addresses_gives_up_events_and_goes_on() {
    let mut worker = Process::spawn(&mut without_addresses(&["--events", "1"]));
    let to: SocketAddr = worker.address().parse().unwrap();
    claim(to, 0..20, 64 << 20);
    from_one_address(to, 1);
    let end = worker.last();
    assert!(worker.child.wait().unwrap().success());
    assert_eq!(end["events"], 1, "{end}");
    let text = worker.errors();
    assert_eq!(text.matches("the system has no addresses for an event").count(), 1, "{text}");
}

/// A thread takes 2 MiB of addresses, and so many are not left.
#[test]
fn a_signal_ends_a_receiver_that_can_start_no_thread() {
    let mut worker = Process::spawn(&mut without_addresses(&[]));
    let to: SocketAddr = worker.address().parse().unwrap();
    claim(to, 0..20, 64 << 20);
    claim(to, 20..120, 1 << 20);
    worker.signal(Signal::TERM);
    let status = wait_at_most(&mut worker.child, LIMIT);
    let _ = worker.child.kill();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert!(worker.last()["open"].as_u64().unwrap() > 0);
}

#[test]
fn a_second_signal_right_behind_the_first_does_not_lose_the_report() {
    let worker = start_worker(&[]);
    // It may have ended already after the first one; until it is waited for, it takes signals nevertheless.
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        worker.signal(signal);
    }
    assert_eq!(worker.end()["events"], 0);
}

#[test]
fn an_ipv6_address_without_brackets_is_told_where_they_go() {
    for command in
        [&["ejfat", "recv", "--listen"][..], &["bridge", "--listen"], &["lb", "forward", "--listen"]]
    {
        let output = run(&[command, &["fd00::1:16384"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("[fd00::1]:16384"), "{}", stderr(&output));
    }
    let output = run(&["ejfat", "send", "--to", "fd00::1:16384", "--size", "1"]);
    assert!(stderr(&output).contains("[fd00::1]:16384"), "{}", stderr(&output));
    // This is an address of its own, but not of this machine.
    for command in
        [&["ejfat", "recv", "--listen"][..], &["bridge", "--listen"], &["lb", "forward", "--listen"]]
    {
        let output = run(&[command, &["fd00::1:9100"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("[fd00::1]:9100"), "{}", stderr(&output));
    }
}

#[test]
fn ports_beyond_the_limit_of_open_files_name_the_remedy() {
    for command in [&["ejfat", "recv"][..], &["bridge"], &["lb", "forward"]] {
        let mut limited = Command::new("prlimit");
        limited.args(["--nofile=64:64", env!("CARGO_BIN_EXE_naa")]).args(command);
        let output = limited.args(["--listen", "127.0.34.8", "--ports", "16384-16500"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("`ulimit -n`, or listen to fewer ports"), "{text}");
    }
}

/// When the bridge's socket overflows, it must not say "none lost".
#[test]
fn what_the_kernel_drops_is_in_the_sum_of_what_a_bridge_lost() {
    let folder = TempFolder::new("bridge-drops");
    let local = folder.file("sock");
    let mut bridge = Process::spawn(
        naa(&["bridge", "--listen", "127.0.34.7:0", "--bind", "127.0.34.7", "--port", "0", "--json"])
            .args(["--buffer", "4K", "--provider", "embedded", "--local", &local])
            .args(["--metrics", "127.0.34.7:0"]),
    );
    let to: SocketAddr = bridge.text("/segments/0").parse().unwrap();
    let server = bridge.text("/workers").to_owned();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..20 {
        halves(200, 0).for_each(|segment| drop(socket.send_to(&segment, to)));
    }
    let status = || {
        let json = run(&["bridge", "status", "--server", &server, "--provider", "embedded", "--json"]);
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        json["lost_datagrams"].as_u64().unwrap()
    };
    wait_until("datagrams were lost", || status() > 0);
    let text = run(&["bridge", "status", "--server", &server, "--provider", "embedded"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(" datagrams: ") && text.contains(" kernel_drops"), "{text}");
    assert!(!text.contains("none lost"), "{text}");
    let mut line = String::new();
    bridge.stdout.read_line(&mut line).unwrap();
    let second: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&second["event"], &second["ports"]), (&"status".into(), &Value::Null));
    bridge.signal(Signal::TERM);
    let end = bridge.end();
    assert!(end["lost_datagrams"].as_u64().unwrap() > 0, "{end}");
    assert_eq!(end["ports"].as_array().unwrap().len(), 1, "{end}");
}
