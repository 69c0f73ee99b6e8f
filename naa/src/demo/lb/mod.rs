//! `naa demo lb`: a control plane, data planes, senders and workers of different speed, each in a process of its own. Some of the
//! processes are killed.
//!
//! ```text
//! senders ─► `naa lb forward` ─► workers: one is killed, one drained, one added later
//!    │               ▲              │
//!    │               │ tables       │ fill levels
//!    └── syncs ─► `naa lb serve` ◄──┘
//! ```

mod nodes;
mod outcomes;
mod report;
mod run;
mod site;
mod tables;

use std::path::PathBuf;

/// Balance events over workers of different speed while one is killed, one drained and one added, and check each event
///
/// Every party is a process on loopback: the control plane, its data plane, three workers, and two senders of numbered events at a
/// steady rate. The workers register and report how full they are, and the control plane decides from that how many events each
/// worker gets. One worker is killed in the middle, and events are sent to it until the control plane notices. One worker is
/// drained and loses no event. Senders and workers print the SHA-256 of each event. The exit status is 0 only if each event came
/// whole to the one worker that the tables name for its tick, or is listed as lost because a process was killed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa demo lb                      12 000 events in 16 seconds
  naa demo lb --everything         also kill the control plane and a data plane; over IPv4 and IPv6
  naa demo lb --json rows.json     the table for programs; - is standard output")]
pub(crate) struct Args {
    /// Events that both senders together send, at least
    #[arg(short = 'n', long, value_name = "N", default_value_t = 12_000, value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    events: u64,
    /// Events in a second, of both senders together
    #[arg(long, value_name = "N", default_value_t = 750.0, value_parser = often)]
    rate: f64,
    /// Make two reservations, one over IPv4 and one over IPv6, each with a data plane, a sender and workers of its own. The
    /// control plane is killed and started again, and so is the data plane of IPv6, which then starts without tables
    #[arg(long)]
    everything: bool,
    /// Seed for the contents and sizes of events
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the rows as JSON; - is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Parses `--rate`.
fn often(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (50.0..=10_000.0).contains(rate));
    rate.ok_or_else(|| "write a number from 50 to 10000".into())
}

/// The hidden commands that the demonstration's own senders and workers run.
#[derive(Clone, Debug, clap::Subcommand)]
enum Role {
    #[command(hide = true)]
    Sender(nodes::SenderArgs),
    #[command(hide = true)]
    Worker(Box<nodes::WorkerArgs>),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.role {
        Some(Role::Sender(sender)) => return nodes::send(sender),
        Some(Role::Worker(worker)) => return nodes::work(worker),
        None => {}
    }
    let texts = (
        "every event came whole to one worker, or is listed as lost with its cause; no event was split",
        "something is not as it should be; see the rows that say NO",
    );
    super::report::run(args.json.as_deref(), None, |table| run::run(args, table), texts)
}
