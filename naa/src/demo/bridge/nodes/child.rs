//! Starts senders and workers, and reads what they print. Each ends when its standard input ends.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, anyhow, ensure};

use super::{Bridge, Line, Ready, Sums, Told};
use crate::demo::{
    bridge::{
        Args,
        stage::{Node, Stage},
    },
    ejfat::nodes::{CROWD, CROWD_GIGABITS},
};

/// A process, which is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
}

pub(super) type Out = BufReader<ChildStdout>;

impl Process {
    pub(super) fn start(
        stage: &Stage,
        node: Node,
        what: &'static str,
        arguments: &[String],
    ) -> anyhow::Result<(Self, Out)> {
        let child = stage.command(node)?.args(arguments).spawn();
        let mut child = child.with_context(|| format!("cannot start a {what}"))?;
        let stdout = child.stdout.take().with_context(|| format!("the {what} has no output"))?;
        let stdin = child.stdin.take();
        Ok((Self { what, child, stdin }, BufReader::new(stdout)))
    }

    /// Reads and parses the first line of the process.
    pub(super) fn ready<T: serde::de::DeserializeOwned>(&self, out: &mut Out) -> anyhow::Result<T> {
        let mut line = String::new();
        out.read_line(&mut line).with_context(|| format!("cannot read from the {}", self.what))?;
        ensure!(!line.is_empty(), "the {} ended before it was ready", self.what);
        serde_json::from_str(&line).with_context(|| format!("a {} said {line:?}", self.what))
    }

    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        self.close_stdin();
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} ended with {status}", self.what);
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill the {}", self.what))?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process still runs only after an error; then no process stays behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that a process printed until its end. It has no sums if it was killed.
#[derive(Debug)]
pub(in crate::demo::bridge) struct Ended {
    pub(in crate::demo::bridge) told: Vec<Told>,
    pub(in crate::demo::bridge) sums: Option<Sums>,
}

/// A thread that reads the lines of a sender or a worker as they come, and counts the events.
#[derive(Debug)]
struct Heard {
    thread: JoinHandle<anyhow::Result<Ended>>,
    events: Arc<AtomicU64>,
}

impl Heard {
    fn listen(mut out: Out) -> Self {
        let events = Arc::<AtomicU64>::default();
        let count = events.clone();
        let thread = thread::spawn(move || {
            let (mut told, mut line) = (Vec::new(), String::new());
            while out.read_line(&mut line)? > 0 {
                // A process that is killed may stop in the middle of a line.
                let Some(whole) = line.strip_suffix('\n') else { break };
                match serde_json::from_str(whole)? {
                    Line::Event(event) => told.push(event),
                    Line::End(sums) => return Ok(Ended { told, sums: Some(sums) }),
                }
                count.fetch_add(1, Relaxed);
                line.clear();
            }
            Ok(Ended { told, sums: None })
        });
        Self { thread, events }
    }

    fn end(self, what: &str) -> anyhow::Result<Ended> {
        let ended = self.thread.join().map_err(|_| anyhow!("the thread that listened panicked"))?;
        ended.with_context(|| format!("cannot understand a {what}"))
    }

    fn count(&self) -> u64 {
        self.events.load(Relaxed)
    }
}

#[derive(Debug)]
pub(in crate::demo::bridge) struct Worker {
    process: Process,
    heard: Heard,
    pub(in crate::demo::bridge) name: &'static str,
    pub(in crate::demo::bridge) ready: Ready,
}

impl Worker {
    /// Starts a worker. A worker at the bridge's node shares memory with the bridge; other workers use RDMA, each from
    /// an address of its own.
    pub(in crate::demo::bridge) fn start(
        stage: &Stage,
        bridge: &Bridge,
        node: Node,
        name: &'static str,
    ) -> anyhow::Result<Self> {
        let is_local = node == Node::Bridge;
        let source = if is_local { bridge.local.clone() } else { bridge.workers.to_string() };
        let mut arguments = ["demo", "bridge", "worker", &source, name].map(str::to_owned).to_vec();
        arguments.extend((!is_local).then(|| stage.ip(node).to_string()));
        let (process, mut out) = Process::start(stage, node, "worker", &arguments)?;
        let ready = process.ready(&mut out)?;
        Ok(Self { process, heard: Heard::listen(out), name, ready })
    }

    /// The number of events that it printed so far.
    pub(in crate::demo::bridge) fn told(&self) -> u64 {
        self.heard.count()
    }

    /// Kills the worker at once, and returns what it printed before.
    pub(in crate::demo::bridge) fn kill(mut self) -> anyhow::Result<Ended> {
        self.process.kill()?;
        self.heard.end("worker")
    }

    pub(in crate::demo::bridge) fn end(mut self) -> anyhow::Result<Ended> {
        self.process.close_stdin();
        let told = self.heard.end("worker")?;
        self.process.wait()?;
        ensure!(told.sums.is_some(), "a worker ended without telling what it did");
        Ok(told)
    }
}

#[derive(Debug)]
pub(in crate::demo::bridge) struct Sender {
    process: Process,
    heard: Heard,
}

impl Sender {
    /// Starts sender `n`, which is a sender of `naa demo ejfat`. Senders differ in headers, packet sizes and IP
    /// versions.
    pub(in crate::demo::bridge) fn start(
        stage: &Stage,
        bridge: &Bridge,
        n: usize,
        events: u64,
        args: &Args,
    ) -> anyhow::Result<Self> {
        let (ip, mtu, version) = [(0, 1500, 2), (1, 9000, 3)][n % 2];
        let arguments = [
            "demo".to_owned(),
            "ejfat".to_owned(),
            "sender".to_owned(),
            bridge.segments[ip].to_string(),
            n.to_string(),
            events.to_string(),
            mtu.to_string(),
            version.to_string(),
            args.rate().to_string(),
            args.seed.to_string(),
        ];
        let (process, out) = Process::start(stage, Node::Sender(n), "sender", &arguments)?;
        Ok(Self { process, heard: Heard::listen(out) })
    }

    /// Starts a sender of many streams at once, from the address of the first sender.
    pub(in crate::demo::bridge) fn crowd(
        stage: &Stage,
        bridge: &Bridge,
        args: &Args,
    ) -> anyhow::Result<Self> {
        let to = bridge.segments[0].to_string();
        let words = CROWD.words(&to, &CROWD_GIGABITS.to_string(), &args.seed.to_string());
        let arguments = [&["demo", "ejfat", "sender"].map(str::to_owned)[..], &words].concat();
        let (process, out) = Process::start(stage, Node::Sender(0), "sender", &arguments)?;
        Ok(Self { process, heard: Heard::listen(out) })
    }

    /// The number of events that it printed so far.
    pub(in crate::demo::bridge) fn told(&self) -> u64 {
        self.heard.count()
    }

    pub(in crate::demo::bridge) fn is_busy(&self) -> bool {
        !self.heard.thread.is_finished()
    }

    pub(in crate::demo::bridge) fn end(mut self) -> anyhow::Result<Ended> {
        let told = self.heard.end("sender")?;
        self.process.wait()?;
        ensure!(told.sums.is_some(), "a sender ended without telling what it sent");
        Ok(told)
    }
}
