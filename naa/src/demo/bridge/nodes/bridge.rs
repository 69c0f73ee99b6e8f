//! Starts the bridge, and asks it for its status and its traces.

use std::{
    io::{BufRead as _, Read as _},
    net::SocketAddr,
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, ensure};
use naa_host::Device;
use naa_provider::ProviderChoice;
use naa_services::BridgeQueries;
use proto::events::v1::{BridgeStatus, TracedEvent};

use super::child::start;
use crate::demo::nodes::{Environment, EventLine, Node, Process};

#[derive(Debug)]
pub(in crate::demo::bridge) struct Bridge {
    process: Process,
    /// Reads and discards the output of the bridge, so that the pipe does not become full and block it.
    reader: JoinHandle<()>,
    queries: BridgeQueries,
    /// The addresses at which the bridge receives segments, over IPv4 and IPv6.
    pub(in crate::demo::bridge) segments: Vec<SocketAddr>,
    /// The address at which workers subscribe; `local` is the socket for workers on the bridge's machine.
    pub(in crate::demo::bridge) workers: SocketAddr,
    pub(in crate::demo::bridge) local: String,
}

#[derive(serde::Deserialize)]
struct Ready {
    segments: Vec<SocketAddr>,
    workers: SocketAddr,
    local: String,
}

impl Bridge {
    pub(in crate::demo::bridge) fn start(environment: &Environment, placing: &str) -> anyhow::Result<Self> {
        let bind = environment.ip(Node::Distributor).to_string();
        let path = naa_files::temporary().join(format!("naa-demo-bridge-{}.sock", std::process::id()));
        let path = path.to_str().context("the folder for temporary files has a name that is no text")?;
        let words =
            ["bridge", "--json", "--until-eof", "--provider", "embedded", "--buffer", "4M", "--port", "0"];
        let words =
            words.into_iter().chain(["--bind", &bind, "--local", path, "--placing", placing, "--behind-lb"]);
        let listen = environment.at(Node::Distributor).map(|at| ["--listen".to_owned(), at.to_string()]);
        let arguments: Vec<_> = words.map(str::to_owned).chain(listen.into_iter().flatten()).collect();
        let (process, mut out) = start(environment, Node::Distributor, "bridge", &arguments)?;
        let Ready { segments, workers, local } = process.line(&mut out)?;
        ensure!(segments.len() == 2, "the bridge listens at {segments:?}");
        let reader = thread::spawn(move || {
            let mut line = Vec::new();
            // An error ends the reader, too.
            while out.by_ref().take(1 << 20).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                line.clear();
            }
        });
        let queries = BridgeQueries::new(Device::towards_with(workers, ProviderChoice::Embedded)?, workers);
        Ok(Self { process, reader, queries, segments, workers, local })
    }

    pub(in crate::demo::bridge) fn status(&self) -> anyhow::Result<BridgeStatus> {
        self.queries.status().context("the bridge does not tell what it counted")
    }

    /// The event trace that the bridge has of an event, if any.
    pub(in crate::demo::bridge) fn trace(&self, of: &EventLine) -> anyhow::Result<Option<TracedEvent>> {
        let events = self.queries.trace(of.tick).context("the bridge does not tell what it remembers")?;
        let its = |event: &TracedEvent| event.data_id == u32::from(of.data_id) && event.event == of.event;
        Ok(events.into_iter().find(its))
    }

    pub(in crate::demo::bridge) fn end(mut self) -> anyhow::Result<()> {
        self.process.wait()?;
        // The reader ends when the process has ended.
        let _ = self.reader.join();
        Ok(())
    }
}
