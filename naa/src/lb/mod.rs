//! `naa lb`: EJFAT's load balancer in software.

mod callers;
mod counts;
mod differences;
pub(crate) mod engine;
mod figures;
mod forward;
mod local;
mod location;
mod serve;
mod site;
mod table;

pub(crate) use callers::{TOKEN_VARIABLE, check_mrsp};
pub(crate) use location::read as read_rules;

use clap::Subcommand;

/// Balance EJFAT's segments over workers: data plane, control plane, and their clients
///
/// The data plane works as that of ESnet's load balancer, but on ordinary UDP sockets: it forwards all segments of an event to one
/// worker, by tables that change at a tick, while packets flow. The control plane lets experiments reserve a load balancer, and
/// decides from the reports of workers and senders which worker gets which events.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa lb serve                                  a control plane with a data plane, on loopback
  eval \"$(naa lb reserve run12)\"
  naa lb status --watch

  naa lb forward --listen 10.9.0.1 --tables lb.yaml --grpc 127.0.0.1:18010
  naa lb table show grpc://127.0.0.1:18010
  naa lb table load new.yaml grpc://127.0.0.1:18010
  naa lb counters grpc://127.0.0.1:18010")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Forward(Box<forward::Args>),
    Table(table::Args),
    Counters(counts::Args),
    #[command(flatten)]
    Site(Box<site::Command>),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Forward(args) => forward::run(args),
        Command::Table(args) => table::run(args),
        Command::Counters(args) => counts::run(args),
        Command::Site(command) => site::run(command),
    }
}
