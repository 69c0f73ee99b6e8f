//! A worker process, `naa ejfat recv`: started, watched, told to end.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::resources_process::sibling;

/// When the worker gives an event up.
pub(super) const TIMEOUT: Duration = Duration::from_millis(200);

/// One that has not ended by then, from the signal on, hangs.
const HANGS: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(super) addresses: Vec<SocketAddr>,
    rss_kib: i64,
}

/// What a worker that ended left behind.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its last line.
    pub(super) report: Value,
    /// The time from the signal to the end of the process.
    pub(super) took: Duration,
    /// The most resident memory, above what it had before the first datagram.
    pub(super) growth_kib: i64,
    /// Datagrams that the kernel had no room for; of those it merged, several count as one.
    pub(super) lost: u64,
}

impl WorkerProcess {
    /// Writes events into `folder`, or runs the command that `args` have there.
    pub(super) fn start(ip: IpAddr, folder: &Path, args: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(sibling("naa")?);
        command.args(["ejfat", "recv", "--json", "--listen", &SocketAddr::new(ip, 0).to_string()]);
        command.args(["--timeout", &TIMEOUT.as_millis().to_string()]).args(args);
        if !args.contains(&"--exec") {
            command.arg("--out").arg(folder);
        }
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot start a worker: {e}"))?;
        let out = BufReader::new(child.stdout.take().ok_or("the worker has no output")?);
        let mut worker = Self { child, out, addresses: Vec::new(), rss_kib: 0 };
        let mut line = String::new();
        worker.out.read_line(&mut line).map_err(|e| e.to_string())?;
        let ready: Option<Value> = serde_json::from_str(&line).ok();
        let addresses = ready.and_then(|ready| serde_json::from_value(ready["addresses"].clone()).ok());
        worker.addresses =
            addresses.ok_or_else(|| format!("the worker did not start: {}", worker.errors()))?;
        worker.rss_kib = worker.memory("VmRSS:")?;
        Ok(worker)
    }

    /// KiB, by the kernel's name.
    fn memory(&self, what: &str) -> Result<i64, String> {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        kib.ok_or_else(|| format!("the worker is gone: {status}"))
    }

    /// Ends it by SIGTERM. It must be alive until then, and say what it counted.
    pub(super) fn end(mut self) -> Result<Ended, String> {
        if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("the worker ended with {status}: {}", self.errors()));
        }
        let growth_kib = self.memory("VmHWM:")? - self.rss_kib;
        let lost = self.addresses.iter().map(lost_at).sum::<Result<u64, String>>()?;
        let begin = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|e| e.to_string())?;
        while self.child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if begin.elapsed() > HANGS {
                return Err("the worker does not end by SIGTERM".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let took = begin.elapsed();
        let mut said = String::new();
        self.out.read_to_string(&mut said).map_err(|e| e.to_string())?;
        let last: Option<Value> = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
        match last.filter(|last| last["event"] == "end") {
            Some(report) => Ok(Ended { report, took, growth_kib, lost }),
            None => Err(format!("no report, but {said:?} and {:?}", self.errors())),
        }
    }

    /// What it said, once it has ended.
    fn errors(&mut self) -> String {
        let mut said = String::new();
        let _ = self.child.kill();
        if let Some(errors) = &mut self.child.stderr {
            // What cannot be read is not told.
            let _ = errors.read_to_string(&mut said);
        }
        said
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Datagrams to a local port that its socket's buffer had no room for.
fn lost_at(address: &SocketAddr) -> Result<u64, String> {
    let table = if address.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
    let sockets = fs::read_to_string(table).map_err(|e| format!("{table}: {e}"))?;
    let ip = match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(ip) => {
            let words = ip.octets();
            let words = words.as_chunks::<4>().0.iter();
            words.map(|&word| format!("{:08X}", u32::from_ne_bytes(word))).collect()
        }
    };
    let local = format!("{ip}:{:04X}", address.port());
    let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|fields| fields.get(1) == Some(&local.as_str()));
    let lost = line.and_then(|fields| fields.last()?.parse().ok());
    lost.ok_or_else(|| format!("no socket {local} in {table}"))
}
