//! The event loop of a run.

use roce::Time;
use simnet::{Arrival, Link, Random};
use verbs::{Access, RemoteAddr};

use super::{
    check::Checker,
    cm, hostile,
    node::{Capture, Datagram, Node},
    plan::{Plan, Refused, Revoked, SECOND, Scenario},
    report::Summary,
    traffic::{self, Operation, SHELF, SOURCE, TARGET, Traffic},
};

/// How long to watch for things that must not happen any more.
const WATCH: u64 = 3 * SECOND;

/// When a node next posts requests to a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Poster {
    posted: usize,
    limit: usize,
    next: u64,
    /// The queue was full.
    blocked: bool,
}

impl Poster {
    fn wake(&self) -> Option<u64> {
        (self.posted < self.limit && !self.blocked).then_some(self.next)
    }

    /// Returns true if the node posts at the time `now`. A node tries a full queue again at each event of the
    /// simulation, because unsignaled requests leave the queue without a completion.
    fn due(&self, now: u64) -> bool {
        self.blocked || self.wake().is_some_and(|at| at <= now)
    }

    /// Records that requests completed, so the queue is not full any more. If the queue was full, the node posts again
    /// at the time `now`: it cannot wait for the next event of the simulation, because there may be no further event.
    fn has_room(&mut self, now: u64) {
        if std::mem::take(&mut self.blocked) {
            self.next = now;
        }
    }
}

pub(super) struct Environment {
    plan: Plan,
    now: u64,
    nodes: [Node; 2],
    /// From node 0 to node 1, and back.
    links: [Link<Datagram>; 2],
    traffic: [Traffic; 2],
    checker: Checker,
    sends: [Poster; 2],
    receives: [Poster; 2],
    event_pending: bool,
    connected: [bool; 2],
    hostile: Random,
    verbose: bool,
    capture: Option<Capture>,
}

