//! `test`: checks and tests in order, each with a limit, and a table at the end.

mod companion;
mod last_lines;
mod processes;
mod steps;

use crate::{bindings, packages, repo, table};
use anyhow::{Context, Result, bail, ensure};
use companion::Companion;
use last_lines::LastLines;
use processes::{Ended, Processes};
use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};
#[cfg(test)]
pub(crate) use steps::INTEROP_PART;
use steps::{CHECKS, LIMIT, LONG, SHORT, Step};

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                        what a change must pass
  cargo xtask test --list                 the steps, what each protects, and how long it takes
  cargo xtask test --only clippy --only sim
  cargo xtask test --long --only sim      a step of the long run by itself
  cargo xtask test --long                 before a release

Tests of one crate need no xtask: `cargo test -p CRATE`. Ctrl-C ends everything that was started.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// More seeds, demonstrations in full size, longer fuzzing, the whole matrices: some hours
    #[arg(long)]
    long: bool,
    /// Run the step of this name only, or the steps whose names begin with this word; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Name the steps
    #[arg(long)]
    list: bool,
    /// Fail where a step is skipped, as where the variable CI is set
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy)]
enum Program {
    Cargo,
    Xtask,
    Naa,
}

#[derive(Debug)]
enum Outcome {
    Passed,
    /// Why, and the last lines that the step printed.
    Failed(String, Vec<String>),
    Skipped(String),
    Interrupted,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let steps = chosen(options)?;
    if options.list {
        list(&steps);
        return Ok(ExitCode::SUCCESS);
    }
    let strict = options.strict || env::var_os("CI").is_some();
    // Read before a build replaces this program.
    let xtask = env::current_exe().context("cannot tell this program's path")?;
    let processes = Processes::new()?;
    let start = Instant::now();
    let mut rows = vec![["step", "seconds", "result"].map(str::to_owned)];
    let mut last_lines = Vec::new();
    let mut failed = 0;
    let mut interrupted = false;
    for (at, step) in steps.iter().enumerate() {
        println!("\n== {}: {}", step.name, step.protects);
        let begin = Instant::now();
        let outcome = perform(step, &steps[at + 1..], &xtask, &processes)
            .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"), Vec::new()));
        let time = table::seconds(begin.elapsed());
        let (bad, result) = match outcome {
            Outcome::Passed => (false, "ok".to_owned()),
            Outcome::Skipped(why) if strict => (true, format!("FAILED: skipped: {why}")),
            Outcome::Skipped(why) => (false, format!("SKIPPED: {why}")),
            Outcome::Failed(why, lines) => {
                last_lines.push((step.name, lines));
                (true, format!("FAILED: {why}"))
            }
            Outcome::Interrupted => {
                interrupted = true;
                (true, "interrupted".to_owned())
            }
        };
        failed += u32::from(bad);
        println!("-- {}: {time} s, {result}", step.name);
        rows.push([step.name.to_owned(), time, result]);
        if interrupted {
            break;
        }
    }
    for (name, lines) in last_lines.iter().filter(|(_, lines)| !lines.is_empty()) {
        println!("\n== the last lines of {name}, which failed:\n{}", lines.join("\n"));
    }
    println!();
    rows.push(["all".to_owned(), table::seconds(start.elapsed()), format!("{failed} failed")]);
    table::print(&rows);
    Ok(match (interrupted, failed) {
        (true, _) => ExitCode::from(processes::INTERRUPTED),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

/// The steps that the options name.
fn chosen(options: &Args) -> Result<Vec<&'static Step>> {
    let (rest, other) = if options.long { (LONG, SHORT) } else { (SHORT, LONG) };
    let all: Vec<_> = CHECKS.iter().chain(rest).collect();
    // The first word of several steps' names stands for all of them.
    let is_named = |name: &str, step: &Step| {
        let begins = || step.name.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
        step.name == name || all.iter().all(|step| step.name != name) && begins()
    };
    for name in &options.only {
        if all.iter().any(|step| is_named(name, step)) {
            continue;
        }
        let remedy = if options.long { "leave out --long" } else { "add --long" };
        ensure!(!other.iter().any(|step| step.name == *name), "{name} is a step of the other run: {remedy}");
        let names: Vec<_> = all.iter().map(|step| step.name).collect();
        bail!("there is no step {name}; the steps are: {}", names.join(", "));
    }
    let wanted =
        |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| is_named(name, step));
    Ok(all.iter().copied().filter(wanted).collect())
}

fn list(steps: &[&Step]) {
    let mut rows = vec![["step", "seconds", "what it protects"].map(str::to_owned)];
    let row = |step: &&Step| [step.name.to_owned(), step.seconds.to_string(), step.protects.to_owned()];
    rows.extend(steps.iter().map(row));
    let all: u32 = steps.iter().map(|step| step.seconds).sum();
    rows.push(["all".to_owned(), all.to_string(), String::new()]);
    table::print(&rows);
    println!(
        "\nseconds: on two cores, when everything is built; a step is ended after {} s",
        LIMIT.as_secs()
    );
}

fn perform(step: &Step, later: &[&Step], xtask: &Path, processes: &Processes) -> Result<Outcome> {
    if let Some(user) = step.user
        && let Err(why) = packages::ensure(user)
    {
        return Ok(Outcome::Skipped(why));
    }
    let mut command = match step.program {
        Program::Cargo => repo::cargo(),
        Program::Xtask => Command::new(xtask),
        Program::Naa => {
            // One command, so that the limit and the signals hold for the build, too.
            let mut shell = Command::new("sh");
            shell.args(["-c", "cargo build --release --workspace && exec \"$@\"", "sh"]);
            shell.arg(repo::release_program("naa"));
            shell
        }
    };
    command
        .args(step.arguments.split(' '))
        .current_dir(repo::root())
        .env("CARGO_TARGET_DIR", repo::target_dir())
        // Files of incremental compilation help only the next build, and take much space.
        .env("CARGO_INCREMENTAL", "0")
        .envs(step.environment.iter().copied());
    let _ahead = Companion::start(step, later, xtask)
        .inspect_err(|why| println!("nothing is built ahead of later steps: {why:#}"));
    let last_lines = LastLines::of(&mut command).context("cannot make a pipe")?;
    let ended = processes.run(&mut command, LIMIT)?;
    drop(command);
    let last_lines = last_lines.end();
    Ok(match ended {
        Ended::By(status) => match status.code() {
            Some(0) => Outcome::Passed,
            Some(code) if code == i32::from(bindings::SKIPPED) => Outcome::Skipped("see above".to_owned()),
            _ => Outcome::Failed(status.to_string(), last_lines),
        },
        Ended::Late => Outcome::Failed(format!("it took more than {} s", LIMIT.as_secs()), last_lines),
        Ended::Interrupted => Outcome::Interrupted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(long: bool, only: &[&str]) -> Result<Vec<&'static str>> {
        let only = only.iter().map(|name| (*name).to_owned()).collect();
        let options = Args { long, only, list: false, strict: false };
        Ok(chosen(&options)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names(false, &["sim", "tidy"]).unwrap(), ["tidy", "sim"]);
        assert_eq!(names(true, &["sim"]).unwrap(), ["sim"]);
        // A word that is no name stands for all names that begin with it.
        assert_eq!(names(true, &["mutants"]).unwrap().len(), 3);
        assert_eq!(names(true, &["fpga"]).unwrap(), ["fpga"]);
        assert!(names(false, &[]).unwrap().len() > 10);
        let error = names(false, &["rping-matrix"]).unwrap_err().to_string();
        assert!(error.contains("--long"), "{error}");
        let error = names(false, &["simulation"]).unwrap_err().to_string();
        assert!(error.contains("sim,") && error.contains("no step simulation"), "{error}");
    }

    #[test]
    fn names_are_unique_and_no_step_takes_long() {
        for long in [false, true] {
            let names = names(long, &[]).unwrap();
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len());
        }
        for step in CHECKS.iter().chain(SHORT).chain(LONG) {
            assert!(u64::from(step.seconds) <= LIMIT.as_secs(), "{}", step.name);
        }
        let seconds: u32 = CHECKS.iter().chain(SHORT).map(|step| step.seconds).sum();
        assert!(seconds < 15 * 60, "{seconds} s");
    }
}
