//! The shell that runs a page, apart from the rest of the machine.

use super::{LIMIT, Page};
use crate::{packages, repo};
use anyhow::{Context, Result, ensure};
use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

/// Printed before each block, with its line, so that a failure can name the block.
const MARK: &str = "::block at line ";
/// The first command that fails ends the page. What is made below /run ends with the namespaces.
const BEFORE: &str = "set -eu -o pipefail\nip link set lo up\nmount -t tmpfs none /run\n";
/// Fails if the page leaves a program running.
const AFTER: &str = "left=$(jobs -r)\n[ -z \"$left\" ] || { echo \"still running: $left\"; exit 1; }\n";

pub(super) struct Shell {
    root: PathBuf,
    /// The folder from which pip takes packages, because the pages have no network.
    wheels: PathBuf,
}

impl Shell {
    /// Downloads the packages that `pip install` on the pages needs.
    pub(super) fn new(root: &Path) -> Result<Self> {
        let wheels = repo::target_dir().join("docs/wheels");
        fs::create_dir_all(&wheels).with_context(|| format!("cannot make {}", wheels.display()))?;
        let shell = Self { root: root.to_owned(), wheels };
        shell.fetch_wheels()?;
        Ok(shell)
    }

    fn fetch_wheels(&self) -> Result<()> {
        let build = fs::read_to_string(self.root.join("bindings/python/pyproject.toml"))?;
        let wanted =
            build.lines().find_map(|line| line.strip_prefix("requires = [")).context("no requires")?;
        let wanted = wanted.split(',').map(|name| name.trim_matches(['"', ' ', ']']).to_owned());
        let wanted: Vec<_> = wanted.chain(["numpy".to_owned()]).collect();
        let note = self.wheels.join("fetched");
        if fs::read_to_string(&note).is_ok_and(|fetched| fetched == wanted.join(" ")) {
            return Ok(());
        }
        let venv = repo::target_dir().join("docs/venv");
        let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).status();
        ensure!(made.context("cannot run python3")?.success(), "python3 -m venv failed");
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["download", "--quiet", "--disable-pip-version-check", "--dest"])
            .arg(&self.wheels)
            .args(&wanted);
        ensure!(pip.status().context("cannot run pip")?.success(), "pip cannot fetch {}", wanted.join(", "));
        fs::write(&note, wanted.join(" ")).with_context(|| format!("cannot write {}", note.display()))
    }

    /// Runs a page. The inner error says which block failed.
    ///
    /// # Errors
    /// The outer one, if the page cannot be run at all.
    pub(super) fn run(&self, page: &Page) -> Result<Result<(), String>> {
        let before = self.changes()?;
        let scratch = env::temp_dir().join(format!("naa-docs-{}", std::process::id()));
        fs::create_dir_all(scratch.join("home"))
            .with_context(|| format!("cannot make {}", scratch.display()))?;
        let sudo = scratch.join("home/sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").context("cannot write sudo")?;
        fs::set_permissions(&sudo, Permissions::from_mode(0o755)).context("cannot make sudo a program")?;
        println!("== {}", page.path);
        let begin = Instant::now();
        let output = self.shell(&script(page, &scratch), &scratch).output().context("cannot run unshare")?;
        fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        if !output.status.success() {
            return Ok(Err(failure(&output, begin.elapsed())));
        }
        let after = self.changes()?;
        if before != after {
            return Ok(Err(format!("it leaves files in the checkout:\n{after}")));
        }
        Ok(Ok(()))
    }

    fn shell(&self, script: &str, scratch: &Path) -> Command {
        let mut shell = Command::new("timeout");
        shell.args(["--foreground", "-k", "5", &LIMIT.as_secs().to_string(), "unshare"]);
        if !packages::is_root() {
            shell.arg("--map-root-user");
        }
        shell.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", script]);
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        // Cargo and rustup are the user's, the home folder is not.
        for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            shell.env(variable, env::var_os(variable).unwrap_or_else(|| home.join(folder).into()));
        }
        shell
            .current_dir(&self.root)
            .env("HOME", scratch.join("home"))
            .env("PATH", path(&scratch.join("home")))
            .env("CARGO_NET_OFFLINE", "true")
            // Without it pip would build the library once more, with other features.
            .env("NAA_BUILT_LIBRARY", repo::release_program("libnaa_c.so"))
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", &self.wheels)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        shell
    }

    /// The files that differ from the commit, as `git status` lists them. Empty where there is no git.
    fn changes(&self) -> Result<String> {
        let status = Command::new("git").args(["status", "--porcelain"]).current_dir(&self.root).output();
        // A checkout may have been copied without git.
        Ok(status
            .map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// The search path, with the programs of the release and `sudo`, which is in `home`, first.
fn path(home: &Path) -> OsString {
    let folders = env::var_os("PATH").unwrap_or_default();
    let release = repo::target_dir().join("release");
    let all = [home.to_owned(), release].into_iter().chain(env::split_paths(&folders));
    env::join_paths(all).unwrap_or(folders)
}

/// The page's commands for bash. Its /tmp is the folder `scratch`.
fn script(page: &Page, scratch: &Path) -> String {
    let mut script = BEFORE.to_owned();
    for block in page.blocks.iter().filter(|block| block.not_run.is_none()) {
        // Writing to a string cannot fail.
        let _ = writeln!(script, "echo '{MARK}{}'\n{}", block.line, block.commands);
    }
    script += AFTER;
    script.replace("/tmp/", &format!("{}/", scratch.display()))
}

/// Describes the failure of a page that ran for the time `took`: the block, the reason, and the last lines of its output.
fn failure(output: &Output, took: Duration) -> String {
    const LINES: usize = 30;
    let said = String::from_utf8_lossy(&output.stdout);
    let (before, said) = said.rsplit_once(MARK).unwrap_or(("", &said));
    let line =
        if before.is_empty() && !said.contains('\n') { "?" } else { said.lines().next().unwrap_or("?") };
    let wrong = String::from_utf8_lossy(&output.stderr);
    let last = |text: &str| {
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    };
    let how = if took < LIMIT {
        output.status.to_string()
    } else {
        format!("the page took more than {} s", LIMIT.as_secs())
    };
    format!("the block at line {line}: {how}\n{}\n{}", last(said), last(&wrong))
}
