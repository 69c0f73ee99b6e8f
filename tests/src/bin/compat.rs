//! The recordings of the wires: replayed, and made anew.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use naa_tests::compat::{self, Outcome};

/// Replays recordings of earlier versions' hosts against today's servers
#[derive(Parser)]
struct Args {
    /// The root of the checkout
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Replay the recordings whose names contain TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Say what there is
    #[arg(long)]
    list: bool,
    /// Record a wire of this version's programs, under a new number
    #[arg(long, value_name = "WIRE")]
    record: Option<String>,
}

fn main() -> ExitCode {
    naa_tests::exit_code(run(&Args::parse()))
}

fn run(args: &Args) -> Result<bool, String> {
    if let Some(wire) = &args.record {
        for file in compat::record(&args.root, wire)? {
            println!("wrote {}", file.display());
        }
        return Ok(true);
    }
    let folder = compat::folder(&args.root);
    let recordings = compat::list(&folder, args.only.as_deref())?;
    if recordings.is_empty() {
        return Err("no recording has that in its name; --list shows all".into());
    }
    let mut failed = 0;
    for recording in &recordings {
        if args.list {
            println!("{}: {} ({})", recording.name, recording.what, recording.recorded_from);
            continue;
        }
        let outcome = compat::replay(&folder, &recording.name)?;
        failed += usize::from(outcome.failure.is_some());
        println!("{}", line(&outcome));
    }
    if !args.list {
        println!("compat: {} recordings, {failed} failed", recordings.len());
    }
    Ok(failed == 0)
}

fn line(outcome: &Outcome) -> String {
    let Outcome { name, failure, compared, free, time } = outcome;
    match failure {
        Some(why) => format!("{name}: FAILED: {why}"),
        None => format!(
            "{name}: ok, {compared} bytes of answers compared, {free} differ by nature, {:.1} s",
            time.as_secs_f64()
        ),
    }
}
