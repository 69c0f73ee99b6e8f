//! The package of Python.

use super::{SKIPPED, command_line, folder, succeeds};
use crate::{
    packages::{self, User},
    repo,
};
use anyhow::{Context, Result, bail};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

pub(super) fn run() -> Result<ExitCode> {
    packages::ensure(User::Python).map_err(anyhow::Error::msg)?;
    repo::build_release()?;
    let package = repo::root().join("bindings/python");
    let venv = Venv::new()?;
    if let Some(why) = install(&venv, &package)? {
        println!("skipped: {why}");
        return Ok(ExitCode::from(SKIPPED));
    }
    let mut mypy = venv.module("mypy");
    mypy.arg(format!("--cache-dir={}", folder("mypy")?.display()));
    for command in [&mut mypy, &mut venv.module("pytest")] {
        command.current_dir(&package).env("NAA_PROGRAM", repo::release_program("naa"));
        succeeds(command)?;
    }
    // Python's protobuf and grpcio are installed for these two scripts only. The first compares the requests that our client sends to
    // SmartNICs with those that protobuf makes; the second sends requests to our control plane with grpcio.
    for script in ["ejfat/lb/tests/smartnic_requests/make.py", "ejfat/cp/tests/control_wire/check.py"] {
        let mut command = Command::new(venv.0.join("bin/python"));
        command.arg(repo::root().join(script)).env("PYTHONDONTWRITEBYTECODE", "1");
        succeeds(command.env("NAA_PROGRAM", repo::release_program("naa")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What tests need, and the wheel, built as its README says. If that cannot be had, why.
fn install(venv: &Venv, package: &Path) -> Result<Option<String>> {
    let requirements = package.join("tests/requirements.txt");
    if let Some(why) = venv.pip(["install".as_ref(), "-r".as_ref(), requirements.as_os_str()])? {
        return Ok(Some(why));
    }
    let folder = folder("wheel")?;
    for old in fs::read_dir(&folder)? {
        fs::remove_file(old?.path())?;
    }
    let build = ["wheel", "--no-deps", "--wheel-dir"].map(OsStr::new);
    if let Some(why) = venv.pip(build.into_iter().chain([folder.as_os_str(), package.as_os_str()]))? {
        return Ok(Some(why));
    }
    let wheel = fs::read_dir(&folder)?.next().context("pip made no wheel")??.path();
    venv.pip(
        ["install", "--force-reinstall", "--no-deps"].map(OsStr::new).into_iter().chain([wheel.as_os_str()]),
    )
}

/// A Python with packages of its own.
struct Venv(PathBuf);

impl Venv {
    fn new() -> Result<Self> {
        let venv = Self(folder("venv")?);
        if !venv.0.join("bin/pip").exists() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv"]).arg(&venv.0);
            succeeds(&mut make).context("a Debian python3 needs the package python3-venv for that")?;
        }
        Ok(venv)
    }

    /// A module that is run as a program. The scripts in `bin` name the folder where they were installed, which is another
    /// one if the checkout was copied or moved.
    fn module(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("bin/python"));
        command.args(["-m", name]).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// If no package index can be reached, why.
    fn pip<'a>(&self, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<Option<String>> {
        let mut pip = self.module("pip");
        pip.args(["--quiet", "--disable-pip-version-check"]).args(arguments);
        pip.env("NAA_BUILT_LIBRARY", repo::release_program("libnaa_c.so"));
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
        bail!("{}: {}\n{said}", command_line(&pip), output.status);
    }
}
