//! The attacked process: a server and bare queue pairs, asked for its counters over its standard input.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write, stdin, stdout},
    net::{IpAddr, SocketAddr},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use naa_server::{Config, Server, functions};
use serde::{Deserialize, Serialize};

use super::bare_qp_server::{BareQpServer, Changed};
use crate::slow;

/// The state of the attacked process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub rss_kib: u64,
    /// Bytes of the server's sessions.
    pub memory: u64,
    /// Counters of both devices together, and of the server.
    pub counters: BTreeMap<String, u64>,
}

/// The attacked process, from outside.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    pub server: SocketAddr,
    pub target: SocketAddr,
}

impl Victim {
    pub(super) fn start(server: IpAddr, target: IpAddr) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
        let mut child = Command::new(program)
            .args(["victim", &server.to_string(), &target.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start the victim: {e}"))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else { return Err("the victim has no pipes".into()) };
        let mut victim = Self {
            child,
            to,
            from: BufReader::new(from),
            server: (server, 0).into(),
            target: (target, 0).into(),
        };
        (victim.server, victim.target) = victim.answer()?;
        Ok(victim)
    }

    fn answer<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line).map_err(|e| format!("the victim: {e}"))?;
        if read == 0 {
            let status = self.child.wait().map_err(|e| e.to_string())?;
            return Err(format!("the victim is gone: {status}"));
        }
        serde_json::from_str(&line).map_err(|e| format!("the victim says {line:?}: {e}"))
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, what: &str) -> Result<T, String> {
        writeln!(self.to, "{what}").map_err(|e| format!("the victim is gone: {e}"))?;
        self.answer()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn report(&mut self) -> Result<Report, String> {
        self.ask("report")
    }

    /// Bytes of the target's memory that differ from what they were at first, which are then put back.
    pub fn changed(&mut self) -> Result<Changed, String> {
        self.ask("changed")
    }

    /// Takes the peers' access to the target's first region, or gives it back.
    pub fn set_access(&mut self, open: bool) -> Result<(), String> {
        self.ask(if open { "grant" } else { "revoke" })
    }

    /// Deregisters the target's first region and registers it anew, under another RKey.
    pub fn reregister(&mut self) -> Result<(), String> {
        self.ask("register")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have died already; what matters is that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The attacked process, from inside: serves until its standard input ends.
pub fn serve(server: IpAddr, target: IpAddr) -> Result<(), String> {
    let registry = functions::registry([slow::function()]).map_err(|e| e.to_string())?;
    let server = Server::start(Config::new((server, 0).into()), registry).map_err(|e| e.to_string())?;
    let target = BareQpServer::start(target).map_err(|e| e.to_string())?;
    say(&(server.address(), target.address()))?;
    for line in stdin().lines() {
        let line = line.map_err(|e| e.to_string())?;
        match line.as_str() {
            "report" => say(&report(&server, &target))?,
            "changed" => say(&target.changed())?,
            "grant" => say(&target.set_access(true).map_err(|e| e.to_string())?)?,
            "revoke" => say(&target.set_access(false).map_err(|e| e.to_string())?)?,
            "register" => say(&target.reregister().map_err(|e| e.to_string())?)?,
            other => return Err(format!("unknown request {other:?}")),
        }
    }
    Ok(())
}

fn say(what: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(what).map_err(|e| e.to_string())?;
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| e.to_string())
}

fn report(server: &Server, target: &BareQpServer) -> Report {
    let mut counters = BTreeMap::new();
    let stats = server.stats();
    let of_server = [
        ("sessions", &stats.sessions),
        ("sessions_accepted", &stats.sessions_accepted),
        ("sessions_rejected", &stats.sessions_rejected),
        ("sessions_failed", &stats.sessions_failed),
        ("calls", &stats.calls),
        ("calls_failed", &stats.calls_failed),
        ("calls_timed_out", &stats.calls_timed_out),
    ];
    let of_server = of_server.map(|(name, counter)| (name, counter.get()));
    for (name, n) in server.device_counters().into_iter().chain(target.counters()).chain(of_server) {
        *counters.entry(name.to_owned()).or_default() += n;
    }
    Report { rss_kib: rss_kib(), memory: server.memory_used(), counters }
}

/// Resident memory of this process.
fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
