//! Processes with a time limit, whose last lines are told.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const LINES: usize = 12;
const LOOK: Duration = Duration::from_millis(3);

/// A process of the suite's own, killed when dropped. What it writes goes into a file.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    start: Instant,
}

impl Process {
    /// `folder` takes the log.
    pub(super) fn start(command: &mut Command, folder: &Path) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = folder.join(format!("{}-{number}.log", std::process::id()));
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let second = file.try_clone().map_err(|e| e.to_string())?;
        let child = command.stdout(file).stderr(second).stdin(Stdio::null()).spawn();
        let child = child.map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
        Ok(Self { child, log, start: Instant::now() })
    }

    /// Kills it, as by -9.
    pub(super) fn kill(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its status; an error when it had to be killed after `limit` from its start.
    pub(super) fn end(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return Ok(status);
            }
            if self.start.elapsed() > limit {
                self.kill();
                return Err(format!("hung: killed after {} s", limit.as_secs()));
            }
            thread::sleep(LOOK);
        }
    }

    /// Success, or why not with its last lines. Gives what it wrote.
    pub(super) fn succeed(&mut self, limit: Duration) -> Result<String, String> {
        match self.end(limit) {
            Ok(status) if status.success() => Ok(self.output()),
            Ok(status) => Err(format!("{status}: {}", self.last_lines())),
            Err(why) => Err(format!("{why}: {}", self.last_lines())),
        }
    }

    pub(super) fn output(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub(super) fn last_lines(&self) -> String {
        let output = self.output();
        let lines: Vec<_> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join(" / ")
    }

    /// Waits until it has written a line that begins with `words`.
    pub(super) fn until_output(&mut self, words: &str, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        loop {
            let file = fs::File::open(&self.log).map_err(|e| e.to_string())?;
            if BufReader::new(file).lines().map_while(Result::ok).any(|line| line.starts_with(words)) {
                return Ok(());
            }
            let ended = self.child.try_wait().map_err(|e| e.to_string())?.is_some();
            if ended || Instant::now() > end {
                return Err(format!("did not say {words:?}: {}", self.last_lines()));
            }
            thread::sleep(LOOK);
        }
    }
}

/// Does `work` with all `items`, with so many at once.
pub(super) fn at_once<T>(count: usize, items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_file(&self.log);
    }
}
