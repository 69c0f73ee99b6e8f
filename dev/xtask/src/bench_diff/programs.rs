//! The bench programs of a checkout: how they are built, which benches they have, and how one bench is measured.

use crate::repo;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The folder with a file for each bench program.
const FOLDER: &str = "benches/hot/benches";
/// The seconds for which a bench runs before it is measured, and for which it is measured.
const WARM_UP: &str = "0.05";
const MEASURE: &str = "0.2";
/// The least number of samples that criterion permits. More rounds are worth more than more samples of one round.
const SAMPLES: &str = "10";
/// The number of times that criterion draws the samples again for a confidence interval, which is not used here. Criterion warns if the
/// number is less.
const RESAMPLES: &str = "1001";

/// A bench, and the program that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bench {
    pub(super) name: String,
    pub(super) program: PathBuf,
}

/// The bench programs of a checkout.
#[derive(Debug)]
pub(super) struct Programs(Vec<PathBuf>);

impl Programs {
    /// Builds the bench programs of the checkout in the folder `tree`.
    pub(super) fn build(tree: &Path, target: &Path) -> Result<Self> {
        let mut cargo = repo::cargo();
        cargo.current_dir(tree).env("CARGO_TARGET_DIR", target);
        // The packages of the whole workspace decide the features, so that what other commands have built is used.
        cargo.args(["bench", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
        for file in repo::names(&tree.join(FOLDER))? {
            cargo.args(file.strip_suffix(".rs").map(|name| format!("--bench={name}")));
        }
        let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        ensure!(output.status.success(), "the benches of {} do not build", tree.display());
        Ok(Self(executables(&String::from_utf8_lossy(&output.stdout))))
    }

    /// The benches whose names contain `only`, in the order of the programs.
    pub(super) fn benches(&self, only: &str) -> Result<Vec<Bench>> {
        let mut benches = Vec::new();
        for program in &self.0 {
            let output = Command::new(program).args(["--bench", "--list"]).output();
            let output = output.with_context(|| format!("cannot run {}", program.display()))?;
            ensure!(output.status.success(), "{} cannot name its benches", program.display());
            let list = String::from_utf8_lossy(&output.stdout);
            let names = names(&list).filter(|name| name.contains(only));
            benches.extend(names.map(|name| Bench { name, program: program.clone() }));
        }
        Ok(benches)
    }
}

/// A part of cargo's message about a target that it built.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// Finds the bench programs in cargo's messages.
fn executables(messages: &str) -> Vec<PathBuf> {
    // Other messages have other fields.
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let benches = artifacts.filter(|artifact| artifact.target.kind.iter().any(|kind| kind == "bench"));
    let mut programs: Vec<_> = benches.filter_map(|artifact| artifact.executable).collect();
    programs.sort();
    programs
}

/// Reads the names in a list of benches, as criterion prints it.
fn names(list: &str) -> impl Iterator<Item = String> {
    list.lines().filter_map(|line| line.strip_suffix(": benchmark")).map(str::to_owned)
}

/// A part of the file in which criterion stores the results of a bench.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// Runs one bench of a program. Returns the nanoseconds of one iteration. The folder `scratch` is emptied first, because criterion
/// compares with what it finds there, which takes longer than to measure.
pub(super) fn measure(bench: &Bench, scratch: &Path) -> Result<f64> {
    let Bench { name, program } = bench;
    if scratch.exists() {
        fs::remove_dir_all(scratch).with_context(|| format!("cannot empty {}", scratch.display()))?;
    }
    let mut command = Command::new(program);
    command.args([
        "--bench",
        "--exact",
        "--noplot",
        "--warm-up-time",
        WARM_UP,
        "--measurement-time",
        MEASURE,
    ]);
    command.args(["--sample-size", SAMPLES, "--nresamples", RESAMPLES, name]);
    let output = command.env("CRITERION_HOME", scratch).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} fails at {name:?}: {errors}", program.display());
    let file =
        find(scratch, "new/estimates.json")?.with_context(|| format!("{name:?} has no result: {errors}"))?;
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let estimates: Estimates = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    Ok(estimates.median.point_estimate)
}

/// Returns the first file below `folder` whose path ends with `end`.
fn find(folder: &Path, end: &str) -> Result<Option<PathBuf>> {
    let files = repo::files(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(files.into_iter().find(|file| file.ends_with(end)).map(|file| folder.join(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_programs_are_found_among_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"roce"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"roce"},"executable":"/t/deps/roce-2"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"naa"},"executable":"/t/naa"}
{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"ejfat"},"executable":"/t/deps/ejfat-1"}
{"reason":"build-finished","success":true}
no JSON"#;
        assert_eq!(executables(messages), ["/t/deps/ejfat-1", "/t/deps/roce-2"].map(PathBuf::from));
        assert!(executables("").is_empty());
    }

    #[test]
    fn names_are_those_of_benches() {
        let list =
            "roce headers/decode a WRITE: benchmark\nroce ICRC/compute, 64 B: benchmark\n\n2 benchmarks";
        assert_eq!(
            names(list).collect::<Vec<_>>(),
            ["roce headers/decode a WRITE", "roce ICRC/compute, 64 B"]
        );
    }
}
