//! Starts the processes, and reads what they print.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Line, Sums, Told};
use crate::demo::{children::EXECUTABLE, lb::site::Reservation};

type Out = BufReader<ChildStdout>;

/// A process of this program. It is killed when this value is dropped.
#[derive(Debug)]
pub(in crate::demo::lb) struct Process {
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    pub(in crate::demo::lb) fn start(
        what: &'static str,
        arguments: &[&str],
        uri: Option<&str>,
    ) -> anyhow::Result<(Self, Out)> {
        let mut command = Command::new(EXECUTABLE);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Tokens and URIs in the user's environment are for another site than the demonstration's.
        command.env_remove(crate::lb::TOKEN_VARIABLE).env_remove(ejfat::uri::VARIABLE);
        command.envs(uri.map(|uri| (ejfat::uri::VARIABLE, uri)));
        if std::env::var_os("NAA_LOG").is_none() {
            command.env("NAA_LOG", "error");
        }
        let mut child = command.spawn().with_context(|| format!("cannot start a {what}"))?;
        let stdout = child.stdout.take().with_context(|| format!("the {what} has no output"))?;
        let stdin = child.stdin.take();
        Ok((Self { what, child, stdin }, BufReader::new(stdout)))
    }

    /// Starts a process, and waits for the JSON object that it prints when it is ready.
    pub(in crate::demo::lb) fn ready(
        what: &'static str,
        arguments: &[&str],
        uri: Option<&str>,
    ) -> anyhow::Result<(Self, Value)> {
        let (process, mut out) = Self::start(what, arguments, uri)?;
        let ready = process.line(&mut out)?;
        Ok((process, ready))
    }

    /// Reads and parses its next line.
    fn line<T: serde::de::DeserializeOwned>(&self, out: &mut Out) -> anyhow::Result<T> {
        let mut line = String::new();
        out.read_line(&mut line).with_context(|| format!("cannot read from the {}", self.what))?;
        ensure!(!line.is_empty(), "the {} ended before it was ready", self.what);
        serde_json::from_str(&line).with_context(|| format!("a {} said {line:?}", self.what))
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("the {} has no input", self.what))?;
        Ok(stdin.write_all(b"\n")?)
    }

    pub(in crate::demo::lb) fn wait(&mut self) -> anyhow::Result<()> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} ended with {status}", self.what);
        Ok(())
    }

    /// Kills it by SIGKILL. Returns the tick at which it was dead.
    pub(in crate::demo::lb) fn kill(&mut self) -> anyhow::Result<u64> {
        self.child.kill().with_context(|| format!("cannot kill the {}", self.what))?;
        self.child.wait()?;
        Ok(now())
    }
}

/// The time as a tick: microseconds of UNIX time.
pub(in crate::demo::lb) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended already, which is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All that a process printed until it ended. It has no sums if it was killed.
#[derive(Debug, Default)]
pub(in crate::demo::lb) struct Ended {
    pub(in crate::demo::lb) told: Vec<Told>,
    pub(in crate::demo::lb) sums: Option<Sums>,
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
            let (mut ended, mut line) = (Ended::default(), String::new());
            while out.read_line(&mut line)? > 0 {
                // A process that is killed may stop in the middle of a line.
                let Some(whole) = line.strip_suffix('\n') else { break };
                match serde_json::from_str(whole)? {
                    Line::Ready(_) => {}
                    Line::Event(event) => ended.told.push(event),
                    Line::End(sums) => ended.sums = Some(sums),
                }
                count.store(ended.told.len() as u64, Relaxed);
                line.clear();
            }
            Ok(ended)
        });
        Self { thread, events }
    }

    fn end(self, what: &str) -> anyhow::Result<Ended> {
        let ended = self.thread.join().map_err(|_| anyhow!("the thread that read from a {what} panicked"))?;
        ended.with_context(|| format!("cannot read what a {what} printed"))
    }
}

