//! How tools are run whose output matters only when they fail.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs a tool.
///
/// # Errors
/// If the tool fails. The error has the last lines of its output.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        bail!("{command:?}: {}\n{}", output.status, last_lines(&said.concat()));
    }
    Ok(())
}

/// The end of an output: at most 30 lines.
pub(super) fn last_lines(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
