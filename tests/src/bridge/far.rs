//! Workers and bridges in processes of their own, from outside.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use naa_provider::ProviderChoice;

use super::{
    counts::Counts,
    ledger::{Ledger, Taken},
    process::Process,
    serve, until,
};

/// Programs start within that, on emulated processors too.
const START: Duration = Duration::from_secs(60);

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerLocation {
    /// On the bridge's machine, in memory that both map.
    Local,
    /// By RDMA; in a network namespace, if it is not in this process's own. `.init` is that of the machine.
    Remote { ip: IpAddr, provider: ProviderChoice, namespace: Option<String> },
}

/// `local`, `embedded@127.0.10.2`, `verbs@10.9.0.1@.init`.
impl std::str::FromStr for WorkerLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "local" {
            return Ok(Self::Local);
        }
        let mut parts = text.split('@');
        let wrong = || format!("{text}: write local, PROVIDER@ADDRESS or PROVIDER@ADDRESS@NAMESPACE");
        let provider = parts.next().and_then(|name| name.parse().ok()).ok_or_else(wrong)?;
        let ip = parts.next().and_then(|ip| ip.parse().ok()).ok_or_else(wrong)?;
        Ok(Self::Remote { ip, provider, namespace: parts.next().map(str::to_owned) })
    }
}

impl WorkerLocation {
    fn program(&self, program: &Path) -> Command {
        let Self::Remote { namespace: Some(namespace), .. } = self else { return Command::new(program) };
        let mut command = Command::new(if namespace == ".init" { "nsenter" } else { "ip" });
        match namespace.as_str() {
            ".init" => command.args(["--net", "--target", "1", "--"]),
            name => command.args(["netns", "exec", name]),
        };
        command.arg(program);
        command
    }
}

/// What a worker printed last.
#[derive(Debug, Default)]
struct WorkerOutput {
    ready: AtomicBool,
    /// Events that all processes of this worker took, one after the other.
    events: AtomicU64,
    /// The bridge instance of the latest event.
    instance: AtomicU64,
    ended: AtomicBool,
}

/// A worker's location, and its process while it lives.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) name: String,
    place: WorkerLocation,
    ack_timeout: u8,
    /// Whether it asks for events of workers that ended.
    redelivery: bool,
    program: PathBuf,
    ledger: Arc<Ledger>,
    output: Arc<WorkerOutput>,
    process: Option<Process>,
}

impl WorkerProcess {
    pub(super) fn new(
        name: String,
        place: WorkerLocation,
        program: &Path,
        (ack_timeout, redelivery): (u8, bool),
        ledger: &Arc<Ledger>,
    ) -> Self {
        let (program, ledger) = (program.to_owned(), ledger.clone());
        Self { name, place, ack_timeout, redelivery, program, ledger, output: Arc::default(), process: None }
    }

    /// It need not find the bridge at once.
    pub(super) fn start(&mut self, bridge: &serve::BridgeProcessConfig) -> Result<(), String> {
        let mut command = self.place.program(&self.program);
        command.args(["worker", "--name", &self.name, "--ack-timeout", &self.ack_timeout.to_string()]);
        if self.redelivery {
            command.arg("--again");
        }
        match &self.place {
            WorkerLocation::Local => command.arg("--source").arg(format!("unix:{}", bridge.local.display())),
            WorkerLocation::Remote { ip, provider, .. } => command
                .args(["--source", &bridge.workers().to_string(), "--local", &ip.to_string()])
                .args(["--provider", provider.name()]),
        };
        let (name, ledger, output) = (self.name.clone(), self.ledger.clone(), self.output.clone());
        output.ready.store(false, Relaxed);
        let take_line = move |line: &str| {
            if let Some(taken) = Taken::read(line) {
                ledger.taken(&name, taken);
                output.instance.store(taken.instance, Relaxed);
                output.events.fetch_add(1, Relaxed);
            } else if line.starts_with("READY ") {
                output.ready.store(true, Relaxed);
            } else if line.starts_with("END ") {
                output.ended.store(true, Relaxed);
            } else {
                ledger.fault(format!("{name} said {line:?}"));
            }
        };
        self.process = Some(Process::start(command, take_line)?);
        Ok(())
    }

    pub(super) fn await_ready(&mut self) -> Result<(), String> {
        let (output, process) = (self.output.clone(), &mut self.process);
        let is_over = |process: &mut Option<Process>| process.as_mut().is_none_or(Process::is_over);
        let ready = || output.ready.load(Relaxed);
        if until(START, || ready() || is_over(process)) && ready() {
            return Ok(());
        }
        Err(format!("{} does not subscribe", self.name))
    }

    pub(super) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    pub(super) fn end(&mut self) -> Result<(), String> {
        let process = self.process.take().ok_or_else(|| format!("{} does not run", self.name))?;
        process.end(START).map_err(|why| format!("{}: {why}", self.name))?;
        if self.output.ended.load(Relaxed) {
            Ok(())
        } else {
            Err(format!("{} did not say that it ends", self.name))
        }
    }

    /// Events that it told.
    pub(super) fn events(&self) -> u64 {
        self.output.events.load(Relaxed)
    }

    /// The bridge of the latest of them.
    pub(super) fn instance(&self) -> u64 {
        self.output.instance.load(Relaxed)
    }

    /// Ended, though nobody said that it should.
    pub(super) fn is_over(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_over)
    }
}

/// A bridge, which tells its counts all the while; each of them must add up.
#[derive(Debug)]
pub(super) struct BridgeProcess {
    process: Process,
    counts: Arc<Mutex<Option<Counts>>>,
}

impl BridgeProcess {
    pub(super) fn start(
        program: &Path,
        settings: &serve::BridgeProcessConfig,
        ledger: &Arc<Ledger>,
    ) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--bind", &settings.bind.to_string(), "--provider", settings.provider.name()]);
        command.args(["--placing", settings.placing.name(), "--instance", &settings.instance.to_string()]);
        command.arg("--local").arg(&settings.local);
        let counts = Arc::<Mutex<Option<Counts>>>::default();
        let (output, ledger) = (counts.clone(), ledger.clone());
        let take_line = move |line: &str| match line.parse::<Counts>() {
            Ok(now) => {
                if let Err(why) = now.check() {
                    ledger.fault(why);
                }
                *output.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            }
            Err(why) => ledger.fault(why),
        };
        let mut process = Process::start(command, take_line)?;
        let is_there = || counts.lock().is_ok_and(|counts| counts.is_some());
        if !until(START, || is_there() || process.is_over()) || !is_there() {
            return Err("the bridge does not start".into());
        }
        Ok(Self { process, counts })
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    pub(super) fn kill(self) {
        self.process.kill();
    }

    pub(super) fn end(self) -> Result<(), String> {
        self.process.end(START).map_err(|why| format!("the bridge: {why}"))
    }
}
