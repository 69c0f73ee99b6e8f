//! What is built for later steps while a step runs.

use super::steps::{Ahead, Step};
use crate::{packages, repo};
use anyhow::{Context, Result};
use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
};

/// The commands that build ahead of later steps, one after the other, with the lowest priority. They end with the step. Their output is in
/// `target/ahead.log`: a later step builds what is missing, and shows why it cannot.
#[derive(Debug)]
pub(super) struct Companion(Option<Child>);

impl Companion {
    /// Starts what a step has for these later steps, if anything.
    ///
    /// # Errors
    /// If the commands cannot be started. Nothing but time is lost without them.
    pub(super) fn start(step: &Step, later: &[&Step], xtask: &Path) -> Result<Self> {
        let is_needed = |ahead: &&Ahead| later.iter().any(|later| later.name == ahead.step);
        // apt must not be cut off, so Debian packages are installed before.
        let is_possible = |ahead: &&Ahead| packages::ensure(ahead.user).is_ok();
        let command = |ahead: &Ahead| format!("\"$0\" {}", ahead.arguments);
        let commands: Vec<_> =
            step.meanwhile.iter().filter(is_needed).filter(is_possible).map(command).collect();
        if commands.is_empty() {
            return Ok(Self(None));
        }
        let log = repo::target_dir().join("ahead.log");
        fs::create_dir_all(repo::target_dir())?;
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut shell = Command::new("chrt");
        shell.args(["--idle", "0", "sh", "-c", &commands.join("; ")]).arg(xtask);
        shell
            .current_dir(repo::root())
            .env("CARGO_TARGET_DIR", repo::target_dir())
            .env("CARGO_INCREMENTAL", "0");
        shell.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(Some(shell.spawn().context("cannot run chrt; install util-linux")?)))
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // The step ended with all processes, so this only notes their end.
        if let Some(child) = &mut self.0 {
            let _ = child.wait();
        }
    }
}
