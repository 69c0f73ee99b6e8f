//! Starts senders and workers.

use super::{Bridge, Ready};
use crate::demo::{
    bridge::Args,
    ejfat::nodes::{MANY_STREAMS, MANY_STREAMS_GIGABITS, SenderArgs},
    nodes::{Ended, Environment, EventProcess, Node, Output, Process},
};

/// Starts a process of this program at a node.
pub(super) fn start(
    environment: &Environment,
    node: Node,
    what: &'static str,
    arguments: &[String],
) -> anyhow::Result<(Process, Output)> {
    let mut command = environment.command(node)?;
    if naa_host::variable(naa_host::LOG_VARIABLE)?.is_none() {
        // Warnings that the killed worker is gone are expected, so they are not shown.
        command.env(naa_host::LOG_VARIABLE, "error");
    }
    Process::start(what, command.args(arguments))
}

#[derive(Debug)]
pub(in crate::demo::bridge) struct WorkerProcess {
    pub(in crate::demo::bridge) events: EventProcess,
    pub(in crate::demo::bridge) name: &'static str,
    pub(in crate::demo::bridge) ready: Ready,
}

impl WorkerProcess {
    /// Starts a worker. A worker at the bridge's node shares memory with the bridge; other workers use RDMA, each from
    /// an address of its own.
    pub(in crate::demo::bridge) fn start(
        environment: &Environment,
        bridge: &Bridge,
        node: Node,
        name: &'static str,
    ) -> anyhow::Result<Self> {
        let is_local = node == Node::Distributor;
        let source = if is_local { bridge.local.clone() } else { bridge.workers.to_string() };
        let mut arguments = ["demo", "bridge", "worker", &source, name].map(str::to_owned).to_vec();
        arguments.extend((!is_local).then(|| environment.ip(node).to_string()));
        let (process, mut output) = start(environment, node, "worker", &arguments)?;
        let ready = process.line(&mut output)?;
        Ok(Self { events: EventProcess::new((process, output)), name, ready })
    }

    /// Kills the worker at once, and returns what it printed before.
    pub(in crate::demo::bridge) fn kill(mut self) -> anyhow::Result<Ended> {
        self.events.process.kill()?;
        Ok(self.events.read()?.1)
    }
}

/// Starts sender `n`, which is a sender of `naa demo ejfat`. Senders differ in headers, packet sizes and IP versions.
pub(in crate::demo::bridge) fn start_sender(
    environment: &Environment,
    bridge: &Bridge,
    n: usize,
    events: u64,
    args: &Args,
) -> anyhow::Result<EventProcess> {
    let (ip, mtu, lb_version) = [(0, 1500, 2), (1, 9000, 3)][n % 2];
    let (to, data_id, rate, seed) = (bridge.segments[ip], n as u16, args.rate(), args.seed);
    let sender = SenderArgs { to, data_id, events, mtu, lb_version, rate, seed, streams: None };
    Ok(EventProcess::new(start(environment, Node::Sender(n), "sender", &sender.words())?))
}

/// Starts a sender of many streams at once, from the address of the first sender.
pub(in crate::demo::bridge) fn start_streams(
    environment: &Environment,
    bridge: &Bridge,
    args: &Args,
) -> anyhow::Result<EventProcess> {
    let sender = MANY_STREAMS.sender(bridge.segments[0], MANY_STREAMS_GIGABITS, args.seed);
    Ok(EventProcess::new(start(environment, Node::Sender(0), "sender", &sender.words())?))
}
