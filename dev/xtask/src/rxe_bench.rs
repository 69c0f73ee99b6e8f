//! `rxe-bench`: the verbs provider beside the kernel's own tools on one soft-RoCE device, and the embedded provider
//! beside it. Ratios within one run: the machines are emulated, so that figures by themselves say little.

use crate::{
    packages::{self, User},
    repo, rxe_vm,
};
use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// The scripts that the shells of the virtual machines run; the first one is read by both others.
const SCRIPTS: [(&str, &str); 3] = [
    ("lib.sh", include_str!("../rxe-bench/lib.sh")),
    ("one.sh", include_str!("../rxe-bench/one.sh")),
    ("two.sh", include_str!("../rxe-bench/two.sh")),
];

/// The number of repeats that a verdict needs.
const REPEATS: u32 = 15;
const QUICK_REPEATS: u32 = 3;
/// Both ends of a session with 256 MiB.
const MEMORY: u32 = 3072;
/// Two for the ends of a measurement, two for what the kernel does beside them.
const CPUS: u32 = 4;

const EXAMPLES: &str = "\
Examples:
  cargo xtask rxe-bench                     everything; wants an idle host
  cargo xtask rxe-bench --json rows.json    the rows for programs, as `naa bench --json` has them
  cargo xtask rxe-bench --quick             a look, which is no verdict

In each repeat ours and the reference take turns, in an order that turns around. The ratio is the median of the
repeats' ratios; the spread is the distance of their quartiles by the median, and beyond 20 %, or with fewer than 15
repeats, there is no verdict. Both sides have the same processors, and softirqs go first on all of them.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Three short repeats: to see that it works, no verdict
    #[arg(long)]
    quick: bool,
    /// Repeats of each measurement; fewer than 15 are no verdict [default: 15, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100))]
    repeats: Option<u32>,
    /// Write the rows to FILE as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Args {
    fn repeats(&self) -> u32 {
        self.repeats.unwrap_or(if self.quick { QUICK_REPEATS } else { REPEATS })
    }

    /// Calls of a repeat, and seconds of WRITEs.
    fn effort(&self) -> (u32, u32) {
        if self.quick { (1000, 1) } else { (3000, 2) }
    }
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    packages::ensure(User::RxeVm).map_err(anyhow::Error::msg)?;
    repo::build_release()?;
    let folder = repo::target_dir().join("rxe-bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in SCRIPTS {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("load of this host before: {}", load());
    let (one_status, one) = measure(options, &folder, "one.sh")?;
    let (two_status, two) = measure(options, &folder, "two.sh")?;
    println!("load of this host after: {}\n", load());
    print_table(options, &[one, two].concat())?;
    let failed: Vec<_> = [("one machine", one_status), ("two machines", two_status)]
        .into_iter()
        .filter(|(_, status)| *status != 0)
        .collect();
    for (what, status) in &failed {
        println!("rxe-bench: {what}: exit status {status}; not everything was measured");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How the machines ended, and what they wrote.
fn measure(options: &Args, folder: &Path, script: &str) -> Result<(u8, Vec<u8>)> {
    let two = script == "two.sh";
    println!("== {}", if two { "two machines" } else { "one machine" });
    let (calls, seconds) = options.effort();
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut command = vec!["bash".to_owned(), text(folder.join(script))];
    command.extend(["naa", "wire"].map(|name| text(repo::release_program(name))));
    command.extend([options.repeats(), calls, seconds].map(|number| number.to_string()));
    let machine = rxe_vm::Args {
        memory: MEMORY,
        cpus: if two { CPUS / 2 } else { CPUS },
        limit: 600 + 240 * u64::from(options.repeats()),
        two,
        peer: two.then(|| rxe_vm::command_line(&command)),
        command,
        ..rxe_vm::Args::default()
    };
    rxe_vm::recorded(&machine, false)
}

/// `wire` has the rows, since it has those of `naa bench`.
fn print_table(options: &Args, samples: &[u8]) -> Result<()> {
    let mut table = Command::new(repo::release_program("wire"));
    table.arg("table");
    table.args(options.quick.then_some("--quick"));
    if let Some(path) = &options.json {
        table.arg("--json").arg(path);
    }
    let mut table = table.stdin(Stdio::piped()).spawn().context("cannot run wire")?;
    let mut input = table.stdin.take().context("wire has no standard input")?;
    input.write_all(samples).context("cannot hand the samples to wire")?;
    drop(input);
    if !table.wait().context("cannot wait for wire")?.success() {
        bail!("wire made no table");
    }
    Ok(())
}

/// Over one, five and fifteen minutes.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
