//! The suite of the C libraries: `capi serve` is the accelerator, `capi run` runs everything against it.

use std::{
    io::Write,
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Parser, Subcommand};
use naa_provider::ProviderChoice;
use naa_tests::capi::{self, Row, RunConfig};

/// NAAICE's.
const PORT: u16 = 12_345;

const EXAMPLES: &str = "\
Examples:
  cargo xtask capi                                        builds the programs and runs this
  capi run --programs target/capi --library target/release/libnaa_c.so --root . --only naa_wait
  capi serve --bind 127.0.0.1                             to run a program's row by hand:
  CAPI_SERVER=127.0.0.1 CAPI_PORT=12345 CAPI_LOCAL=127.0.0.2 CAPI_SPARE=127.0.0.3 CAPI_SPARE_PORT=2000 \\
    CAPI_SLOWNESS=1 NAA_PROVIDER=embedded target/capi/ap2-c naa_wait";

/// Runs the programs of tests/capi against an accelerator
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Be the accelerator until killed; prints READY when it listens
    Serve {
        #[arg(long, value_name = "ADDR")]
        bind: IpAddr,
        #[arg(long, default_value_t = PORT)]
        port: u16,
        /// verbs, embedded or auto, as NAA_PROVIDER has it
        #[arg(long, value_name = "NAME", default_value = "auto")]
        provider: String,
    },
    /// Run the cases: one line ROW|LABEL|CASE|ok or reason|SECONDS|NOTE for each
    Run {
        /// Where the built programs are
        #[arg(long, value_name = "DIR")]
        programs: PathBuf,
        /// The root of the checkout
        #[arg(long, value_name = "DIR")]
        root: PathBuf,
        /// libnaa_c.so
        #[arg(long, value_name = "FILE")]
        library: PathBuf,
        #[arg(long, value_name = "NAME", default_value = "embedded")]
        provider: String,
        /// The one local address that everything shares, as with verbs
        #[arg(long, value_name = "ADDR")]
        address: Option<IpAddr>,
        /// Rows that run at once
        #[arg(long, value_name = "N", default_value_t = 1)]
        jobs: usize,
        /// Rows whose label and case contain TEXT
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// 2 GiB, 10000 cycles, 1000 kills
        #[arg(long)]
        long: bool,
        /// Time limits are longer by this, for slow machines
        #[arg(long, value_name = "N", default_value_t = 1)]
        slowness: u32,
        /// What random moments come from; told with the rows
        #[arg(long, value_name = "S")]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().role {
        Role::Serve { bind, port, provider } => provider
            .parse()
            .map_err(|bad: naa_provider::BadChoice| bad.to_string())
            .and_then(|choice| capi::serve(bind, port, choice))
            .map(|()| true),
        Role::Run { programs, root, library, provider, address, jobs, only, long, slowness, seed } => {
            provider.parse::<ProviderChoice>().map_err(|bad| bad.to_string()).and_then(|choice| {
                let seed = seed.unwrap_or_else(by_time);
                run(&RunConfig {
                    programs,
                    root,
                    library,
                    choice,
                    address,
                    port: PORT,
                    jobs,
                    only,
                    long,
                    slowness,
                    seed,
                })
            })
        }
    };
    naa_tests::exit_code(result)
}

fn by_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs() % 1_000_000)
}

fn run(options: &RunConfig) -> Result<bool, String> {
    let mut on_row = |row: &Row| {
        // A reader that has gone is no failure of the suite.
        let _ = writeln!(std::io::stdout(), "ROW|{row}");
    };
    let rows = capi::run(options, &mut on_row)?;
    Ok(rows.iter().all(Row::passed))
}
