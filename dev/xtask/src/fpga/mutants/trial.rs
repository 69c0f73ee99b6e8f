//! Runs the tests of a design with one of its mutants.

use super::designs::{Design, Mutant, Test};
use crate::{repo, venv::Venv};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A test that takes more seconds of processor time than this counts as failed. A test with the most packets takes a few seconds.
const LIMIT: u64 = 120;

/// The programs of the tests.
#[derive(Debug)]
pub(super) struct Tests {
    /// The program of each test, by the test's name.
    programs: BTreeMap<String, PathBuf>,
    /// The folder of the tools.
    tools: PathBuf,
}

impl Tests {
    /// Builds the tests of `naa-fpga`.
    pub(super) fn build(venv: &Venv) -> Result<Self> {
        let mut build = repo::cargo();
        build.args(["test", "--release", "-p", "naa-fpga", "--no-run", "--message-format", "json"]);
        let output = build.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        ensure!(output.status.success(), "the tests of naa-fpga do not build");
        let programs = String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect();
        Ok(Self { programs, tools: venv.folder().to_owned() })
    }

    /// Runs the tests of a design without a fault. The first run makes the model.
    ///
    /// # Errors
    /// If a test fails.
    pub(super) fn pass(&self, design: &Design) -> Result<()> {
        for (test, packets) in runs(design) {
            let passes = ends_well(self.command(test, 0, packets)?.stderr(Stdio::inherit()))?;
            ensure!(passes, "{} fails without a fault, with {packets} packets", design.name());
        }
        Ok(())
    }

    /// Whether the tests of a mutant's design find the fault.
    pub(super) fn catch(&self, mutant: &Mutant) -> Result<bool> {
        for (test, packets) in runs(mutant.design) {
            let mut test = self.command(test, mutant.number, packets)?;
            if !ends_well(test.stderr(Stdio::null()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn command(&self, test: &Test, mutant: usize, packets: u64) -> Result<Command> {
        let Test { name, arguments, .. } = test;
        let program = self.programs.get(*name).with_context(|| format!("naa-fpga has no test {name}"))?;
        let mut command = Command::new(program);
        command.args(*arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.current_dir(repo::root().join("fpga/sim")).env("CARGO_TARGET_DIR", repo::target_dir());
        command.env("NAA_FPGA_TOOLS", &self.tools).env("NAA_FPGA_STRICT", "1");
        command.env("NAA_FPGA_PACKETS", packets.to_string()).env("NAA_FPGA_MUTANT", mutant.to_string());
        Ok(command)
    }
}

/// The tests of a design, each with its numbers of packets.
fn runs(design: &Design) -> impl Iterator<Item = (&Test, u64)> {
    design.tests.iter().flat_map(|test| test.packets.iter().map(move |&packets| (test, packets)))
}

/// The name and the program of a test, if this line of cargo's messages is about one.
fn program(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let name = message["target"]["name"].as_str().filter(|_| is_test)?;
    Some((name.to_owned(), message["executable"].as_str()?.into()))
}

/// Whether a test passes. The kernel ends a test that takes more processor time than its limit.
fn ends_well(command: &mut Command) -> Result<bool> {
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    prlimit(Some(Pid::from_child(&child)), Resource::Cpu, limit)
        .context("cannot limit the time of a test")?;
    Ok(child.wait()?.success())
}
