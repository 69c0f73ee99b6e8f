//! Starts the processes.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::SenderArgs;
use crate::{
    demo::{
        ejfat::Args,
        nodes::{Environment, EventProcess, Node, Output, Process},
    },
    lb::engine::Engine,
};

/// Starts a process of this program at a node.
fn start(
    environment: &Environment,
    node: Node,
    what: &'static str,
    arguments: &[String],
) -> anyhow::Result<(Process, Output)> {
    // The demonstration's load balancer needs no token, so a token in the user's environment is not passed on.
    let mut command = environment.command(node)?;
    Process::start(what, command.env_remove(crate::lb::TOKEN_VARIABLE).args(arguments))
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[derive(Debug)]
pub(in crate::demo::ejfat) struct WorkerProcess {
    pub(in crate::demo::ejfat) events: EventProcess,
    /// The addresses at which the worker listens, over IPv4 and IPv6.
    pub(in crate::demo::ejfat) at: Vec<SocketAddr>,
}

impl WorkerProcess {
    pub(in crate::demo::ejfat) fn start(environment: &Environment, n: usize) -> anyhow::Result<Self> {
        let node = Node::Worker(n);
        let mut arguments = texts(&["demo", "ejfat", "worker"]);
        arguments.extend(environment.at(node).map(|at| at.to_string()));
        let (process, mut output) = start(environment, node, "worker", &arguments)?;
        let at = process.line(&mut output)?;
        Ok(Self { events: EventProcess::new((process, output)), at })
    }
}

/// Starts sender `n`. Senders differ in headers, packet sizes and IP versions.
pub(in crate::demo::ejfat) fn start_sender(
    environment: &Environment,
    balancer: &Balancer,
    n: usize,
    events: u64,
    args: &Args,
) -> anyhow::Result<EventProcess> {
    let (ip, mtu, lb_version) = [(0, 1500, 2), (0, 9000, 3), (1, 9000, 2)][n % 3];
    let (to, data_id, rate, seed) = (balancer.at[ip], n as u16, args.rate(), args.seed);
    let sender = SenderArgs { to, data_id, events, mtu, lb_version, rate, seed, streams: None };
    Ok(EventProcess::new(start(environment, Node::Sender(n), "sender", &sender.words())?))
}

/// Starts a sender of many streams at once, from the address of the first sender.
pub(in crate::demo::ejfat) fn start_streams(
    environment: &Environment,
    balancer: &Balancer,
    args: &Args,
) -> anyhow::Result<EventProcess> {
    let (many_streams, rate) = args.many_streams();
    let sender = many_streams.sender(balancer.at[0], rate, args.seed);
    Ok(EventProcess::new(start(environment, Node::Sender(0), "sender", &sender.words())?))
}

#[derive(Debug)]
pub(in crate::demo::ejfat) struct Balancer {
    process: Process,
    output: Output,
    at: Vec<SocketAddr>,
    pub(in crate::demo::ejfat) grpc: SocketAddr,
    pub(in crate::demo::ejfat) mrsp: SocketAddr,
}

impl Balancer {
    pub(in crate::demo::ejfat) fn start(environment: &Environment, engine: Engine) -> anyhow::Result<Self> {
        let at = environment.at(Node::Distributor);
        let words = ["lb", "forward", "--json", "--until-eof", "--buffer", "4M", "--grpc", "127.0.0.1:0"];
        let mut arguments = texts(&[&words[..], &["--engine", engine.name()]].concat());
        let listen = at.iter().flat_map(|at| ["--listen".into(), at.to_string()]);
        arguments.extend(listen);
        let mrsp = SocketAddr::new(at[0].ip(), 0).to_string();
        // The demonstration programs the load balancer from the same machine.
        let own = at[0].ip().to_string();
        let allow = ["--allow", "127.0.0.0/8", "--allow", &own];
        arguments.extend(texts(&[&["--provider", "embedded", "--serve", &mrsp], &allow[..]].concat()));
        let (process, mut output) = start(environment, Node::Distributor, "load balancer", &arguments)?;
        let ready: Value = process.line(&mut output)?;
        let address = |of: &Value| -> anyhow::Result<SocketAddr> {
            let text = of.as_str().with_context(|| format!("the load balancer said {ready}"))?;
            Ok(text.parse()?)
        };
        let listens = ready["addresses"].as_array().cloned().unwrap_or_default();
        let at = listens.iter().map(address).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(at.len() == 2, "the load balancer listens at {at:?}");
        let (grpc, mrsp) = (address(&ready["grpc"])?, address(&ready["mrsp"])?);
        Ok(Self { process, output, at, grpc, mrsp })
    }

    pub(in crate::demo::ejfat) fn addresses(&self) -> Vec<String> {
        self.at.iter().map(ToString::to_string).collect()
    }

    pub(in crate::demo::ejfat) fn end(mut self) -> anyhow::Result<()> {
        self.process.close_stdin();
        // This line has the counters, which were already read over gRPC.
        self.process.line::<IgnoredAny>(&mut self.output)?;
        self.process.wait()
    }
}
