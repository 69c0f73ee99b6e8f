//! Starts the processes, and reads what they print. Each ends when its standard input ends.

use std::{
    io::{BufRead as _, BufReader, Lines},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

use super::{Line, Sums, Ticked};
use crate::demo::ejfat::{
    Args,
    stage::{Node, Stage},
};
use crate::lb::engine::Engine;

type Out = Lines<BufReader<ChildStdout>>;

#[derive(Debug)]
struct Process {
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    fn start(stage: &Stage, node: Node, arguments: &[String]) -> anyhow::Result<(Self, Out)> {
        let what = match node {
            Node::Balancer => "load balancer",
            Node::Sender(_) => "sender",
            Node::Worker(_) => "worker",
        };
        // The demonstration's load balancer needs no token, so a token in the user's environment is not passed on.
        let child = stage.command(node)?.env_remove(crate::lb::TOKEN_VARIABLE).args(arguments).spawn();
        let mut child = child.with_context(|| format!("cannot start a {what}"))?;
        let stdout = child.stdout.take().with_context(|| format!("the {what} has no output"))?;
        let stdin = child.stdin.take();
        Ok((Self { what, child, stdin }, BufReader::new(stdout).lines()))
    }

    /// Reads the next line of the process.
    fn line(&mut self, out: &mut Out) -> anyhow::Result<String> {
        let what = self.what;
        let line = out.next().with_context(|| format!("the {what} ended before it was ready"))?;
        line.with_context(|| format!("cannot read from the {what}"))
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} ended with {status}", self.what);
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

/// A thread that reads the lines of a sender or a worker as they come, and counts the events.
#[derive(Debug)]
struct Heard {
    thread: JoinHandle<anyhow::Result<(Vec<Ticked>, Sums)>>,
    events: Arc<AtomicU64>,
}

impl Heard {
    fn listen(out: Out) -> Self {
        let events = Arc::<AtomicU64>::default();
        let count = events.clone();
        let thread = thread::spawn(move || {
            let mut told = Vec::new();
            for line in out {
                match serde_json::from_str(&line?)? {
                    Line::Event(event) => told.push(event),
                    Line::End(sums) => return Ok((told, sums)),
                }
                count.fetch_add(1, Relaxed);
            }
            Err(anyhow!("it ended without telling what it did"))
        });
        Self { thread, events }
    }

    fn end(self, what: &str) -> anyhow::Result<(Vec<Ticked>, Sums)> {
        let ended = self.thread.join().map_err(|_| anyhow!("the thread that listened panicked"))?;
        ended.with_context(|| format!("cannot understand a {what}"))
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[derive(Debug)]
pub(in crate::demo::ejfat) struct Worker {
    process: Process,
    heard: Heard,
    /// The addresses at which the worker listens, over IPv4 and IPv6.
    pub(in crate::demo::ejfat) at: Vec<SocketAddr>,
}

impl Worker {
    pub(in crate::demo::ejfat) fn start(stage: &Stage, n: usize) -> anyhow::Result<Self> {
        let node = Node::Worker(n);
        let mut arguments = texts(&["demo", "ejfat", "worker"]);
        arguments.extend(stage.at(node).map(|at| at.to_string()));
        let (mut process, mut out) = Process::start(stage, node, &arguments)?;
        let line = process.line(&mut out)?;
        let at = serde_json::from_str(&line).with_context(|| format!("a worker said {line:?}"))?;
        Ok(Self { process, heard: Heard::listen(out), at })
    }

    /// The number of events that it printed so far.
    pub(in crate::demo::ejfat) fn told(&self) -> u64 {
        self.heard.events.load(Relaxed)
    }

    pub(in crate::demo::ejfat) fn end(mut self) -> anyhow::Result<(Vec<Ticked>, Sums)> {
        self.process.stdin = None;
        let told = self.heard.end("worker")?;
        self.process.wait()?;
        Ok(told)
    }
}

#[derive(Debug)]
pub(in crate::demo::ejfat) struct Sender {
    process: Process,
    heard: Heard,
}

impl Sender {
    /// Starts sender `n`. Senders differ in headers, packet sizes and IP versions.
    pub(in crate::demo::ejfat) fn start(
        stage: &Stage,
        balancer: &Balancer,
        n: usize,
        events: u64,
        args: &Args,
    ) -> anyhow::Result<Self> {
        let (ip, mtu, version) = [(0, 1500, 2), (0, 9000, 3), (1, 9000, 2)][n % 3];
        let to = balancer.at[ip];
        let words = [
            to.to_string(),
            n.to_string(),
            events.to_string(),
            mtu.to_string(),
            version.to_string(),
            args.rate().to_string(),
            args.seed.to_string(),
        ];
        Self::spawn(stage, Node::Sender(n), &words)
    }

    /// Starts a sender of many streams at once, from the address of the first sender.
    pub(in crate::demo::ejfat) fn crowd(
        stage: &Stage,
        balancer: &Balancer,
        args: &Args,
    ) -> anyhow::Result<Self> {
        let to = balancer.at[0].to_string();
        let (crowd, rate) = args.crowd();
        let words = crowd.words(&to, &rate.to_string(), &args.seed.to_string());
        Self::spawn(stage, Node::Sender(0), &words)
    }

    fn spawn(stage: &Stage, node: Node, words: &[String]) -> anyhow::Result<Self> {
        let arguments = [&texts(&["demo", "ejfat", "sender"])[..], words].concat();
        let (process, out) = Process::start(stage, node, &arguments)?;
        Ok(Self { process, heard: Heard::listen(out) })
    }

    pub(in crate::demo::ejfat) fn is_busy(&self) -> bool {
        !self.heard.thread.is_finished()
    }

    pub(in crate::demo::ejfat) fn end(mut self) -> anyhow::Result<(Vec<Ticked>, Sums)> {
        let told = self.heard.end("sender")?;
        self.process.wait()?;
        Ok(told)
    }
}

#[derive(Debug)]
pub(in crate::demo::ejfat) struct Balancer {
    process: Process,
    out: Out,
    at: Vec<SocketAddr>,
    pub(in crate::demo::ejfat) grpc: SocketAddr,
    pub(in crate::demo::ejfat) mrsp: SocketAddr,
}

impl Balancer {
    pub(in crate::demo::ejfat) fn start(stage: &Stage, engine: Engine) -> anyhow::Result<Self> {
        let at = stage.at(Node::Balancer);
        let words = ["lb", "forward", "--json", "--until-eof", "--buffer", "4M", "--grpc", "127.0.0.1:0"];
        let mut arguments = texts(&[&words[..], &["--engine", engine.name()]].concat());
        let listen = at.iter().flat_map(|at| ["--listen".into(), at.to_string()]);
        arguments.extend(listen);
        let mrsp = SocketAddr::new(at[0].ip(), 0).to_string();
        // The demonstration programs the load balancer from the same machine.
        let own = at[0].ip().to_string();
        let allow = ["--allow", "127.0.0.0/8", "--allow", &own];
        arguments.extend(texts(&[&["--provider", "embedded", "--serve", &mrsp], &allow[..]].concat()));
        let (mut process, mut out) = Process::start(stage, Node::Balancer, &arguments)?;
        let ready: Value = serde_json::from_str(&process.line(&mut out)?)?;
        let address = |of: &Value| -> anyhow::Result<SocketAddr> {
            let text = of.as_str().with_context(|| format!("the load balancer said {ready}"))?;
            Ok(text.parse()?)
        };
        let listens = ready["addresses"].as_array().cloned().unwrap_or_default();
        let at = listens.iter().map(address).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(at.len() == 2, "the load balancer listens at {at:?}");
        let (grpc, mrsp) = (address(&ready["grpc"])?, address(&ready["mrsp"])?);
        Ok(Self { process, out, at, grpc, mrsp })
    }

    pub(in crate::demo::ejfat) fn addresses(&self) -> Vec<String> {
        self.at.iter().map(ToString::to_string).collect()
    }

    pub(in crate::demo::ejfat) fn end(mut self) -> anyhow::Result<()> {
        self.process.stdin = None;
        // This line has the counters, which were already read over gRPC.
        self.process.line(&mut self.out)?;
        self.process.wait()
    }
}
