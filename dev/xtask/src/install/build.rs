//! Builds what is installed.

use crate::repo;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
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

const PROGRAMS: &[&str] = &["naa", "naa-benches"];
const LIBRARIES: &[&str] = &["naa-capi"];

pub(super) fn build(profile: &str) -> Result<Built> {
    let programs = build_packages(PROGRAMS, profile, None)?;
    // The C libraries are built by themselves, in a folder of their own. Cargo gives crates that are built together the
    // features that any of them wants, and the programs want a runtime in the host library.
    let folder = repo::target_dir().join("c-libraries");
    let libraries = build_packages(LIBRARIES, profile, Some(&folder))?;
    Ok(Built {
        program: named(&programs, "naa")?,
        bench: named(&programs, "naa-bench")?,
        shared: named(&libraries, "libnaa_c.so")?,
        archive: named(&libraries, "libnaa_c.a")?,
    })
}

/// Builds packages, and returns the files that were made.
fn build_packages(packages: &[&str], profile: &str, target: Option<&Path>) -> Result<Vec<PathBuf>> {
    let mut cargo = repo::cargo();
    cargo.args(["build", "--profile", profile]);
    packages.iter().for_each(|package| _ = cargo.args(["--package", package]));
    cargo.envs(target.map(|target| ("CARGO_TARGET_DIR", target)));
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{} do not build", packages.join(", "));
    Ok(artifacts(&String::from_utf8_lossy(&output.stdout)))
}

fn named(artifacts: &[PathBuf], name: &str) -> Result<PathBuf> {
    let found = artifacts.iter().find(|path| path.file_name().is_some_and(|file| file == name));
    found.cloned().with_context(|| format!("cargo built no {name}"))
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
