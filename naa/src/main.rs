//! `naa`: network-attached accelerators in one binary.
// Comments of arguments are help texts, in which brackets mark what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod bench;
mod bridge;
mod call;
mod demo;
mod doctor;
mod ejfat;
mod events;
mod exit;
mod functions;
mod kernel_process;
mod lb;
mod metrics;
mod peer;
mod ping;
mod provider;
mod rping;
mod serve;
mod show;
mod signals;
mod size;

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};
use verbs::WaitMode;

const EXAMPLES: &str = "\
Examples:
  naa demo                                        see it work, on this machine
  naa serve --bind 10.9.0.2                       an accelerator
  naa call sha256 --server 10.9.0.2 --in FILE     a call

`naa COMMAND --help` has more. NAA_LOG=debug logs to standard error; NAA_LOG=off logs nothing.";

/// Offload computations to network-attached accelerators over RoCEv2
///
/// On addresses of RDMA devices through rdma-core (NICs, soft-RoCE), on all others by a RoCEv2 stack of its own on
/// ordinary UDP sockets: no kernel module, no root, no NIC. --provider chooses.
#[derive(Debug, Parser)]
#[command(name = "naa", version, after_help = EXAMPLES)]
struct Cli {
    /// Print results and errors only
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Serve(Box<serve::Args>),
    Call(Box<call::Args>),
    Functions(functions::Args),
    Ping(ping::Args),
    Rping(rping::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Ejfat(ejfat::Args),
    Lb(lb::Args),
    Bridge(Box<bridge::Args>),
    Events(Box<events::Args>),
    /// Print a shell completion script
    #[command(
        after_help = "Examples:\n  naa completions bash > ~/.local/share/bash-completion/completions/naa"
    )]
    Completions {
        shell: clap_complete::Shell,
    },
    /// Print a manual page, of naa or of one of its commands
    #[command(
        after_help = "Examples:\n  naa man | man -l -\n  naa man call > ~/.local/share/man/man1/naa-call.1"
    )]
    Man {
        command: Option<String>,
    },
}

/// How to wait for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Never sleep: lowest latency, one core
    Spin,
    /// Sleep at once
    Block,
    /// Spin for 50 us, then sleep
    Adaptive,
}

impl From<Wait> for WaitMode {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Adaptive => Self::Adaptive,
        }
    }
}

/// A command line that makes no sense, found after it was parsed.
#[derive(Debug)]
struct Usage(String);

impl Usage {
    fn error(problem: impl Into<String>) -> anyhow::Error {
        Self(problem.into()).into()
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; `--help` says more", self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    // This command is not for users, so help and completion do not list it.
    if let Some(started) = kernel_process::started() {
        return kernel_process::run(started);
    }
    // This comes before parsing, because the arguments of `naa-bench` are not known here.
    if let Err(error) = bench::become_program() {
        show::error_line(&format!("naa: {error:#}"));
        return exit::status(&error);
    }
    let cli = Cli::parse_from(quiet_first(std::env::args_os().collect()));
    if cli.quiet {
        show::be_quiet();
    }
    let filter = match naa_host::log_filter() {
        Ok(filter) => filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN)),
        Err(error) => return failed(&error.into()),
    };
    let colour = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
    // The subscriber must not report its own errors: it would report a failed write to standard error there, too, and
    // panic if that fails.
    tracing_subscriber::registry().with(filter).with(log.log_internal_errors(false)).init();
    signals::report_full_files();
    let result = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Functions(args) => functions::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Rping(args) => rping::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ejfat(args) => ejfat::run(&args),
        Command::Lb(args) => lb::run(&args),
        Command::Bridge(args) => bridge::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Completions { shell } => completions(shell),
        Command::Man { command } => man(command.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output closed the pipe early, as `head` does. This is no error.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints the error, and returns the exit status.
fn failed(error: &anyhow::Error) -> ExitCode {
    show::error_line(&format!("naa: {}", verbs::error_text(error.as_ref())));
    exit::status(error)
}

/// Moves `-q` behind a command in front of it: commands that take either arguments or a subcommand would refuse it there.
fn quiet_first(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(2).is_some_and(|argument| argument == "-q" || argument == "--quiet") {
        arguments.swap(1, 2);
    }
    arguments
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "naa", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

fn man(command: Option<&str>) -> anyhow::Result<()> {
    let mut cli = Cli::command();
    cli.build();
    let page = match command {
        None => cli,
        Some(name) => {
            let found = cli.find_subcommand(name);
            let found = found.ok_or_else(|| Usage::error(format!("there is no command {name}")))?;
            found.clone()
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    Ok(std::io::stdout().write_all(&text)?)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::CommandFactory;

    use super::Cli;

    /// Checks the names of groups. Only builds with debug assertions check them at the start, and then refuse to start.
    #[test]
    fn no_command_has_two_groups_of_one_name() {
        fn check(command: &clap::Command) {
            let mut seen = HashSet::new();
            for group in command.get_groups() {
                assert!(seen.insert(group.get_id()), "{}: {}", command.get_name(), group.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn a_cause_is_told_once() {
        let device = verbs::Error::NoDevice("no route leads there".into());
        let host = naa_host::Error::Device(device);
        let error = anyhow::Error::new(host).context("cannot dial");
        assert_eq!(
            verbs::error_text(error.as_ref()),
            "cannot dial: this machine: no device: no route leads there"
        );
    }
}
