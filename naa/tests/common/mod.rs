//! The binary, a server process, a folder.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) fn naa(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_naa"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    naa(arguments).output().expect("the binary runs")
}

#[track_caller]
pub(crate) fn stdout_of(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
pub(crate) fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(arguments)).expect("one JSON object")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that prints an object of JSON when it is ready. It goes with the test.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) ready: Value,
}

impl Process {
    #[track_caller]
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut naa(arguments))
    }

    /// Its standard input is a pipe, which is open until it is told to end.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Waits until a child is ready, whose standard output is a pipe.
    #[track_caller]
    pub(crate) fn of(mut child: Child) -> Self {
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it speaks");
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            let output = child.wait_with_output().expect("it ended");
            panic!("it is not ready: {line}{}", stderr(&output))
        };
        assert_eq!(ready["event"], "ready");
        Self { child, stdout, ready }
    }

    /// A text of the object, which a JSON pointer names.
    #[track_caller]
    pub(crate) fn text(&self, pointer: &str) -> &str {
        let text = self.ready.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_else(|| panic!("{pointer} in {}", self.ready))
    }

    /// The first address at which it listens.
    #[track_caller]
    pub(crate) fn address(&self) -> &str {
        self.text("/addresses/0")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Kills it if it still runs, and gives what it wrote to standard error, which is a pipe.
    pub(crate) fn errors(mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        said
    }

    /// The object in the last line that it prints before it ends by itself, or with its standard input.
    #[track_caller]
    pub(crate) fn last(&mut self) -> Value {
        drop(self.child.stdin.take());
        let last = self.stdout.by_ref().lines().map(|line| line.expect("text")).last();
        serde_json::from_str(&last.expect("a line")).expect("JSON")
    }

    /// What it reports at its end, which is no failure.
    #[track_caller]
    pub(crate) fn end(mut self) -> Value {
        let last = self.last();
        assert!(self.child.wait().expect("it ends").success());
        last
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server process that goes with the test.
pub(crate) struct ServerProcess {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    pub(crate) fn start(bind: &str) -> Self {
        Self::spawn(&mut naa(&["serve", "--bind", bind, "--port", "0", "--json"]))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let process = Process::spawn(command);
        let address = process.text("/address").parse().expect("an address");
        Self { process, address }
    }

    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }
}

/// The metrics that are served at an address.
pub(crate) fn scrape(at: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// A folder that goes with the test.
pub(crate) struct TempFolder(pub(crate) PathBuf);

impl TempFolder {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("naa-cli-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn with(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.0.join(name), content).expect("a file");
        self.file(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

pub(crate) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b"network-attached accelerator "[i % 29].wrapping_add((i / 5000) as u8)).collect()
}

/// Takes zstd's level 19 many seconds.
pub(crate) fn hard(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & 15
    };
    (0..len).map(|_| next()).collect()
}
