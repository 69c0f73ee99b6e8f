//! `fuzz`: builds and runs the targets in `dev/fuzz/targets` with libFuzzer, on the stable toolchain.

use crate::{
    packages::{self, User},
    parallel, repo, table,
    tidy::Finding,
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
};

/// What makes rustc record coverage the way libFuzzer reads it.
const RUSTFLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Run this target only
    #[arg(long, value_name = "T")]
    target: Option<String>,
    /// Name the targets and stop
    #[arg(long)]
    list: bool,
    /// Build the targets and stop
    #[arg(long)]
    build: bool,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let all = targets(&repo::root())?;
    if options.list {
        all.iter().for_each(|target| println!("{target}"));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<_> =
        all.iter().filter(|t| options.target.as_ref().is_none_or(|wanted| wanted == *t)).collect();
    ensure!(!chosen.is_empty(), "no such target; there are: {}", all.join(", "));
    packages::ensure(User::Fuzz).map_err(anyhow::Error::msg)?;
    let programs = build()?;
    if options.build {
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = parallel::workers(&chosen);
    println!("fuzzing {} targets for {} s each, {jobs} at a time", chosen.len(), options.seconds);
    let outcomes = parallel::side_by_side(&chosen, |target| Ok(fuzz(&programs, target, options.seconds)))?;
    let mut rows = vec![["target", "execs", "exec/s", "result"].map(str::to_owned)];
    let passed = outcomes.iter().all(|outcome| outcome.as_ref().is_ok_and(|outcome| outcome.passed));
    for (target, outcome) in chosen.into_iter().cloned().zip(outcomes) {
        rows.push(match outcome {
            Ok(Outcome { execs, per_second, passed: true }) => [target, execs, per_second, "ok".to_owned()],
            Ok(Outcome { execs, per_second, .. }) => [target, execs, per_second, "FAILED".to_owned()],
            Err(error) => [target, "?".to_owned(), "?".to_owned(), format!("FAILED: {error:#}")],
        });
    }
    println!();
    table::print(&rows);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The names of `dev/fuzz/targets/*.rs`, sorted.
fn targets(root: &Path) -> Result<Vec<String>> {
    let names = repo::names(&root.join("dev/fuzz/targets"))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".rs")).map(str::to_owned).collect())
}

/// Finds fuzz targets that Cargo would not build. `tidy` calls this.
pub(crate) fn unlisted_targets(root: &Path) -> Result<Vec<Finding>> {
    let manifest =
        fs::read_to_string(root.join("dev/fuzz/Cargo.toml")).context("cannot read dev/fuzz/Cargo.toml")?;
    let listed = |name: &String| manifest.contains(&format!("path = \"targets/{name}.rs\""));
    let finding = |name: String| {
        let remedy = format!("add [[bin]] with name = \"{name}\" and path = \"targets/{name}.rs\"");
        Finding::new("dev/fuzz/Cargo.toml", 1, format!("fuzz target `{name}` is not built"), remedy)
    };
    Ok(targets(root)?.into_iter().filter(|name| !listed(name)).map(finding).collect())
}

/// Builds all targets and gives the folder they are in.
fn build() -> Result<PathBuf> {
    let triple = host_triple()?;
    let built = repo::target_dir().join("fuzz");
    let status = repo::cargo()
        .args(["build", "--release", "--bins", "--manifest-path", "dev/fuzz/Cargo.toml"])
        // Naming the target keeps the flags away from build scripts.
        .args(["--target", &triple])
        .env("CARGO_TARGET_DIR", &built)
        .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\x1f"))
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build");
    Ok(built.join(triple).join("release"))
}

fn host_triple() -> Result<String> {
    let output =
        Command::new("rustc").arg("-vV").current_dir(repo::root()).output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc -vV names no host")?.to_owned())
}

struct Outcome {
    execs: String,
    per_second: String,
    passed: bool,
}

fn fuzz(programs: &Path, target: &str, seconds: u64) -> Result<Outcome> {
    let corpus = repo::target_dir().join("fuzz-corpus").join(target);
    let failures = repo::target_dir().join("fuzz-failures").join(target);
    for folder in [&corpus, &failures] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut command = Command::new(programs.join(target));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048", "-max_len=8192"])
        .arg(&corpus);
    // Inputs kept with the sources; libFuzzer writes to the first folder only.
    let kept = repo::root().join("dev/fuzz/seeds").join(target);
    if kept.is_dir() {
        command.arg(kept);
    }
    let output = command.output().with_context(|| format!("cannot run fuzz target {target}"))?;
    outcome(programs, target, &output)
}

fn outcome(programs: &Path, target: &str, output: &Output) -> Result<Outcome> {
    let log = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success();
    if !passed {
        let lines: Vec<_> = log.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        println!("run it again: {} PATH-OF-THE-INPUT", programs.join(target).display());
    }
    let (execs, per_second) =
        (statistic(&log, "number_of_executed_units"), statistic(&log, "average_exec_per_sec"));
    if passed && execs.is_none() {
        bail!("{target} gave no statistics: is it a libFuzzer target?");
    }
    let or_unknown = |number: Option<&str>| number.unwrap_or("?").to_owned();
    Ok(Outcome { execs: or_unknown(execs), per_second: or_unknown(per_second), passed })
}

/// A line `stat::NAME: NUMBER` of `-print_final_stats=1`.
fn statistic<'a>(log: &'a str, name: &str) -> Option<&'a str> {
    log.lines()
        .find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read() {
        let log = "Done 5 runs\nstat::number_of_executed_units: 12345\nstat::average_exec_per_sec:     617\n";
        assert_eq!(statistic(log, "number_of_executed_units"), Some("12345"));
        assert_eq!(statistic(log, "average_exec_per_sec"), Some("617"));
        assert_eq!(statistic(log, "peak_rss_mb"), None);
    }
}
