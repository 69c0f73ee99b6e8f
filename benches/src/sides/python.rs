//! Calls from Python, by an interpreter that this process starts.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::side::{Effort, Measure, Work};

const PYTHON: &str = "python3";

/// Ends with the reason if calls from Python cannot be measured here.
pub(crate) fn look() -> anyhow::Result<()> {
    // A folder that happens to be called so can be imported too, but has nothing in it.
    let mut command = Command::new(PYTHON);
    let output = command.args(["-c", "from naa import connect"]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {PYTHON}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let why = text.trim_end().lines().last().unwrap_or_default();
    ensure!(
        output.status.success(),
        "{PYTHON} cannot import naa ({why}); bindings/python/README.md says how"
    );
    Ok(())
}

#[derive(Debug)]
pub(super) struct Caller {
    // Its end is that of its standard input, with this process.
    interpreter: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Caller {
    pub(super) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(PYTHON);
        command.args(["-c", include_str!("call.py"), &far.to_string()]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut interpreter = spawned.with_context(|| format!("cannot run {PYTHON}"))?;
        let stdin = interpreter.stdin.take().context("a process without input")?;
        let stdout = interpreter.stdout.take().context("a process without output")?;
        Ok(Self { interpreter, stdin, stdout: BufReader::new(stdout) })
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let mut line = String::new();
        let told = writeln!(self.stdin, "{}", effort.calls).and_then(|()| self.stdin.flush());
        let answered = told.and_then(|()| self.stdout.read_line(&mut line));
        if !matches!(answered, Ok(read) if read > 0) {
            bail!("{PYTHON} ended: {}; what it said is above", self.interpreter.wait()?);
        }
        let value = line.trim_end().parse().with_context(|| format!("not understood: {line:?}"))?;
        Ok(Work { value, amount: effort.calls.into() })
    }
}
