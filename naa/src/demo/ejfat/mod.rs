//! `naa demo ejfat` runs senders, the load balancer and workers, each as a process in a network namespace of its own.
//!
//! ```text
//! senders ─► `naa lb forward` ─► workers          tables change meanwhile, over gRPC and MRSP in turn
//!    └──── what was sent ──► this process ◄── what came, and its SHA-256
//! ```

pub(super) mod events;
pub(super) mod nodes;
mod report;
mod table_changes;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use naa_measure::TextTable;

use super::nodes::{Environment, EnvironmentArgs, EventProcess, Network};
use crate::lb::engine::Engine;
use nodes::{
    Balancer, MANY_STREAMS, MANY_STREAMS_GIGABITS, ManyStreams, WorkerProcess, start_sender, start_streams,
};
use report::Report;

/// Stream events from three senders through the load balancer to four workers, and check each
///
/// Beside them come events of 1000 streams at the same time, all from one address: workers behind a load balancer tell
/// streams apart, and evict none.
///
/// Every node is a process, in a network namespace of its own where this machine permits that without root, else on loopback
/// addresses. Tables change all the while, over gRPC and MRSP in turn. Senders and workers tell the SHA-256 of each event;
/// exit status is 0 only if every event arrived once and whole, and all counters add up.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa demo ejfat                    100 000 events of 1 byte to 1 MiB
  naa demo ejfat --events 3000      within seconds
  naa demo ejfat --engine rtl       900 events through the load balancer's RTL, in simulation
  naa demo ejfat --json rows.json   the table for programs; - is standard output")]
pub(crate) struct Args {
    /// Events of the three senders together [default: 100000, 900 with --engine rtl]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(3..))]
    events: Option<u64>,
    /// Gbit/s of each sender; lower it where packets are lost [default: 0.4, 0.006 with --engine rtl]
    #[arg(long, value_name = "GBPS")]
    rate: Option<f64>,
    /// Changes of tables in a second [default: 4, 1 with --engine rtl]
    #[arg(long, value_name = "N", value_parser = often)]
    changes: Option<f64>,
    /// What decides in the load balancer where packets go
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: Engine,
    /// Seed of contents, sizes and tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the rows as JSON; - is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    #[command(subcommand)]
    role: Option<Role>,
}

const NETWORK: Network = Network { senders: 3, workers: 4, number: (91, 0x91) };

impl Args {
    fn of_engine<T>(&self, given: Option<T>, software: T, rtl: T) -> T {
        given.unwrap_or(if self.engine == Engine::Rtl { rtl } else { software })
    }

    fn events(&self) -> u64 {
        self.of_engine(self.events, 100_000, 900)
    }

    fn rate(&self) -> f64 {
        self.of_engine(self.rate, 0.4, 0.006)
    }

    fn changes(&self) -> f64 {
        self.of_engine(self.changes, 4.0, 1.0)
    }

    /// The streams that each send an event at the same time, and the rate of all of them in Gbit/s.
    fn many_streams(&self) -> (ManyStreams, f64) {
        let software = (MANY_STREAMS, self.rate().max(MANY_STREAMS_GIGABITS));
        self.of_engine(None, software, (MANY_STREAMS.of(100), 0.01))
    }
}

fn often(text: &str) -> Result<f64, String> {
    // There is room for 17 table sets, and each stays until two seconds after its last packet.
    let changes = text.parse().ok().filter(|changes| (0.01..=6.0).contains(changes));
    changes.ok_or_else(|| "write a number from 0.01 to 6".into())
}

/// What the processes that it starts are.
#[derive(Clone, Debug, clap::Subcommand)]
enum Role {
    #[command(hide = true)]
    Sender(nodes::SenderArgs),
    #[command(hide = true)]
    Worker(nodes::WorkerArgs),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.role {
        Some(Role::Sender(sender)) => return nodes::send(sender),
        Some(Role::Worker(worker)) => return nodes::work(worker),
        None => {}
    }
    args.environment.run(&NETWORK, |environment, note| {
        let texts = (
            "every event arrived once, whole and at one worker; none was evicted; all sums add up",
            "not every event was delivered once and whole with sums that add up; see the table",
        );
        let demonstration = |table: &_| run_in(args, environment, table);
        super::report::run(args.json.as_deref(), note, demonstration, texts)
    })
}

/// Runs the demonstration, from the first process to the last counter.
fn run_in(args: &Args, environment: &Environment, table: &TextTable) -> anyhow::Result<Report> {
    let workers = (0..NETWORK.workers)
        .map(|n| WorkerProcess::start(environment, n))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.engine == Engine::Rtl {
        table.line("making the model of the load balancer's RTL, unless it is there")?;
    }
    args.engine.prepare()?;
    let balancer = Balancer::start(environment, args.engine)?;
    let mut table_changes = table_changes::TableChanges::new(args.seed, environment, &balancer, &workers)?;
    table_changes.change()?;
    table.line(&format!(
        "{}: load balancer at {}, {} workers, {} senders",
        environment.name(),
        balancer.addresses().join(" and "),
        workers.len(),
        NETWORK.senders
    ))?;
    let begin = Instant::now();
    let per_sender = |n: u64| args.events() / 3 + u64::from(n < args.events() % 3);
    let senders = (0..NETWORK.senders)
        .map(|n| start_sender(environment, &balancer, n, per_sender(n as u64), args))
        .chain([start_streams(environment, &balancer, args)])
        .collect::<anyhow::Result<Vec<_>>>()?;
    let pause = Duration::from_secs_f64(1.0 / args.changes());
    while senders.iter().any(EventProcess::is_busy) {
        thread::sleep(pause);
        table_changes.change()?;
    }
    let sent = senders.into_iter().map(EventProcess::end).collect::<anyhow::Result<Vec<_>>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    settle(&workers);
    let counters = table_changes.counters()?;
    let worked = workers.into_iter().map(|worker| worker.events.end()).collect::<anyhow::Result<Vec<_>>>()?;
    balancer.end()?;
    Ok(Report::new(environment, seconds, &table_changes, sent, worked, &counters))
}

/// Waits until no event has come for longer than the time-out of incomplete events.
fn settle(workers: &[WorkerProcess]) {
    const QUIET: Duration = Duration::from_millis(1500);
    let mut quiet = Instant::now();
    let mut seen = 0;
    while quiet.elapsed() < QUIET {
        thread::sleep(Duration::from_millis(50));
        let now = workers.iter().map(|worker| worker.events.count()).sum();
        if now != seen {
            seen = now;
            quiet = Instant::now();
        }
    }
}
