//! Starts the processes.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use super::{Ended, EventProcess};
use crate::demo::{
    children::EXECUTABLE,
    lb::site::Reservation,
    nodes::{Output, Process},
};

/// Starts a process of this program.
fn start(what: &'static str, arguments: &[&str], uri: Option<&str>) -> anyhow::Result<(Process, Output)> {
    let mut command = Command::new(EXECUTABLE);
    // Tokens and URIs in the user's environment are for another site than the demonstration's.
    command.args(arguments).env_remove(crate::lb::TOKEN_VARIABLE).env_remove(ejfat::uri::VARIABLE);
    command.envs(uri.map(|uri| (ejfat::uri::VARIABLE, uri)));
    if std::env::var_os("NAA_LOG").is_none() {
        command.env("NAA_LOG", "error");
    }
    Process::start(what, &mut command)
}

/// Starts a process, and waits for the JSON object that it prints when it is ready.
pub(in crate::demo::lb) fn start_ready(
    what: &'static str,
    arguments: &[&str],
    uri: Option<&str>,
) -> anyhow::Result<(Process, Value)> {
    let (process, mut output) = start(what, arguments, uri)?;
    let ready = process.line(&mut output)?;
    Ok((process, ready))
}

/// Kills a process by SIGKILL. Returns the tick at which it was dead.
pub(in crate::demo::lb) fn kill(process: &mut Process) -> anyhow::Result<u64> {
    process.kill()?;
    Ok(now())
}

/// The time as a tick: microseconds of UNIX time.
pub(in crate::demo::lb) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[derive(Debug)]
pub(in crate::demo::lb) struct WorkerProcess {
    pub(in crate::demo::lb) events: EventProcess,
    pub(in crate::demo::lb) name: &'static str,
    pub(in crate::demo::lb) at: SocketAddr,
    /// The time that it takes for each event.
    pub(in crate::demo::lb) each: Duration,
}

impl WorkerProcess {
    /// Starts a worker that takes `each` for an event, and waits until it has registered.
    pub(in crate::demo::lb) fn start(
        of: &Reservation,
        ip: IpAddr,
        name: &'static str,
        each: Duration,
    ) -> anyhow::Result<Self> {
        let (listen, us) = (SocketAddr::new(ip, 0).to_string(), each.as_micros().to_string());
        let factors = ["--min-factor", "0.1", "--max-factor", "0", "--drain", "30"];
        let arguments = [&["demo", "lb", "worker", &listen, &us, "--name", name][..], &factors].concat();
        let (process, mut output) = start("worker", &arguments, Some(&of.uri))?;
        let at = process.line(&mut output)?;
        Ok(Self { events: EventProcess::new((process, output)), name, at, each })
    }

    /// Kills it by SIGKILL. Returns the tick at which it was dead.
    pub(in crate::demo::lb) fn kill(&mut self) -> anyhow::Result<u64> {
        kill(&mut self.events.process)
    }

    /// Ends it, unless it was killed, and returns all that it told.
    pub(in crate::demo::lb) fn end(self) -> anyhow::Result<Ended> {
        let (mut process, ended) = self.events.read()?;
        if ended.sums.is_some() {
            process.wait()?;
        }
        Ok(ended)
    }
}

/// Starts a sender of at least `events` events, `rate` a second. It sends nothing before it gets a line, and ends as soon as it has
/// sent that many events and its standard input is closed.
pub(in crate::demo::lb) fn start_sender(
    of: &Reservation,
    data_id: u16,
    events: u64,
    rate: f64,
    seed: u64,
) -> anyhow::Result<EventProcess> {
    let words = [data_id.to_string(), events.to_string(), rate.to_string(), seed.to_string()];
    let words: Vec<_> = ["demo", "lb", "sender"].into_iter().chain(words.iter().map(|w| &**w)).collect();
    let (process, mut output) = start("sender", &words, Some(&of.uri))?;
    process.line::<SocketAddr>(&mut output)?;
    Ok(EventProcess::new((process, output)))
}
