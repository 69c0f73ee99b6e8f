//! `naa ejfat send`, `naa ejfat recv`, `naa bridge` and `naa serve` with a control plane of a test.

mod bridge_common;
mod common;
mod ejfat_common;
#[path = "../../ejfat/client/tests/site/mod.rs"]
mod site;
#[path = "../../ejfat/lb/tests/tls_common/mod.rs"]
mod tls_common;

use std::{
    net::UdpSocket,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use bridge_common::{BridgeProcess, WorkerProcess as BridgeWorkerProcess};
use common::{Process, TempFolder, json_of, naa, run, stderr};
use ejfat_common::start_worker;
use naa_grpc::ServerTls;
use rustix::process::{Pid, Signal, kill_process};
use site::{Site, TOKEN, until};
use tls_common::{Ca, Files};
use tonic::Code;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_worker_registers_tells_its_state_and_drains_when_it_is_told_to_end() {
    let (site, folder) = (Site::default(), TempFolder::new("ejfat-site"));
    site.state().look_ahead = 500 * MS;
    let server = site.serve(0, None);
    let sync = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = Site::uri(&server, TOKEN);
    let out = folder.file("out");
    let options =
        ["--uri", &uri, "--weight", "3", "--max-factor", "0", "--name", "the-worker", "--out", &out];
    let worker = start_worker(&options);
    let told = &worker.ready["registered"];
    assert_eq!(
        (&told["session"], &told["reservation"], &told["ports"]),
        (&"1".into(), &"1".into(), &1.into())
    );
    assert_eq!(told["address"], worker.ready["addresses"][0]);
    {
        let state = site.state();
        let of = &state.sessions[&1].registered;
        assert_eq!(
            (of.name.as_str(), of.weight, of.min_factor, of.max_factor),
            ("the-worker", 3.0, 0.0, 0.0)
        );
        assert_eq!(format!("{}:{}", of.ip_address, of.udp_port), worker.address());
    }

    // A sender whose data address is the worker's, because there is no load balancer in this test.
    let whole = format!("{uri}?data={}&sync={}", worker.address(), sync.local_addr().unwrap());
    let mut send = naa(&["ejfat", "send", "--size", "40K", "--events", "5", "--warm-up", "300"]);
    let sending = send.env("EJFAT_URI", &whole).stdout(Stdio::null()).spawn().unwrap();
    until("the sender is let in", || site.state().senders.contains("127.0.0.1"));
    assert!(sending.wait_with_output().unwrap().status.success());
    assert!(site.state().senders.is_empty(), "and off again");
    let mut datagram = [0; 64];
    assert_eq!(sync.recv(&mut datagram).unwrap(), 28);
    let totals = |site: &Site| {
        let state = site.state();
        let newest = state.sessions[&1].newest();
        (newest.total_events_recv, newest.total_events_reassembled, newest.total_events_dequeued)
    };
    until("the counters are told", || totals(&site) == (5, 5, 5));
    assert!(site.state().sessions[&1].newest().fill_percent < 0.5);

    let begin = Instant::now();
    worker.signal(Signal::TERM);
    until("it is not ready", || !site.state().sessions[&1].newest().is_ready);
    // The worker goes on receiving while it drains.
    let late = ["ejfat", "send", "--to", worker.address(), "--size", "10", "--events", "1", "--first", "99"];
    json_of(&[&late[..], &["--json"]].concat());
    let report = worker.end();
    assert!(begin.elapsed() > 1500 * MS, "{:?}", begin.elapsed());
    assert_eq!(report["events"], 6);
    assert_eq!(
        (&report["registered"]["drained"], &report["registered"]["deregistered"]),
        (&true.into(), &true.into())
    );
    assert!(folder.0.join("out/4321-99").exists());
    assert!(site.state().live().is_empty());
}

#[test]
fn a_worker_that_cannot_keep_up_tells_that_it_is_full() {
    let site = Site::default();
    let server = site.serve(0, None);
    let uri = Site::uri(&server, TOKEN);
    let worker = start_worker(&["--uri", &uri, "--exec", "sleep 2", "--buffer", "200K", "--drain", "0"]);
    json_of(&["ejfat", "send", "--to", worker.address(), "--size", "8K", "--events", "400", "--json"]);
    until("it tells so", || site.state().sessions[&1].newest().fill_percent > 0.9);
    assert!(site.state().sessions[&1].newest().is_ready);
}

#[test]
fn ports_that_follow_each_other_are_registered() {
    let site = Site::default();
    let server = site.serve(0, None);
    // Four consecutive ports that are free.
    let first = (21_000..30_000)
        .step_by(7)
        .find(|&first| (first..first + 4).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok()));
    let range = format!("{}-{}", first.unwrap(), first.unwrap() + 3);
    let uri = Site::uri(&server, TOKEN);
    let mut recv =
        naa(&["ejfat", "recv", "--listen", "0.0.0.0", "--ports", &range, "--uri", &uri, "--for", "0.5"]);
    let folder = TempFolder::new("ejfat-site-ini");
    let ini = folder.with("x.ini", b"[data-plane]\nperiodMS = 20\n[pid]\nweight = 2.5\nmin_factor = 0.25\n");
    let output = recv.args(["--drain", "0", "--json", "--ini", &ini, "--weight", "4"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let state = site.state();
    let of = &state.sessions[&1].registered;
    assert_eq!((of.ip_address.as_str(), of.udp_port, of.port_range), ("127.0.0.1", first.unwrap().into(), 2));
    assert_eq!((of.weight, of.min_factor, of.max_factor), (4.0, 0.25, 0.0), "the command line is stronger");
    assert!(state.sessions[&1].states.len() > 15, "one each 20 ms");
}

#[test]
fn what_is_wrong_is_said_with_the_option_that_helps() {
    let site = Site::default();
    let server = site.serve(0, None);
    let at = server.address();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let data = free.local_addr().unwrap();
    let recv = ["ejfat", "recv", "--listen", "127.0.0.1:0", "--for", "0.1", "--uri"];
    let send = ["ejfat", "send", "--size", "1", "--events", "1", "--warm-up", "0", "--uri"];
    let refused = |command: &[&str], uri: &str, status, says: &str| {
        let output = run(&[command, &[uri]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{uri}: {said}");
        assert!(said.contains(says) && said.contains("--no-control-plane"), "{uri}: {said}");
        let output = run(&[command, &[uri, "--no-control-plane"]].concat());
        assert!(output.status.success(), "{uri}: {}", stderr(&output));
    };
    let with_data = |uri: String| format!("{uri}?data={data}");
    refused(&recv, &format!("ejfat://{at}/lb/1"), 2, "has no token");
    refused(&recv, &format!("ejfat://{TOKEN}@{at}/"), 2, "names no reservation");
    refused(&recv, &format!("ejfat://stale@{at}/lb/1"), 1, "get a new EJFAT URI");
    refused(&recv, &format!("ejfat://{TOKEN}@127.0.0.1:1/lb/1"), 1, "cannot be reached");
    refused(&send, &with_data(format!("ejfat://{TOKEN}@{at}/")), 2, "names no reservation");
    refused(&send, &with_data(format!("ejfat://{TOKEN}@127.0.0.1:1/lb/1")), 1, "cannot be reached");
    site.refuse("AddSenders", Code::PermissionDenied, "the token has no right to AddSenders here");
    refused(&send, &with_data(format!("ejfat://{TOKEN}@{at}/lb/1")), 1, "UPDATE on the reservation");
    let output = run(&[&send[..], &[&with_data(format!("ejfat://{at}/lb/1"))]].concat());
    assert!(output.status.success() && stderr(&output).contains("has no token"), "{}", stderr(&output));
}

#[test]
fn a_sender_that_is_interrupted_is_taken_off_the_list() {
    let site = Site::default();
    let server = site.serve(0, None);
    let at = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("{}?data={}", Site::uri(&server, TOKEN), at.local_addr().unwrap());
    let send = ["ejfat", "send", "--size", "1K", "--events", "1000000000", "--rate", "0.001", "--uri", &uri];
    let interrupted = |when: &str, is_so: &dyn Fn() -> bool| {
        let mut child = naa(&send).stdout(Stdio::null()).spawn().unwrap();
        until(when, is_so);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{when}");
        assert!(site.state().senders.is_empty(), "{when}");
        assert!(site.state().calls.contains(&"RemoveSenders"), "{when}");
    };
    interrupted("it is let in", &|| site.state().senders.contains("127.0.0.1"));
    site.state().calls.clear();
    site.slow("AddSenders", 300 * MS);
    interrupted("it asks to be let in", &|| site.state().calls.contains(&"AddSenders"));
}

/// Starts a sender that goes on for long, with what it prints to standard error in a file.
fn send_for_long(uri: &str, log: &std::path::Path) -> std::process::Child {
    let send =
        ["ejfat", "send", "--size", "1K", "--events", "1000000000", "--rate", "0.001", "--warm-up", "0"];
    let log = std::fs::File::create(log).unwrap();
    naa(&send).args(["--uri", uri]).stdout(Stdio::piped()).stderr(log).spawn().unwrap()
}

#[test]
fn a_sender_goes_on_when_another_one_ends_and_fails_when_the_reservation_ends() {
    let (site, folder) = (Site::default(), TempFolder::new("ejfat-site-senders"));
    let server = site.serve(0, None);
    let at = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("{}?data={}", Site::uri(&server, TOKEN), at.local_addr().unwrap());
    let log = folder.0.join("log");
    let child = send_for_long(&uri, &log);
    until("it is let in", || site.state().senders.contains("127.0.0.1"));
    let short = ["ejfat", "send", "--size", "1", "--events", "1", "--warm-up", "0", "--uri", &uri];
    assert!(run(&short).status.success());
    assert!(site.state().senders.contains("127.0.0.1"), "the first one sends still");
    until("no worker is told", || {
        std::fs::read_to_string(&log).unwrap().contains("has no worker that is ready")
    });
    site.state().senders.clear();
    until("it is added again", || site.state().senders.contains("127.0.0.1"));
    site.refuse("Status", Code::NotFound, "there is no reservation 1; it may have ended");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (out, log) = (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(&log).unwrap());
    assert!(out.contains(" sent to "), "{out}");
    assert_eq!(log.matches("added again").count(), 1, "{log}");
    assert!(log.contains("reservation 1 at") && log.contains("ended"), "{log}");
    assert!(!log.contains("stay in the reservation's list"), "{log}");
}

#[test]
fn a_worker_whose_reservation_ended_ends_with_status_1() {
    let (site, folder) = (Site::default(), TempFolder::new("ejfat-site-ended"));
    let server = site.serve(0, None);
    let (uri, log) = (Site::uri(&server, TOKEN), folder.file("log"));
    let mut recv = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--uri", &uri, "--json"]);
    let log_file = std::fs::File::create(&log).unwrap();
    let mut worker = Process::spawn(recv.stderr(log_file));
    for call in ["SendState", "Register"] {
        site.refuse(call, Code::NotFound, "there is no reservation 1; it may have ended");
    }
    assert_eq!(worker.last()["event"], "end");
    assert_eq!(worker.child.wait().unwrap().code(), Some(1));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("reservation 1 ended"), "{log}");
    assert!(log.contains("thrown away"), "{log}");
}

#[test]
fn a_slow_worker_tells_each_event_when_its_command_ended() {
    let site = Site::default();
    let server = site.serve(0, None);
    let uri = Site::uri(&server, TOKEN);
    let worker = start_worker(&["--uri", &uri, "--exec", "cat > /dev/null; sleep 0.3", "--drain", "0"]);
    json_of(&["ejfat", "send", "--to", worker.address(), "--size", "1K", "--events", "8", "--json"]);
    let dequeued = |site: &Site| site.state().sessions[&1].newest().total_events_dequeued;
    until("all are taken", || dequeued(&site) == 8);
    let told: std::collections::BTreeSet<_> =
        site.state().sessions[&1].states.iter().map(|(_, state)| state.total_events_dequeued).collect();
    assert!(told.into_iter().eq(0..=8), "one after the other");
}

#[test]
fn a_worker_chooses_consecutive_ports_and_waits_for_its_control_plane() {
    let site = Site::default();
    let server = site.serve(0, None);
    let (port, uri) = (server.address().port(), Site::uri(&server, TOKEN));
    drop(server);
    let mut recv = naa(&["ejfat", "recv", "--ports", "4", "--for", "0.1", "--drain", "0", "--json"]);
    recv.args(["--uri", &uri, "--wait-control-plane", "20"]);
    let child = recv.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(1000 * MS);
    let _server = site.serve(port, None);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(site.state().sessions[&1].registered.port_range, 2, "four ports");
    let three = run(&["ejfat", "recv", "--ports", "3", "--uri", &uri]);
    assert_eq!(three.status.code(), Some(2));
    assert!(stderr(&three).contains("power of two"), "{}", stderr(&three));
}

#[test]
fn a_second_signal_ends_a_worker_that_drains_and_it_still_deregisters() {
    let (site, folder) = (Site::default(), TempFolder::new("ejfat-site-twice"));
    site.state().look_ahead = Duration::from_secs(60);
    let server = site.serve(0, None);
    let (uri, log) = (Site::uri(&server, TOKEN), folder.file("log"));
    let mut recv = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--uri", &uri, "--drain", "60"]);
    let mut child = recv.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let signal = || kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    until("told", || site.state().sessions.get(&1).is_some_and(|session| session.states.len() > 2));
    signal();
    until("it says so", || std::fs::read_to_string(&log).unwrap().contains("Ctrl-C again"));
    sleep(1200 * MS);
    signal();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(site.state().live().is_empty());
}

#[test]
fn options_that_exclude_each_other_or_are_too_large_say_so() {
    let refused = |arguments: &[&str], says: &[&str]| {
        let output = run(&[&["ejfat"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        says.iter().for_each(|says| assert!(said.contains(says), "{said}"));
    };
    refused(&["send", "--to", "127.0.0.1", "--events", "3", "FILE"], &["--events", "FILE"]);
    refused(&["recv", "--listen", "127.0.0.1:0", "--weight", "-1"], &["above 0 and up to 1000000"]);
    let more = ["recv", "--listen", "127.0.0.1:0", "--memory", "1M"];
    refused(&more, &["64 MiB", "1 MiB", "lower --max-event"]);
}

#[test]
fn a_worker_goes_on_while_its_control_plane_is_away() {
    let site = Site::default();
    let server = site.serve(0, None);
    let port = server.address().port();
    let folder = TempFolder::new("ejfat-site-away");
    let log = std::fs::File::create(folder.file("log")).unwrap();
    let mut recv = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--for", "6", "--drain", "3"]);
    let uri = Site::uri(&server, TOKEN);
    let worker = Process::spawn(recv.args(["--uri", &uri]).stderr(log));
    drop(server);
    sleep(1000 * MS);
    json_of(&["ejfat", "send", "--to", worker.address(), "--size", "10K", "--events", "3", "--json"]);
    let again = Site::default();
    let _server = again.serve(port, None);
    until("registered again", || !again.state().live().is_empty());
    let report = worker.end();
    assert_eq!((&report["events"], &report["registered"]["again"]), (&3.into(), &1.into()));
    let log = std::fs::read_to_string(folder.file("log")).unwrap();
    assert_eq!(log.matches("it is registered again").count(), 1, "{log}");
    // The first attempt that fails is either on the connection that the end of the server broke, or on one that is refused.
    let outage = log.split("it is registered again").next().unwrap();
    assert_eq!(outage.matches("cannot be reached").count(), 1, "{log}");
}

#[test]
fn over_tls_the_ca_is_named_by_an_option() {
    let (files, site, ca) = (Files::new("site"), Site::default(), Ca::new("the site"));
    let (cert, key) = files.put_pair("server", &ca.server());
    let trusted = files.put("ca.pem", &ca.pem());
    let server = site.serve(0, Some(ServerTls { cert, key, client_ca: None }));
    let uri = Site::uri(&server, TOKEN).replace("ejfat://", "ejfats://");
    let recv = ["ejfat", "recv", "--listen", "127.0.0.1:0", "--for", "0.1", "--drain", "0", "--uri", &uri];
    let accepted = run(&[&recv[..], &["--control-plane-ca", trusted.to_str().unwrap()]].concat());
    assert!(accepted.status.success(), "{}", stderr(&accepted));
    let other = files.put("other.pem", &Ca::new("other").pem());
    let refused = run(&[&recv[..], &["--control-plane-ca", other.to_str().unwrap()]].concat());
    let said = stderr(&refused);
    assert!(
        said.contains("no CA that is trusted here") && said.contains("--control-plane-ca FILE"),
        "{said}"
    );
}

#[test]
fn a_bridge_needs_no_listen_with_a_uri_and_says_once_that_nobody_has_subscribed() {
    let site = Site::default();
    let server = site.serve(0, None);
    let uri = Site::uri(&server, TOKEN);
    let bridge = ["bridge", "--bind", "127.0.14.12", "--port", "0", "--provider", "embedded", "--json"];
    let output = run(&[&bridge[..], &["--uri", &uri, "--drain", "0", "--for", "3.5"]].concat());
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let ready = String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["registered"]["address"], ready["segments"][0], "{ready}");
    assert_eq!(said.matches("no worker has subscribed").count(), 1, "{said}");
    let without = run(&[&bridge[..], &["--uri", ""]].concat());
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("--listen"), "{}", stderr(&without));
}

#[test]
fn a_bridge_is_one_worker_and_takes_events_while_it_has_workers() {
    let (site, folder) = (Site::default(), TempFolder::new("bridge-site"));
    let server = site.serve(0, None);
    let uri = Site::uri(&server, TOKEN);
    let bridge = BridgeProcess::start("127.0.14.9", &folder, &["--uri", &uri, "--drain", "3"]);
    assert_eq!(bridge.0.ready["registered"]["address"], bridge.segments());
    until("told", || site.state().sessions[&1].states.len() > 2);
    {
        let state = site.state();
        let newest = state.sessions[&1].newest();
        assert_eq!((newest.is_ready, newest.fill_percent), (false, 1.0), "without workers");
    }
    let worker = BridgeWorkerProcess::start(bridge.local(), 3, "local");
    until("ready", || site.state().sessions[&1].newest().is_ready);
    json_of(&["ejfat", "send", "--to", bridge.segments(), "--size", "5K", "--events", "3", "--json"]);
    until("counted", || site.state().sessions[&1].newest().total_events_dequeued == 3);
    assert_eq!(worker.lines().len(), 3);
    assert!(bridge.end()["event"].is_string());
    assert!(site.state().live().is_empty());
}

#[test]
fn an_accelerator_that_reassembles_is_a_worker() {
    let (site, folder) = (Site::default(), TempFolder::new("serve-site"));
    let server = site.serve(0, None);
    let (uri, out) = (Site::uri(&server, TOKEN), folder.file("out"));
    let mut serve =
        naa(&["serve", "--bind", "127.88.0.9", "--port", "0", "--json", "--provider", "embedded"]);
    serve.args([
        "--reassemble",
        "127.0.0.1:0",
        "--events",
        &out,
        "--uri",
        &uri,
        "--weight",
        "2",
        "--drain",
        "3",
    ]);
    let accelerator = Process::spawn(&mut serve);
    let at = accelerator.text("/services/reassembling/0");
    assert_eq!(accelerator.text("/services/registered/0/address"), at);
    assert_eq!(site.state().sessions[&1].registered.weight, 2.0);
    json_of(&["ejfat", "send", "--to", at, "--size", "5K", "--events", "3", "--json"]);
    until("counted", || site.state().sessions[&1].newest().total_events_dequeued == 3);
    accelerator.signal(Signal::TERM);
    accelerator.end();
    assert!(site.state().live().is_empty() && !site.state().sessions[&1].newest().is_ready);
    let output = naa(&["serve", "--weight", "2"]).env("EJFAT_URI", &uri).output().unwrap();
    assert!(stderr(&output).contains("--reassemble"), "{}", stderr(&output));
}
