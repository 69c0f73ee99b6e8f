//! Builds what is installed.

use crate::repo;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// Where cargo left its products.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) program: PathBuf,
    /// Measurements: `naa bench` looks for it beside the program.
    pub(super) bench: PathBuf,
    pub(super) shared: PathBuf,
    pub(super) archive: PathBuf,
}

const PACKAGES: &[&str] = &["naa", "naa-benches", "naa-capi"];

pub(super) fn build(profile: &str) -> Result<Built> {
    let mut cargo = repo::cargo();
    cargo.args(["build", "--profile", profile]);
    PACKAGES.iter().for_each(|package| _ = cargo.args(["--package", package]));
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{} do not build", PACKAGES.join(", "));
    let artifacts = artifacts(&String::from_utf8_lossy(&output.stdout));
    let named = |name: &str| {
        let found = artifacts.iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.cloned().with_context(|| format!("cargo built no {name}"))
    };
    Ok(Built {
        program: named("naa")?,
        bench: named("naa-bench")?,
        shared: named("libnaa_c.so")?,
        archive: named("libnaa_c.a")?,
    })
}

/// The files that cargo's messages name.
fn artifacts(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of = |message: Value| {
        let files = message["filenames"].as_array().cloned().unwrap_or_default();
        files.into_iter().filter_map(|file| file.as_str().map(PathBuf::from)).collect::<Vec<_>>()
    };
    messages.filter(|message| message["reason"] == "compiler-artifact").flat_map(of).collect()
}

/// What the program writes to standard output.
pub(super) fn output_of(built: &Built, arguments: &[&str]) -> Result<Vec<u8>> {
    let what = || format!("{} {}", built.program.display(), arguments.join(" "));
    let output = Command::new(&built.program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", what()))?;
    ensure!(output.status.success(), "{}: {}", what(), String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
