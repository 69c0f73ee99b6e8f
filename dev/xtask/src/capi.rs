//! `capi`: the programs of `tests/capi`, built with sanitizers in C and C++, and everything that is run with them.

mod programs;

use crate::{
    interop::rows::{self, Row},
    packages::{self, User},
    repo, rxe_vm, table,
};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
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
    println!();
    let failed: Vec<_> = rows.iter().filter(|row| !row.passed()).collect();
    let heading = ["program", "passed", "result", "seconds"].map(str::to_owned);
    table::print(&[heading].into_iter().chain(rows::summary(&rows)).collect::<Vec<_>>());
    for row in &failed {
        println!("FAILED: {}: {}: {}", row.label, row.case, row.result);
    }
    println!("capi: {} rows, {} failed", rows.len(), failed.len());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&rows).context("cannot write rows as JSON")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What both providers' runs have in common.
fn arguments(options: &Args) -> Vec<String> {
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut arguments = vec![
        path(repo::release_program("capi")),
        "run".to_owned(),
        "--programs".to_owned(),
        path(programs::folder()),
        "--root".to_owned(),
        path(repo::root()),
        "--library".to_owned(),
        path(programs::library()),
    ];
    if let Some(seed) = options.seed {
        arguments.extend(["--seed".to_owned(), seed.to_string()]);
    }
    arguments
}

fn here(options: &Args) -> Result<Vec<Row>> {
    let mut arguments = arguments(options);
    arguments.extend(["--provider", "embedded", "--jobs", JOBS].map(str::to_owned));
    if options.long {
        arguments.push("--long".to_owned());
    }
    if let Some(only) = &options.only {
        arguments.extend(["--only".to_owned(), only.clone()]);
    }
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
    let slice = (!options.long).then(|| SLICE.to_owned());
    if let Some(only) = options.only.clone().or(slice) {
        command.extend(["--only".to_owned(), only]);
    }
    println!("== verbs");
    let machine =
        rxe_vm::Args { memory: MACHINE_MEMORY, limit: MACHINE_LIMIT, command, ..rxe_vm::Args::default() };
    let mut output = Vec::new();
    let status = rxe_vm::boot(&machine, &mut |bytes| {
        output.extend_from_slice(bytes);
        Ok(())
    })?;
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
