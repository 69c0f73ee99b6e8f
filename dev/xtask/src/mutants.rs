//! `mutants`: puts small faults into pure crates, one at a time, and looks whether the tests find them.
//!
//! cargo-mutants lists and makes the faults. A seed draws some of them. The crate's own tests run with each; what
//! survives is tried again with the simulation.

use crate::{explained::Explained, repo, table, tool};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use simnet::Random;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

const EXAMPLES: &str = "\
Examples:
  cargo xtask mutants --package roce              100 mutants of one crate
  cargo xtask mutants --package mrsp --seed 7     100 others
  cargo xtask mutants --package roce --within rdma/roce/src/qp/completer.rs --count 1000

A mutant that survives is printed. Mend the tests so that they find it, or give its reason in dev/mutants.txt.
A reason that begins with \"equivalent\" says that the program does the same with it; such a mutant is not counted.";

/// The least share of mutants that a crate's own tests must find, in percent.
const LEAST_BY_OWN: usize = 75;
/// The least share of mutants that the own tests and the simulation must find together, in percent.
const LEAST_BY_BOTH: usize = 97;
/// The seconds after which a test that hangs counts as failed.
const TIME_LIMIT: &str = "60";
/// The remedy if cargo-mutants does not do what this module expects of it.
const VERSION: &str = "another version of cargo-mutants may need a change of dev/xtask/src/mutants.rs";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The crate
    #[arg(long, value_name = "CRATE")]
    package: String,
    /// How many mutants
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
    /// The seed of the choice
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Mutants of this file only
    #[arg(long, value_name = "FILE")]
    within: Option<PathBuf>,
}

/// A fault, as cargo-mutants describes it.
#[derive(Clone, Debug, Deserialize)]
struct Mutant {
    /// File, line, column, and the change.
    name: String,
    file: PathBuf,
}

impl Mutant {
    fn line(&self) -> Result<usize> {
        let line = self.name.split(':').nth(1).and_then(|line| line.parse().ok());
        line.filter(|&line| line > 0).with_context(|| format!("{:?} names no line; {VERSION}", self.name))
    }

