//! Two endpoints over a network that loses, repeats, delays and damages as the bytes say, and then heals: everything
//! completes once and in order, and every byte is where it belongs and nowhere else.

use std::collections::{BTreeMap, VecDeque};

use roce::{Config, QpAttr, Time, wire::ROCE_PORT};
use verbs::{
    Access, Payload, PdId, QpCap, QpNum, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Wc, WcOpcode,
};

use crate::{device::Device, program::Program};

const SOURCE: usize = 0;
const TARGET: usize = 1;
const INBOX: usize = 2;
const READS: usize = 3;
const REGION: usize = 48 << 10;
const MAX_OPS: usize = 12;
/// The longest message; twelve of them fit a region.
const MAX_LEN: usize = 4000;
const CAP: QpCap = QpCap { max_send_wr: 16, max_recv_wr: 16, max_sge: 2, late_acks: true };
const HOP: u64 = 20_000;
/// Many times more than any run takes.
const MAX_STEPS: usize = 100_000;

struct Expected {
    opcode: WcOpcode,
    len: u32,
    imm: Option<u32>,
}

struct Node {
    device: Device,
    pd: PdId,
    qp: QpNum,
    /// What each region must hold in the end.
    images: Vec<Vec<u8>>,
    sends: VecDeque<Expected>,
    receives: VecDeque<Expected>,
    /// Sizes of receive buffers not posted yet; buffers lie one after the other.
    unposted: VecDeque<usize>,
    posted: usize,
}

struct Net<'a> {
    program: Program<'a>,
    nodes: [Node; 2],
    /// True if all datagrams with the same arrival time are handed in as one super-packet.
    merged: bool,
    now: u64,
    order: u64,
    /// By arrival: to whom, and what.
    flight: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
}

pub fn run(data: &[u8]) {
    let mut net = Net::new(data);
    for node in 0..2 {
        net.post(node);
    }
    for _ in 0..MAX_STEPS {
        if !net.step() {
            return net.check();
        }
    }
    panic!("the connection makes no progress on a network without faults");
}

impl Node {
    fn new(number: usize) -> Self {
        let addr = ([10, 0, 0, 1 + number as u8], ROCE_PORT).into();
        let mut device = Device::new(Config::default(), number as u16, addr, 64);
        let pd = device.endpoint.alloc_pd();
        let read = Access { remote_read: true, ..Access::default() };
        let access = [read, Access::REMOTE_WRITE, Access::LOCAL, Access::LOCAL];
        let mut images: Vec<_> = access.iter().map(|_| vec![0; REGION]).collect();
        images[SOURCE] = (0..REGION).map(|i| (i * 31 + i / 251 + number * 7) as u8).collect();
        for (region, access) in access.into_iter().enumerate() {
            device.register(pd, 0x10_0000 * (region as u64 + 1), images[region].clone(), access);
        }
        let qp = device.create_qp(pd, CAP);
        let (sends, receives, unposted) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { device, pd, qp, images, sends, receives, unposted, posted: 0 }
    }

    /// Posts the receives that are due.
    fn post_receives(&mut self, most: usize) {
        for len in self.unposted.drain(..most.min(self.unposted.len())) {
            let at = self.posted * MAX_LEN;
            let sge = self.device.regions.sge(INBOX, at as u64, len as u32).expect("registered");
            let wr = RecvWr { wr_id: self.posted as u64, sges: &[sge] };
            self.device.endpoint.post_recv(self.qp, &wr).expect("room for all receives");
            self.posted += 1;
        }
    }

    fn poll(&mut self) {
        for wc in self.device.poll(self.device.send_cq) {
            check(&wc, self.sends.pop_front());
        }
        for wc in self.device.poll(self.device.recv_cq) {
            check(&wc, self.receives.pop_front());
        }
    }
}

