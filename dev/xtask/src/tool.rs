//! Subcommands of cargo from the package registry, which are installed when they are needed first.

use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// Returns the program `name` on the search path or below `target/tools`. If there is none, it is installed there.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    // A subcommand's first argument is its own name, as cargo passes it.
    let subcommand = name.strip_prefix("cargo-").unwrap_or(name);
    let runs = |program: &PathBuf| {
        let mut version = Command::new(program);
        version.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let tools = repo::target_dir().join("tools");
    let installed = tools.join("bin").join(name);
    if let Some(found) = [PathBuf::from(name), installed.clone()].into_iter().find(runs) {
        return Ok(found);
    }
    println!("installing {name} below {}, which takes some minutes", tools.display());
    let mut cargo = repo::cargo();
    cargo.args(["install", "--locked", "--root"]).arg(&tools).arg(name);
    // The build has a folder of its own, because no other build can use what is compiled for the tool.
    cargo.env("CARGO_TARGET_DIR", tools.join("build"));
    ensure!(cargo.status().context("cannot run cargo")?.success(), "{name} cannot be installed");
    Ok(installed)
}
