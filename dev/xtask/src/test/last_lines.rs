//! The last lines that a step printed, to be shown again at the end of the run.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, IsTerminal, PipeReader, Write},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const LINES: usize = 40;
/// The maximum number of bytes of a line that are kept.
const LENGTH: usize = 400;
/// The time that a process which outlived its step may keep the pipe open before its output is given up.
const GRACE: Duration = Duration::from_secs(1);

/// Passes on what a program prints, and keeps its last lines.
///
/// If the output goes to a terminal, the program writes to the terminal directly, because many programs show progress and
/// colours only on a terminal. No lines are kept then, because a person can scroll back.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    kept: Arc<Mutex<VecDeque<String>>>,
    copier: Option<JoinHandle<()>>,
}

impl LastLines {
    /// Connects standard output and standard error of `command`, which must be dropped before [`Self::end`]: the copies of the pipe
    /// that it holds would keep the pipe open.
    ///
    /// # Errors
    /// If there is no pipe.
    pub(super) fn of(command: &mut Command) -> io::Result<Self> {
        if io::stdout().is_terminal() || io::stderr().is_terminal() {
            return Ok(Self::default());
        }
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let kept = Arc::<Mutex<VecDeque<String>>>::default();
        let into = kept.clone();
        Ok(Self { kept, copier: Some(thread::spawn(move || copy(reader, &into))) })
    }

    /// The lines, after all output has been passed on.
    pub(super) fn end(self) -> Vec<String> {
        if let Some(copier) = self.copier {
            let begin = Instant::now();
            while !copier.is_finished() && begin.elapsed() < GRACE {
                thread::sleep(Duration::from_millis(5));
            }
        }
        lock(&self.kept).drain(..).collect()
    }
}

fn copy(reader: PipeReader, kept: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // A reader that has gone away does not end the step.
        let _ = io::stdout().write_all(&line);
        let text = String::from_utf8_lossy(&line[..line.len().min(LENGTH)]).trim_end().to_owned();
        let mut kept = lock(kept);
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(text);
        line.clear();
    }
}

fn lock(kept: &Mutex<VecDeque<String>>) -> MutexGuard<'_, VecDeque<String>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_both_outputs_are_kept() {
        if io::stdout().is_terminal() || io::stderr().is_terminal() {
            return;
        }
        let mut command = Command::new("sh");
        command.args(["-c", "seq 100; echo last >&2"]);
        let lines = LastLines::of(&mut command).unwrap();
        assert!(command.status().unwrap().success());
        drop(command);
        let lines = lines.end();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[LINES - 2..], ["100", "last"]);
    }
}
