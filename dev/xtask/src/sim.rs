//! `sim`: the simulation of protocols on faulty networks, which is a program of its own.

use crate::repo;
use anyhow::{Context, Result, ensure};
use std::process::{Command, ExitCode};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many seeds to run
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<u64>,
    /// traffic (work requests of all sorts), calls (sessions with any layout), events (EJFAT) or bridge (events
    /// into workers' rings); all unless told
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Run this one seed: how a failure is reproduced
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "A", conflicts_with = "seed")]
    from: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let built = repo::cargo().args(["build", "--release", "--package", "sim"]).status();
    ensure!(built.context("cannot run cargo")?.success(), "the simulation does not build");
    let mut suite = Command::new(repo::release_program("sim"));
    suite.current_dir(repo::root());
    if let Some(kind) = &options.kind {
        suite.args(["--kind", kind]);
    }
    for (name, value) in [("--seeds", options.seeds), ("--seed", options.seed), ("--from", options.from)] {
        if let Some(value) = value {
            suite.arg(name).arg(value.to_string());
        }
    }
    let status = suite.status().context("cannot run the suite")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
