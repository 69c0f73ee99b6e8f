//! Results and events as files: nobody's links are followed, nothing is lost, nothing half is left.

mod common;
mod ejfat_common;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::UdpSocket,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use common::{Process, ServerProcess, TempFolder, naa, run, stderr, wait_at_most};
use ejfat_common::start_worker;

/// Sends an event of data id 1 that fits one segment.
fn send(to: &str, event: u64, bytes: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let len = (bytes.len() as u32).to_be_bytes();
    let segment = [b"\x10\0\0\x01", &0u32.to_be_bytes()[..], &len, &event.to_be_bytes(), bytes].concat();
    socket.send_to(&segment, to).unwrap();
}

/// The program and arguments of `command`, where the folder is a file system of so many bytes. `None` says why it
/// cannot be had.
fn on_small_disk(folder: &Path, size: &str, command: &Command) -> Option<Command> {
    let mount = "mount -t tmpfs -o size=$0 naa-test \"$1\"";
    let shell = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", script, size]).arg(folder).stdin(Stdio::null());
        shell
    };
    let tried = shell(mount).output();
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        println!("skipped: a small file system cannot be mounted: {tried:?}");
        return None;
    }
    // What is left is listed at the end.
    let script = "at=$1; shift; \"$@\"; status=$?; ls -A -s \"$at\" >&2; exit $status";
    let mut shell = shell(&format!("{mount} || exit 97; {script}"));
    shell.arg(command.get_program()).args(command.get_args());
    Some(shell)
}

/// Lines of `ls -A -s`: names with their blocks.
fn left(said: &str) -> Vec<&str> {
    said.lines().skip_while(|line| !line.starts_with("total ")).skip(1).collect()
}

#[test]
fn receivers_follow_no_links_and_replace_nothing() {
    let folder = TempFolder::new("results-links");
    let out = folder.0.join("out");
    fs::create_dir(&out).unwrap();
    let victim = folder.with("victim", b"old");
    for name in [".1-1.part", "1-2"] {
        symlink(&victim, out.join(name)).unwrap();
    }
    symlink("nowhere", out.join("1-3")).unwrap();
    let worker = start_worker(&["--events", "3", "--out", out.to_str().unwrap()]);
    for event in 1..=3 {
        send(worker.address(), event, format!("event {event}").as_bytes());
    }
    let report = worker.end();
    assert_eq!(fs::read(&victim).unwrap(), b"old");
    for (name, event) in [("1-1", "event 1"), ("1-2.2", "event 2"), ("1-3.2", "event 3")] {
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), event, "{name}");
    }
    assert_eq!(fs::read_link(out.join("1-3")).unwrap(), Path::new("nowhere"));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 6);
    assert_eq!((&report["events"], &report["numbered"]), (&3.into(), &2.into()));
}

#[test]
fn receivers_of_one_folder_lose_nothing() {
    const EVENTS: u64 = 400;
    let folder = TempFolder::new("results-shared");
    let count = EVENTS.to_string();
    let start =
        || start_worker(&["--events", &count, "--timeout", "60000", "--out", folder.0.to_str().unwrap()]);
    let workers = [start(), start()];
    for event in 0..EVENTS {
        for (at, worker) in workers.iter().enumerate() {
            send(worker.address(), event, format!("{at} {event}").as_bytes());
        }
    }
    let reports = workers.map(Process::end);
    let files: BTreeMap<_, _> = folder
        .names()
        .into_iter()
        .map(|name| (fs::read_to_string(folder.0.join(&name)).unwrap(), name))
        .collect();
    assert_eq!(files.len() as u64, 2 * EVENTS, "each event is in a file of its own");
    let numbered = reports.iter().filter_map(|report| report["numbered"].as_u64());
    assert_eq!(numbered.sum::<u64>(), EVENTS);
    for event in 0..EVENTS {
        let names = [0, 1].map(|at| files[&format!("{at} {event}")].clone());
        assert!(
            names.contains(&format!("1-{event}")) && names.contains(&format!("1-{event}.2")),
            "{names:?}"
        );
    }
}

