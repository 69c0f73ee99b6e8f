//! `fpga`: lints, simulates, proves, synthesises and times the RTL of `fpga/rtl`.

mod command;
mod coverage;
mod jobs;
mod limits;
mod lint;
mod mutants;
mod pcap;
mod proofs;
mod prove;
mod smtbmc;
mod speed;
mod synth;
mod tools;

use crate::{
    bindings::SKIPPED,
    packages::{self, User},
    repo, table,
    venv::Venv,
};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use naa_fpga::{Module, Tools};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use tools::Group;

const EXAMPLES: &str = "\
Examples:
  cargo xtask fpga                 all parts but coverage and engine, and a table of what each module takes and may take
  cargo xtask fpga --only sim      the RTL beside the Rust that it equals; tools: Verilator and a C++ compiler
  cargo xtask fpga --only prove    what fpga/formal asserts, for all inputs; tools: yosys and yices; traces in target/fpga/prove
  cargo xtask fpga --only coverage which lines and signals the tests reach, and the lines that they do not reach
  cargo xtask fpga --only area     LUTs, flip-flops and memories, as yosys estimates them for UltraScale+
  cargo xtask fpga --only sim --packets 1000000
  cargo xtask fpga --pcap segments.pcap forwarded.pcap
                                   a capture through the simulated load balancer, compared with the Rust
  cargo xtask fpga --mutate        small faults in the RTL, one at a time: the tests must find them
  cargo xtask fpga --mutate --mutants 1000 --seed 7

The tools come from PyPI, pinned in fpga/tools, into target/fpga/tools. A test by itself, when they are there:
  cargo test --release -p naa-fpga --test icrc";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Run this part only; may be repeated [default: all but coverage and engine]
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Random packets for each module
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    packets: u64,
    /// Send the frames of a capture through the simulated load balancer, write those that leave into another capture, and compare them
    /// with those that the Rust makes. The tables forward all segments of the capture to four members
    #[arg(long, num_args = 2, value_names = ["IN", "OUT"], conflicts_with = "only")]
    pcap: Vec<PathBuf>,
    /// Make the models that the tests run, and stop
    #[arg(long, conflicts_with_all = ["only", "packets", "pcap", "mutate"])]
    models: bool,
    /// Put small faults into the RTL, and see whether the tests find them; nothing else is done
    #[arg(long, conflicts_with_all = ["only", "packets"])]
    mutate: bool,
    /// Faults of all modules together
    #[arg(long, value_name = "NUMBER", default_value_t = 200, requires = "mutate", value_parser = clap::value_parser!(u16).range(1..=60_000))]
    mutants: u16,
    /// The seed of the choice of faults
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "mutate")]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Warnings of Verilator, and the format
    Lint,
    /// Every module beside the Rust that it equals
    Sim,
    /// Which lines the tests reach, and which signals they change
    Coverage,
    /// The load balancer in software with its decisions made by the RTL: the tests of its sockets, tables and gRPC, and naa demo ejfat
    Engine,
    /// A capture of senders through the simulated load balancer, as with --pcap
    Pcap,
    /// Cycles of simulation in a second
    Speed,
    /// Assertions about modules, for all inputs; each proof must also find mistakes that are made on purpose
    Prove,
    /// What each module takes of an UltraScale+ device, as yosys estimates it
    Area,
    /// How fast each module is on an ECP5, as nextpnr estimates it: a gate against regressions, no promise for other devices
    Fmax,
}

impl Part {
    /// The parts that run unless others are named.
    const USUAL: [Self; 7] =
        [Self::Lint, Self::Sim, Self::Pcap, Self::Speed, Self::Area, Self::Prove, Self::Fmax];

