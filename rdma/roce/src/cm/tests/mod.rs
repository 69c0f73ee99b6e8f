//! Tests in virtual time with two connection managers and a lossy network between them.

mod connect;
mod hostile;
mod release;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmEvent, CmId, ConnParam};

use super::{Binding, Cm, CmConfig, CmOutput, ConnectArgs, embedded_guid};
use crate::{
    entropy::{Entropy, tests::Random},
    psn::Psn,
    time::Time,
    wire::mad::{CmMessage, MAD_LEN, Mad},
};

const PORT: u16 = 12_345;

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.next_u32() % n
    }
}

/// A simulated machine: its connection manager, and the outputs of this connection manager.
struct Host {
    cm: Cm,
    address: SocketAddr,
    events: Vec<CmEvent>,
    bindings: Vec<Binding>,
    failed: Vec<u32>,
    withdrawn: Vec<CmId>,
}

impl Host {
    fn new(address: &str, config: CmConfig) -> Self {
        Self {
            cm: Cm::new(config),
            address: address.parse().unwrap(),
            events: Vec::new(),
            bindings: Vec::new(),
            failed: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn collect(&mut self) {
        while let Some(output) = self.cm.poll_output() {
            match output {
                CmOutput::Event(event) => self.events.push(event),
                CmOutput::Bind(binding) => self.bindings.push(binding),
                CmOutput::FailQp { qpn } => self.failed.push(qpn),
                CmOutput::Withdrawn { id } => self.withdrawn.push(id),
            }
        }
    }

    /// Collects the outputs of the connection manager, and removes the CM events of requests that have ended before the
    /// application accepted or rejected them ([`CmOutput::Withdrawn`]). A device does the same with the CM events that
    /// the application has not read yet.
    fn collect_unread(&mut self) {
        self.collect();
        self.events.retain(|event| !self.withdrawn.contains(&event.id()));
        self.withdrawn.clear();
    }

    /// Returns the first request that arrived; `None` if no request arrived.
    fn request(&self) -> Option<CmId> {
        self.events.iter().find_map(|event| match event {
            CmEvent::ConnectRequest { id, .. } => Some(*id),
            _ => None,
        })
    }

    fn established(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, CmEvent::Established { .. })).count()
    }

    fn disconnected(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, CmEvent::Disconnected { .. })).count()
    }
}

type Filter = Box<dyn FnMut(&CmMessage) -> bool>;

/// The simulated network. Host 0 connects, and host 1 listens.
struct Net {
    now: Time,
    random: Random,
    hosts: [Host; 2],
    /// The datagrams in flight, sorted by arrival time. Datagrams with the same arrival time are sorted in the order in
    /// which they were sent. The value of an entry is the index of the receiving host, the sender's address and the
    /// datagram.
    flight: BTreeMap<(Time, u64), (usize, SocketAddr, [u8; MAD_LEN])>,
    order: u64,
    /// The probability in percent that the network loses a datagram. If the network has made a second copy of the
    /// datagram, each of the two is lost with this probability.
    loss: u32,
    /// The probability in percent that the network makes a second copy of a datagram.
    duplication: u32,
    /// The filter of lost messages: a message is lost if the filter returns true.
    lose: Filter,
    /// All CM messages that the hosts sent, including the lost messages.
    sent: Vec<CmMessage>,
}

impl Net {
    fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    fn with(seed: u64, adjust: impl Fn(&mut CmConfig)) -> Self {
        let host = |address, guid| {
            let mut config = CmConfig::new(embedded_guid(guid), 4096);
            adjust(&mut config);
            Host::new(address, config)
        };
        Self {
            now: Time(1),
            random: Random(seed),
            hosts: [host("10.0.0.1:50001", 1), host("10.0.0.2:4791", 2)],
            flight: BTreeMap::new(),
            order: 0,
            loss: 0,
            duplication: 0,
            lose: Box::new(|_| false),
            sent: Vec::new(),
        }
    }

    fn listen(&mut self) -> CmId {
        self.hosts[1].cm.listen(PORT, 16, &mut self.random).unwrap().0
    }

