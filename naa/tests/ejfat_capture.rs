//! `naa ejfat decode` and `naa ejfat replay`: captures of segments, and what becomes of them.

mod common;
mod ejfat_common;

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    process::Stdio,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use common::{TempFolder, json_of, naa, run, stderr, stdout_of};
use ejfat::{
    segment::{EventFields, IpVersion, LbVersion},
    wire::{LbHeader, SyncHeader},
};
use ejfat_common::{
    capture::{datagrams, pcap, v4, v6},
    start_worker,
};
use serde_json::{Value, json};

const SENDER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 9, 0, 1), 41000);
const BALANCER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 9, 0, 2), 19522);
const CONTROL: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 9, 0, 2), 19531);
const SENDER_V6: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), 41001);
const BALANCER_V6: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), 19523);
/// UNIX microseconds.
const BEGIN: u64 = 1_795_248_403_753_221;
const NAME: EventFields = EventFields { tick: BEGIN, event: 70, data_id: 4321, entropy: 52_403 };
const NAME_V6: EventFields = EventFields { tick: BEGIN + 9, event: 5, data_id: 7, entropy: 51_149 };
const SYNC: SyncHeader = SyncHeader {
    source: 1234,
    tick: BEGIN + 1,
    ticks_per_second: 1_000_000,
    unix_nanos: 1_795_248_403_753_230_555,
};

