//! The revision with which this checkout is compared, and the worktree of this revision.

use super::git;
use crate::repo;
use anyhow::{Context, Result, bail, ensure};
use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// The file that a revision with benches has.
const MANIFEST: &str = "benches/hot/Cargo.toml";

/// A commit with benches of the hot paths.
#[derive(Debug)]
pub(super) struct Revision {
    commit: String,
    /// The short hash and the subject.
    described: String,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.described)
    }
}

impl Revision {
    /// Finds the revision with this name.
    ///
    /// # Errors
    /// Fails if there is none, or if it has no benches of the hot paths.
    pub(super) fn find(name: &str) -> Result<Self> {
        let commit =
            git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")])?;
        let commit = commit.with_context(|| {
            format!("there is no revision {name} here; `git log --oneline` names those of this branch")
        })?;
        if git(&["cat-file", "-e", &format!("{commit}:{MANIFEST}")])?.is_none() {
            let first = git(&["log", "--diff-filter=A", "--reverse", "--format=%h", "--", MANIFEST])?;
            match first.filter(|first| !first.is_empty()) {
                Some(first) => bail!(
                    "{name} has no benches of the hot paths; the first revision that has them is {first}: compare with that, or with a later one"
                ),
                None => bail!("no revision has {MANIFEST} yet: commit it, and compare with that revision"),
            }
        }
        let described = git(&["log", "-1", "--format=%h %s", &commit])?.unwrap_or_else(|| commit.clone());
        Ok(Self { commit, described })
    }

    /// Checks the revision out in the worktree `tree`, which is made if it is not there. Files that are the same in the revision that was
    /// there before stay as they are, so that cargo does not build them again.
    pub(super) fn check_out(&self, tree: &Path) -> Result<PathBuf> {
        let mut command = Command::new("git");
        if tree.join(".git").exists() {
            command.arg("-C").arg(tree).args(["checkout", "--quiet", "--force", "--detach"]);
        } else {
            // A worktree that was deleted with its folder is still in git's list, which `--force` does not mind.
            command.arg("-C").arg(repo::root()).args(["worktree", "add", "--quiet", "--force", "--detach"]);
            command.arg(tree);
        }
        let status = command.arg(&self.commit).status().context("cannot run git")?;
        ensure!(
            status.success(),
            "git cannot check {} out in {}; delete that folder and try again",
            self.commit,
            tree.display()
        );
        Ok(tree.to_path_buf())
    }
}

/// Describes for people what is compared with the revision.
pub(super) fn this_checkout() -> Result<String> {
    let head = git(&["log", "-1", "--format=%h %s"])?.unwrap_or_default();
    let changed = git(&["status", "--porcelain"])?.is_some_and(|first| !first.is_empty());
    Ok(if changed { format!("{head}, and what is not committed") } else { head })
}
