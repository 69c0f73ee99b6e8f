//! `naa bench`. The measurements are a program of their own, `naa-bench`, except for `offload`, which computes what the demo
//! does.

mod local;
mod offload;

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::bail;

use crate::show;

const PROGRAM: &str = "naa-bench";
const OFFLOAD: &str = "offload";
/// The files of programs that are built or installed together are written within this time.
const STALE: Duration = Duration::from_secs(600);

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
    let Some(arguments) = for_program(env::args_os().skip(1).collect()) else { return Ok(()) };
    let Some(program) = program().filter(|program| program.is_file()) else {
        let asks = |argument: &OsString| ["-h", "--help", "help"].iter().any(|help| argument == help);
        return if arguments.iter().any(asks) { Ok(()) } else { missing() };
    };
    if is_stale(&program) && !arguments.iter().any(is_quiet) {
        show::error_line(&format!(
            "naa: {} is older than naa; `cargo build --release -p naa-benches` makes it anew",
            program.display()
        ));
    }
    let error = Command::new(&program).args(arguments).exec();
    bail!("cannot run {}: {error}", program.display())
}

fn is_quiet(argument: &OsString) -> bool {
    argument == "-q" || argument == "--quiet"
}

/// The arguments of the program, if the command line of naa is for it.
fn for_program(arguments: Vec<OsString>) -> Option<Vec<OsString>> {
    let bench = arguments.iter().position(|argument| !is_quiet(argument))?;
    if arguments[bench] != "bench" {
        return None;
    }
    let (before, rest) = (&arguments[..bench], &arguments[bench + 1..]);
    let mut words = rest.iter().filter(|argument| !is_quiet(argument)).take(2);
    let is_offload = words.next().is_some_and(|first| {
        first == OFFLOAD || first == "help" && words.next().is_some_and(|second| second == OFFLOAD)
    });
    (!is_offload).then(|| before.iter().chain(rest).cloned().collect())
}

/// Whether the program was built well before this one, so that it measures other code.
fn is_stale(program: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let own = env::current_exe().ok().and_then(|path| written(&path));
    own.zip(written(program)).is_some_and(|(own, program)| program + STALE < own)
}

fn missing() -> anyhow::Result<()> {
    bail!(
        "these measurements are the program {PROGRAM}, and there is no {}; `cargo build --release -p naa-benches` \
         makes it",
        program().unwrap_or_else(|| PROGRAM.into()).display()
    )
}

/// The path at which the program is looked for.
fn program() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name(PROGRAM))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Some(Measurement::Offload(args)) => offload::run(args),
        None => missing(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::for_program;

    #[test]
    fn everything_but_offload_is_for_the_program() {
        let given = |line: &str| {
            let found = for_program(line.split(' ').map(Into::into).collect())?;
            found.join(OsStr::new(" ")).into_string().ok()
        };
        assert_eq!(given("bench --list").as_deref(), Some("--list"));
        assert_eq!(given("-q bench capi --only x").as_deref(), Some("-q capi --only x"));
        assert_eq!(given("bench -q ejfat").as_deref(), Some("-q ejfat"));
        assert_eq!(given("bench help layouts").as_deref(), Some("help layouts"));
        for line in ["bench offload --quick", "bench -q offload", "-q bench help offload", "ping bench", "-q"]
        {
            assert_eq!(given(line), None, "{line}");
        }
    }
}
