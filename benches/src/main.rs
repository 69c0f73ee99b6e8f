//! `naa bench`: how fast naa is beside the limit of the sockets under it, and beside what else there is.
//!
//! | for | see |
//! |---|---|
//! | what is measured, against what | `measures` |
//! | the order of repeats, and rows from them | `runner` |
//! | processes that measure, and what they are told | `child`, `side` |
//! | each of them | `sides` |

mod child;
mod cpu;
mod idle;
mod layouts;
mod measures;
mod placement;
mod runner;
mod side;
mod sides;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::ensure;
use clap::Parser as _;
use naa_measure::{
    Json,
    row::{self, LEAST_REPEATS, Report, Row},
};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use measures::Measure;
use placement::CpuPlacement;
use runner::RunConfig;
use side::Effort;

const EXAMPLES: &str = "\
Examples:
  naa bench                              everything, in five minutes, on an idle machine
  naa bench --json bench.json            the table for programs; - is standard output
  naa bench --only 'MTU 4096'            what has this in its name
  naa bench --list                       what there is
  naa bench --quick                      a look in a minute, which is no verdict
  naa bench offload                      from which size on offloading a function pays (a part of naa itself)

Every figure is the median over the repeats of one run, the ratio that of the repeats' ratios. \
In each repeat ours and what it is compared with run one after the other, in processes of their own. \
The two ends of each have different cores, as the ends of a network do: where the kernel puts them differs \
from run to run, and with it what waking each other costs. --unpinned leaves it to the kernel. The spread is \
the distance between the quartiles divided by the median. Beyond 20 %, with fewer than 15 repeats, or with \
--quick there is no verdict: \"pass\" is null in the JSON.";

/// Measure naa beside the limit, and beside what else there is
///
/// Writes between two processes on loopback, beside raw UDP and TCP; calls, beside a UDP ping-pong and gRPC; what
/// connecting, lost packets and idle sessions cost.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "naa-bench", bin_name = "naa bench", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Args {
    /// Leave out what naa says beside the results; for `naa -q bench`
    #[arg(short, long, hide = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    suite: SuiteArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct SuiteArgs {
    /// Write the table to FILE as JSON too; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few and short repeats: to see that it works, no verdict
    #[arg(long)]
    quick: bool,
    /// Repeats of each measurement; fewer than 15 are no verdict [default: 15, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    repeats: Option<u32>,
    /// Let the kernel place the two ends instead of giving each half of the cores
    #[arg(long)]
    unpinned: bool,
    /// Only measurements whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the measurements
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Measure the C libraries beside the Rust API
    ///
    /// 64-byte calls by naaice_ap2.h and by naa.h, by a program that polls, and from Python if python3 can import naa;
    /// what a program costs that waits for ten seconds.
    #[command(after_help = CAPI_EXAMPLES)]
    Capi(SuiteArgs),
    /// Measure the bridge from EJFAT's events into workers' memory
    ///
    /// Segments by UDP into a worker's memory, shared or by RDMA, beside reassembly alone and RDMA WRITEs; and beside ZeroMQ in a build with
    /// `cargo build --release -p naa-benches --features zeromq`, which needs a C++ compiler.
    #[command(after_help = BRIDGE_EXAMPLES)]
    Bridge(SuiteArgs),
    /// Measure EJFAT's data path
    ///
    /// The reassembler and the load balancer's tables in memory, beside copies of the same bytes.
    #[command(after_help = EJFAT_EXAMPLES)]
    Ejfat(SuiteArgs),
    /// Measure the control plane of EJFAT's load balancer
    ///
    /// How many states of workers it takes per second, beside bare gRPC; how soon a new worker gets events, and how soon a dead
    /// worker gets none; what changes of tables cost the data plane.
    #[command(after_help = LB_EXAMPLES)]
    Lb(SuiteArgs),
    Layouts(Box<layouts::Args>),
    /// One end of a measurement
    #[command(hide = true)]
    Side(side::Args),
}

const CAPI_EXAMPLES: &str = "\
Examples:
  naa bench capi                         everything, in four minutes, on an idle machine
  naa bench capi --json capi.json        the table for programs; - is standard output
  naa bench capi --only naa_wait         what has this in its name
  naa bench capi --quick                 a look in half a minute, which is no verdict
  PATH=venv/bin:$PATH naa bench capi     with the Python that has the package `naa`

Each side is a process with a server of its own, which is another process, over the embedded provider on \
loopback. Sides take turns; figures, spread and verdicts are as `naa bench --help` says. The functions are called as \
from C, by pointers, but are part of this program: what a shared library adds is a jump.";

const EJFAT_EXAMPLES: &str = "\
Examples:
  naa bench ejfat                        everything, in five minutes, on an idle machine
  naa bench ejfat --json ejfat.json      the table for programs; - is standard output
  naa bench ejfat --only reassembler     what has this in its name
  naa bench ejfat --quick                a look in seconds, which is no verdict

Pure parts: times of one event or packet on one core. Over loopback: the highest rate at which nothing is lost, found \
by search, with the same sender for ours and for what it is compared with; the remark says which end limits. Figures, \
spread and verdicts are as `naa bench --help` says.";

const LB_EXAMPLES: &str = "\
Examples:
  naa bench lb                           everything, in five minutes, on an idle machine
  naa bench lb --json lb.json            the table for programs; - is standard output
  naa bench lb --only SendState          the measures with this in their names
  naa bench lb --quick                   a look in a minute, which is no verdict