#[test]
fn a_full_disk_is_told_with_the_path_and_leaves_no_remains() {
    let server = ServerProcess::start("127.0.9.1");
    let folder = TempFolder::new("results-full");
    let disk = folder.0.join("disk");
    fs::create_dir(&disk).unwrap();
    let data = folder.with("data", &vec![7; 600 << 10]);
    let (name, out) = (server.name(), disk.to_str().unwrap());
    let full = |said: &str, file: &str| {
        let path = disk.join(file).display().to_string();
        let text = format!("cannot write {path}: No space left on device");
        assert!(said.contains(&text) && said.contains("free space on its file system"), "{said}");
    };
    // Events: those before are kept.
    let recv = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--out", out]);
    let Some(mut recv) = on_small_disk(&disk, "96k", &recv) else { return };
    let mut worker = Process::spawn(recv.stderr(Stdio::piped()));
    for event in 0..3 {
        send(worker.address(), event, &[1; 40_000]);
    }
    let status = wait_at_most(&mut worker.child, Duration::from_secs(30)).expect("it ends");
    let said = worker.errors();
    assert_eq!(status.code(), Some(1), "{said}");
    let names: Vec<_> = left(&said).iter().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["1-0", "1-1"], "{said}");
    full(&said, "1-2");

    // One result, and results of which the second does not fit.
    let result = disk.join("result");
    let call =
        naa(&["call", "increment", "--server", &name, "--in", &data, "--out", result.to_str().unwrap()]);
    let output = on_small_disk(&disk, "256k", &call).unwrap().output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    full(&said, "result");
    assert_eq!(left(&said), Vec::<&str>::new(), "{said}");

    let other = folder.with("other", &[1; 100]);
    let call = naa(&["call", "increment", "--server", &name, "--in", &data, &other, "--out-dir", out]);
    let output = on_small_disk(&disk, "256k", &call).unwrap().output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    full(&said, "data");
    let [only] = left(&said)[..] else { panic!("{said}") };
    assert!(only.ends_with(" other"), "{said}");
}

#[test]
fn a_server_whose_events_cannot_be_written_says_so_and_ends() {
    let folder = TempFolder::new("results-serve");
    let disk = folder.0.join("disk");
    fs::create_dir(&disk).unwrap();
    let serve = naa(&[
        "serve",
        "--bind",
        "127.0.9.2",
        "--port",
        "0",
        "--json",
        "--until-eof",
        "--reassemble",
        "127.0.0.1:0",
        "--events",
        disk.to_str().unwrap(),
    ]);
    let Some(mut serve) = on_small_disk(&disk, "96k", &serve) else { return };
    let mut server = Process::spawn(serve.stderr(Stdio::piped()));
    for event in 0..3 {
        send(server.text("/services/reassembling/0"), event, &[1; 40_000]);
    }
    let ended = wait_at_most(&mut server.child, Duration::from_secs(30)).expect("it ends");
    assert_eq!(ended.code(), Some(1));
    let said = server.errors();
    let line = said.lines().next().expect("a line");
    assert!(line.contains("1-2: No space left on device"), "{line}");
    assert!(said.contains("naa: reassembly ended: cannot write"), "{said}");
    assert_eq!(left(&said).len(), 2, "{said}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_not_a_death() {
    let server = ServerProcess::start("127.0.9.3");
    let folder = TempFolder::new("results-limit");
    let data = folder.with("data", &vec![7; 600 << 10]);
    let result = folder.file("result");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 64 && exec \"$@\"", "sh"]).stdin(Stdio::null());
    let call = naa(&["call", "increment", "--server", &server.name(), "--in", &data, "--out", &result]);
    let output = limited.arg(call.get_program()).args(call.get_args()).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("cannot write {result}: File too large")) && said.contains("ulimit -f"),
        "{said}"
    );
    assert_eq!(folder.names(), ["data"]);
}

