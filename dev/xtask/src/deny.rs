//! `deny`: licences, bans and sources of dependencies, by cargo-deny, which is installed if it is not there.

use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

/// Advisories are left out: their database is not in the package registry.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

pub(crate) fn run() -> Result<ExitCode> {
    let program = program()?;
    let mut passed = true;
    // The fuzz targets are a workspace of their own.
    for manifest in ["Cargo.toml", "dev/fuzz/Cargo.toml"] {
        println!("== {manifest}");
        let mut deny = Command::new(&program);
        deny.current_dir(repo::root()).args(["--manifest-path", manifest, "--config", "deny.toml", "check"]);
        deny.args(CHECKS);
        passed &= deny.status().with_context(|| format!("cannot run {}", program.display()))?.success();
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cargo-deny on the search path or below `target/tools`. It is installed there if there is none.
fn program() -> Result<PathBuf> {
    let there = |program: &PathBuf| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let tools = repo::target_dir().join("tools");
    let candidates = [PathBuf::from("cargo-deny"), tools.join("bin/cargo-deny")];
    if let Some(found) = candidates.into_iter().find(there) {
        return Ok(found);
    }
    println!("installing cargo-deny below {}, which takes some minutes", tools.display());
    let mut cargo = repo::cargo();
    cargo.args(["install", "--locked", "--root"]).arg(&tools).arg("cargo-deny");
    // In a folder of its own, because no other build can use what is compiled for it.
    cargo.env("CARGO_TARGET_DIR", tools.join("build"));
    ensure!(cargo.status().context("cannot run cargo")?.success(), "cargo-deny cannot be installed");
    Ok(tools.join("bin/cargo-deny"))
}