impl Environment {
    pub(super) fn new(plan: Plan, verbose: bool, capture: Option<Capture>) -> Self {
        let (traffic, images) = traffic::draw(&plan);
        let completions = |n: usize| traffic[n].operations.len() + traffic[1 - n].receives.len() + 1;
        let nodes = [0, 1].map(|n| Node::new(&plan, n, &images[n], completions(n) as u32));
        let links = [0, 1].map(|n| Link::new(plan.faults[n].clone(), Random::new(plan.seed, 30 + n as u64)));
        let poster = |limit| Poster { limit, ..Poster::default() };
        let sends = [0, 1].map(|n| poster(traffic[n].operations.len()));
        let mut receives = [1, 0].map(|from: usize| poster(traffic[from].receives.len()));
        if plan.scenario == Scenario::RnrExhausted {
            receives[1].limit = Random::new(plan.seed, 2).below(receives[1].limit as u64) as usize;
        }
        Self {
            now: 0,
            nodes,
            links,
            checker: Checker::new(images),
            sends,
            receives,
            event_pending: matches!(plan.scenario, Scenario::Revoked { .. }),
            connected: [false; 2],
            hostile: Random::new(plan.seed, 3),
            traffic,
            plan,
            verbose,
            capture,
        }
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        self.connected = [cm::connect(&self.plan, &mut self.nodes)?; 2];
        (0..2).try_for_each(|n| self.pump(n))?;
        let deadline = self.plan.deadline();
        let mut finished_at = None;
        loop {
            if finished_at.is_none() && self.finished() {
                finished_at = Some(self.now);
            }
            let next = self.next_time();
            let end = finished_at.map_or(deadline, |at| at + WATCH);
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ if finished_at.is_some() || self.plan.scenario == Scenario::Hostile => break,
                _ => return Err(self.stuck(next)),
            }
            self.step().map_err(|why| self.explain(&why))?;
        }
        self.checker.finish(
            &self.plan,
            &self.nodes,
            &self.traffic,
            self.links.each_ref().map(Link::counters),
        )?;
        Ok(self.summary(finished_at.unwrap_or(self.now)))
    }

    fn explain(&self, why: &str) -> String {
        if self.verbose {
            for (node, link) in self.nodes.iter().zip(&self.links) {
                eprintln!("{:?}\n{:?}", node.endpoint.counters(), link.counters());
            }
        }
        format!("at {} ns: {why}", self.now)
    }

    fn next_time(&self) -> Option<u64> {
        let nodes = self.nodes.iter().filter_map(Node::next_timeout);
        let links = self.links.iter().filter_map(Link::next_arrival);
        let open = self.sends.iter().zip(self.connected).filter_map(|(poster, open)| open.then_some(poster));
        let posts = open.chain(&self.receives).filter_map(Poster::wake);
        let event = self.event_pending.then_some(self.plan.event_at);
        nodes.chain(links).chain(posts).chain(event).min()
    }

    fn finished(&self) -> bool {
        (0..2).all(|n| {
            let all = self.sends[n].posted == self.sends[n].limit;
            all && self.checker.sends_done(n, &self.traffic[n])
        })
    }

    fn stuck(&self, next: Option<u64>) -> String {
        let nodes = [0, 1].map(|n| {
            let state = self.nodes[n].endpoint.qp_state(self.nodes[n].qp);
            format!("node {n} {state:?} posted {:?}, {}", self.sends[n], self.checker.progress(n))
        });
        format!("not finished at {} ns (next event {next:?}): {}", self.now, nodes.join("; "))
    }

    fn step(&mut self) -> Result<(), String> {
        if self.event_pending && self.plan.event_at <= self.now {
            self.event_pending = false;
            self.revoke();
        }
        for n in 0..2 {
            self.deliver(n)?;
            if self.nodes[n].next_timeout().is_some_and(|at| at <= self.now) {
                self.nodes[n].endpoint.handle_timeout(Time(self.now));
            }
        }
        for n in 0..2 {
            if cm::events(&self.plan, &mut self.nodes[n], self.now)? {
                self.connected[n] = true;
            }
            self.post_receives(n)?;
            if self.connected[n] {
                self.post_sends(n)?;
            }
            self.pump(n)?;
            self.poll(n)?;
        }
        Ok(())
    }

    /// Hands node `n` what has arrived, and at times what a hostile peer makes of it.
    fn deliver(&mut self, n: usize) -> Result<(), String> {
        let link = &mut self.links[1 - n];
        let mut arrivals: Vec<Arrival<Datagram>> = Vec::new();
        while let Some(arrival) = link.receive(self.now) {
            let hostile = self.plan.scenario == Scenario::Hostile && self.now >= self.plan.event_at;
            if hostile && self.hostile.chance(30_000) {
                let packet = hostile::mutate(&mut self.hostile, &arrival.packet);
                arrivals.extend(packet.map(|packet| Arrival { packet, corrupted: None, ..arrival }));
            }
            arrivals.push(arrival);
        }
        self.nodes[n].receive(self.now, &arrivals)
    }

    fn post_receives(&mut self, n: usize) -> Result<(), String> {
        let (count, gap) = self.plan.nodes[n].receive;
        let poster = &mut self.receives[n];
        if !poster.due(self.now) {
            return Ok(());
        }
        poster.next = self.now + gap;
        poster.blocked = false;
        for _ in 0..count {
            let Some(receive) = self.traffic[1 - n].receives[..poster.limit].get(poster.posted) else {
                break;
            };
            match self.nodes[n].post_recv(poster.posted, receive) {
                Ok(()) => poster.posted += 1,
                Err(verbs::Error::Exhausted { .. }) => {
                    poster.blocked = true;
                    break;
                }
                Err(e) => return Err(format!("node {n} cannot post a receive: {e}")),
            }
        }
        self.checker.receives_posted(n, poster.posted);
        Ok(())
    }

    fn post_sends(&mut self, n: usize) -> Result<(), String> {
        let (count, gap) = self.plan.nodes[n].post;
        if !self.sends[n].due(self.now) {
            return Ok(());
        }
        self.sends[n].next = self.now + gap;
        self.sends[n].blocked = false;
        for _ in 0..count {
            let revoked = self.source_revoked(n);
            let poster = &mut self.sends[n];
            let Some(op) = self.traffic[n].operations[..poster.limit].get(poster.posted) else { break };
            let remote = remote(op, &self.nodes[1 - n]);
            match self.nodes[n].post_send(poster.posted, op, remote) {
                Ok(()) => poster.posted += 1,
                Err(verbs::Error::Exhausted { .. }) => {
                    poster.blocked = true;
                    break;
                }
                // What names a withdrawn region cannot even be posted; nor is what follows.
                Err(verbs::Error::LocalProtection { .. }) if revoked => {
                    poster.limit = poster.posted;
                }
                Err(e) => return Err(format!("node {n} cannot post: {e}")),
            }
        }
        self.checker.sends_posted(n, self.sends[n].posted);
        Ok(())
    }

    fn source_revoked(&self, n: usize) -> bool {
        let revoked = matches!(self.plan.scenario, Scenario::Revoked { what: Revoked::Source, .. });
        n == 0 && revoked && !self.event_pending
    }

    fn pump(&mut self, n: usize) -> Result<(), String> {
        self.nodes[n].send(self.now, &mut self.links[n], &mut self.capture)
    }

    fn poll(&mut self, n: usize) -> Result<(), String> {
        let (send_cq, recv_cq) = (self.nodes[n].send_cq, self.nodes[n].recv_cq);
        let sends = self.nodes[n].poll(send_cq);
        let receives = self.nodes[n].poll(recv_cq);
        if !sends.is_empty() {
            self.sends[n].has_room(self.now);
        }
        if !receives.is_empty() {
            self.receives[n].has_room(self.now);
        }
        for wc in sends {
            if self.verbose {
                eprintln!("{:>12} node {n} send {wc:?}", self.now);
            }
            self.checker.send_completed(&self.plan, &mut self.nodes, n, &wc, &self.traffic[n])?;
        }
        for wc in receives {
            if self.verbose {
                eprintln!("{:>12} node {n} recv {wc:?}", self.now);
            }
            self.checker.receive_completed(&self.plan, &self.nodes, n, &wc, &self.traffic[1 - n])?;
        }
        Ok(())
    }

    fn revoke(&mut self) {
        let Scenario::Revoked { what, dereg } = self.plan.scenario else { return };
        let (node, region) = match what {
            Revoked::Target => (1, TARGET),
            Revoked::Shelf => (1, SHELF),
            Revoked::Source => (0, SOURCE),
        };
        let lkey = self.nodes[node].regions[region].keys.lkey;
        if dereg {
            self.nodes[node].endpoint.dereg_mr(lkey).expect("registered");
        } else {
            // Within what the region was registered for, whatever that is: nothing.
            self.nodes[node].endpoint.set_mr_access(lkey, Access::default()).expect("registered");
        }
        self.checker.region_revoked(&self.nodes, node, region);
    }

    fn summary(&self, virtual_nanos: u64) -> Summary {
        Summary {
            retransmitted: self.nodes.iter().map(|n| n.retransmitted).sum(),
            bytes: self.traffic.iter().flat_map(|t| &t.operations).map(|op| op.data.len() as u64).sum(),
            completions: self.checker.completions,
            virtual_nanos,
            ..Summary::of(self.links.iter().map(Link::counters))
        }
    }
}

/// The address and key an operation names in the memory of `peer`.
pub(super) fn remote(op: &Operation, peer: &Node) -> RemoteAddr {
    let Some(span) = op.remote else { return RemoteAddr { addr: 0, rkey: 0 } };
    let region = &peer.regions[span.region];
    let wrong = u32::from(op.poison == Some(Refused::BadRkey));
    RemoteAddr { addr: region.va.wrapping_add(span.offset), rkey: region.keys.rkey ^ wrong }
}
