//! `deny`: licences, bans and sources of dependencies, by cargo-deny, which is installed if it is not there.

use crate::{repo, tool};
use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Advisories are left out: their database is not in the package registry.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

pub(crate) fn run() -> Result<ExitCode> {
    let program = tool::find("cargo-deny")?;
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
