//! `sim`: the simulation of protocols on faulty networks, which is a program of its own.

use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<u64>,
    /// traffic (work requests of all sorts), calls (sessions with any layout), events (EJFAT), bridge (events
    /// into workers' rings) or control (EJFAT's control plane); all unless told
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Run this one seed: how a failure is reproduced
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "A", conflicts_with = "seed")]
    from: Option<u64>,
    /// Draw what workers get of a load balancer's slots into an SVG file instead: one is slow, one new, one dies
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "seeds", "seed", "from"])]
    plot: Option<PathBuf>,
    /// Run a control plane with 1024 workers for so many minutes of virtual time instead, and print its memory and
    /// what a period takes
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["kind", "seeds", "seed", "from", "plot"])]
    full_site: Option<u64>,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let built = repo::cargo().args(["build", "--release", "--workspace", "--bin", "sim"]).status();
    ensure!(built.context("cannot run cargo")?.success(), "the simulation does not build");
    let mut suite = Command::new(repo::release_program("sim"));
    suite.current_dir(repo::root());
    suite.args(options.kind.iter().map(|kind| format!("--kind={kind}")));
    if let Some(file) = &options.plot {
        suite.arg("--plot").arg(std::path::absolute(file)?);
    }
    let numbers = [
        ("--seeds", options.seeds),
        ("--seed", options.seed),
        ("--from", options.from),
        ("--full-site", options.full_site),
    ];
    suite.args(numbers.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))));
    let status = suite.status().context("cannot run the suite")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
