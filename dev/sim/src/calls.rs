//! Sessions over the faulty network: both machines of MRSP, with any layout of their memory, and calls whose every byte
//! is known. After each WRITE has arrived, and after each answer, all registered memory of that side is compared.

mod accelerator;
mod draw;
mod host;
mod memory;
mod model;
mod port;

use roce::Time;
use simnet::{Link, Random};
use verbs::{CmEvent, ConnParam};

use super::{
    cm,
    node::{Capture, Datagram, Node},
    plan::{Plan, SECOND},
    report::Summary,
};
use accelerator::Accelerator;
use draw::Talk;
use host::Host;
use model::Model;

/// How long to watch for things that must not happen any more.
const WATCH: u64 = SECOND;
const HOST: usize = 0;
const NAA: usize = 1;

pub(super) struct Environment {
    plan: Plan,
    talk: Talk,
    now: u64,
    nodes: [Node; 2],
    /// From the host to the accelerator, and back.
    links: [Link<Datagram>; 2],
    host: Host,
    accelerator: Accelerator,
    model: Model,
    verbose: bool,
    capture: Option<Capture>,
}

impl Environment {
    pub(super) fn new(seed: u64, verbose: bool, capture: Option<Capture>) -> Self {
        let plan = Plan::calls(seed);
        let talk = Talk::draw(&mut Random::new(seed, 40));
        if verbose {
            eprintln!("{plan:#?}\n{talk:#?}");
        }
        let mut nodes = [HOST, NAA].map(|n| {
            let cap = talk.cap(n, plan.nodes[n].late_acks);
            Node::bare(&plan, n, cap, cap.max_send_wr + cap.max_recv_wr)
        });
        let links = [HOST, NAA].map(|n| Link::new(plan.faults[n].clone(), Random::new(seed, 43 + n as u64)));
        let host = Host::new(&mut nodes[HOST], Random::new(seed, 41));
        let accelerator = Accelerator::new(&talk, &mut nodes[NAA], Random::new(seed, 42));
        let model = Model::new(&talk, Random::new(seed, 45));
        Self { plan, talk, now: 0, nodes, links, host, accelerator, model, verbose, capture }
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        cm::dial(&mut self.nodes, &param(&self.plan, &[])).map_err(|e| format!("cannot dial: {e}"))?;
        [HOST, NAA].into_iter().try_for_each(|n| self.pump(n))?;
        let mut ended_at = None;
        loop {
            if ended_at.is_none() && self.host.over {
                ended_at = Some(self.now);
            }
            let end = ended_at.map_or(self.plan.deadline(), |at| at + WATCH);
            match self.next_time() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ if ended_at.is_some() => break,
                next => return Err(format!("not finished at {} ns (next event {next:?})", self.now)),
            }
            self.step().map_err(|why| format!("at {} ns: {why}", self.now))?;
        }
        self.host.finish(&self.nodes[HOST], &self.model)?;
        self.accelerator.finish(&self.nodes[NAA], &self.model)?;
        Ok(self.summary(ended_at.unwrap_or(self.now)))
    }

    fn next_time(&self) -> Option<u64> {
        let nodes = self.nodes.iter().filter_map(Node::next_timeout);
        let links = self.links.iter().filter_map(Link::next_arrival);
        nodes.chain(links).chain(self.accelerator.wake()).min()
    }

    fn step(&mut self) -> Result<(), String> {
        for n in [HOST, NAA] {
            self.deliver(n)?;
            if self.nodes[n].next_timeout().is_some_and(|at| at <= self.now) {
                self.nodes[n].endpoint.handle_timeout(Time(self.now));
            }
        }
        self.events()?;
        self.host.step(&mut self.nodes[HOST], &self.talk, &mut self.model)?;
        self.accelerator.step(self.now, &mut self.nodes[NAA], &self.talk, &mut self.model)?;
        [HOST, NAA].into_iter().try_for_each(|n| self.pump(n))
    }

    /// Connects: the accelerator says what it can do.
    fn events(&mut self) -> Result<(), String> {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            while let Some(event) = node.endpoint.next_event(node.channel).map_err(|e| e.to_string())? {
                if self.verbose {
                    eprintln!("{:>12} node {n} {event:?}", self.now);
                }
                match event {
                    CmEvent::ConnectRequest { id, .. } => {
                        let param = param(&self.plan, &self.talk.abilities().encode());
                        let accepted = node.endpoint.accept(Time(self.now), id, node.qp, &param);
                        accepted.map_err(|e| format!("cannot accept: {e}"))?;
                    }
                    CmEvent::Established { param, .. } if n == HOST => {
                        self.host.established(node, &param.private_data, &self.talk, &self.model)?;
                    }
                    CmEvent::Established { .. } => {}
                    other => return Err(format!("an unexpected event: {other:?}")),
                }
            }
        }
        Ok(())
    }

    fn deliver(&mut self, n: usize) -> Result<(), String> {
        let arrivals: Vec<_> = std::iter::from_fn(|| self.links[1 - n].receive(self.now)).collect();
        self.nodes[n].receive(self.now, &arrivals)
    }

    fn pump(&mut self, n: usize) -> Result<(), String> {
        self.nodes[n].send(self.now, &mut self.links[n], &mut self.capture)
    }

    fn summary(&self, virtual_nanos: u64) -> Summary {
        Summary {
            retransmitted: self.nodes.iter().map(|n| n.retransmitted).sum(),
            bytes: self.host.port.bytes + self.accelerator.port.bytes,
            completions: self.host.port.completions + self.accelerator.port.completions,
            virtual_nanos,
            ..Summary::of(self.links.iter().map(Link::counters))
        }
    }
}

/// As the sessions' of the host library and the server.
fn param(plan: &Plan, private_data: &[u8]) -> ConnParam {
    ConnParam { private_data: private_data.to_vec(), ..cm::param(plan) }
}