fn check(wc: &Wc, expected: Option<Expected>) {
    let Expected { opcode, len, imm } = expected.expect("no more completions than work requests");
    assert!(wc.status.is_success(), "{wc:?}");
    assert_eq!((wc.opcode, wc.byte_len, wc.imm), (opcode, len, imm));
}

impl<'a> Net<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mut program = Program::new(data);
        let mut nodes = [Node::new(0), Node::new(1)];
        let options = program.byte();
        let psn = if options & 4 != 0 { 0xff_fff0 } else { program.u32() };
        let depth = 1 + program.byte() % 16;
        for n in 0..2 {
            let other = &nodes[1 - n];
            let attr = QpAttr {
                peer: other.device.addr,
                remote_qpn: other.qp.0,
                path_mtu: if options & 1 != 0 { 1024 } else { 256 },
                send_psn: psn.wrapping_add(n as u32),
                recv_psn: psn.wrapping_add(1 - n as u32),
                retry_count: 7,
                rnr_retry_count: 7,
                // The requester never gives up, because the program may lose any number of packets.
                ack_timeout: 0,
                responder_resources: depth,
                initiator_depth: depth,
                embedded_peer: options & 2 != 0,
                offers_carried_acks: n == 0 && options & 16 != 0,
            };
            nodes[n].device.endpoint.connect_qp(nodes[n].qp, &attr).expect("a fresh queue pair");
        }
        Self { program, nodes, merged: options & 8 != 0, now: 1, order: 0, flight: BTreeMap::new() }
    }

    /// Posts all work of one node.
    fn post(&mut self, n: usize) {
        for number in 0..self.program.below(MAX_OPS + 1) {
            let kind = self.program.byte();
            let len = self.program.below(MAX_LEN + 1);
            let from = self.program.below(REGION - MAX_LEN);
            self.post_one(n, number, kind, len, from);
        }
        let posted = self.program.below(MAX_OPS + 1);
        self.nodes[1 - n].post_receives(posted);
    }

    fn post_one(&mut self, n: usize, number: usize, kind: u8, len: usize, from: usize) {
        let at = number * MAX_LEN;
        let [first, second] = &mut self.nodes;
        let (node, other) = if n == 0 { (first, second) } else { (second, first) };
        let remote = |other: &Node, region: usize, offset: usize| {
            let sge = other.device.regions.slots[region].as_ref().expect("registered");
            RemoteAddr { addr: sge.va + offset as u64, rkey: sge.keys.rkey }
        };
        let imm = (kind & 8 != 0).then_some(u32::from(kind) << 8 | number as u32);
        let bytes = node.images[SOURCE][from..from + len].to_vec();
        let (op, opcode, local) = match (kind & 3, imm) {
            (0, None) => (SendOp::Send, WcOpcode::Send, SOURCE),
            (0, Some(imm)) => (SendOp::SendWithImm(imm), WcOpcode::Send, SOURCE),
            (1 | 2, None) => (SendOp::Write(remote(other, TARGET, at)), WcOpcode::Write, SOURCE),
            (1 | 2, Some(imm)) => {
                (SendOp::WriteWithImm(remote(other, TARGET, at), imm), WcOpcode::Write, SOURCE)
            }
            _ => (SendOp::Read(remote(other, SOURCE, from)), WcOpcode::Read, READS),
        };
        match (opcode, imm) {
            (WcOpcode::Send, _) => {
                let place = other.unposted.len() * MAX_LEN;
                other.images[INBOX][place..place + len].copy_from_slice(&bytes);
                other.expect(WcOpcode::Recv, len, imm);
            }
            (WcOpcode::Write, _) => {
                other.images[TARGET][at..at + len].copy_from_slice(&bytes);
                if imm.is_some() {
                    other.expect(WcOpcode::RecvWriteWithImm, len, imm);
                }
            }
            _ => node.images[READS][at..at + len].copy_from_slice(&other.images[SOURCE][from..from + len]),
        }
        let offset = if local == READS { at } else { from };
        let half = (len / 2) as u32;
        let mut sge =
            |offset: usize, len: u32| node.device.regions.sge(local, offset as u64, len).expect("registered");
        let sges = [sge(offset, half), sge(offset + half as usize, len as u32 - half)];
        let fence = kind & 16 != 0;
        let flags = SendFlags { signaled: true, solicited: false, fence };
        let wr = SendWr { wr_id: number as u64, op, payload: Payload::Sges(&sges), flags };
        node.device.endpoint.post_send(node.qp, &wr).expect("room for all sends");
        node.sends.push_back(Expected { opcode, len: len as u32, imm: None });
    }

    /// The next thing that happens. False when all is quiet.
    fn step(&mut self) -> bool {
        self.pump();
        let timer = |node: &Node| node.device.endpoint.poll_timeout().map(|at| at.0);
        let timers = self.nodes.iter().filter_map(timer).min();
        let arrival = self.flight.keys().next().map(|(at, _)| *at);
        let Some(next) = timers.into_iter().chain(arrival).min() else {
            let late = self.nodes.iter().any(|node| !node.unposted.is_empty());
            self.nodes.iter_mut().for_each(|node| node.post_receives(usize::MAX));
            return late;
        };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let (_, (to, datagram)) = self.flight.pop_first().expect("just seen");
            let mut datagrams = vec![datagram];
            while self.merged
                && let Some(entry) = self.flight.first_entry()
                && (entry.key().0, entry.get().0) == (next, to)
            {
                datagrams.push(entry.remove().1);
            }
            let from = self.nodes[1 - to].device.addr;
            let node = &mut self.nodes[to];
            match &datagrams[..] {
                [one] => node.device.receive(Time(self.now), from, one, Some(node.pd)),
                all => node.device.receive_merged(Time(self.now), from, all, node.pd),
            }
        } else {
            for node in &mut self.nodes {
                node.post_receives(1);
                node.device.expire(Time(self.now));
            }
        }
        self.nodes.iter_mut().for_each(Node::poll);
        true
    }

    fn pump(&mut self) {
        for n in 0..2 {
            let mut ip_id = 0;
            while let Some(datagram) = self.nodes[n].device.send(Time(self.now), ip_id) {
                ip_id = (ip_id + 1) % 128;
                self.carry(1 - n, datagram);
            }
        }
    }

    /// One byte of the program for each packet says what the network does to it.
    fn carry(&mut self, to: usize, mut datagram: Vec<u8>) {
        let (fault, mut delay) = (self.program.byte(), HOP);
        match fault {
            128..160 => return,
            160..192 => self.arrive(to, HOP + 1 + 1000 * u64::from(fault), datagram.clone()),
            192..224 => delay += u64::from(fault - 191) * HOP,
            224..240 => {
                let bit = self.program.below((datagram.len() * 8).min(1 << 16));
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            _ => {}
        }
        self.arrive(to, delay, datagram);
    }

    fn arrive(&mut self, to: usize, delay: u64, datagram: Vec<u8>) {
        self.order += 1;
        self.flight.insert((self.now + delay, self.order), (to, datagram));
    }

    fn check(&self) {
        for node in &self.nodes {
            assert_eq!(node.device.endpoint.qp_state(node.qp), Some("connected"));
            assert!(node.sends.is_empty() && node.receives.is_empty(), "something never completed");
            for (region, image) in node.images.iter().enumerate() {
                let found = node.device.regions.slots[region].as_ref().expect("registered");
                assert!(found.bytes == *image, "region {region} does not hold what was sent");
            }
        }
    }
}

impl Node {
    /// A message that takes a receive.
    fn expect(&mut self, opcode: WcOpcode, len: usize, imm: Option<u32>) {
        self.unposted.push_back(len);
        self.receives.push_back(Expected { opcode, len: len as u32, imm });
    }
}
