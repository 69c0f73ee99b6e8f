//! The command line: what the processes of the suite are, and the suite as `cargo xtask interop` runs it.

use std::{io::Write as _, net::IpAddr, path::PathBuf, thread, time::Duration};

use clap::{Parser, Subcommand};
use naa_events::BridgeAddress;
use naa_provider::ProviderChoice;

use super::{
    Case, WorkerLocation, kills, placing, process,
    serve::{self, Serving},
    stream, worker,
};

/// The time between two lines of counts.
const COUNT_PERIOD: Duration = Duration::from_millis(50);

/// Events through a bridge to workers, on real sockets
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be a bridge until standard input ends; prints its counts
    Serve {
        #[arg(long)]
        bind: IpAddr,
        #[arg(long)]
        provider: ProviderChoice,
        #[arg(long)]
        placing: String,
        #[arg(long)]
        local: PathBuf,
        #[arg(long)]
        instance: u64,
    },
    /// Be a worker until standard input ends; prints each event
    Worker {
        #[arg(long)]
        source: BridgeAddress,
        #[arg(long)]
        name: String,
        #[arg(long)]
        local: Option<IpAddr>,
        #[arg(long, default_value = "embedded")]
        provider: ProviderChoice,
        #[arg(long, default_value_t = 15)]
        ack_timeout: u8,
        #[arg(long)]
        again: bool,
    },
    /// Stream events to workers: each must arrive once and whole
    Stream {
        #[command(flatten)]
        args: CaseArgs,
        #[arg(short = 'n', long, default_value_t = 5000)]
        events: u64,
    },
    /// The same, while workers and the bridge are killed
    Kills {
        #[command(flatten)]
        args: CaseArgs,
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// Let workers ask for events that killed workers had; then no bridge is killed
        #[arg(long)]
        again: bool,
    },
}

#[derive(Debug, clap::Args)]
struct CaseArgs {
    /// Address of the bridge
    #[arg(long)]
    bind: IpAddr,
    #[arg(long, default_value = "embedded")]
    provider: ProviderChoice,
    #[arg(long, default_value = "store")]
    placing: String,
    /// local, PROVIDER@ADDRESS or PROVIDER@ADDRESS@NAMESPACE; repeat for more
    #[arg(long = "worker", required = true)]
    workers: Vec<WorkerLocation>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 15)]
    ack_timeout: u8,
    /// What the row begins with
    #[arg(long, default_value = "")]
    label: String,
}

impl CaseArgs {
    fn case(&self, program: PathBuf) -> Result<Case, String> {
        let Self { bind, provider, seed, ack_timeout, .. } = *self;
        let (placing, workers) = (placing(&self.placing)?, self.workers.clone());
        Ok(Case { bind, provider, placing, workers, seed, ack_timeout, program })
    }
}

/// Prints a row `ROW|LABEL|CASE|ok or reason|SECONDS|NOTE` for a case.
///
/// # Errors
/// What went wrong.
pub fn run(args: Args) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
    match args.role {
        Role::Serve { bind, provider, placing: way, local, instance } => {
            serve(&serve::BridgeProcessConfig { bind, provider, placing: placing(&way)?, local, instance })
        }
        Role::Worker { source, name, local, provider, ack_timeout, again } => {
            let redelivery = again;
            let config =
                worker::WorkerProcessConfig { source, name, local, provider, ack_timeout, redelivery };
            worker::run(&config)
        }
        Role::Stream { args, events } => {
            let case = args.case(program)?;
            row(&args.label, &format!("{events} events, {}", args.placing), || stream(&case, events))
        }
        Role::Kills { args, rounds, again } => {
            let case = args.case(program)?;
            row(&args.label, &format!("{rounds} kills, {}", args.placing), || kills(&case, rounds, again))
        }
    }
}

fn row(label: &str, case: &str, run: impl FnOnce() -> Result<String, String>) -> Result<(), String> {
    let begin = std::time::Instant::now();
    let result = run();
    let plain = |text: &str| text.replace(['|', '\n'], " ");
    let (said, note) = match &result {
        Ok(note) => ("ok".to_owned(), plain(note)),
        Err(why) => (plain(why), String::new()),
    };
    println!("ROW|{label}|{case}|{said}|{:.1}|{note}", begin.elapsed().as_secs_f64());
    result.map(drop)
}

fn serve(settings: &serve::BridgeProcessConfig) -> Result<(), String> {
    let serving = Serving::start(settings)?;
    let (to_end, ended) = std::sync::mpsc::channel::<()>();
    process::on_stdin_end(move || drop(to_end));
    let mut out = std::io::stdout().lock();
    while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        writeln!(out, "{}", serving.counts()).and_then(|()| out.flush()).map_err(|e| e.to_string())?;
        thread::sleep(COUNT_PERIOD);
    }
    serving.end();
    Ok(())
}