    /// Returns the arguments with which the host `from` connects to host 1.
    fn args<'a>(&self, from: usize, qpn: u32, param: &'a ConnParam) -> ConnectArgs<'a> {
        ConnectArgs {
            local: self.hosts[from].address.ip(),
            remote: (self.hosts[1].address.ip(), PORT).into(),
            peer: self.hosts[1].address,
            qpn,
            starting_psn: Psn::new(qpn * 3),
            path_mtu: 1024,
            param,
        }
    }

    fn connect(&mut self, qpn: u32, param: &ConnParam) -> CmId {
        let args = self.args(0, qpn, param);
        self.hosts[0].cm.connect(self.now, args, &mut self.random).unwrap()
    }

    fn accept(&mut self, id: CmId, qpn: u32) -> Result<(), verbs::Error> {
        let param = ConnParam { private_data: b"welcome".to_vec(), ..ConnParam::default() };
        self.hosts[1].cm.accept(self.now, id, qpn, Psn::new(qpn * 5), &param)
    }

    /// Sends the datagrams of both hosts, and collects the outputs (`CmOutput`) of both connection managers.
    fn pump(&mut self) {
        for side in 0..2 {
            self.hosts[side].collect();
            while let Some((to, mad)) = self.hosts[side].cm.poll_transmit() {
                let message = Mad::decode(&mad).unwrap().message;
                self.sent.push(message.clone());
                // A connection manager that has forgotten the connection of a DREQ may send the DREP to the peer's RoCE
                // port, because a Linux kernel peer receives only at this port. The destination of a DREP to the RoCE
                // port is therefore not checked here.
                let known = !matches!(message, CmMessage::Drep(_)) || to.port() != crate::wire::ROCE_PORT;
                if known {
                    let address = self.hosts[1 - side].address;
                    assert_eq!(to, address, "embedded peers answer to the source port");
                }
                if (self.lose)(&message) {
                    continue;
                }
                let copies = 1 + u32::from(self.random.below(100) < self.duplication);
                for _ in 0..copies {
                    if self.random.below(100) >= self.loss {
                        self.put(1 - side, self.hosts[side].address, mad);
                    }
                }
            }
        }
    }

    /// From now on, the network loses the first `count` messages for which `kind` returns true.
    fn lose_some(&mut self, mut count: u32, kind: fn(&CmMessage) -> bool) {
        self.lose = Box::new(move |message| {
            let lose = kind(message) && count > 0;
            count -= u32::from(lose);
            lose
        });
    }

    fn put(&mut self, to: usize, from: SocketAddr, mad: [u8; MAD_LEN]) {
        let delay = Duration::from_micros(u64::from(50 + self.random.below(400)));
        self.order += 1;
        self.flight.insert((self.now + delay, self.order), (to, from, mad));
    }

    /// Handles the arrival of the next datagram or the next timer, whichever is due first. Returns false if no datagram
    /// arrives and no timer is due until `end`.
    fn step(&mut self, end: Time) -> bool {
        self.pump();
        let arrival = self.flight.keys().next().map(|(at, _)| *at);
        let timers = self.hosts.iter().filter_map(|host| host.cm.poll_timeout());
        let Some(next) = timers.chain(arrival).min().filter(|at| *at <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let (_, (to, from, mad)) = self.flight.pop_first().unwrap();
            self.deliver(to, from, &mad);
        }
        for host in &mut self.hosts {
            host.cm.handle_timeout(self.now);
        }
        self.pump();
        true
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, mad: &[u8; MAD_LEN]) {
        let local: IpAddr = self.hosts[to].address.ip();
        // The result of `handle_mad` is ignored, because the tests read refusals from the counters.
        let _ = self.hosts[to].cm.handle_mad(self.now, from, local, mad, &mut self.random);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs(120);
        while !done(self) {
            assert!(self.step(end), "nothing happens any more");
        }
    }

    /// Makes host 1 listen and host 0 connect, and runs the network until the request has arrived at host 1. Returns
    /// the ID of the connection at host 0, and its ID at host 1.
    fn requested(&mut self, param: &ConnParam) -> (CmId, CmId) {
        self.listen();
        let active = self.connect(0x11, param);
        self.run_until(|net| net.hosts[1].request().is_some());
        (active, self.hosts[1].request().unwrap())
    }

    /// Does the same as [`Self::requested`], and then lets host 1 accept the request. Returns the ID of the connection
    /// at host 0, and its ID at host 1.
    fn accepted(&mut self, param: &ConnParam) -> (CmId, CmId) {
        let ids = self.requested(param);
        self.accept(ids.1, 0x22).unwrap();
        ids
    }

    /// Establishes a connection between both hosts. Returns the ID of the connection at host 0, and its ID at host 1.
    fn connected(&mut self) -> (CmId, CmId) {
        let ids = self.accepted(&ConnParam::default());
        self.run_until(|net| net.hosts.iter().all(|host| host.established() == 1));
        ids
    }

    fn count(&self, kind: impl Fn(&CmMessage) -> bool) -> usize {
        self.sent.iter().filter(|message| kind(message)).count()
    }

    /// Checks that after 100 s more of virtual time, no host has a connection or a timer.
    fn assert_quiet(&mut self) {
        self.run(Duration::from_secs(100));
        for host in &self.hosts {
            assert_eq!(host.cm.table.len(), 0);
            assert_eq!(host.cm.poll_timeout(), None);
        }
    }
}
