//! `compat`: recordings of the wires and their replay, whose program lives in the test crate.

use crate::repo;
use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "docs/reference/compat.md tells what is recorded, what is compared, and what to do when a wire must change."
)]
pub(crate) struct Args {
    /// Replay the recordings whose names contain TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Say what there is
    #[arg(long)]
    list: bool,
    /// Record a wire of this version's programs under a new number: call, catalogue, subscribe, naa.lb.v1 or sn_p4.v2
    #[arg(long, value_name = "WIRE", conflicts_with_all = ["only", "list"])]
    record: Option<String>,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    // The servers are the project's programs, which lie beside the replaying one.
    repo::build_release()?;
    let mut replay = Command::new(repo::release_program("compat"));
    replay.arg("--root").arg(repo::root());
    replay.args(options.only.iter().map(|only| format!("--only={only}")));
    replay.args(options.record.iter().map(|wire| format!("--record={wire}")));
    replay.args(options.list.then_some("--list"));
    let status = replay.status().context("cannot run the replays")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
