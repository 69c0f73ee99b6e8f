//! `naa bench`: the measurements are a program of their own, `naa-bench`, but for `offload`, which computes what the demo does.

mod local;
mod offload;

use std::{env, ffi::OsString, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::bail;

const PROGRAM: &str = "naa-bench";
const OFFLOAD: &str = "offload";

const MORE: &str = "\
Examples:
  naa bench                       calls and WRITEs beside the limit and beside TCP and gRPC
  naa bench --list                what there is to measure
  naa bench offload               from which size on offloading a function pays

Everything but `offload` is the program naa-bench, which naa looks for in its own folder; \
`cargo build --release -p naa-benches` makes it. With it, `naa bench --help` lists the other measurements.";

/// Measure naa beside the limit, and beside what else there is
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Measurement>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Measurement {
    Offload(offload::Args),
}

/// Becomes `naa-bench` if the command line is for it. Returns if it is not, or asks for help and the program is not there.
///
/// # Errors
/// If the program is not there, or cannot be run.
pub(crate) fn become_program() -> anyhow::Result<()> {
    let mut arguments =
        env::args_os().skip(1).skip_while(|argument| argument == "-q" || argument == "--quiet");
    if arguments.next().is_none_or(|command| command != "bench") {
        return Ok(());
    }
    let rest: Vec<OsString> = arguments.collect();
    if rest.first().is_some_and(|argument| argument == OFFLOAD) {
        return Ok(());
    }
    let Some(program) = program().filter(|program| program.is_file()) else {
        let asks = rest.iter().any(|argument| argument == "-h" || argument == "--help" || argument == "help");
        return if asks { Ok(()) } else { missing() };
    };
    let error = Command::new(&program).args(rest).exec();
    bail!("cannot run {}: {error}", program.display())
}

fn missing() -> anyhow::Result<()> {
    bail!(
        "these measurements are the program {PROGRAM}, and there is no {}; `cargo build --release -p naa-benches` \
         makes it",
        program().unwrap_or_else(|| PROGRAM.into()).display()
    )
}

/// Where the program is to be.
fn program() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name(PROGRAM))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Some(Measurement::Offload(args)) => offload::run(args),
        None => missing(),
    }
}