fn event(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Version 2 over IPv4, a sync message, version 3 over IPv6 with a VLAN, and what is no segment.
fn golden() -> Vec<(u64, Vec<u8>)> {
    let mut packets: Vec<_> = datagrams(LbVersion::V2, IpVersion::V4, NAME, &event(3000))
        .iter()
        .map(|datagram| v4(SENDER, BALANCER, datagram))
        .collect();
    packets.push(v4(SENDER, CONTROL, &SYNC.encode()));
    let other = datagrams(LbVersion::V3, IpVersion::V6, NAME_V6, &event(1500));
    packets.extend(other.iter().map(|datagram| v6(SENDER_V6, BALANCER_V6, datagram)));
    packets.push(v4(SENDER, BALANCER, b"something else"));
    packets.push(v4(SENDER, BALANCER, b"LB\x09\x01, a version of the future"));
    let mut fragment = v4(SENDER, BALANCER, b"a part");
    fragment[20] = 0x20;
    packets.push(fragment);
    (0..).map(|n| BEGIN + n * 10).zip(packets).collect()
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    let text = stdout_of(&[&["ejfat", "decode", "--json"], arguments].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_capture_is_decoded_to_the_last_field() {
    let folder = TempFolder::new("ejfat-decode");
    let file = folder.with("golden.pcap", &pcap(&golden()));
    let segment = |n: u64, offset: u32, payload: u32| {
        json!({
            "kind": "segment",
            "unix_ns": (BEGIN + n * 10) * 1000,
            "from": "10.9.0.1:41000",
            "to": "10.9.0.2:19522",
            "lb": { "version": 2, "tick": BEGIN, "slot_select": BEGIN & 0xffff, "port_select": 52_403 },
            "re_version": 1,
            "data_id": 4321,
            "event": 70,
            "offset": offset,
            "length": 3000,
            "payload": payload,
        })
    };
    let tick = BEGIN + 9;
    let segment_v6 = |n: u64, offset: u32, payload: u32| {
        json!({
            "kind": "segment",
            "unix_ns": (BEGIN + n * 10) * 1000,
            "from": "[fd00::1]:41001",
            "to": "[fd00::2]:19523",
            "lb": { "version": 3, "tick": tick, "slot_select": tick & 0xffff, "port_select": 51_149 },
            "re_version": 1,
            "data_id": 7,
            "event": 5,
            "offset": offset,
            "length": 1500,
            "payload": payload,
        })
    };
    let sync = json!({
        "kind": "sync",
        "unix_ns": (BEGIN + 30) * 1000,
        "from": "10.9.0.1:41000",
        "to": "10.9.0.2:19531",
        "source": 1234,
        "tick": BEGIN + 1,
        "ticks_per_second": 1_000_000,
        "sent_unix_ns": 1_795_248_403_753_230_555_u64,
    });
    let end = json!({
        "kind": "end",
        "cut_off": false,
        "packets": 9,
        "datagrams": 8,
        "fragments": 1,
        "not_udp": 0,
        "unknown_link": 0,
        "left_out": 0,
        "segments": 5,
        "sync": 1,
        "malformed": 1,
        "other": 1,
        "merged": 0,
        "cut_short": 0,
    });
    let expected = [
        segment(0, 0, 1436),
        segment(1, 1436, 1436),
        segment(2, 2872, 128),
        sync,
        segment_v6(4, 0, 1416),
        segment_v6(5, 1416, 84),
        end,
    ];
    assert_eq!(objects(&[&file]), expected);
    let at_port = objects(&[&file, "--port", "19523,1"]);
    assert_eq!(at_port[..2], expected[4..6]);
    assert_eq!((at_port.len(), &at_port[2]["left_out"]), (3, &6.into()));
    assert_eq!(objects(&[&file, "--host", "fd00::2"])[..2], expected[4..6]);
}

#[test]
fn a_line_has_the_columns_of_its_header() {
    let folder = TempFolder::new("ejfat-decode-text");
    let file = folder.with("golden.pcap", &pcap(&golden()[..4]));
    let text = stdout_of(&["ejfat", "decode", &file]);
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(text.starts_with("       TIME  FROM                   TO                     LB "), "{text}");
    assert_eq!(
        lines[0].join(" "),
        "TIME FROM TO LB TICK SLOT SELECT PORT SELECT DATA ID EVENT OFFSET LENGTH PAYLOAD"
    );
    let slot = (BEGIN & 0xffff).to_string();
    let tick = BEGIN.to_string();
    let first = ["0.000010", "10.9.0.1:41000", "10.9.0.2:19522", "v2", &tick, &slot, "52403", "4321", "70"];
    assert_eq!(lines[2][..9], first);
    assert_eq!(lines[2][9..], ["1436", "3000", "1436"]);
    assert!(text.contains(&format!("sync  {}  source 1234, 1000000 ticks per second", BEGIN + 1)), "{text}");
    assert_eq!(text.lines().last(), Some("3 segments and 1 sync messages in 4 packets"));
}

#[test]
fn a_summary_tells_which_events_would_be_complete() {
    let folder = TempFolder::new("ejfat-summary");
    let mut packets = golden();
    // The middle segment of the IPv4 event is there twice; the first segment of the IPv6 event is lost; the last
    // packets come an hour later.
    packets.insert(2, packets[1].clone());
    packets.remove(5);
    packets.push((BEGIN + 3_600_000_000, v4(SENDER, CONTROL, &SYNC.encode())));
    let name = EventFields { event: 71, ..NAME };
    let late = &datagrams(LbVersion::V2, IpVersion::V4, name, &event(3000))[1];
    packets.push((BEGIN + 3_600_000_001, v4(SENDER, BALANCER, late)));
    let file = folder.with("lossy.pcap", &pcap(&packets));
    let events = objects(&[&file, "--summary"]);
    let shown = |event: &Value| {
        let fields = ["data_id", "event", "length", "segments", "bytes", "holes", "duplicates", "end"];
        fields.map(|field| event[field].to_string()).join(" ")
    };
    assert_eq!(shown(&events[0]), "4321 70 3000 4 3000 0 1 \"complete\"");
    assert_eq!(shown(&events[1]), "7 5 1500 1 84 1 0 \"timed_out\"");
    assert_eq!(shown(&events[2]), "4321 71 3000 1 1436 2 0 \"open\"");
    assert_eq!((&events[0]["from"], &events[0]["to"]), (&"10.9.0.1".into(), &"10.9.0.2:19522".into()));
    assert_eq!(events[0]["last_unix_ns"], (BEGIN + 20) * 1000);
    assert_eq!(events[3]["kind"], "end");
    let text = stdout_of(&["ejfat", "decode", "--summary", &file]);
    assert!(text.contains("DATA ID  EVENT  FROM"), "{text}");
    assert!(text.contains("3 events: 1 complete, 2 incomplete"), "{text}");
}

/// Headers are enough to tell what was there; they are not enough to send it again.
#[test]
fn captures_of_the_first_bytes_of_packets_will_do_to_decode() {
    let folder = TempFolder::new("ejfat-snaplen");
    let mut file = pcap(&[]);
    for (micros, packet) in &golden()[..3] {
        let kept = packet.len().min(96);
        let head = [micros / 1_000_000, micros % 1_000_000, kept as u64, packet.len() as u64];
        file.extend(head.map(|field| (field as u32).to_le_bytes()).concat());
        file.extend(&packet[..kept]);
    }
    let file = folder.with("short.pcap", &file);
    let lines = objects(&[&file]);
    assert_eq!((&lines[1]["payload"], &lines[3]["cut_short"]), (&1436.into(), &3.into()));
    assert_eq!(objects(&[&file, "--summary"])[0]["end"], "complete");
    let report = json_of(&["ejfat", "replay", &file, "--to", "127.0.0.1:9", "--json"]);
    assert_eq!((&report["segments"], &report["left_out"]["cut_short"]), (&0.into(), &3.into()));
}

#[test]
fn a_capture_comes_from_standard_input_too() {
    let mut decode = naa(&["ejfat", "decode", "-", "--json"]);
    let mut child = decode.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&pcap(&golden())).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 7);
}

#[test]
fn what_is_no_capture_is_refused() {
    let folder = TempFolder::new("ejfat-no-capture");
    let text = folder.with("text", b"this is a text, and no capture of packets");
    for (arguments, says) in [
        (&["decode", "/does/not/exist"][..], "/does/not/exist"),
        (&["decode", &text], "neither pcap nor pcapng"),
        (&["replay", &text, "--to", "nowhere"], "no IP address"),
        (&["replay", "-", "--to", "127.0.0.1", "--repeat", "2"], "standard input"),
        (&["replay", &text, "--to", "127.0.0.1", "--speed", "1", "--rate", "1"], "cannot be used with"),
        (&["replay", &text, "--to", "127.0.0.1", "--speed=-1"], "factor"),
    ] {
        let output = run(&[&["ejfat"], arguments].concat());
        assert!(!output.status.success() && stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn a_replay_completes_the_events() {
    let folder = TempFolder::new("ejfat-replay");
    let file = folder.with("golden.pcap", &pcap(&golden()));
    let out = folder.file("out");
    let worker = start_worker(&["--events", "2", "--out", &out]);
    let report = json_of(&["ejfat", "replay", &file, "--to", worker.address(), "--json"]);
    assert_eq!((&report["segments"], &report["sync"], &report["rounds"]), (&5.into(), &0.into(), &1.into()));
    assert_eq!(report["left_out"], json!({ "sync": 1, "cut_short": 0, "malformed": 1, "other": 1 }));
    assert_eq!(worker.end()["segments"], 5);
    assert!(fs::read(format!("{out}/4321-70")).unwrap() == event(3000));
    assert!(fs::read(format!("{out}/7-5")).unwrap() == event(1500));
}

#[test]
fn fresh_ticks_make_other_events_of_each_round() {
    let folder = TempFolder::new("ejfat-fresh");
    let file = folder.with("golden.pcap", &pcap(&golden()[..3]));
    let worker = start_worker(&["--events", "3", "--out", &folder.file("out")]);
    let arguments = ["--rate", "0.5", "--repeat", "3", "--fresh-ticks", "--json"];
    let report = json_of(&[&["ejfat", "replay", &file, "--to", worker.address()], &arguments[..]].concat());
    assert_eq!((&report["segments"], &report["rounds"]), (&9.into(), &3.into()));
    let report = worker.end();
    assert_eq!((&report["events"], &report["dropped"]["duplicate"]), (&3.into(), &0.into()));
}

#[test]
fn sync_messages_go_where_they_are_told_and_ticks_are_of_now() {
    let folder = TempFolder::new("ejfat-replay-sync");
    let file = folder.with("golden.pcap", &pcap(&golden()));
    let bound = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let at = socket.local_addr().unwrap().to_string();
        (socket, at)
    };
    let ((data, to), (control, sync)) = (bound(), bound());
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let replay = ["ejfat", "replay", &file, "--to", &to, "--sync", &sync, "--fresh-ticks", "--speed", "0"];
    let text = stdout_of(&replay);
    assert!(text.contains("1 sync messages; left out: 1 malformed, 1 not EJFAT's, 1 IP fragments"), "{text}");
    let received = |socket: &UdpSocket| {
        let mut bytes = [0; 2048];
        let len = socket.recv(&mut bytes).unwrap();
        bytes[..len].to_vec()
    };
    let message = SyncHeader::decode(&received(&control)).unwrap();
    assert_eq!((message.source, message.ticks_per_second), (SYNC.source, SYNC.ticks_per_second));
    assert!(message.tick >= before && message.unix_nanos / 1000 >= before);
    let ticks: Vec<_> = (0..5)
        .map(|_| {
            let datagram = received(&data);
            let (lb, _) = LbHeader::decode(&datagram).unwrap();
            if lb.version() == 3 {
                assert_eq!(lb.slot_select(), lb.tick as u16);
            }
            lb.tick
        })
        .collect();
    assert!(ticks[0] >= before && ticks[0] == ticks[1] && ticks[1] == ticks[2]);
    assert!(ticks[3] > ticks[0] && ticks[3] == ticks[4]);
}

#[test]
fn the_captures_timing_is_kept() {
    let folder = TempFolder::new("ejfat-timing");
    let packets: Vec<_> = golden()[..3].iter().cloned().enumerate().collect();
    let slow: Vec<_> = packets.iter().map(|(n, (_, packet))| (*n as u64 * 200_000, packet.clone())).collect();
    let file = folder.with("slow.pcap", &pcap(&slow));
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for (speed, at_least) in [("1", 400), ("4", 100), ("0", 0)] {
        let begin = Instant::now();
        json_of(&["ejfat", "replay", &file, "--to", &at, "--speed", speed, "--json"]);
        assert!(begin.elapsed() >= Duration::from_millis(at_least), "speed {speed}");
    }
    // An hour in the capture; Ctrl-C need not wait for it.
    let long = folder.with("long.pcap", &pcap(&[slow[0].clone(), (3_600_000_000, slow[1].1.clone())]));
    let data = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = data.local_addr().unwrap().to_string();
    let mut replay = naa(&["ejfat", "replay", &long, "--to", &to, "--json"]);
    let child = replay.stdout(Stdio::piped()).spawn().unwrap();
    data.recv(&mut [0; 2048]).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["segments"], output.status.success()), (&1.into(), true));
}