/// The program and arguments of `command`, where nothing can be synchronised.
fn without_sync(folder: &TempFolder, command: &Command) -> Command {
    let program = folder.0.join("without-sync");
    if !program.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results/without_sync.c");
        let status = Command::new("cc").arg(source).arg("-o").arg(&program).status();
        assert!(status.expect("a C compiler").success());
    }
    let mut wrapped = Command::new(program);
    wrapped.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    wrapped
}

#[test]
fn results_are_on_disk_before_they_are_reported_as_complete() {
    let server = ServerProcess::start("127.0.9.4");
    let folder = TempFolder::new("results-sync");
    let (data, name) = (folder.with("data", b"abc"), server.name());
    let (out, results) = (folder.file("result"), folder.file("results"));
    let call = |more: &[&str]| {
        let command = naa(&[&["call", "increment", "--server", &name, "--in", &data], more].concat());
        let output = without_sync(&folder, &command).output().unwrap();
        (output.status, stderr(&output))
    };
    let failed = |(status, said): (ExitStatus, String), text: &str| {
        let is_told = said.contains(text) && said.contains("Input/output");
        assert!(status.code() == Some(1) && is_told, "{said}");
    };
    failed(call(&["--out", &out]), &format!("cannot write {out}"));
    failed(call(&["--out-dir", &results]), &format!("cannot write {results}/data"));
    assert!(!Path::new(&out).exists(), "it has no name unless it is on disk");
    assert_eq!(fs::read_dir(&results).unwrap().count(), 0);
    assert!(call(&["--out", &out, "--no-sync"]).0.success());
    assert_eq!(fs::read(&out).unwrap(), b"bcd");

    // Events have their names at once; that they are on disk is waited for at the end.
    let events = folder.file("events");
    let recv =
        naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--events", "1", "--out", &events]);
    let mut recv = without_sync(&folder, &recv);
    let mut worker = Process::spawn(recv.stderr(Stdio::piped()));
    send(worker.address(), 5, b"event");
    let ended = (worker.child.wait().unwrap(), worker.errors());
    failed(ended, &format!("cannot bring the events in {events} to disk"));
    assert_eq!(fs::read_to_string(format!("{events}/1-5")).unwrap(), "event");
}

#[test]
fn a_pipe_is_not_opened_through_a_link_of_another_user() {
    let folder = TempFolder::new("results-pipe");
    let (victim, pipe) = (folder.with("victim", b"old"), folder.0.join("pipe"));
    symlink(&victim, &pipe).unwrap();
    if let Err(error) = std::os::unix::fs::lchown(&pipe, Some(12345), None) {
        println!("skipped: only root can make a link of another user: {error}");
        return;
    }
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--pipe", pipe.to_str().unwrap()]);
    assert!(stderr(&output).contains("symbolic link of user 12345"), "{}", stderr(&output));
    let output = run(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--pipe", &victim]);
    assert!(stderr(&output).contains("is no named pipe"), "{}", stderr(&output));
    assert_eq!(fs::read(&victim).unwrap(), b"old");
}

#[test]
fn a_command_that_failed_is_not_waited_for_because_of_what_it_started() {
    let folder = TempFolder::new("results-exec");
    let event = folder.with("event", &vec![1; 1 << 20]);
    let begun = Instant::now();
    let command = "exec 3<&0; sleep 120 & echo $! >&2; exit 3";
    let mut recv =
        naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--events", "1", "--exec", command]);
    let mut worker = Process::spawn(recv.stderr(Stdio::piped()).process_group(0));
    let sent = run(&["ejfat", "send", "--to", worker.address(), "--rate", "0.5", &event]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    let ended = wait_at_most(&mut worker.child, Duration::from_secs(60));
    let mut stderr = BufReader::new(worker.child.stderr.take().unwrap());
    let mut started = String::new();
    stderr.read_line(&mut started).unwrap();
    let killed = Command::new("kill").arg(started.trim()).status();
    assert!(killed.unwrap().success(), "{started}");
    let Some(status) = ended else { panic!("it waits after {:?}", begun.elapsed()) };
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(status.code() == Some(1) && said.contains("exit status: 3"), "{said}");
}
