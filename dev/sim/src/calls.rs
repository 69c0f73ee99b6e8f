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
use verbs::{CmEvent, CmId, ConnParam};

use super::{
    cm,
    node::{Capture, Datagram, Node},
    plan::{Plan, SECOND, US},
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
    given_up: GivenUp,
    /// The host's connection.
    id: Option<CmId>,
    verbose: bool,
    capture: Option<Capture>,
}

/// Says whether the host gives a call up. A host does so when its program drops the future of a call and then the session.
#[derive(Debug)]
enum GivenUp {
    Never,
    /// The host gives the call up when `delay` has passed after call number `call` was posted.
    After {
        call: usize,
        delay: u64,
    },
    /// The host gives the call up at this time.
    At(u64),
    /// The host has destroyed its queue pair and owns its memory again. Every further access of the accelerator must fail.
    Done {
        accelerator_failed: bool,
    },
}

impl GivenUp {
    fn draw(r: &mut Random, calls: usize) -> Self {
        if !r.chance(250_000) {
            return Self::Never;
        }
        let delay = r.pick(&[0, US, 10 * US, 100 * US, 1000 * US, 20_000 * US]);
        Self::After { call: r.range(1..=calls as u64) as usize, delay: r.below(delay + 1) }
    }

    fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
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
        let given_up = GivenUp::draw(&mut Random::new(seed, 46), talk.calls);
        if verbose {
            eprintln!("{given_up:?}");
        }
        let id = None;
        Self { plan, talk, now: 0, nodes, links, host, accelerator, model, given_up, id, verbose, capture }
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
        if !self.given_up.is_done() {
            self.accelerator.finish(&self.nodes[NAA], &self.model)?;
        }
        Ok(self.summary(ended_at.unwrap_or(self.now)))
    }

    fn next_time(&self) -> Option<u64> {
        let nodes = self.nodes.iter().filter_map(Node::next_timeout);
        let links = self.links.iter().filter_map(Link::next_arrival);
        let (wake, given_up) = match self.given_up {
            GivenUp::At(at) if !self.host.over => (self.accelerator.wake(), Some(at)),
            GivenUp::Done { accelerator_failed: true } => (None, None),
            _ => (self.accelerator.wake(), None),
        };
        nodes.chain(links).chain(wake).chain(given_up).min()
    }

    fn step(&mut self) -> Result<(), String> {
        for n in [HOST, NAA] {
            self.deliver(n)?;
            if self.nodes[n].next_timeout().is_some_and(|at| at <= self.now) {
                self.nodes[n].endpoint.handle_timeout(Time(self.now));
            }
        }
        self.events()?;
        if let GivenUp::Done { accelerator_failed } = &mut self.given_up {
            if !*accelerator_failed {
                let stepped =
                    self.accelerator.step(self.now, &mut self.nodes[NAA], &self.talk, &mut self.model);
                *accelerator_failed = stepped.is_err();
            }
        } else {
            self.host.step(&mut self.nodes[HOST], &self.talk, &mut self.model)?;
            self.give_up()?;
        }
        if !self.given_up.is_done() {
            self.accelerator.step(self.now, &mut self.nodes[NAA], &self.talk, &mut self.model)?;
        }
        [HOST, NAA].into_iter().try_for_each(|n| self.pump(n))
    }

    /// Gives the call up if the time for that has come: destroys the queue pair, and then takes the memory back.
    fn give_up(&mut self) -> Result<(), String> {
        match self.given_up {
            GivenUp::After { call, delay } if self.host.posted == call => {
                self.given_up = GivenUp::At(self.now + delay);
            }
            _ => {}
        }
        let GivenUp::At(at) = self.given_up else { return Ok(()) };
        if at > self.now || self.host.over {
            return Ok(());
        }
        let node = &mut self.nodes[HOST];
        let id = self.id.ok_or("a call without a connection")?;
        node.endpoint.disconnect(Time(self.now), id).map_err(|e| e.to_string())?;
        node.endpoint.destroy_qp(node.qp).map_err(|e| e.to_string())?;
        self.host.give_up(node)?;
        self.given_up = GivenUp::Done { accelerator_failed: false };
        Ok(())
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
                    CmEvent::Established { id, param } if n == HOST => {
                        self.id = Some(id);
                        self.host.established(node, &param.private_data, &self.talk, &self.model)?;
                    }
                    CmEvent::Established { .. } => {}
                    _ if self.given_up.is_done() => {}
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
