//! Processes that end with the one that started them, and what they say.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdin, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::until;

/// A pipe to a parent ends however the parent does.
pub(super) fn on_stdin_end(then: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let mut bytes = [0; 16];
        while std::io::stdin().lock().read(&mut bytes).is_ok_and(|read| read > 0) {}
        then();
    });
}

/// Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    listener: Option<JoinHandle<()>>,
}

impl Process {
    /// `take_line` gets each line, without those that were cut short by a kill.
    pub(super) fn start(
        mut command: Command,
        mut take_line: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, String> {
        let shown = format!("{command:?}");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot start {shown}: {e}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("it has no output")?;
        let listener = thread::spawn(move || {
            let (mut out, mut line) = (BufReader::new(stdout), String::new());
            while out.read_line(&mut line).is_ok_and(|read| read > 0) {
                if let Some(line) = line.strip_suffix('\n') {
                    take_line(line);
                }
                line.clear();
            }
        });
        Ok(Self { child, stdin, listener: Some(listener) })
    }

    /// Ends the process by SIGKILL. When this returns, all its output was read.
    pub(super) fn kill(mut self) {
        self.reap();
    }

    /// Closes the standard input of the process, and waits until the process ends by itself.
    pub(super) fn end(mut self, limit: Duration) -> Result<(), String> {
        self.stdin = None;
        let mut status = None;
        until(limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        self.listener.take().map(JoinHandle::join);
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("it ended with {status}")),
            None => Err(format!("it does not end within {limit:?}")),
        }
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    fn reap(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.listener.take().map(JoinHandle::join);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}
