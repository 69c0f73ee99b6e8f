//! Runs a program so that nothing of it outlives its limit, Ctrl-C or TERM.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    fs,
    process::{Child, Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The exit status after Ctrl-C, the same as that of shells.
pub(super) const INTERRUPTED: u8 = 130;
/// The time between two looks at whether the program has ended.
const TICK: Duration = Duration::from_millis(20);
/// The time that a process has to end after TERM, before it is killed.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) enum Ended {
    By(ExitStatus),
    Late,
    Interrupted,
}

/// Catches the signals that end this program, and adopts every process whose parent ended before it.
#[derive(Debug)]
pub(super) struct Processes {
    interrupted: Arc<AtomicBool>,
}

impl Processes {
    /// # Errors
    /// If the signals cannot be caught.
    pub(super) fn new() -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone()).context("cannot catch signals")?;
        }
        set_child_subreaper(Some(getpid())).context("cannot adopt processes")?;
        Ok(Self { interrupted })
    }

    /// Runs `command`. When its time is up, or this program is told to end, everything that it started ends, too.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn run(&self, command: &mut Command, limit: Duration) -> Result<Ended> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let start = Instant::now();
        let ended = loop {
            if self.interrupted.load(Ordering::Relaxed) {
                break Ended::Interrupted;
            }
            if let Some(status) = child.try_wait().context("cannot wait")? {
                break Ended::By(status);
            }
            if start.elapsed() > limit {
                break Ended::Late;
            }
            thread::sleep(TICK);
        };
        // What a step leaves running would be in the way of the next ones.
        end_all(&mut child);
        Ok(ended)
    }
}

/// Ends the child and every process below this one: first by TERM, then by KILL. Gives up after six seconds.
fn end_all(child: &mut Child) {
    let start = Instant::now();
    let mut told = Vec::new();
    while start.elapsed() < 2 * GRACE {
        // Without this, adopted processes that have ended would stay.
        let _ = child.try_wait();
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = descendants(getpid());
        if left.is_empty() {
            return;
        }
        let late = start.elapsed() > GRACE;
        for pid in left {
            // It may have ended meanwhile.
            if late {
                let _ = kill_process(pid, Signal::KILL);
            } else if !told.contains(&pid) {
                told.push(pid);
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        thread::sleep(TICK);
    }
    eprintln!("processes that do not end are left: {:?}", descendants(getpid()));
}

/// Every running process whose parent, or the parent's parent and so on, is `root`.
fn descendants(root: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<_> = entries.filter_map(|entry| parent(&entry.file_name().to_string_lossy())).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// A running process and its parent. `None` for one that has ended and waits for its parent to notice.
fn parent(pid: &str) -> Option<(Pid, Pid)> {
    let number: i32 = pid.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program comes first, in brackets, and may contain brackets itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(())?;
    Some((Pid::from_raw(number)?, Pid::from_raw(parent)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell that starts a process which nobody waits for, and says its number.
    const SCRIPT: &str = "setsid sleep 1000 & echo $! > \"$1\"; exec sleep 1000";

    fn is_running(pid: &str) -> bool {
        parent(pid.trim()).is_some()
    }

    /// Set in the process that has no other tests, whose programs would be ended, too.
    const ALONE: &str = "NAA_XTASK_ALONE";

    #[test]
    fn what_a_late_program_started_ends_with_it() {
        if std::env::var_os(ALONE).is_some() {
            return late_and_interrupted();
        }
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "test::processes::tests::what_a_late_program_started_ends_with_it"]);
        let output = alone.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    fn late_and_interrupted() {
        let note = std::env::temp_dir().join(format!("naa-xtask-processes-{}", std::process::id()));
        let processes = Processes::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(&note);
        let ended = processes.run(&mut command, Duration::from_secs(3)).unwrap();
        assert!(matches!(ended, Ended::Late), "{ended:?}");
        let pid = fs::read_to_string(&note).unwrap();
        fs::remove_file(&note).unwrap();
        assert!(!is_running(&pid));
        let ended = processes.run(&mut Command::new("true"), Duration::from_secs(60)).unwrap();
        assert!(matches!(ended, Ended::By(status) if status.success()), "{ended:?}");
        processes.interrupted.store(true, Ordering::Relaxed);
        let ended = processes.run(Command::new("sleep").arg("1000"), Duration::from_secs(60)).unwrap();
        assert!(matches!(ended, Ended::Interrupted), "{ended:?}");
    }
}