The control plane is one process with its store and data plane; clients, workers and the sender of events are another. Both \
talk over loopback. A worker counts as dead when it sent no state for two seconds. Figures, spread and verdicts are as \
`naa bench --help` says.";

const BRIDGE_EXAMPLES: &str = "\
Examples:
  naa bench bridge                       everything, in five minutes, on an idle machine
  naa bench bridge --json bridge.json    the table for programs; - is standard output
  naa bench bridge --only 'this host'    what has this in its name
  naa bench bridge --quick               a look in seconds, which is no verdict

Sender, bridge and worker are processes of their own. A worker of the bridge's host shares its half of the cores, a \
remote one the sender's: with two cores the bridge has one for itself, as the end that sends WRITEs has. Rates are the \
highest at which nothing is lost, found by search, until the last event is delivered; WRITEs are pushed back instead. \
Figures, spread and verdicts are as `naa bench --help` says.";

const QUICK_REPEATS: u32 = 3;

/// The exit status where the command line or an environment variable makes no sense, as clap has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = match naa_host::log_filter() {
        Ok(filter) => filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN)),
        Err(error) => {
            let _ = writeln!(io::stderr(), "naa: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let log = tracing_subscriber::fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(log.log_internal_errors(false)).init();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output closed the pipe early, as `head` does. This is no error.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let remedy = error.chain().find_map(|cause| Some(verbs::remedy(cause.downcast_ref()?)));
            // `eprintln!` would panic if the disk is full.
            let _ = writeln!(io::stderr(), "naa: {error:#}{}", remedy.unwrap_or_default());
            let is_usage = matches!(error.downcast_ref(), Some(naa_host::Error::Environment { .. }));
            if is_usage { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(args: &Args) -> anyhow::Result<()> {
    let idle_seconds = [Effort::USUAL, Effort::QUICK].map(|effort| effort.idle_seconds);
    match &args.command {
        Some(Command::Side(side)) => side::run(side),
        Some(Command::Capi(args)) => bench(args, "naa bench capi", measures::capi::all(), [10.0, 2.0]),
        Some(Command::Bridge(args)) => bench(args, "naa bench bridge", measures::bridge::all(), [3.0, 1.0]),
        Some(Command::Lb(args)) => bench(args, "naa bench lb", measures::lb::all(), [3.0, 1.0]),
        Some(Command::Ejfat(args)) => bench(args, "naa bench ejfat", measures::ejfat::all(), [3.0, 1.0]),
        Some(Command::Layouts(args)) => layouts::run(args),
        None => bench(&args.suite, "naa bench", measures::all(), idle_seconds),
    }
}

/// `idle_seconds` says how long measures that only wait take, without `--quick` and with.
fn bench(
    args: &SuiteArgs,
    command: &str,
    mut measures: Vec<Measure>,
    idle_seconds: [f64; 2],
) -> anyhow::Result<()> {
    let effort = if args.quick { Effort::QUICK } else { Effort::USUAL };
    let effort = Effort { idle_seconds: idle_seconds[usize::from(args.quick)], ..effort };
    if let Some(text) = &args.only {
        measures.retain(|measure| measure.is_about(text));
        ensure!(
            !measures.is_empty(),
            "no measurement has {text:?} in its name; `{command} --list` has the names"
        );
    }
    let json = args.json.as_deref().map(Json::open).transpose()?;
    let mut table = Row::table().on_stderr(matches!(json, Some(Json::Stdout)));
    if args.list {
        return measures.iter().flat_map(|measure| measure.names()).try_for_each(|name| table.line(&name));
    }
    let repeats = args.repeats.unwrap_or(if args.quick { QUICK_REPEATS } else { LEAST_REPEATS });
    let placement = if args.unpinned { CpuPlacement::default() } else { CpuPlacement::halves()? };
    table.line(&placement::describe(&placement))?;
    if measures.iter().any(Measure::needs_python)
        && let Err(why) = sides::python::look()
    {
        measures.retain(|measure| !measure.needs_python());
        table.line(&format!("calls from Python are not measured: {why}"))?;
    }
    let config = RunConfig { repeats, effort, quick: args.quick, placement };
    let rows = runner::run(&measures, args.only.as_deref(), &config, &mut table)?;
    let report = Report { rows };
    table.line("")?;
    table.line(&summary(&report, repeats, args.quick, command))?;
    json.map_or(Ok(()), |json| json.write(&report))
}

fn summary(report: &Report, repeats: u32, quick: bool, command: &str) -> String {
    let with_target = || report.rows.iter().filter(|row| row.target != row::Target::Report);
    let targets = with_target().count();
    let targets = format!("{targets} target{}", if targets == 1 { "" } else { "s" });
    if quick || repeats < LEAST_REPEATS {
        let why = if quick { "--quick measures for too short a time".into() } else { few(repeats) };
        return format!("{targets} without a verdict: {why}; `{command}` gives one");
    }
    let count = |verdict| with_target().filter(|row| row.verdict() == verdict).count();
    let (met, missed, unclear) = (count("pass"), count("MISSED"), count("no verdict"));
    format!("{targets}: {met} met, {missed} missed, {unclear} without a verdict (spread over 20 %)")
}

fn few(repeats: u32) -> String {
    format!("{repeats} repeats are fewer than {LEAST_REPEATS}")
}
