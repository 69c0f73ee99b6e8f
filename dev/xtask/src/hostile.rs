//! `hostile`: the suite of hostile and unlucky peers, whose program lives in the test crate.

use crate::repo;
use anyhow::{Context, Result};
use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the cases whose group or name contain TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Say what would run
    #[arg(long)]
    list: bool,
    /// Fewer repetitions, and without the cases that take long
    #[arg(long)]
    quick: bool,
    /// Write the table as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What guesses and random bytes come from
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Run over IPv4 or IPv6 only [default: both; over IPv6 a sample if --quick]
    #[arg(long, value_name = "4|6")]
    ip: Option<u8>,
    /// Fail for cases that this machine does not let be tried, as where the variable CI is set
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    // The suite starts the project's programs, which lie beside it.
    repo::build_release()?;
    let mut suite = Command::new(repo::release_program("hostile"));
    suite.current_dir(repo::root());
    let flags = [("--list", options.list), ("--quick", options.quick), ("--strict", options.strict)];
    suite.args(flags.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name));
    suite.args(options.only.iter().map(|only| format!("--only={only}")));
    if let Some(json) = &options.json {
        suite.arg("--json").arg(std::path::absolute(json)?);
    }
    suite.args(options.seed.map(|seed| format!("--seed={seed}")));
    suite.args(options.ip.map(|ip| format!("--ip={ip}")));
    let status = suite.status().context("cannot run the suite")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
