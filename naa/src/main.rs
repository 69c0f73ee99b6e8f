//! `naa`: network-attached accelerators in one binary.

mod rping;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "naa", version, about = "Offload computations to network-attached accelerators over RoCEv2")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Rping(rping::Args),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Rping(args) => rping::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("naa: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
