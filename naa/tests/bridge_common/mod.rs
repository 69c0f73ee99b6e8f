//! `naa bridge` and its workers as processes.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::common::{Process, TempFolder, naa};

/// A bridge on a loopback address of its own, until it is told to end.
pub(crate) struct BridgeProcess(pub(crate) Process);

impl BridgeProcess {
    pub(crate) fn start(ip: &str, folder: &TempFolder, more: &[&str]) -> Self {
        let local = folder.file("socket");
        let mut command = naa(&["bridge", "--json", "--until-eof", "--provider", "embedded", "--port", "0"]);
        command.args(["--bind", ip, "--listen", &format!("{ip}:0"), "--local", &local]).args(more);
        Self(Process::spawn(&mut command))
    }

    /// Where segments go.
    pub(crate) fn segments(&self) -> &str {
        self.0.text("/segments/0")
    }

    /// Where workers subscribe, and questions are asked.
    pub(crate) fn workers(&self) -> &str {
        self.0.text("/workers")
    }

    /// Where workers of this machine do.
    pub(crate) fn local(&self) -> &str {
        self.0.text("/local")
    }

    /// What it reports at its end.
    pub(crate) fn end(self) -> Value {
        self.0.end()
    }
}

/// `naa events SOURCE --sums`, which says a line for each of so many events and ends.
pub(crate) struct WorkerProcess(Child);

impl WorkerProcess {
    /// When it has subscribed.
    pub(crate) fn start(source: &str, events: usize, name: &str) -> Self {
        Self::start_with(source, name, &["--sums", "-n", &events.to_string()])
    }

    /// Starts a worker with other options than [`Self::start`].
    pub(crate) fn start_with(source: &str, name: &str, words: &[&str]) -> Self {
        let mut command = naa(&["events", source, "--provider", "embedded", "--name", name]);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a worker starts");
        let mut err = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        err.read_line(&mut line).expect("the worker speaks");
        assert!(line.contains("Ctrl-C ends it"), "{line}");
        // Nobody reads the rest: it is less than a pipe holds.
        child.stderr = Some(err.into_inner());
        Self(child)
    }

    /// Kills the worker by SIGKILL, so that it cannot end its subscription.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }

    pub(crate) fn lines(mut self) -> Vec<String> {
        let mut said = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut said).expect("the worker speaks");
        assert!(self.0.wait().expect("it ends").success());
        said.lines().map(str::to_owned).collect()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