#[derive(Debug)]
pub(in crate::demo::lb) struct Worker {
    process: Process,
    heard: Heard,
    pub(in crate::demo::lb) name: &'static str,
    pub(in crate::demo::lb) at: SocketAddr,
    /// The time that it takes for each event.
    pub(in crate::demo::lb) each: Duration,
}

impl Worker {
    /// Starts a worker that takes `each` for an event, and waits until it has registered.
    pub(in crate::demo::lb) fn start(
        of: &Reservation,
        ip: IpAddr,
        name: &'static str,
        each: Duration,
    ) -> anyhow::Result<Self> {
        let (listen, us) = (SocketAddr::new(ip, 0).to_string(), each.as_micros().to_string());
        let factors = ["--min-factor", "0.1", "--max-factor", "0", "--drain", "30"];
        let arguments = [&["demo", "lb", "worker", &listen, &us, "--name", name][..], &factors].concat();
        let (process, mut out) = Process::start("worker", &arguments, Some(&of.uri))?;
        let Line::Ready(at) = process.line(&mut out)? else {
            anyhow::bail!("a worker did not say that it is ready")
        };
        Ok(Self { process, heard: Heard::listen(out), name, at, each })
    }

    /// The number of events that it told of so far.
    pub(in crate::demo::lb) fn told(&self) -> u64 {
        self.heard.events.load(Relaxed)
    }

    /// Kills it by SIGKILL. Returns the tick at which it was dead.
    pub(in crate::demo::lb) fn kill(&mut self) -> anyhow::Result<u64> {
        self.process.kill()
    }

    /// Lets it drain: sends it SIGINT, as Ctrl-C does.
    pub(in crate::demo::lb) fn drain(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process.child), Signal::INT)?)
    }

    pub(in crate::demo::lb) fn is_busy(&self) -> bool {
        !self.heard.thread.is_finished()
    }

    /// Ends it, unless it was killed, and returns all that it told.
    pub(in crate::demo::lb) fn end(mut self) -> anyhow::Result<Ended> {
        self.process.stdin = None;
        let ended = self.heard.end("worker")?;
        if ended.sums.is_some() {
            self.process.wait()?;
        }
        Ok(ended)
    }
}

#[derive(Debug)]
pub(in crate::demo::lb) struct Sender {
    process: Process,
    heard: Heard,
}

impl Sender {
    /// Starts a sender of at least `events` events, `rate` a second. It sends nothing before [`begin`](Self::begin).
    pub(in crate::demo::lb) fn start(
        of: &Reservation,
        data_id: u16,
        events: u64,
        rate: f64,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let words = [data_id.to_string(), events.to_string(), rate.to_string(), seed.to_string()];
        let words: Vec<_> = ["demo", "lb", "sender"].into_iter().chain(words.iter().map(|w| &**w)).collect();
        let (process, mut out) = Process::start("sender", &words, Some(&of.uri))?;
        let Line::Ready(_) = process.line(&mut out)? else {
            anyhow::bail!("a sender did not say that it is ready")
        };
        Ok(Self { process, heard: Heard::listen(out) })
    }

    pub(in crate::demo::lb) fn begin(&mut self) -> anyhow::Result<()> {
        self.process.begin()
    }

    /// Lets it end as soon as it has sent the number of events that it was asked for.
    pub(in crate::demo::lb) fn may_end(&mut self) {
        self.process.stdin = None;
    }

    /// The number of events that it told of so far.
    pub(in crate::demo::lb) fn told(&self) -> u64 {
        self.heard.events.load(Relaxed)
    }

    pub(in crate::demo::lb) fn is_busy(&self) -> bool {
        !self.heard.thread.is_finished()
    }

    /// Waits until it has sent the number of events that it was asked for, and returns all that it told.
    pub(in crate::demo::lb) fn end(mut self) -> anyhow::Result<Ended> {
        self.process.stdin = None;
        let told = self.heard.end("sender")?;
        self.process.wait()?;
        ensure!(told.sums.is_some(), "a sender ended without telling what it sent");
        Ok(told)
    }
}