    /// The name without line and column, which change with every commit.
    fn stable_name(&self) -> String {
        let change = self.name.splitn(4, ':').nth(3).unwrap_or(&self.name);
        format!("{}:{change}", self.file.display())
    }
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let program = tool::find("cargo-mutants")?;
    let explained = Explained::read(&repo::root().join("dev/mutants.txt"))?;
    let drawn = draw(list(&program, options)?, options);
    ensure!(
        !drawn.is_empty(),
        "{} has no mutants there; --within takes a source file of the crate, such as rdma/roce/src/psn.rs",
        options.package
    );
    println!("{} mutants of {}, by its own tests", drawn.len(), options.package);
    let start = Instant::now();
    let own = try_out(&program, options, &drawn, &[])?;
    println!("{} survived after {} s; now the simulation", own.missed.len(), table::seconds(start.elapsed()));
    let simulated = if own.missed.is_empty() {
        Tried::default()
    } else {
        let left: Vec<_> = drawn.iter().filter(|mutant| own.missed.contains(&mutant.name)).cloned().collect();
        try_out(&program, options, &left, &["--profile", "release", "--test-package", "sim"])?
    };
    let missed: Vec<_> = drawn.iter().filter(|mutant| simulated.missed.contains(&mutant.name)).collect();
    let equivalent =
        missed.iter().filter(|mutant| is_equivalent(explained.reason(&mutant.stable_name()))).count();
    let viable = own.caught.len() + own.missed.len() - equivalent;
    let found = viable - (missed.len() - equivalent);
    let percent = |part: usize| format!("{:.1} %", 100.0 * part as f64 / viable as f64);
    table::print(&[
        ["crate", "mutants", "by own tests", "with the simulation", "seconds"].map(str::to_owned),
        [
            options.package.clone(),
            viable.to_string(),
            percent(own.caught.len()),
            percent(found),
            table::seconds(start.elapsed()),
        ],
    ]);
    let mut is_good =
        100 * own.caught.len() >= LEAST_BY_OWN * viable && 100 * found >= LEAST_BY_BOTH * viable;
    println!("the least: {LEAST_BY_OWN} % by own tests, {LEAST_BY_BOTH} % with the simulation");
    println!("not counted, because the program does the same with them: {equivalent}");
    for mutant in missed {
        if let Some(reason) = explained.reason(&mutant.stable_name()) {
            println!("{}\n    survived: {reason}", mutant.name);
        } else {
            is_good = false;
            println!("{}\n    SURVIVED, and dev/mutants.txt has no reason for it", mutant.name);
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns true if `reason`, which is a reason in `dev/mutants.txt`, says that the program does the same with the
/// mutant. No test can find such a mutant, so it is not counted.
fn is_equivalent(reason: Option<&str>) -> bool {
    reason.is_some_and(|reason| reason.starts_with("equivalent"))
}

fn list(program: &Path, options: &Args) -> Result<Vec<Mutant>> {
    let mut command = mutants(program, options);
    let output = command.args(["--list", "--json"]).stderr(Stdio::inherit()).output();
    let output = output.context("cannot run cargo-mutants")?;
    ensure!(output.status.success(), "cargo-mutants cannot list mutants: {}", output.status);
    serde_json::from_slice(&output.stdout).context("the list of cargo-mutants")
}

fn draw(mut all: Vec<Mutant>, options: &Args) -> Vec<Mutant> {
    let mut random = Random::new(options.seed, 0);
    let count = options.count.min(all.len());
    (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect()
}

fn mutants(program: &Path, options: &Args) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repo::root()).args(["mutants", "--no-shuffle", "--package", &options.package]);
    if let Some(file) = &options.within {
        command.arg("--file").arg(file);
    }
    command
}

/// Returns a diff that adds the lines of the mutants in `wanted`, for `--in-diff`. With this diff, cargo-mutants tries
/// only mutants in these lines. `--re` alone is not enough: cargo-mutants 27.1.0 does not apply it to mutants that
/// delete a field.
fn diff_of(wanted: &[Mutant]) -> Result<String> {
    let lines: BTreeSet<_> =
        wanted.iter().map(|mutant| Ok((&mutant.file, mutant.line()?))).collect::<Result<_>>()?;
    let mut diff = String::new();
    let mut last = None;
    for (file, number) in lines {
        let path = repo::root().join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let line = text
            .lines()
            .nth(number - 1)
            .with_context(|| format!("{} has no line {number}", file.display()))?;
        if last.replace(file) != Some(file) {
            let file = file.display();
            diff.push_str(&format!("--- a/{file}\n+++ b/{file}\n"));
        }
        diff.push_str(&format!("@@ -{number},0 +{number},1 @@\n+{line}\n"));
    }
    Ok(diff)
}

/// The names of the drawn mutants that cargo-mutants tried. Mutants that do not compile are in neither field. If
/// several mutants have the same name, the name is in `missed` if the tests missed at least one of these mutants, and
/// else in `caught`.
#[derive(Debug, Default)]
struct Tried {
    caught: BTreeSet<String>,
    missed: BTreeSet<String>,
}

fn try_out(program: &Path, options: &Args, wanted: &[Mutant], more: &[&str]) -> Result<Tried> {
    let folder = repo::target_dir().join("mutants").join(&options.package);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut command = mutants(program, options);
    // cargo-mutants builds in copies of the checkout, side by side.
    command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_INCREMENTAL");
    command.args(["--jobs", "2", "--timeout", TIME_LIMIT, "--no-times", "--output"]).arg(&folder).args(more);
    for mutant in wanted {
        command.arg("--re").arg(format!("^{}$", escaped(&mutant.name)));
    }
    let diff = folder.join("drawn.diff");
    fs::write(&diff, diff_of(wanted)?).with_context(|| diff.display().to_string())?;
    command.arg("--in-diff").arg(&diff);
    let status = command.status().context("cannot run cargo-mutants")?;
    // 0: all were caught; 2: some were missed; 3: some ran too long.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants failed: {status}");
    let drawn: BTreeSet<_> = wanted.iter().map(|mutant| mutant.name.as_str()).collect();
    let names = |file: &str| -> Result<BTreeSet<String>> {
        let path = folder.join("mutants.out").join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        // Other mutants that delete a field in the same lines are tried, too, and do not count.
        Ok(text.lines().filter(|name| drawn.contains(name)).map(str::to_owned).collect())
    };
    let missed = names("missed.txt")?;
    let mut caught = names("caught.txt")?;
    caught.append(&mut names("timeout.txt")?);
    caught.retain(|name| !missed.contains(name));
    let unviable = names("unviable.txt")?;
    let untried =
        drawn.iter().find(|name| ![&caught, &missed, &unviable].iter().any(|tried| tried.contains(**name)));
    if let Some(name) = untried {
        bail!("cargo-mutants did not try {name:?}, which was drawn; {VERSION}");
    }
    Ok(Tried { caught, missed })
}

/// Returns a regular expression that matches `text` only. Characters without a special meaning must not be escaped:
/// `\<` and `\>` do not match `<` and `>`, but the beginning and the end of a word.
fn escaped(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_lasts_longer_than_its_line() {
        let name = "rdma/roce/src/psn.rs:20:9: replace Psn::plus -> Self with Default::default()".to_owned();
        let mutant = Mutant { name, file: "rdma/roce/src/psn.rs".into() };
        assert_eq!(
            mutant.stable_name(),
            "rdma/roce/src/psn.rs: replace Psn::plus -> Self with Default::default()"
        );
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a_b + (c) -> d"), r"a_b \+ \(c\) -> d");
    }

    #[test]
    fn the_lines_of_mutants_are_known() {
        let mutant = |name: &str| Mutant { name: name.into(), file: "rdma/roce/src/psn.rs".into() };
        assert_eq!(
            mutant("rdma/roce/src/psn.rs:28:9: replace Psn::minus -> Self with x").line().unwrap(),
            28
        );
        assert!(mutant("replace Psn::minus -> Self with x").line().is_err());
    }
}
