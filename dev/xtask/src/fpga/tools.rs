//! The tools, in a Python of their own.

use crate::repo;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Which of the tools.
#[derive(Debug, Clone, Copy)]
pub(super) enum Group {
    Sim,
    All,
}

impl Group {
    fn file(self) -> &'static str {
        match self {
            Self::Sim => "sim.txt",
            Self::All => "all.txt",
        }
    }
}

#[derive(Debug)]
pub(super) struct Tools(PathBuf);

impl Tools {
    /// Installs what is missing. The inner error is the reason why no package index can be reached.
    pub(super) fn install(group: Group) -> Result<Result<Self, String>> {
        let tools = Self(repo::target_dir().join("fpga/tools"));
        let lists = repo::root().join("fpga/tools");
        let wanted = ["sim.txt", group.file()].map(|name| fs::read_to_string(lists.join(name)));
        let wanted = wanted.into_iter().collect::<std::io::Result<Vec<_>>>()?.concat();
        let stamp = tools.0.join(group.file());
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(Ok(tools));
        }
        if !tools.0.join("bin/pip").exists() {
            let made = Command::new("python3").args(["-m", "venv"]).arg(&tools.0).status();
            let made = made.context("cannot run python3")?;
            anyhow::ensure!(made.success(), "a Debian python3 needs the package python3-venv");
        }
        println!("installing {} into {}", group.file(), tools.0.display());
        let mut pip = tools.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        let output = pip.arg(lists.join(group.file())).output().context("cannot run pip")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            if let Some(line) = said.lines().find(|line| line.contains("(from versions: none)")) {
                return Ok(Err(format!("pip reaches no package index: {}", line.trim())));
            }
            bail!("pip: {}\n{said}", output.status);
        }
        fs::write(stamp, wanted)?;
        Ok(Ok(tools))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    pub(super) fn python(&self) -> Command {
        let mut command = Command::new(self.0.join("bin/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A tool by the name of its file.
    pub(super) fn program(&self, name: &str) -> Command {
        Command::new(self.0.join("bin").join(name))
    }
}
