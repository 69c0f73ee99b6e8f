//! A worker's metrics, and its named pipe.

mod common;
mod ejfat_common;

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    net::UdpSocket,
    os::unix::fs::FileTypeExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

use common::{Process, TempFolder, naa, run, scrape, stderr, wait_at_most};
use ejfat_common::start_worker;

#[test]
fn metrics_are_the_counters() {
    let worker = start_worker(&["--metrics", "127.0.0.1:0", "--timeout", "200"]);
    let at = worker.text("/metrics");
    assert!(scrape(at).contains("\nnaa_ejfat_segments_total 0\n"));
    let send = ["ejfat", "send", "--to", worker.address(), "--size", "3000", "--events", "2"];
    assert!(run(&send).status.success());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let half = [&[0x10, 0, 0, 9][..], &[0; 4], &3_u32.to_be_bytes(), &[0; 8], b"ab"].concat();
    for datagram in [&half[..], &half, b"nonsense"] {
        socket.send_to(datagram, worker.address()).unwrap();
    }
    let expected = [
        "naa_ejfat_segments_total 9",
        "naa_ejfat_segments_dropped_total{cause=\"duplicate\"} 1",
        "naa_ejfat_segments_dropped_total{cause=\"short\"} 1",
        "naa_ejfat_segments_dropped_total{cause=\"late\"} 0",
        "naa_ejfat_events_total{end=\"complete\"} 2",
        "naa_ejfat_events_total{end=\"timed_out\"} 1",
        "naa_ejfat_events_total{end=\"evicted\"} 0",
        "naa_ejfat_delivered_events_total 2",
        "naa_ejfat_placed_bytes_total 6002",
        "naa_ejfat_sender_segments_total{sender=\"127.0.0.1\"} 9",
        "naa_ejfat_sender_segments_dropped_total{sender=\"127.0.0.1\",cause=\"duplicate\"} 1",
        "naa_ejfat_sender_events_total{sender=\"127.0.0.1\",end=\"complete\"} 2",
        "naa_ejfat_kernel_drops_total 0",
        "naa_ejfat_open_events 0",
        "naa_ejfat_memory_limit_bytes 1073741824",
        "# TYPE naa_ejfat_segments_dropped counter",
    ];
    let missing = |text: &str| {
        let lines: Vec<_> = text.lines().collect();
        expected.into_iter().filter(|line| !lines.contains(line)).collect::<Vec<_>>()
    };
    let begin = Instant::now();
    let mut text = scrape(at);
    while !missing(&text).is_empty() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        text = scrape(at);
    }
    assert!(missing(&text).is_empty(), "{:#?} of {text}", missing(&text));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_pipe_has_the_events_one_behind_the_other() {
    let folder = TempFolder::new("ejfat-pipe");
    let pipe = folder.file("events");
    let mut command = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--events", "2"]);
    let mut child =
        command.args(["--pipe", &pipe]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("waiting for a reader of"), "{told}");
    let begin = Instant::now();
    while !fs::metadata(&pipe).is_ok_and(|file| file.file_type().is_fifo()) {
        assert!(begin.elapsed() < Duration::from_secs(10), "there is no pipe");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut reader = File::open(&pipe).unwrap();
    let worker = Process::of(child);
    let files = [folder.with("a", &[b'a'; 200_000]), folder.with("b", b"and b")];
    let send = ["ejfat", "send", "--to", worker.address(), "--rate", "0.5", &files[0], &files[1]];
    assert!(run(&send).status.success());
    let mut events = Vec::new();
    reader.read_to_end(&mut events).unwrap();
    assert_eq!((events.len(), &events[199_999..]), (200_005, &b"aand b"[..]));
    worker.end();
}

#[test]
fn a_reader_that_goes_away_ends_the_worker() {
    let folder = TempFolder::new("ejfat-pipe-gone");
    let pipe = folder.file("events");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--pipe", &pipe]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let reader = File::open(&pipe).unwrap();
    let mut worker = Process::of(child);
    drop(reader);
    let send = ["ejfat", "send", "--to", worker.address(), "--size", "10", "--events", "1"];
    assert!(run(&send).status.success());
    let status = wait_at_most(&mut worker.child, Duration::from_secs(10)).expect("it ends");
    let told = worker.errors();
    assert!(!status.success() && told.contains("went away"), "{told}");
}

#[test]
fn what_is_no_pipe_is_refused() {
    let folder = TempFolder::new("ejfat-no-pipe");
    let file = folder.with("file", b"");
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--pipe", &file]);
    assert!(!output.status.success() && stderr(&output).contains("no named pipe"), "{}", stderr(&output));
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--metrics", "192.0.2.1:1"]);
    assert!(stderr(&output).contains("cannot serve metrics at 192.0.2.1:1"), "{}", stderr(&output));
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--metrics", "everywhere"]);
    assert!(stderr(&output).contains("a port of loopback"), "{}", stderr(&output));
}
