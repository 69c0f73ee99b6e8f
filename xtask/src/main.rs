//! Build, check and test commands of the project: `cargo xtask --help`.

mod check_icrc;
mod fuzz;
mod hostile;
mod loom;
mod metadata;
mod packages;
mod pcap;
mod repo;
mod rping_matrix;
mod rxe_vm;
mod sim;
mod source;
mod table;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                       everything a change must pass, within 25 minutes
  cargo xtask sim --seed 42              the run of one seed again, after a failure
  cargo xtask hostile --only half-open   a part of the table of hostile peers
  cargo xtask fuzz --target mrsp_message --seconds 600
  cargo xtask rxe-vm -- ibv_devinfo      a program of rdma-core on a kernel soft-RoCE device
  cargo xtask rxe-vm -p x.pcap -- 'rping -s -a 10.9.0.1 & ip netns exec peer ./my-client 10.9.0.1'
  cargo xtask check-icrc x.pcap";

/// Build, check and test commands of the project
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the rules of the code base: layers, purity, the fence around unsafe, leftovers, format
    Tidy,
    /// Run every check and test in order, and sum up
    Test(test::Options),
    /// Run the simulation suite
    Sim(sim::Options),
    /// Attack a server in every way known: one table of answers, counters, and what others noticed
    Hostile(hostile::Options),
    /// Check the models of lock-free code under every order of their steps
    Loom,
    /// Build and run the fuzz targets with libFuzzer
    Fuzz(fuzz::Options),
    /// Run a command on a kernel soft-RoCE device in a small virtual machine
    ///
    /// In the machine, eth-a (10.9.0.1, fd00:9::1) carries the soft-RoCE device rxe0; eth-b (10.9.0.2, fd00:9::2),
    /// the other end of the wire, is in the network namespace `peer`, for a program with a RoCEv2 stack of its own:
    /// `ip netns exec peer PROGRAM`. All files of this host are there; only those written below the current folder
    /// stay. Exit status is the command's, 124 when the limit is reached.
    RxeVm(rxe_vm::Options),
    /// Run `naa rping` against rdma-core's rping on kernel soft-RoCE: IPv4 and IPv6, path MTUs, sizes, both roles
    RpingMatrix(rping_matrix::Options),
    /// Check the invariant CRC of every RoCEv2 packet in captures
    CheckIcrc(check_icrc::Options),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Test(options) => test::run(options),
        Command::Sim(options) => sim::run(options),
        Command::Hostile(options) => hostile::run(options),
        Command::Loom => loom::run(),
        Command::Fuzz(options) => fuzz::run(options),
        Command::RxeVm(options) => rxe_vm::run(options),
        Command::RpingMatrix(options) => rping_matrix::run(options),
        Command::CheckIcrc(options) => check_icrc::run(options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
