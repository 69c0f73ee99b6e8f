//! `bindings`: builds what is for other languages, and tests it against `naa serve`.

mod fortran;
mod python;

use crate::{repo, running::Running};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

/// What automake's tests end with when they were skipped.
pub(crate) const SKIPPED: u8 = 77;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    language: Language,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Language {
    /// The module and its example, by gfortran
    Fortran,
    /// The wheel, by pip; pytest and mypy on it
    Python,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    match options.language {
        Language::Fortran => fortran::run(),
        Language::Python => python::run(),
    }
}

/// A folder of build products, made if it is not there.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = repo::target_dir().join("bindings").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn succeeds(command: &mut Command) -> Result<()> {
    let what = command_line(command);
    let status = command.status().with_context(|| format!("cannot run {what}"))?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}

fn command_line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// `naa serve` on an address of loopback, until it is dropped.
fn serve(address: &str) -> Result<Running> {
    let mut command = Command::new(repo::release_program("naa"));
    command.args(["serve", "--bind", address, "--json"]).env("NAA_PROVIDER", "embedded");
    let mut server = Running(command.stdout(Stdio::piped()).spawn().context("cannot run naa serve")?);
    let mut line = String::new();
    if let Some(output) = server.0.stdout.as_mut() {
        BufReader::new(output).read_line(&mut line)?;
    }
    ensure!(line.contains("\"ready\""), "naa serve on {address} did not start: {line}");
    Ok(server)
}