    /// What the part is called on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The rows of the table: module, what, value, limit, result.
type Rows = Vec<[String; 5]>;

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    packages::ensure(User::Fpga).map_err(anyhow::Error::msg)?;
    let parts = if options.only.is_empty() { &Part::USUAL[..] } else { &options.only };
    let is_simulated =
        |part: &Part| matches!(part, Part::Sim | Part::Coverage | Part::Engine | Part::Pcap | Part::Speed);
    let only_simulates =
        options.pcap.len() == 2 || options.models || parts.iter().all(is_simulated) && !options.mutate;
    let tools = match tools::install(if only_simulates { Group::Sim } else { Group::All })? {
        Ok(tools) => tools,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    if let [input, output] = &options.pcap[..] {
        return pcap::run(input, output).map(|()| ExitCode::SUCCESS);
    }
    if options.models {
        return models().map(|()| ExitCode::SUCCESS);
    }
    if options.mutate {
        return mutants::run(&tools, options.mutants.into(), options.seed);
    }
    let mut rows: Rows = vec![["module", "what", "is", "limit", "result"].map(str::to_owned)];
    let mut took = Vec::new();
    let mut jobs = Vec::new();
    for part in parts {
        let begun = Instant::now();
        match part {
            Part::Area => jobs.extend(synth::area_jobs(&tools)),
            Part::Prove => jobs.extend(prove::jobs(&tools)),
            Part::Fmax => jobs.extend(synth::fmax_jobs(&tools)),
            _ => {
                println!("== {}", part.name());
                run_part(*part, &tools, options.packets, &mut rows)?;
                took.push((part.name(), begun.elapsed()));
            }
        }
    }
    if !jobs.is_empty() {
        println!("== jobs side by side");
        let begun = Instant::now();
        jobs::run(&jobs, &mut rows);
        took.push(("jobs side by side".to_owned(), begun.elapsed()));
    }
    rows.extend(took.into_iter().map(|(part, time)| {
        ["all", &format!("{part}: seconds"), &table::seconds(time), "", "ok"].map(str::to_owned)
    }));
    println!();
    table::print(&rows);
    let failed = rows.iter().any(|row| row[4].starts_with("FAILED"));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Makes the models that the tests run.
fn models() -> Result<()> {
    let tools = Tools::find().context("the tools were installed before")?;
    let of_width = |name, width| Module::new(name).with("Width", width);
    let plain = ["icrc512", "region_check", "responder_check", "lb_addresses", "lb_begins", "lb_lookup"]
        .map(Module::new);
    let wide = [("lb_path", 128), ("lb_path", 512), ("lb_top", 128), ("lb_top", 512)];
    let wide = wide.map(|(name, width)| of_width(name, width));
    for module in plain.into_iter().chain(wide).chain([Module::new("counters").with("Bits", 6)]) {
        module.model(&tools)?;
    }
    Ok(())
}

/// Runs a part that has no jobs.
fn run_part(part: Part, tools: &Venv, packets: u64, rows: &mut Rows) -> Result<()> {
    match part {
        Part::Lint => lint::run(tools),
        Part::Sim => simulate(tools, packets, None),
        Part::Coverage => {
            let folder = coverage::folder()?;
            simulate(tools, coverage::PACKETS, Some(&folder))?;
            coverage::check(&folder, rows)
        }
        Part::Engine => engine(tools),
        Part::Pcap => pcap::senders(),
        Part::Speed => speed::run(rows),
        Part::Area | Part::Prove | Part::Fmax => Ok(()),
    }
}

/// Runs the tests of all modules. If there is a folder, what the models counted is written into it.
fn simulate(tools: &Venv, packets: u64, coverage: Option<&Path>) -> Result<()> {
    let mut tests = repo::cargo();
    tests.args(["test", "--release", "-p", "naa-fpga"]);
    tests.env("NAA_FPGA_TOOLS", tools.folder()).env("NAA_FPGA_STRICT", "1");
    tests.env("NAA_FPGA_PACKETS", packets.to_string());
    tests.envs(coverage.map(|folder| ("NAA_FPGA_COVERAGE", folder)));
    ensure!(tests.status()?.success(), "the RTL does not do what the Rust does, see above");
    Ok(())
}

fn engine(tools: &Venv) -> Result<()> {
    let mut tests = repo::cargo();
    tests.args(["test", "--release", "-p", "ejfat-lb"]).env("NAA_LB_ENGINE", "rtl");
    let mut demo = repo::cargo();
    demo.args(["run", "--release", "-p", "naa", "--", "demo", "ejfat", "--engine", "rtl"]);
    for command in [&mut tests, &mut demo] {
        command.env("NAA_FPGA_TOOLS", tools.folder());
        ensure!(
            command.status()?.success(),
            "the RTL does not serve as the load balancer's engine, see above"
        );
    }
    Ok(())
}
