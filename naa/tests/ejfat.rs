//! `naa ejfat`: a sender and a worker on loopback.

mod common;
mod ejfat_common;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::UdpSocket,
    process::Stdio,
};

use common::{TempFolder, json_of, naa, run, stderr};
use ejfat_common::start_worker;

#[test]
fn files_arrive_as_they_are() {
    let folder = TempFolder::new("ejfat-files");
    let events: Vec<_> = [1, 1436, 5_000, 3_000_000]
        .map(|len: u32| (0..len).map(|at| (at / 7) as u8).collect::<Vec<_>>())
        .into();
    let files: Vec<_> = (0..events.len()).map(|n| folder.0.join(format!("in-{n}"))).collect();
    for (file, event) in files.iter().zip(&events) {
        fs::write(file, event).unwrap();
    }
    for (version, mtu) in [("2", "1500"), ("3", "9000")] {
        let out = folder.0.join(version);
        let worker = start_worker(&["--events", "4", "--consecutive", "--out", out.to_str().unwrap()]);
        let mut send = vec!["ejfat", "send", "--to", worker.address(), "--rate", "0.5", "--json"];
        send.extend(["--lb-version", version, "--mtu", mtu, "--first", "70", "--data-id", "3"]);
        send.extend(files.iter().map(|file| file.to_str().unwrap()));
        let sent = json_of(&send);
        assert_eq!((&sent["events"], &sent["bytes"]), (&4.into(), &3_006_437.into()));
        let report = worker.end();
        assert_eq!(
            (&report["events"], &report["missing"], &report["timed_out"]),
            (&4.into(), &0.into(), &0.into())
        );
        assert_eq!(report["segments"], sent["segments"]);
        for (n, event) in events.iter().enumerate() {
            assert!(fs::read(out.join(format!("3-{}", 70 + n))).unwrap() == *event, "event {n}");
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 4, "nothing is left behind");
    }
}

#[test]
fn an_event_is_a_commands_input() {
    let folder = TempFolder::new("ejfat-exec");
    let command = format!("cat > {}/$EJFAT_DATA_ID-$EJFAT_EVENT-$EJFAT_FROM", folder.0.display());
    let worker = start_worker(&["--events", "1", "--exec", &command]);
    let mut send = naa(&["ejfat", "send", "--to", worker.address(), "-"]);
    let mut child = send.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from standard input").unwrap();
    assert!(child.wait().unwrap().success());
    worker.end();
    assert_eq!(fs::read(folder.0.join("4321-0-127.0.0.1")).unwrap(), b"from standard input");
}

#[test]
fn a_sender_started_again_replaces_nothing() {
    let folder = TempFolder::new("ejfat-again");
    let out = folder.file("out");
    let worker = start_worker(&["--events", "2", "--out", &out]);
    for text in ["the first", "the second"] {
        let file = folder.with("in", text.as_bytes());
        let mut send = naa(&["ejfat", "send", "--to", worker.address(), &file]);
        // Whatever the environment says.
        let status = send.env("EJFAT_URI", "ejfat://h:1/?data=192.0.2.1").stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
    }
    assert_eq!(worker.end()["dropped"]["duplicate"], 0);
    assert_eq!(fs::read(format!("{out}/4321-0")).unwrap(), b"the first");
    assert_eq!(fs::read(format!("{out}/4321-0.2")).unwrap(), b"the second");
}

#[test]
fn the_uri_tells_where_segments_and_sync_messages_go() {
    let sync = UdpSocket::bind("127.0.0.1:0").unwrap();
    let worker = start_worker(&["--events", "2"]);
    let uri =
        format!("ejfat://localhost:1/lb/1?data={}&sync={}", worker.address(), sync.local_addr().unwrap());
    let mut send = naa(&["ejfat", "send", "--size", "4K", "--events", "2", "--warm-up", "50", "--src", "77"]);
    assert!(send.env("EJFAT_URI", &uri).stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(worker.end()["events"], 2);
    let mut datagram = [0; 64];
    let len = sync.recv(&mut datagram).unwrap();
    assert_eq!((len, &datagram[..8]), (28, &b"LC\x02\0\0\0\0\x4d"[..]));
}

/// What other senders send, and datagrams that are nothing.
#[test]
fn segments_of_others_and_nonsense() {
    let folder = TempFolder::new("ejfat-others");
    let worker = start_worker(&["--events", "2", "--out", folder.0.to_str().unwrap()]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |bytes: &[&[u8]]| socket.send_to(&bytes.concat(), worker.address()).map(drop).unwrap();
    let lb = b"LB\x02\x01\0\0\xcc\xb3\0\x06\x60\xc4\x50\xdc\xcc\xe5";
    send(&[b"nonsense"]);
    send(&[]);
    // Behind the load balancer, the second segment first; then one by udplbd's sender, with its version.
    send(&[b"\x10\0\0\x01", &4u32.to_be_bytes(), &7u32.to_be_bytes(), &9u64.to_be_bytes(), b"567"]);
    send(&[b"\x10\0\0\x01", &[0xff; 8], &9u64.to_be_bytes(), b"far"]);
    send(&[lb, b"\x10\0\0\x01", &0u32.to_be_bytes(), &7u32.to_be_bytes(), &9u64.to_be_bytes(), b"1234"]);
    send(&[b"\0\0\0\0", &0u32.to_be_bytes(), &3u32.to_be_bytes(), &10u64.to_be_bytes(), b"abc"]);
    let report = worker.end();
    assert_eq!(fs::read(folder.0.join("1-9")).unwrap(), b"1234567");
    assert_eq!(fs::read(folder.0.join("0-10")).unwrap(), b"abc");
    assert_eq!(report["dropped"]["short"], 2);
    assert_eq!(report["dropped"]["too_long"], 1);
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, says) in [
        (&["send", "FILE"][..], "--to"),
        (&["send", "--to", "nowhere", "FILE"], "no IP address"),
        (&["send", "--to", "127.0.0.1", "/does/not/exist"], "/does/not/exist"),
        (&["send", "--to", "127.0.0.1", "--mtu", "100", "--size", "1"], "576"),
        (&["send", "--uri", "ejfat://h:1/lb/1", "--size", "1"], "no data address"),
        (&["send", "--to", "127.0.0.1", "--rate=-1", "--size", "1"], "Gbit/s"),
        (&["recv", "--listen", "127.0.0.1:65535", "--ports", "2"], "ports"),
        (&["recv", "--listen", "127.0.0.1:0", "--memory", "1M"], "--max-event"),
    ] {
        let output = run(&[&["ejfat"], arguments].concat());
        assert!(
            !output.status.success() && stderr(&output).contains(says),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn standard_output_holds_events_only() {
    let mut command = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--stdout", "--events", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line
        .split_whitespace()
        .find(|word| word.starts_with("127."))
        .unwrap()
        .trim_end_matches(';')
        .to_owned();
    assert!(run(&["ejfat", "send", "--to", &address, "--size", "10000", "--events", "1"]).status.success());
    let mut event = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut event).unwrap();
    assert_eq!(event.len(), 10_000);
    assert!(child.wait().unwrap().success());
}
