//! `bench-diff`: the criterion benches of the hot paths at another revision and in this checkout, measured in turns.

mod comparison;
mod programs;
mod revision;

use crate::repo;
use anyhow::{Context, Result, ensure};
use comparison::{Comparison, Paired};
use naa_measure::{Json, TextTable};
use programs::Programs;
use revision::Revision;
use std::{path::PathBuf, process::ExitCode};

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench-diff HEAD                        what the changes that are not committed do
  cargo xtask bench-diff main --only 'roce responder'
  cargo xtask bench-diff v0.1.0 --rounds 21 --json -
  cargo xtask bench-diff HEAD~1 --fail-above 5       for scripts: exit code 1 if something became 5 % slower

In each round every bench runs once before and once after, one right behind the other, for a quarter of a second each.
The change is the median of the rounds' ratios, and the spread is the distance of these ratios' quartiles. A change
that is larger than its spread is called faster or slower; a few benches are called so by chance, so measure those
again with more rounds. A revision compared with itself shows what the machine and the place of code in memory do.
Nothing else should run meanwhile.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The revision before: a commit, a branch or a tag; what is compared with it is this checkout, as it is
    #[arg(value_name = "REV")]
    revision: String,
    /// Benches only whose names contain this text; `cargo bench -p naa-hot-paths -- --list` names all
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How often each bench is measured before and after
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=999))]
    rounds: u32,
    /// Write the comparison to FILE as JSON too; `-` is standard output, and then the table goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail if a bench became slower by more than this, and by more than its spread
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
}

/// A percentage that is neither negative nor infinite.
fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    let is_sound = percent.is_finite() && percent >= 0.0;
    is_sound.then_some(percent).ok_or_else(|| "it must be at least 0".to_owned())
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    // The destination is checked before the measurements, because they would be lost if it could not be written.
    let json = options.json.as_deref().map(Json::open).transpose()?;
    let folder = repo::target_dir().join("bench-diff");
    let revision = Revision::find(&options.revision)?;
    eprintln!("before: {revision}");
    let tree = revision.check_out(&folder.join("tree"))?;
    let before = Programs::build(&tree, &folder.join("target"))?;
    eprintln!("after: {}", revision::this_checkout()?);
    let after = Programs::build(&repo::root(), &repo::target_dir())?;
    let only = options.only.as_deref().unwrap_or_default();
    let (before, after) = (before.benches(only)?, after.benches(only)?);
    ensure!(
        !before.is_empty() || !after.is_empty(),
        "no bench has {only:?} in its name; `cargo bench -p naa-hot-paths -- --list` names all"
    );
    let mut rows = comparison::paired(before, after);
    let scratch = folder.join("criterion");
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for row in &mut rows {
            row.measure(|bench| programs::measure(bench, &scratch))?;
        }
    }
    let rows: Vec<_> = rows.iter().map(Paired::compare).collect();
    let table =
        TextTable::new(Comparison::columns()).whole(Comparison::HEAD, rows.iter().map(Comparison::cells));
    match json {
        Some(json @ Json::Stdout) => {
            eprintln!("{table}");
            json.write(&rows)?;
        }
        json => {
            naa_measure::line(&table)?;
            json.map_or(Ok(()), |json| json.write(&rows))?;
        }
    }
    let limit = options.fail_above.map(|percent| percent / 100.0);
    let failed = rows.iter().filter(|row| limit.is_some_and(|limit| row.is_slower_than(limit))).count();
    if failed > 0 {
        eprintln!("{failed} slower by more than {} %", options.fail_above.unwrap_or_default());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `git` with `arguments` at the root of the checkout, and returns the first line that it prints; `None` if it fails.
fn git(arguments: &[&str]) -> Result<Option<String>> {
    let mut git = std::process::Command::new("git");
    let output = git.arg("-C").arg(repo::root()).args(arguments).output().context("cannot run git")?;
    let first = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
    Ok(output.status.success().then_some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_percentage() {
        assert_eq!((percent("5"), percent("0"), percent("2.5")), (Ok(5.0), Ok(0.0), Ok(2.5)));
        for text in ["-1", "inf", "nan", "5 %", ""] {
            percent(text).unwrap_err();
        }
    }
}
