//! `naa ejfat`: events as EJFAT's senders send and its workers receive them.

mod recv;
mod send;
mod tell;

use clap::Subcommand;

/// Send and receive events as EJFAT does
///
/// Detectors stream events as UDP segments through a load balancer to workers. E2SAR's programs are peers of these.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa ejfat recv --listen 127.0.0.1:19522 --out events          a worker
  naa ejfat send --to 127.0.0.1:19522 FILE FILE                 a sender, without a load balancer between")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Send(Box<send::Args>),
    Recv(Box<recv::Args>),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
    }
}
