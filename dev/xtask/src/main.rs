//! Build, check and test commands of the project: `cargo xtask --help`.

mod bench_diff;
mod bindings;
mod capi;
mod check_icrc;
mod compat;
mod deny;
mod docs;
mod explained;
mod fpga;
mod fuzz;
mod header;
mod hostile;
mod install;
mod interop;
mod loom;
mod metadata;
mod mutants;
mod packages;
mod parallel;
mod proto;
mod repo;
mod rping_matrix;
mod running;
mod rxe_bench;
mod rxe_vm;
mod sentences;
mod sim;
mod source;
mod table;
mod test;
mod tidy;
mod tool;
mod venv;
mod words;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                       what a change must pass, in a quarter of an hour
  cargo xtask test --list                its steps; --only STEP runs one, --long those before a release
  cargo xtask docs --only first-call     the commands of a page
  cargo xtask sim --seed 42              the run of one seed again, after a failure
  cargo xtask hostile --only half-open   a part of the table of hostile peers
  cargo xtask compat --only subscribe    replays of recordings, where a wire may have changed
  cargo xtask fuzz --target mrsp_message --seconds 600
  cargo xtask fpga --only sim            the RTL beside the Rust that it equals
  cargo xtask rxe-vm -- ibv_devinfo      a program of rdma-core on a kernel soft-RoCE device
  cargo xtask rxe-vm -p x.pcap -- 'rping -s -a 10.9.0.1 & ip netns exec peer ./my-client 10.9.0.1'
  cargo xtask interop --only 'verbs -> embedded, IPv6'
  cargo xtask capi --only naa_wait       a part of the C libraries' suite, under sanitizers
  cargo xtask bench-diff HEAD            what the changes that are not committed do to the speed of hot paths
  cargo xtask check-icrc x.pcap
  cargo xtask install --prefix ~/.local  program, libraries, headers; `cargo xtask install --help` tells more";

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
    /// Draw sentences of comments at random, for a reader who did not write them
    Words(words::Args),
    /// Run what a change must pass, in order, and sum up
    Test(test::Args),
    /// Run the simulation suite
    Sim(sim::Args),
    /// Make bindings/capi/include/naa.h of the files that implement it
    Header(header::Args),
    /// Make the Rust of gRPC's messages and services, proto/src/generated, of proto/proto
    Proto(proto::Args),
    /// Run the commands of README.md and docs/ in order, page by page, and look whether links lead somewhere
    Docs(docs::Args),
    /// Check licences, bans and sources of dependencies with cargo-deny
    Deny,
    /// Attack a server in every way known: one table of answers, counters, and what others noticed
    Hostile(hostile::Args),
    /// Replay recordings of earlier versions' hosts against today's servers, and compare what the servers answer
    Compat(compat::Args),
    /// Check the models of lock-free code under every order of their steps
    Loom,
    /// Build and run the fuzz targets with libFuzzer
    Fuzz(fuzz::Args),
    /// Put small faults into the Rust of pure crates, and see to it that the tests find them
    Mutants(mutants::Args),
    /// Lint, simulate, synthesise and time the RTL of fpga/rtl
    Fpga(fpga::Args),
    /// Run a command on a kernel soft-RoCE device in a small virtual machine, or in one of two on a wire
    RxeVm(rxe_vm::Args),
    /// Run `naa rping` against rdma-core's rping on kernel soft-RoCE: IPv4 and IPv6, path MTUs, sizes, both roles
    RpingMatrix(rping_matrix::Args),
    /// Run the session suite between every pair of providers: the interoperability matrix
    ///
    /// Host and server each run on the embedded provider and on rdma-core with the kernel's soft-RoCE device, over IPv4
    /// and IPv6, with path MTUs of 1024 and 4096, over networks that lose, double, delay and reorder packets, and
    /// within one machine and between two.
    Interop(interop::Args),
    /// Build the C and C++ programs of tests/capi with sanitizers, and run them: every function, the wire, kills, cycles
    Capi(capi::Args),
    /// Measure verbs on kernel soft-RoCE beside the kernel's own tools, and the embedded provider beside both
    RxeBench(rxe_bench::Args),
    /// Compare the speed of the pure crates' hot paths at another revision and here, in turns
    BenchDiff(bench_diff::Args),
    /// Check every RoCEv2 packet in captures: invariant CRC, headers, order on its connection
    CheckIcrc(check_icrc::Args),
    /// Install the program, the C libraries and headers, what pkg-config and CMake find, manual pages, completions, a unit
    Install(install::Args),
    /// Take away what `install` put below a prefix
    Uninstall(install::Uninstall),
    /// Install below a temporary prefix, look at everything, and build and run C projects against it
    InstallTest(install::trial::Args),
    /// Build what is for another language, and test it against `naa serve`
    Bindings(bindings::Args),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Words(options) => words::run(options),
        Command::Test(options) => test::run(options),
        Command::Sim(options) => sim::run(options),
        Command::Header(options) => header::run(options),
        Command::Proto(options) => proto::run(options),
        Command::Docs(options) => docs::run(options),
        Command::Deny => deny::run(),
        Command::Hostile(options) => hostile::run(options),
        Command::Compat(options) => compat::run(options),
        Command::Loom => loom::run(),
        Command::Fuzz(options) => fuzz::run(options),
        Command::Mutants(options) => mutants::run(options),
        Command::Fpga(options) => fpga::run(options),
        Command::RxeVm(options) => rxe_vm::run(options),
        Command::RpingMatrix(options) => rping_matrix::run(options),
        Command::Interop(options) => interop::run(options),
        Command::Capi(options) => capi::run(options),
        Command::RxeBench(options) => rxe_bench::run(options),
        Command::BenchDiff(options) => bench_diff::run(options),
        Command::CheckIcrc(options) => check_icrc::run(options),
        Command::Install(options) => install::run(options),
        Command::Uninstall(options) => install::uninstall(options),
        Command::InstallTest(options) => install::trial::run(options),
        Command::Bindings(options) => bindings::run(options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
