//! `loom`: the models of lock-free code, under every order of their steps.

use crate::repo;
use anyhow::{Context, Result};
use std::process::ExitCode;

pub(crate) fn run() -> Result<ExitCode> {
    let mut cargo = repo::cargo();
    // A target folder of its own: the flag would rebuild everything else.
    cargo.env("CARGO_TARGET_DIR", repo::target_dir().join("loom")).env("RUSTFLAGS", "--cfg loom");
    cargo.args(["test", "--release", "--package", "roce-udp", "--lib", "loom"]);
    let status = cargo.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
