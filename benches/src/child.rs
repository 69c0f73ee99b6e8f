//! The processes of a measurement, from the view of the process that gives them orders.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    placement::CpuPlacement,
    side::{Done, Effort, Order, Ready, Role, parse},
    sides,
};

/// The path of this program's file, which is right even if the file has been replaced since the program started.
const EXECUTABLE: &str = "/proc/self/exe";

/// A process that measures.
#[derive(Debug)]
pub(crate) struct Side {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The name of the process in error messages.
    name: String,
}

impl Side {
    fn start(
        role: &Role,
        cpus: &[usize],
        environment: Vec<(&'static str, String)>,
    ) -> anyhow::Result<(Self, Ready)> {
        let name = format!("{role:?}");
        let mut command = Command::new(EXECUTABLE);
        command.arg0("naa-bench").args(["side", &serde_json::to_string(role)?]);
        command.args(cpus.iter().map(usize::to_string)).envs(environment);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start the process of {name}"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("a process without output")?);
        let mut side = Self { child, stdin, stdout, name };
        let ready = side.answer()?;
        Ok((side, ready))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn order<T: DeserializeOwned>(&mut self, order: impl Serialize) -> anyhow::Result<T> {
        let line = serde_json::to_string(&order)?;
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        // The process has printed the reason on standard error, or its exit status says it.
        if !matches!(told, Some(Ok(()))) {
            return self.gone();
        }
        self.answer()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(read) if read > 0 => parse(line.trim_end()),
            _ => self.gone(),
        }
    }

    fn gone<T>(&mut self) -> anyhow::Result<T> {
        let status = self.child.wait()?;
        bail!("the process of {} ended: {status}; what it said is above", self.name)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id())?;
        signal::kill(Pid::from_raw(id), signal)
            .with_context(|| format!("cannot send {signal} to {}", self.name))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // The process has no data to save, and a stopped process would not react to a gentler signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of one contender.
#[derive(Debug)]
pub(crate) struct Pair {
    // The near end is ended first, because fields are dropped in this order.
    pub(crate) near: Side,
    /// The process beside the far end. It is ended before the far end, because it would report an error if the far end
    /// were gone.
    beside: Option<Side>,
    pub(crate) far: Option<Side>,
    stop_far: bool,
}

/// The result of one repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    /// The CPU seconds per unit of work of the near end, of the far end, and of the process to which the far end passes on.
    pub(crate) cpu: [f64; 3],
}

impl Pair {
    pub(crate) fn start(
        far: Option<sides::Far>,
        beside: Option<sides::Beside>,
        near: sides::Near,
        placement: &CpuPlacement,
    ) -> anyhow::Result<Self> {
        let stop_far = far.as_ref().is_some_and(sides::Far::never_sleeps);
        let far = far.map(|far| Side::start(&Role::Far(far), &placement.far, Vec::new())).transpose()?;
        let address = |side: Option<&(Side, Ready)>| side.and_then(|(_, ready)| ready.address);
        let at = address(far.as_ref());
        let start_beside = |(beside, at): (sides::Beside, _)| {
            let cpus = if beside.is_at_far() { &placement.far } else { &placement.near };
            Side::start(&Role::Beside(beside, at), cpus, Vec::new())
        };
        let beside = beside.zip(at).map(start_beside).transpose()?;
        let ends = sides::Ends { far: at, beside: address(beside.as_ref()) };
        let (near, _) = Side::start(&Role::Near(near, ends), &placement.near, near.environment(at)?)?;
        let [far, beside] = [far, beside].map(|end| end.map(|(side, _)| side));
        let pair = Self { near, far, beside, stop_far };
        pair.signal_far(Signal::SIGSTOP)?;
        Ok(pair)
    }

    /// Stops or continues a far end that spins when it is idle, because it must not run while other contenders are measured.
    fn signal_far(&self, signal: Signal) -> anyhow::Result<()> {
        let far = self.far.as_ref().filter(|_| self.stop_far);
        far.map_or(Ok(()), |far| far.signal(signal))
    }

    pub(crate) fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        self.signal_far(Signal::SIGCONT)?;
        let remark = self.near.order(Order::WarmUp(*effort))?;
        self.signal_far(Signal::SIGSTOP)?;
        Ok(remark)
    }

    pub(crate) fn run(&mut self, effort: &Effort) -> anyhow::Result<Sample> {
        self.signal_far(Signal::SIGCONT)?;
        for other in [&mut self.far, &mut self.beside].into_iter().flatten() {
            other.order::<()>(Order::Begin)?;
        }
        let Done { work, cpu: near, measured } = self.near.order(Order::Run(*effort))?;
        let mut cpu = [near, 0.0, 0.0];
        for (other, cpu) in [&mut self.far, &mut self.beside].into_iter().zip(&mut cpu[1..]) {
            if let Some(other) = other {
                *cpu = other.order(Order::End)?;
            }
        }
        self.signal_far(Signal::SIGSTOP)?;
        let cpu = measured.unwrap_or_else(|| cpu.map(|seconds| seconds / work.amount));
        Ok(Sample { value: work.value, cpu })
    }
}
