//! `naa ejfat`: sends events as EJFAT's senders do, and receives events as EJFAT's workers do.

mod capture;
mod decode;
mod exposed;
mod ini;
pub(crate) mod limits;
pub(crate) mod losses;
pub(crate) mod recv;
mod replay;
mod send;
pub(crate) mod sink;
pub(crate) mod site;
pub(crate) mod status_line;
pub(crate) mod values;

use clap::Subcommand;

/// Send and receive events as EJFAT does, and look into captures of them
///
/// Detectors stream events as UDP segments through a load balancer to workers. E2SAR's programs are peers of these.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa ejfat recv --listen 127.0.0.1:19522 --out events     a worker
  naa ejfat send --to 127.0.0.1:19522 FILE FILE            a sender, straight to it
  naa ejfat decode run.pcap --summary                      what became of each event
  naa ejfat replay run.pcap --to 127.0.0.1:19522           the same segments again")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Send(Box<send::Args>),
    Recv(Box<recv::Args>),
    Decode(decode::Args),
    Replay(replay::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Replay(args) => replay::run(args),
    }
}
