//! `naa bench`: how fast naa is beside the limit of the sockets under it, and beside what else there is.
//!
//! | for | see |
//! |---|---|
//! | what is measured, against what | `measures` |
//! | the order of repeats, and rows from them | `runner` |
//! | processes that measure, and what they are told | `child`, `side` |
//! | each of them | `sides` |

mod child;
mod cpu;
pub mod engine;
mod idle;
mod measures;
mod output;
mod placement;
pub mod row;
mod runner;
mod side;
mod sides;
pub mod stats;

use std::path::PathBuf;

use anyhow::ensure;

pub use output::{Json, Table};
use placement::Placement;
use row::{LEAST_REPEATS, Report};
use runner::Settings;

const EXAMPLES: &str = "\
Examples:
  naa bench                              everything, in five minutes, on an idle machine
  naa bench --json bench.json            the table for programs; - is standard output
  naa bench --only 'MTU 4096'            what has this in its name
  naa bench --list                       what there is
  naa bench --quick                      a look in a minute, which is no verdict

Every figure is the median over the repeats of one run, the ratio that of the repeats' ratios. \
In each repeat ours and what it is compared with run one after the other, in processes of their own. \
The two ends of each have different cores, as the ends of a network do: where the kernel puts them differs \
from run to run, and with it what waking each other costs. --unpinned leaves it to the kernel. The spread is \
the distance between the quartiles divided by the median. Beyond 20 %, with fewer than 15 repeats, or with \
--quick there is no verdict: \"pass\" is null in the JSON.";

/// Measure naa beside the limit, and beside what else there is
///
/// Writes between two processes on loopback, beside raw UDP and TCP; calls, beside a UDP ping-pong and gRPC; what
/// connecting, lost packets and idle sessions cost.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write the table to FILE as JSON too; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few and short repeats: to see that it works, no verdict
    #[arg(long)]
    quick: bool,
    /// Repeats of each measurement; fewer than 15 are no verdict [default: 15, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    repeats: Option<u32>,
    /// Let the kernel place the two ends instead of giving each half of the cores
    #[arg(long)]
    unpinned: bool,
    /// Only measurements whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the measurements
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// One end of a measurement
    #[command(hide = true)]
    Side(side::Args),
}

const QUICK_REPEATS: u32 = 3;

/// # Errors
/// If something cannot be measured, or its results not written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Some(Command::Side(side)) => side::run(side),
        None => bench(args),
    }
}

fn bench(args: &Args) -> anyhow::Result<()> {
    let mut measures = measures::all();
    if let Some(text) = &args.only {
        measures.retain(|measure| measure.is_about(text));
        ensure!(
            !measures.is_empty(),
            "no measurement has {text:?} in its name; `naa bench --list` has the names"
        );
    }
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let table = Table { on_stderr: matches!(json, Some(Json::Stdout)) };
    if args.list {
        return measures.iter().flat_map(|measure| measure.names()).try_for_each(|name| table.line(&name));
    }
    let repeats = args.repeats.unwrap_or(if args.quick { QUICK_REPEATS } else { LEAST_REPEATS });
    let effort = if args.quick { side::Effort::QUICK } else { side::Effort::USUAL };
    let placement = if args.unpinned { Placement::default() } else { Placement::halves()? };
    table.line(&placement::describe(&placement))?;
    let settings = Settings { repeats, effort, quick: args.quick, placement };
    let rows = runner::run(&measures, args.only.as_deref(), &settings, &table)?;
    let report = Report { rows };
    table.line("")?;
    table.line(&summary(&report, repeats, args.quick))?;
    json.map_or(Ok(()), |json| json.write(&report))
}

fn summary(report: &Report, repeats: u32, quick: bool) -> String {
    let judged = || report.rows.iter().filter(|row| row.target != row::Target::Report);
    let targets = judged().count();
    let targets = format!("{targets} target{}", if targets == 1 { "" } else { "s" });
    if quick || repeats < LEAST_REPEATS {
        let why = if quick { "--quick measures for too short a time".into() } else { few(repeats) };
        return format!("{targets} without a verdict: {why}; `naa bench` gives one");
    }
    let count = |verdict| judged().filter(|row| row.verdict() == verdict).count();
    let (met, missed, unclear) = (count("pass"), count("MISSED"), count("no verdict"));
    format!("{targets}: {met} met, {missed} missed, {unclear} without a verdict (spread over 20 %)")
}

fn few(repeats: u32) -> String {
    format!("{repeats} repeats are fewer than {LEAST_REPEATS}")
}
