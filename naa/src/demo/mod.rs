//! `naa demo` shows all functions on this machine, with a server process and a host process.

mod arrays;
mod bridge;
pub(crate) mod cases;
pub(crate) mod children;
pub(crate) mod data;
mod ejfat;
mod host;
mod lb;
mod nodes;
pub(crate) mod prepare;
mod report;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use naa_measure::{Column, Json, TextTable};

use crate::show;
use cases::{Case, Extent};
use children::{HostProcess, ServerProcess};

/// Offload every function to a server process on this machine and check each result
///
/// Starts a server and a host, each a process on a loopback address of its own. The host offloads every function
/// of the catalogue on generated data and on this executable, and compares each result with the same computation
/// done locally. Exit status is 0 only if all results agree.
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  naa demo                    within a minute, up to 256 MiB\n  \
    naa demo --quick            within seconds, up to 1 MiB\n  \
    naa demo --json rows.json   the table for programs; - is standard output\n  \
    naa demo ejfat              events through a load balancer, in network namespaces\n  \
    naa demo bridge             events into workers' memory, one of which is killed\n  \
    naa demo lb                 events balanced over workers by a control plane; one worker is killed\n\n\
    Offloaded time is that of the call alone: send, compute, receive. Connecting and agreeing on regions comes \
    before. Goodput counts the bytes in and out per second of that time."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// More sizes in between, and the whole executable; takes minutes and 2 GiB of memory
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Small sizes only
    #[arg(long)]
    quick: bool,
    /// Write the rows as JSON; - is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    provider: crate::provider::Args,
    /// Be the host process for this server
    #[arg(long, hide = true, value_name = "ADDR:PORT", requires = "local")]
    host: Option<SocketAddr>,
    /// The host process's address
    #[arg(long, hide = true, value_name = "ADDR", requires = "host")]
    local: Option<IpAddr>,
}

/// Demonstrations of something else.
#[derive(Clone, Debug, clap::Subcommand)]
enum Other {
    Bridge(bridge::Args),
    Ejfat(ejfat::Args),
    Lb(Box<lb::Args>),
}

/// A row of the table.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Row {
    function: String,
    bytes_in: u64,
    bytes_out: u64,
    local_s: f64,
    offloaded_s: f64,
    verified: bool,
}

#[derive(Debug, serde::Serialize)]
struct Report {
    /// The provider, and why it was chosen.
    why: String,
    rows: Vec<Row>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.other {
        Some(Other::Bridge(args)) => return bridge::run(args),
        Some(Other::Ejfat(args)) => return ejfat::run(args),
        Some(Other::Lb(args)) => return lb::run(args),
        None => {}
    }
    let extent = match (args.full, args.quick) {
        (true, _) => Extent::Full,
        (_, true) => Extent::Quick,
        _ => Extent::Usual,
    };
    if let Some((server, local)) = args.host.zip(args.local) {
        return host::run(extent, server, local, args.provider.choice()?);
    }
    let choice = args.provider.choice()?;
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let mut table = table().on_stderr(matches!(json, Some(Json::Stdout)));
    let server = ServerProcess::start(choice)?;
    let host = HostProcess::start(server.address(), choice, extent)?;
    table.line(&format!("server {} at {}, host at {}", server.id(), server.address(), host.address()))?;
    let why = server.why().to_owned();
    let rows = collect(host, &extent.cases(), &mut table);
    server.end();
    let rows = rows?;
    let (all, wrong) = (rows.len(), rows.iter().filter(|row| !row.verified).count());
    if let Some(json) = json {
        json.write(&Report { why, rows })?;
    }
    ensure!(wrong == 0, "{wrong} of {all} results differ from the local computation");
    table.line(&format!("all {all} results agree with the local computation"))
}

/// Reads rows from the host as soon as it finishes them, and prints them.
fn collect(mut host: HostProcess, cases: &[Case], table: &mut TextTable) -> anyhow::Result<Vec<Row>> {
    let bar = show::steps(cases.len());
    if show::shows_progress() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar.suspend(|| table.row(HEAD))?;
    let mut rows = Vec::new();
    let mut lines = host.lines();
    for case in cases {
        bar.set_message(format!("{} {}", name(*case), case.input.text()));
        let Some(line) = lines.next() else { break };
        let row: Row = serde_json::from_str(&line).context("the host process wrote no row")?;
        bar.suspend(|| table.row(cells(*case, &row)))?;
        bar.inc(1);
        rows.push(row);
    }
    bar.finish_and_clear();
    let status = host.wait()?;
    if !status.success() {
        bail!("the host process ended after {} of {} calls: {status}", rows.len(), cases.len());
    }
    ensure!(rows.len() == cases.len(), "the host process reported {} of {} calls", rows.len(), cases.len());
    Ok(rows)
}

fn name(case: Case) -> &'static str {
    mrsp::builtin::name(case.function).unwrap_or("unnamed")
}

fn table() -> TextTable {
    use Column::{Left, Right};
    TextTable::new([Left(16), Left(15), Right(8), Right(9), Right(8), Right(9), Right(10)])
}

const HEAD: [&str; 8] =
    ["function", "input", "bytes in", "bytes out", "local", "offloaded", "goodput", "verified"];

fn cells(case: Case, row: &Row) -> [String; 8] {
    let offloaded = Duration::from_secs_f64(row.offloaded_s);
    [
        row.function.clone(),
        case.input.text(),
        show::bytes(row.bytes_in),
        show::bytes(row.bytes_out),
        show::time(Duration::from_secs_f64(row.local_s)),
        show::time(offloaded),
        show::rate(row.bytes_in.saturating_add(row.bytes_out), offloaded),
        if row.verified { "yes" } else { "NO" }.to_owned(),
    ]
}
