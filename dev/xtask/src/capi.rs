//! `capi`: the programs of `tests/capi`, built with sanitizers in C and C++, and everything that is run with them.

mod programs;

use crate::{
    interop::rows::{self, Row},
    packages::{self, User},
    repo, rxe_vm,
};
use anyhow::{Context, Result, ensure};
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{ExitCode, Stdio},
};

/// Rows that run at once: most wait.
const JOBS: &str = "4";
/// Programs on an emulated processor have this many times as long.
const SLOWNESS: &str = "6";
const MACHINE_ADDRESS: &str = "10.9.0.1";
const MACHINE_MEMORY: u32 = 4096;
const MACHINE_LIMIT: u64 = 2 * 60 * 60;
/// What of the rows is run on verbs where there is little time.
const SLICE: &str = "use";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// 2 GiB, 10000 cycles, 1000 kills
    #[arg(long)]
    long: bool,
    /// On verbs, too: in the machine with a soft-RoCE device
    #[arg(long)]
    verbs: bool,
    /// Rows whose label and case contain TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// What random moments come from; each row tells
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Write all rows as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    packages::ensure(User::Capi).map_err(anyhow::Error::msg)?;
    if options.verbs {
        packages::ensure(User::RxeVm).map_err(anyhow::Error::msg)?;
    }
    repo::build_release()?;
    programs::build()?;
    let mut rows = here(options)?;
    if options.verbs {
        rows.extend(in_machine(options)?);
    }
    rows::report("capi", "program", &rows, options.json.as_deref())
}

/// What both providers' runs have in common.
fn arguments(options: &Args) -> Vec<String> {
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let library = repo::release_program("libnaa_c.so");
    let folders = [("--programs", programs::folder()), ("--root", repo::root()), ("--library", library)];
    let mut arguments = vec![path(repo::release_program("capi")), "run".to_owned()];
    arguments.extend(folders.into_iter().flat_map(|(name, value)| [name.to_owned(), path(value)]));
    arguments.extend(options.seed.map(|seed| format!("--seed={seed}")));
    arguments
}

fn here(options: &Args) -> Result<Vec<Row>> {
    let mut arguments = arguments(options);
    arguments.extend(["--provider", "embedded", "--jobs", JOBS].map(str::to_owned));
    arguments.extend(options.long.then(|| "--long".to_owned()));
    arguments.extend(options.only.iter().map(|only| format!("--only={only}")));
    println!("== embedded");
    let mut child = std::process::Command::new(&arguments[0])
        .args(&arguments[1..])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", arguments[0]))?;
    let mut rows = Vec::new();
    let lines = child.stdout.take().context("no output")?;
    for line in BufReader::new(lines).lines() {
        let line = line.context("cannot read the rows")?;
        match Row::read(&line) {
            Some(row) => rows.push(row),
            None => println!("{line}"),
        }
    }
    let status = child.wait().context("cannot wait for the suite")?;
    let complete = status.success() || rows.iter().any(|row| !row.passed());
    ensure!(complete, "the suite ended early: {status}");
    Ok(rows)
}

fn in_machine(options: &Args) -> Result<Vec<Row>> {
    let mut command = arguments(options);
    let own = ["--provider", "verbs", "--address", MACHINE_ADDRESS, "--slowness", SLOWNESS];
    command.extend(own.map(str::to_owned));
    let slice = (!options.long).then_some(SLICE);
    command.extend(options.only.as_deref().or(slice).map(|only| format!("--only={only}")));
    println!("== verbs");
    let machine =
        rxe_vm::Args { memory: MACHINE_MEMORY, limit: MACHINE_LIMIT, command, ..rxe_vm::Args::default() };
    let (status, output) = rxe_vm::recorded(&machine, false)?;
    let text = String::from_utf8_lossy(&output);
    let mut rows: Vec<_> = text.lines().filter_map(Row::read).collect();
    for row in &mut rows {
        row.label = format!("verbs: {}", row.label);
    }
    if status != 0 && rows.iter().all(Row::passed) {
        let last: Vec<_> = text.lines().rev().take(3).collect();
        rows.push(Row::ours("verbs", "the machine", format!("exit status {status}: {}", last.join(" / "))));
    }
    Ok(rows)
}
