//! `naa demo bridge` runs senders, a bridge and workers, each as a process in a network namespace of its own. One worker is
//! killed.
//!
//! ```text
//! senders ─► `naa bridge` ─► workers: two by RDMA, one of which dies and is replaced; one of the bridge's machine
//!    └── what was sent ──► this process ◄── what came, and its SHA-256; what the bridge counted and remembers
//! ```

mod nodes;
mod report;
mod run;

use std::path::PathBuf;

use super::nodes::{EnvironmentArgs, Network};
use crate::ejfat::values;

/// Stream events from two senders through a bridge to three workers, kill one of them, and check each event
///
/// Beside them come events of 1000 streams at the same time, all from one address, as through a load balancer.
///
/// Every node is a process, in a network namespace of its own where this machine permits that without root, else on loopback
/// addresses. Two workers take events by RDMA, one in memory that it shares with the bridge. One of the two is killed while
/// events stream, and another started in its place later. Senders and workers tell the SHA-256 of each event; exit status is 0
/// only if every event that a worker got is whole and came once, and all others are those that the bridge counts as lost.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa demo bridge                    20 000 events of 1 byte to 1 MiB
  naa demo bridge --placing cut      segment by segment, from where they were received
  naa demo bridge --json rows.json   the table for programs; - is standard output")]
pub(crate) struct Args {
    /// Events of both senders together; a bridge remembers 65536
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..=65_000))]
    events: u64,
    /// Gbit/s of each sender; lower it where packets are lost [default: so that it takes 6 seconds, but not above 0.2]
    #[arg(long, value_name = "GBPS", value_parser = values::gigabits)]
    rate: Option<f64>,
    /// Seed of contents and sizes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How events get to workers that are not local
    #[arg(long, value_name = "store or cut", default_value = "store", value_parser = ["store", "cut"], hide_possible_values = true)]
    placing: String,
    /// Write the rows as JSON; - is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    #[command(subcommand)]
    role: Option<Role>,
}

const NETWORK: Network = Network { senders: 2, workers: 2, number: (92, 0x92) };

/// The mean length of an event.
const BYTES: f64 = 7000.0;
const SECONDS: f64 = 6.0;
const MOST_GIGABITS: f64 = 0.2;

impl Args {
    /// Gbit/s of each sender.
    fn rate(&self) -> f64 {
        let bits = self.events as f64 * BYTES * 8.0 / NETWORK.senders as f64;
        self.rate.unwrap_or((bits / SECONDS * 1e-9).min(MOST_GIGABITS))
    }
}

/// What the processes that it starts are, beside commands that there are anyway.
#[derive(Clone, Debug, clap::Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(nodes::WorkerArgs),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(Role::Worker(worker)) = &args.role {
        return nodes::work(worker);
    }
    args.environment.run(&NETWORK, |environment, note| {
        let texts = (
            "every event came whole and once, or is counted as lost; all sums add up",
            "not every event is accounted for; see the rows without \"yes\"",
        );
        let demonstration = |table: &_| run::run(args, environment, table);
        super::report::run(args.json.as_deref(), note, demonstration, texts)
    })
}
