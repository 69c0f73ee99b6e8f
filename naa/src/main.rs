//! `naa`: network-attached accelerators in one binary.

mod rping;
mod serve;
mod signals;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use verbs::WaitMode;

/// Offload computations to network-attached accelerators over RoCEv2
///
/// The embedded provider is a RoCEv2 stack on ordinary UDP sockets: no kernel module, no root, no NIC.
#[derive(Debug, Parser)]
#[command(name = "naa", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Rping(rping::Args),
    /// Print a shell completion script
    Completions {
        shell: clap_complete::Shell,
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("NAA_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Rping(args) => rping::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "naa", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("naa: {error:#}");
            ExitCode::FAILURE
        }
    }
}
