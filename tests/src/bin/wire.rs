//! Ends of measurements through the driver interface, and the table of what was measured: for `cargo xtask rxe-bench`.

use std::{
    io::{Read, Write as _},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};
use naa_measure::{Json, row};
use naa_provider::ProviderChoice;
use naa_tests::wire;
use verbs::WaitMode;

const EXAMPLES: &str = "\
Examples:
  wire sink --bind 10.9.0.1 --provider verbs
  wire write --to 10.9.0.1:7471 --provider embedded --json
  wire register --server 10.9.0.2:12345 --provider verbs --json
  wire table --json table.json <measured";
const PORT: u16 = 7471;
const MESSAGE: u32 = 1 << 20;

/// Measures RDMA WRITEs, and what setting up costs
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be written to until killed; prints READY when it listens
    Sink {
        #[arg(long, value_name = "ADDR")]
        bind: IpAddr,
        #[arg(long, default_value_t = PORT)]
        port: u16,
        /// auto, verbs or embedded
        #[arg(long, value_name = "NAME", default_value = "auto", value_parser = choice)]
        provider: ProviderChoice,
        /// Bytes of the region; what writers give
        #[arg(long, default_value_t = MESSAGE, value_parser = clap::value_parser!(u32).range(1..))]
        bytes: u32,
        #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
        wait: Wait,
    },
    /// Write to a sink
    Write {
        #[arg(long, value_name = "ADDR:PORT")]
        to: SocketAddr,
        /// Local address [default: where the route begins]
        #[arg(long, value_name = "ADDR")]
        local: Option<IpAddr>,
        /// auto, verbs or embedded
        #[arg(long, value_name = "NAME", default_value = "auto", value_parser = choice)]
        provider: ProviderChoice,
        /// Bytes of a message
        #[arg(long, default_value_t = MESSAGE, value_parser = clap::value_parser!(u32).range(1..))]
        bytes: u32,
        #[arg(long, default_value = "3", value_parser = seconds)]
        seconds: Duration,
        #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
        wait: Wait,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sessions with four large buffers, and again with the same ones
    Register {
        /// A `naa serve`
        #[arg(long, value_name = "ADDR:PORT")]
        server: SocketAddr,
        /// auto, verbs or embedded
        #[arg(long, value_name = "NAME", default_value = "auto", value_parser = choice)]
        provider: ProviderChoice,
        /// Bytes of each buffer
        #[arg(long, default_value_t = 64 << 20)]
        bytes: usize,
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        repeats: u32,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a table of the lines SAMPLE|SERIES|REPEAT|VALUE on standard input
    Table {
        /// Write it to FILE as JSON too, as `naa bench` does
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// The repeats were few and short: no verdict
        #[arg(long)]
        quick: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    Spin,
    Block,
    Adaptive,
}

impl From<Wait> for WaitMode {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Adaptive => Self::Adaptive,
        }
    }
}

fn choice(text: &str) -> Result<ProviderChoice, String> {
    text.parse().map_err(|bad: naa_provider::BadChoice| bad.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "write a number of seconds, such as 0.5".into())
}

fn main() -> ExitCode {
    naa_tests::exit_code(run(Args::parse().role).map(|()| true))
}

fn run(role: Role) -> Result<(), String> {
    match role {
        Role::Sink { bind, port, provider, bytes, wait } => {
            wire::sink(SocketAddr::new(bind, port), provider, bytes, wait.into(), |opened, port| {
                println!("READY {} ({})", SocketAddr::new(bind, port), opened.why);
                // An error does not matter: it means that nobody reads the line.
                let _ = std::io::stdout().flush();
            })
        }
        Role::Write { to, local, provider, bytes, seconds, wait, json } => {
            let written = wire::write(local, to, provider, bytes, wait.into(), seconds)?;
            if json {
                return print(&written);
            }
            println!("{:.1} MiB/s, path MTU {} ({})", written.mib_per_second, written.path_mtu, written.why);
            Ok(())
        }
        Role::Register { server, provider, bytes, repeats, json } => {
            let registered = wire::register(server, provider, bytes, repeats)?;
            if json {
                return print(&registered);
            }
            println!("{}", registered.why);
            for (what, setups) in
                [("session", &registered.sessions), ("registration", &registered.registrations)]
            {
                for wire::Setup { first_ms, again_ms } in setups {
                    println!("{what}: first {first_ms:.2} ms, again {again_ms:.2} ms");
                }
            }
            Ok(())
        }
        Role::Table { json, quick } => table(json, quick).map_err(|error| format!("{error:#}")),
    }
}

fn print(value: &impl serde::Serialize) -> Result<(), String> {
    println!("{}", serde_json::to_string(value).map_err(|e| e.to_string())?);
    Ok(())
}

fn table(json: Option<PathBuf>, quick: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let samples = wire::read(&text).map_err(anyhow::Error::msg)?;
    let rows = wire::rows(&samples, quick).map_err(anyhow::Error::msg)?;
    let mut table = row::Row::table();
    table.row(row::Row::HEAD)?;
    rows.iter().try_for_each(|row| table.row(row.cells()))?;
    let json = json.as_deref().map(Json::open).transpose()?;
    json.map_or(Ok(()), |json| json.write(&row::Report { rows }))
}
