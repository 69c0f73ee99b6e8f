//! The session suite: `suite serve` on one side, `suite host` on the other, of one machine or two.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};
use naa_provider::ProviderChoice;
use naa_tests::suite::{self, Row, RunConfig, Set};

/// TCP port of the far side's requests, unless told otherwise.
const PORT: u16 = 7400;
/// The sessions' own.
const ACK_TIMEOUT: u8 = 17;

const EXAMPLES: &str = "\
Examples:
  suite serve --bind 10.9.0.1 --provider verbs
  suite host --server 10.9.0.1 --local 10.9.0.2 --provider embedded
  suite host --server 10.9.0.1 --local 10.9.0.2 --only regions
  suite host --server 10.9.0.1 --local 10.9.0.2 --set long     256 MiB, and 1000 connects";

/// Runs one session suite between two processes, whatever their providers
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Be the far side until killed; prints READY when it listens
    Serve {
        /// Local address of the device, and of the TCP port for requests
        #[arg(long, value_name = "ADDR")]
        bind: IpAddr,
        #[arg(long, value_name = "TCP-PORT", default_value_t = PORT)]
        port: u16,
        /// verbs, embedded or auto, as NAA_PROVIDER has it
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
    },
    /// Run the cases: one line ROW|LABEL|CASE|ok or reason|SECONDS|NOTE for each
    Host {
        #[arg(long, value_name = "ADDR")]
        server: IpAddr,
        #[arg(long, value_name = "TCP-PORT", default_value_t = PORT)]
        port: u16,
        /// Local address of the device
        #[arg(long, value_name = "ADDR")]
        local: IpAddr,
        /// verbs, embedded or auto, as NAA_PROVIDER has it
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// Connections must come to this path MTU
        #[arg(long, value_name = "N")]
        path_mtu: Option<u32>,
        /// Cases whose name contains TEXT
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        #[arg(long, value_enum, default_value = "usual")]
        set: Cases,
        /// An unacknowledged packet is given up after about eight times 4.096 us * 2^N
        #[arg(long, value_name = "N", default_value_t = ACK_TIMEOUT, value_parser = clap::value_parser!(u8).range(1..=31))]
        ack_timeout: u8,
        /// What the lines begin with
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
        /// One JSON object for each case instead
        #[arg(long)]
        json: bool,
    },
    /// Names of the cases
    List,
}

#[derive(Clone, Copy, ValueEnum)]
enum Cases {
    /// bytes and rest
    Usual,
    /// Bytes both ways, up to 1 MiB: fit for impaired networks
    Bytes,
    /// Refusals, ends, patience
    Rest,
    /// 256 MiB, and 1000 connects
    Long,
}

impl Cases {
    fn sets(self) -> Vec<Set> {
        match self {
            Self::Usual => vec![Set::Bytes, Set::Rest],
            Self::Bytes => vec![Set::Bytes],
            Self::Rest => vec![Set::Rest],
            Self::Long => vec![Set::Long],
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.role {
        Role::Serve { bind, port, provider } => {
            choose(provider.as_deref()).and_then(|choice| suite::serve(bind, port, choice)).map(|()| true)
        }
        Role::Host { server, port, local, provider, path_mtu, only, set, ack_timeout, label, json } => {
            let control = SocketAddr::new(server, port);
            let options =
                |choice| RunConfig { control, local, choice, path_mtu, only, sets: set.sets(), ack_timeout };
            choose(provider.as_deref()).and_then(|choice| host(&options(choice), &label, json))
        }
        Role::List => list(),
    };
    naa_tests::exit_code(result)
}

fn choose(provider: Option<&str>) -> Result<ProviderChoice, String> {
    let choice = provider.map_or_else(ProviderChoice::from_env, str::parse);
    choice.map_err(|bad| bad.to_string())
}

fn host(options: &RunConfig, label: &str, json: bool) -> Result<bool, String> {
    if suite::list(options).is_empty() {
        return Err("no case has that in its name; `suite list` names them".into());
    }
    let mut told = |row: &Row| {
        match serde_json::to_string(row) {
            Ok(text) if json => println!("{text}"),
            _ => println!("ROW|{label}|{row}"),
        }
        // A reader that has gone is no failure of the suite.
        let _ = std::io::stdout().flush();
    };
    let rows = suite::run(options, &mut told)?;
    Ok(rows.iter().all(Row::passed))
}

fn list() -> Result<bool, String> {
    let control = SocketAddr::from(([127, 0, 0, 1], PORT));
    let sets = vec![Set::Bytes, Set::Rest, Set::Long];
    let (local, choice) = (control.ip(), ProviderChoice::Auto);
    let options =
        RunConfig { control, local, choice, path_mtu: None, only: None, sets, ack_timeout: ACK_TIMEOUT };
    for case in suite::list(&options) {
        println!("{:?}: {}", case.set, case.name);
    }
    Ok(true)
}
