//! A worker, captures, counters of running processes.
#![allow(dead_code, reason = "each suite uses its own part")]

pub(crate) mod capture;
pub(crate) mod counters;

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
};

use serde_json::Value;

use crate::common::naa;

/// `naa ejfat recv` on a port of loopback.
pub(crate) struct WorkerProcess {
    pub(crate) child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
    pub(crate) ready: Value,
}

impl WorkerProcess {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("a worker starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let ready = Self::read(&mut stdout);
        assert_eq!(ready["event"], "ready");
        let address = ready["addresses"][0].as_str().expect("an address").to_owned();
        Self { child, stdout, address, ready }
    }

    pub(crate) fn read(stdout: &mut impl BufRead) -> Value {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the worker speaks");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// What it reports at its end.
    pub(crate) fn end(mut self) -> Value {
        let report = Self::read(&mut self.stdout);
        assert!(self.child.wait().expect("it ends").success());
        report
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}
