//! E2SAR's INI files: what they set, what they cannot, and that the command line is stronger.

mod common;
mod ejfat_common;

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use common::{TempFolder, json_of, naa, run, stderr};
use ejfat::wire::{LbHeader, ReHeader, SyncHeader, Versions};
use ejfat_common::start_worker;

/// Keys of a segmenter, with nothing as it is by default.
const SEGMENTER: &str = "; E2SAR's segmenter
[general]
useCP = true

[control-plane]
warmUpMS = 300
syncPeriods = 4
syncPeriodMS = 20

[data-plane]
dpV6 = false
connectedSocket = true
ticksAsREEventNum = true
mtu = 9000
numSendSockets = 2
sndSocketBufSize = 1048576
rateGbps = -1.0
smooth = true
multiPort = true
lbHdrVersion = 3
";

fn receiving() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let at = socket.local_addr().unwrap().to_string();
    (socket, at)
}

fn segment(socket: &UdpSocket) -> (LbHeader, ReHeader, usize) {
    let mut bytes = [0; 10_000];
    let len = socket.recv(&mut bytes).unwrap();
    let (lb, rest) = LbHeader::decode(&bytes[..len]).unwrap();
    let (re, _) = ReHeader::decode(rest, Versions::ONE).unwrap();
    (lb, re, len)
}

#[test]
fn a_sender_has_the_files_settings() {
    let folder = TempFolder::new("ejfat-ini-send");
    let ini = folder.with("segmenter.ini", SEGMENTER.as_bytes());
    let ((data, to), (control, sync)) = (receiving(), receiving());
    let uri = format!("ejfat://localhost:1/lb/1?data={to}&sync={sync}");
    let begin = Instant::now();
    let send = ["ejfat", "send", "--uri", &uri, "--ini", &ini, "--size", "9000", "--events", "2"];
    let output = run(&send);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(begin.elapsed() >= Duration::from_millis(300), "warmUpMS");
    let (lb, re, len) = segment(&data);
    assert_eq!((lb.version(), len), (3, 9000 - 28), "lbHdrVersion, mtu");
    assert_eq!(re.event, lb.tick, "ticksAsREEventNum");
    let mut bytes = [0; 64];
    for _ in 0..3 {
        // The file asks for a sync message every 20 ms, and warm-up takes 300 ms. There would be only two messages with
        // the usual period of one second.
        let len = control.recv(&mut bytes).unwrap();
        SyncHeader::decode(&bytes[..len]).unwrap();
    }
    // A key that is not supported gets one warning; a key that has no effect gets none.
    let told = stderr(&output);
    assert_eq!(told.matches("multiPort").count(), 1, "{told}");
    assert!(told.contains("all segments go to one port") && !told.contains("syncPeriods"), "{told}");
}

#[test]
fn the_command_line_is_stronger() {
    let folder = TempFolder::new("ejfat-ini-stronger");
    let ini = folder.with("segmenter.ini", SEGMENTER.as_bytes());
    let ((data, to), (control, sync)) = (receiving(), receiving());
    let uri = format!("ejfat://localhost:1/lb/1?data={to}&sync={sync}");
    let stronger = ["--mtu", "1500", "--lb-version", "2", "--ticks-as-events=false", "--no-control-plane"];
    let send = ["ejfat", "send", "--uri", &uri, "--ini", &ini, "--size", "9000", "--events", "1", "--json"];
    assert_eq!(json_of(&[&send[..], &stronger].concat())["segments"], 7);
    let (lb, re, len) = segment(&data);
    assert_eq!((lb.version(), re.event, len), (2, 0, 1500 - 28));
    control.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(control.recv(&mut [0; 64]).is_err(), "no sync messages");
    let numbered = [&send[..], &["--first", "12", "--no-control-plane"]].concat();
    json_of(&numbered);
    (0..6).for_each(|_| _ = segment(&data));
    assert_eq!(segment(&data).1.event, 12, "a number on the command line is stronger than ticks");
}

#[test]
fn without_a_control_plane_there_are_no_sync_messages() {
    let folder = TempFolder::new("ejfat-ini-nocp");
    let ini = folder.with("x.ini", b"[general]\nuseCP=0\n");
    let ((_data, to), (control, sync)) = (receiving(), receiving());
    let uri = format!("ejfat://localhost:1/lb/1?data={to}&sync={sync}");
    json_of(&["ejfat", "send", "--uri", &uri, "--ini", &ini, "--size", "9", "--events", "1", "--json"]);
    control.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(control.recv(&mut [0; 64]).is_err());
}

#[test]
fn a_worker_has_the_files_settings() {
    let folder = TempFolder::new("ejfat-ini-recv");
    let text = "[general]\nuseCP = true\n[data-plane]\nportRange = 2\nwithLBHeader = true\n\
                eventTimeoutMS = 100\nrcvSocketBufSize = 65536\nepochMS = 1000\n[pid]\nKp = 0.5\nweight = 1.0\n";
    let ini = folder.with("reassembler.ini", text.as_bytes());
    let worker = start_worker(&["--ini", &ini, "--for", "2"]);
    assert_eq!(worker.ready["addresses"].as_array().unwrap().len(), 4, "portRange");
    // A segment of two bytes of an event of three.
    let segment = [&[0x10, 0, 0, 1][..], &[0; 4], &3_u32.to_be_bytes(), &[0; 8], b"ab"].concat();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&segment, worker.address()).unwrap();
    assert_eq!(worker.end()["timed_out"], 1, "eventTimeoutMS");
    let one = start_worker(&["--ini", &ini, "--ports", "1", "--for", "0.1"]);
    assert_eq!(one.ready["addresses"].as_array().unwrap().len(), 1);
    one.end();
    let output = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--ini", &ini, "--for", "0.1"]).output();
    let told = stderr(&output.unwrap());
    assert!(told.contains("[pid] Kp = 0.5 is ignored: this worker reports its fill level"), "{told}");
    for harmless in ["useCP", "weight", "epochMS", "withLBHeader"] {
        assert!(!told.contains(harmless), "{told}");
    }
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    let folder = TempFolder::new("ejfat-ini-wrong");
    for (text, says) in [
        (
            "[data-plane]\nmut = 9000\n",
            &["x.ini", "[data-plane] mut is unknown", "known there are dpV6", "mtu"][..],
        ),
        ("[dataplane]\nmtu = 9000\n", &["[dataplane] mtu is unknown", "no such section", "[data-plane]"]),
        ("[data-plane]\nmtu = many\n", &["[data-plane] mtu", "\"many\"", "576"]),
        ("[data-plane]\ndpV6 = perhaps\n", &["[data-plane] dpV6", "true or false"]),
        ("[data-plane]\nlbHdrVersion = 4\n", &["lbHdrVersion", "versions 2 and 3"]),
        ("[control-plane]\nsyncPeriodMS = 20000\n", &["syncPeriodMS", "10000"]),
        ("[data-plane\n", &["x.ini"]),
    ] {
        let ini = folder.with("x.ini", text.as_bytes());
        let output =
            run(&["ejfat", "send", "--to", "127.0.0.1:9", "--ini", &ini, "--size", "1", "--mtu", "1500"]);
        let told = stderr(&output);
        assert!(!output.status.success() && says.iter().all(|say| told.contains(say)), "{text:?}: {told}");
    }
    let ini = folder.with("x.ini", b"[data-plane]\nportRange = 15\n");
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--ini", &ini]);
    assert!(stderr(&output).contains("portRange"), "{}", stderr(&output));
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--ini", "/does/not/exist"]);
    assert!(stderr(&output).contains("/does/not/exist"));
}
