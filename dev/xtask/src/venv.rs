//! Pythons with packages of their own.

use anyhow::{Context, Result, bail, ensure};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// A virtual environment of Python. The scripts in its `bin` name the folder where they were installed, which is another one if the
/// checkout was copied or moved; here they are run so that this does not matter.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Venv {
    /// Makes the environment in a folder, unless it is there.
    ///
    /// # Errors
    /// If python3 cannot make it.
    pub(crate) fn new(folder: PathBuf) -> Result<Self> {
        let venv = Self { folder, variables: Vec::new() };
        if !venv.program("pip").exists() {
            let made = Command::new("python3").args(["-m", "venv"]).arg(&venv.folder).status();
            let made = made.context("cannot run python3")?;
            ensure!(made.success(), "a Debian python3 needs the package python3-venv for that");
        }
        Ok(venv)
    }

    /// Sets an environment variable of everything that is run.
    #[must_use]
    pub(crate) fn with(mut self, variable: &'static str, value: PathBuf) -> Self {
        self.variables.push((variable, value));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a program, which may be a script.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    pub(crate) fn python(&self) -> Command {
        let mut command = Command::new(self.program("python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A program that is a script of Python.
    pub(crate) fn script(&self, name: &str) -> Command {
        let mut command = self.python();
        command.arg(self.program(name));
        command
    }

    /// A module that is run as a program.
    pub(crate) fn module(&self, name: &str) -> Command {
        let mut command = self.python();
        command.args(["-m", name]);
        command
    }

    /// Runs pip. If no package index can be reached, returns the reason.
    ///
    /// # Errors
    /// If pip fails for another reason.
    pub(crate) fn pip<'a>(&self, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<Option<String>> {
        let mut pip = self.module("pip");
        pip.args(["--quiet", "--disable-pip-version-check"]).args(arguments);
        let output = pip.output().context("cannot run pip")?;
        if output.status.success() {
            return Ok(None);
        }
        // What pip says of a package when it got no list of its versions.
        let said =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        if let Some(line) = said.lines().find(|line| line.contains("(from versions: none)")) {
            return Ok(Some(format!("pip reaches no package index: {}", line.trim())));
        }
        bail!("{pip:?}: {}\n{said}", output.status);
    }
}
