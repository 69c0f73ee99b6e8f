//! The binary, a server process, a folder.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

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

/// A server process that goes with the test.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    pub(crate) fn start(bind: &str) -> Self {
        Self::spawn(&mut naa(&["serve", "--bind", bind, "--port", "0", "--json"]))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("the server speaks");
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            let output = child.wait_with_output().expect("a server that ended");
            panic!("the server is not ready: {line}{}", stderr(&output))
        };
        assert_eq!(ready["event"], "ready");
        let address = ready["address"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        Self { child, address }
    }

    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
