//! The package of Python.

use super::{SKIPPED, folder, succeeds};
use crate::{
    packages::{self, User},
    repo,
    venv::Venv,
};
use anyhow::{Context, Result};
use std::{ffi::OsStr, fs, path::Path, process::ExitCode};

pub(super) fn run() -> Result<ExitCode> {
    packages::ensure(User::Python).map_err(anyhow::Error::msg)?;
    repo::build_release()?;
    let package = repo::root().join("bindings/python");
    let library = repo::release_program("libnaa_c.so");
    let venv = Venv::new(folder("venv")?)?.with("NAA_BUILT_LIBRARY", library);
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
        let mut command = venv.python();
        command.arg(repo::root().join(script));
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
