//! Processes under limits, and what a process has.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// A process that has not ended by then hangs.
pub(super) const HANGS: Duration = Duration::from_secs(20);

/// A program of this project, built beside this one.
pub(super) fn sibling(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
    let path = own.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{} is missing; `cargo xtask hostile` builds it", path.display())),
    }
}

/// What a process has that it could leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) files: usize,
    pub(super) threads: usize,
    pub(super) rss_kib: i64,
}

impl Held {
    pub(super) fn by(pid: u32) -> Result<Self, String> {
        let count = |what| {
            let entries = fs::read_dir(format!("/proc/{pid}/{what}"));
            entries.map(Iterator::count).map_err(|e| format!("/proc/{pid}/{what}: {e}"))
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss_kib = rss.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or("no VmRSS")?;
        Ok(Self { files: count("fd")?, threads: count("task")?, rss_kib })
    }

    /// Files and threads must be as before, memory at most so many KiB more.
    pub(super) fn check(self, before: Self, who: &str, kib: i64) -> Result<(), String> {
        if self.files != before.files || self.threads != before.threads || self.rss_kib > before.rss_kib + kib
        {
            return Err(format!("{who} had {before:?} and has {self:?}"));
        }
        Ok(())
    }
}

/// Names in shared memory that look like ours.
pub(super) fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A folder for files, removed with them when this is dropped.
#[derive(Debug)]
pub(crate) struct TempFolder(pub(crate) PathBuf);

impl TempFolder {
    pub(super) fn new(name: &str) -> Result<Self, String> {
        Self::at(std::env::temp_dir().join(format!("naa-hostile-{name}-{}", std::process::id())))
    }

    pub(crate) fn at(path: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // What cannot be removed is in the temporary folder and bears our name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `program` after a line of shell, which sets limits.
pub(super) fn after(
    shell: &str,
    program: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("{shell}; exec \"$0\" \"$@\"")).arg(program).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(super) fn run(mut command: Command) -> Result<Output, String> {
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let start = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if start.elapsed() > HANGS {
            child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
            return Err(format!("{command:?} hangs"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().map_err(|e| e.to_string())
}

/// What a program that failed said, which must be one line that begins with its name. Exit code 1 is expected.
pub(super) fn complaint(output: &Output) -> Result<String, String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() != Some(1) {
        return Err(format!("ended with {} and said {said:?}", output.status));
    }
    let last = said.lines().rfind(|line| line.starts_with("naa: "));
    last.map(str::to_owned).ok_or_else(|| format!("no line that begins with `naa: ` in {said:?}"))
}

/// `naa serve` after a line of shell.
#[derive(Debug)]
pub(super) struct ServeProcess {
    child: Child,
    pub(super) address: SocketAddr,
}

impl ServeProcess {
    pub(super) fn start(shell: &str, args: &[&str]) -> Result<Self, String> {
        let mut command =
            after(shell, &sibling("naa")?, ["serve", "--json", "--port", "0"].iter().chain(args));
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        let ready: Result<serde_json::Value, _> = serde_json::from_str(&line);
        let address = ready.ok().and_then(|ready| ready["address"].as_str()?.parse().ok());
        match address {
            Some(address) => Ok(Self { child, address }),
            None => {
                let mut said = String::new();
                if let Some(mut errors) = child.stderr.take() {
                    errors.read_to_string(&mut said).map_err(|e| e.to_string())?;
                }
                child.wait().map_err(|e| e.to_string())?;
                Err(format!("the server did not start: {said}"))
            }
        }
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it; gives what it logged.
    pub(super) fn end(mut self) -> Result<String, String> {
        self.child.kill().map_err(|e| e.to_string())?;
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut said).map_err(|e| e.to_string())?;
        }
        Ok(said)
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
