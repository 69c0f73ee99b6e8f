//! Starts processes, and reads what they print. Each process ends when its standard input ends.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use super::{EventLine, Line, Sums};

/// A process of this program, which is killed when this value is dropped.
#[derive(Debug)]
pub(in crate::demo) struct Process {
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
}

pub(in crate::demo) type Output = BufReader<ChildStdout>;

impl Process {
    /// Starts a process, which error messages call `what`.
    pub(in crate::demo) fn start(
        what: &'static str,
        command: &mut Command,
    ) -> anyhow::Result<(Self, Output)> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start a {what}"))?;
        let stdout = child.stdout.take().with_context(|| format!("the {what} has no output"))?;
        let stdin = child.stdin.take();
        Ok((Self { what, child, stdin }, BufReader::new(stdout)))
    }

    /// Reads and parses the next line of the process.
    pub(in crate::demo) fn line<T: DeserializeOwned>(&self, output: &mut Output) -> anyhow::Result<T> {
        let mut line = String::new();
        output.read_line(&mut line).with_context(|| format!("cannot read from the {}", self.what))?;
        ensure!(!line.is_empty(), "the {} ended before it was ready", self.what);
        serde_json::from_str(&line).with_context(|| format!("a {} said {line:?}", self.what))
    }

    /// Sends an empty line to the process.
    pub(in crate::demo) fn begin(&mut self) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("the {} has no input", self.what))?;
        Ok(stdin.write_all(b"\n")?)
    }

    /// Sends SIGINT to the process, as Ctrl-C does.
    pub(in crate::demo) fn interrupt(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::INT)?)
    }

    pub(in crate::demo) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(in crate::demo) fn wait(&mut self) -> anyhow::Result<()> {
        self.close_stdin();
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} ended with {status}", self.what);
        Ok(())
    }

    /// Kills the process by SIGKILL. The process is dead when this returns.
    pub(in crate::demo) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill the {}", self.what))?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended already, which is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All that a process printed until it ended; without sums if the process was killed.
#[derive(Debug)]
pub(in crate::demo) struct Ended<S = Sums> {
    pub(in crate::demo) events: Vec<EventLine>,
    pub(in crate::demo) sums: Option<S>,
}

/// A sender or a worker. A thread reads the lines of the process as they come, and counts the events.
#[derive(Debug)]
pub(in crate::demo) struct EventProcess<S = Sums> {
    pub(in crate::demo) process: Process,
    thread: JoinHandle<anyhow::Result<Ended<S>>>,
    events: Arc<AtomicU64>,
}

impl<S: DeserializeOwned + Send + 'static> EventProcess<S> {
    pub(in crate::demo) fn new((process, mut output): (Process, Output)) -> Self {
        let events = Arc::<AtomicU64>::default();
        let count = events.clone();
        let thread = thread::spawn(move || {
            let (mut events, mut line) = (Vec::new(), String::new());
            while output.read_line(&mut line)? > 0 {
                // A process that is killed may stop in the middle of a line.
                let Some(whole) = line.strip_suffix('\n') else { break };
                match serde_json::from_str(whole)? {
                    Line::Event(event) => events.push(event),
                    Line::End(sums) => return Ok(Ended { events, sums: Some(sums) }),
                }
                count.fetch_add(1, Relaxed);
                line.clear();
            }
            Ok(Ended { events, sums: None })
        });
        Self { process, thread, events }
    }

    /// The number of events that the process printed so far.
    pub(in crate::demo) fn count(&self) -> u64 {
        self.events.load(Relaxed)
    }

    pub(in crate::demo) fn is_busy(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Closes the standard input of the process, and reads all that the process prints until its end.
    pub(in crate::demo) fn read(mut self) -> anyhow::Result<(Process, Ended<S>)> {
        self.process.close_stdin();
        let what = self.process.what;
        let ended = self.thread.join().map_err(|_| anyhow!("the thread that read from a {what} panicked"))?;
        Ok((self.process, ended.with_context(|| format!("cannot read what a {what} printed"))?))
    }

    /// Does what [`read`](Self::read) does, and checks that the process did not fail and printed its sums.
    pub(in crate::demo) fn end(self) -> anyhow::Result<Ended<S>> {
        let (mut process, ended) = self.read()?;
        process.wait()?;
        ensure!(ended.sums.is_some(), "a {} ended without telling what it did", process.what);
        Ok(ended)
    }
}
