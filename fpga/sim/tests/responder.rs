//! `responder_check` against `roce::model`: random requests of several queue pairs, regions that come and go.

mod common;
mod responder_ends;

use std::collections::{BTreeMap, VecDeque};

use common::{all_came, bench, number};
use naa_fpga::{Bench, Rates};
use responder_ends::{DecisionOutput, Ends, Request, tag};
use roce::{
    Entropy,
    model::{self, Decision, PayloadLocation, QpConfig, Receive, Response},
    opcode,
    psn::Psn,
    wire::{Bth, Packet, Reth},
};
use simnet::Random;
use verbs::{Access, MrKeys, PdId};

/// Where RKeys come from.
struct Secrets<'a>(&'a mut Random);

impl Entropy for Secrets<'_> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}

const SLOT_BITS: u8 = 8;
const QUEUE_PAIRS: u64 = 6;

/// What the module has to decide on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    request: Request,
    decision: Decision,
    duplicate: bool,
    gap: bool,
}

/// A queue pair as its requester sees it.
#[derive(Clone, Copy, Debug)]
struct Requester {
    settings: QpConfig,
    next: Psn,
    /// The message that is going on: whether it is a SEND, and its bytes that are left.
    left: Option<(bool, u32)>,
    is_open: bool,
    /// The number of requests that come before the one that was lost comes again.
    gap: u8,
}

struct Rig {
    random: Random,
    bench: Bench,
    model: model::Model,
    ends: Ends,
    /// Two protection domains, whose numbers differ in one bit.
    pds: [PdId; 2],
    regions: Vec<(MrKeys, PdId, u64, u64)>,
    requesters: Vec<Requester>,
    /// How often the module took each kind of decision.
    kinds: BTreeMap<String, u64>,
}

impl Requester {
    fn new(settings: QpConfig) -> Self {
        Self { settings, next: settings.psn, left: None, is_open: true, gap: 0 }
    }
}

impl Rig {
    fn new(seed: u64, idle: [u8; 2]) -> Option<Self> {
        let bench = bench("responder_check")?;
        let mut random = Random::new(seed, 0);
        let rates = [Rates::idle(idle[0], seed), Rates::idle(idle[1], !seed)];
        let ends = Ends::new(rates);
        let model = model::Model::new(SLOT_BITS, &mut Secrets(&mut random)).unwrap();
        let pd = random.next_u32() & 0xffff;
        let pds = [pd, pd ^ 1 << random.below(16)].map(PdId);
        let mut rig = Self {
            random,
            bench,
            model,
            ends,
            pds,
            regions: Vec::new(),
            requesters: Vec::new(),
            kinds: BTreeMap::new(),
        };
        let timer = rig.model.rnr_timer();
        rig.set(&[("rnr_timer", timer.into())]);
        // The module takes nothing until all is cleared.
        while rig.bench.model.get(rig.bench.model.port("table_ready")) == 0
            || rig.bench.model.get(rig.bench.model.port("setup_ready")) == 0
        {
            rig.bench.cycle(&mut []);
            assert!(rig.bench.cycles() < 1000, "the module is not ready");
        }
        for _ in 0..12 {
            rig.register();
        }
        for qp in 0..QUEUE_PAIRS {
            let settings = rig.settings();
            rig.requesters.push(Requester::new(settings));
            rig.connect(qp as usize);
        }
        Some(rig)
    }

    fn set(&mut self, values: &[(&str, u64)]) {
        for (name, value) in values {
            let port = self.bench.model.port(name);
            self.bench.model.set(port, *value);
        }
    }

    /// Sets inputs for one cycle, in which `valid` is high.
    fn pulse(&mut self, valid: &str, values: &[(&str, u64)]) {
        self.set(values);
        self.set(&[(valid, 1)]);
        self.bench.cycle(&mut [&mut self.ends]);
        self.set(&[(valid, 0)]);
    }

    fn settings(&mut self) -> QpConfig {
        QpConfig {
            psn: Psn::new(self.random.next_u64() as u32),
            pd: self.random.pick(&self.pds),
            mtu: 256 << self.random.below(5),
            reads: [0, 3, 1 + self.random.below(16) as u8, 100][self.random.below(4) as usize],
            receive: [100, 5000, 20_000, 1 << 20][self.random.below(4) as usize],
        }
    }

    fn connect(&mut self, qp: usize) {
        let settings = self.settings();
        self.connect_as(qp, settings);
    }

    fn connect_as(&mut self, qp: usize, settings: QpConfig) {
        self.requesters[qp] = Requester::new(settings);
        self.model.connect(qp as u32, settings);
        let values = [
            ("setup_qp", qp as u64),
            ("setup_connected", 1),
            ("setup_psn", settings.psn.value().into()),
            ("setup_pd", settings.pd.0.into()),
            ("setup_mtu", u64::from(settings.mtu.ilog2() - 8)),
            ("setup_reads", settings.reads.into()),
            ("setup_receive", settings.receive.into()),
        ];
        self.pulse("setup_valid", &values);
        self.bench.cycle(&mut [&mut self.ends]);
    }

    fn register(&mut self) {
        let address = if self.random.below(4) == 0 {
            0_u64.wrapping_sub(self.random.below(100_000))
        } else {
            self.random.below(1 << 20)
        };
        let length = [1, 100_000, 1 << 20, 1 << 31][self.random.below(4) as usize].min(u64::MAX - address);
        let access = Access {
            local_write: true,
            remote_read: (self.random.below(8) != 0),
            remote_write: (self.random.below(8) != 0),
        };
        let pd = self.random.pick(&self.pds);
        let (keys, place) =
            self.model.register(pd, address, length, access, &mut Secrets(&mut self.random)).unwrap();
        self.regions.push((keys, pd, address, length));
        self.table(keys, place.generation, Some(access), (pd, address, length));
    }

    fn table(
        &mut self,
        keys: MrKeys,
        generation: u32,
        access: Option<Access>,
        (pd, address, length): (PdId, u64, u64),
    ) {
        let permits = access.unwrap_or_default();
        let values = [
            ("table_slot", u64::from(keys.rkey & 0xff)),
            ("table_valid", access.is_some().into()),
            ("table_secret", u64::from(keys.rkey >> SLOT_BITS)),
            ("table_pd", pd.0.into()),
            ("table_remote_read", permits.remote_read.into()),
            ("table_remote_write", permits.remote_write.into()),
            ("table_generation", tag(generation).into()),
            ("table_address", address),
            ("table_length", length),
        ];
        self.pulse("table_write", &values);
    }

    /// Does one thing that a driver does: registers or releases a region, makes a queue pair, posts a receive, or finishes a READ. No packet is
    /// inside the module.
    fn drive(&mut self) {
        let qp = self.random.below(QUEUE_PAIRS) as usize;
        if !self.requesters[qp].is_open {
            return self.connect(qp);
        }
        match self.random.below(16) {
            0 if self.regions.len() > 4 => {
                let at = self.random.below(self.regions.len() as u64) as usize;
                let (keys, pd, address, length) = self.regions.swap_remove(at);
                self.model.release(keys);
                self.table(keys, 0, None, (pd, address, length));
            }
            0 | 1 if self.regions.len() < 40 => self.register(),
            2..=8 => {
                self.model.post(qp as u32);
                self.pulse("post_valid", &[("post_qp", qp as u64)]);
            }
            _ => {
                if self.model.read_done(qp as u32) {
                    self.pulse("read_done_valid", &[("read_done_qp", qp as u64)]);
                }
            }
        }
    }

    fn reth(&mut self, requester: Requester, opcode: u8) -> Reth {
        let random = &mut self.random;
        let mut region = self.regions[random.below(self.regions.len() as u64) as usize];
        if random.below(60) != 0 {
            let mut own =
                self.regions.iter().filter(|(_, pd, _, length)| *pd == requester.settings.pd && *length > 1);
            let count = own.clone().count() as u64;
            region = own.nth(random.below(count.max(1)) as usize).copied().unwrap_or(region);
        }
        let (keys, _, address, length) = region;
        let mut rkey = keys.rkey;
        if random.below(100) == 0 {
            rkey ^= 1 << random.below(32);
        }
        let mtu = u64::from(requester.settings.mtu);
        let offset =
            if random.below(50) == 0 { length - random.below(2) } else { random.below(length / 2 + 1) };
        let most =
            if opcode == opcode::WRITE_ONLY || opcode == opcode::WRITE_ONLY_WITH_IMM { mtu } else { 5 * mtu };
        let least = if opcode == opcode::WRITE_FIRST { mtu + 1 } else { 1 };
        let length = match random.below(60) {
            0 => random.next_u64() & 0xffff_ffff,
            1 => [0x7fff_ffff, 0x8000_0000, 0x8000_0001][random.below(3) as usize],
            2 => length - offset.min(length),
            // READs may have many packets.
            6 => self.random.below(length - offset.min(length) + 1),
            3..6 => 0,
            _ => random.below(most - least + 1) + least,
        };
        Reth { addr: address.wrapping_add(offset), rkey, length: length as u32 }
    }

    /// A random request. Most of the time it is the one that the queue pair expects next.
    fn request(&mut self, qp: usize) -> Request {
        let requester = self.requesters[qp];
        let mtu = requester.settings.mtu;
        let (opcode, reth, payload, left) = match requester.left {
            Some((is_send, left)) if (self.random.below(100) != 0) => {
                let ends = left <= mtu;
                let imm = self.random.below(2) == 0;
                let opcode = match (is_send, ends, imm) {
                    (true, false, _) => opcode::SEND_MIDDLE,
                    (true, true, false) => opcode::SEND_LAST,
                    (true, true, true) => opcode::SEND_LAST_WITH_IMM,
                    (false, false, _) => opcode::WRITE_MIDDLE,
                    (false, true, false) => opcode::WRITE_LAST,
                    (false, true, true) => opcode::WRITE_LAST_WITH_IMM,
                };
                let payload = left.min(mtu);
                (opcode, Reth::default(), payload, (!ends).then_some((is_send, left - payload)))
            }
            _ => self.begin(requester),
        };
        let payload = if self.random.below(200) == 0 { self.random.below(5000) as u32 } else { payload };
        let most = self.random.pick(&[8, 8, 16, 64]);
        let distance = self.random.below(most) as u32 + 1;
        let starts_gap = requester.gap == 0 && self.random.below(64) == 0;
        self.requesters[qp].gap = if starts_gap { 12 } else { requester.gap.saturating_sub(1) };
        let psn = match self.random.below(16) {
            n if requester.gap > 0 && n < 12 => requester.next.plus(distance),
            n if requester.gap > 0 && n < 15 => requester.next.minus(distance),
            0 => requester.next.plus(distance),
            1 => requester.next.minus(distance),
            2 if (self.random.below(4) == 0) => Psn::new(self.random.next_u64() as u32),
            _ => requester.next,
        };
        if psn == requester.next {
            self.requesters[qp].left = left;
        }
        let ack_req = self.random.below(2) == 0;
        Request { qp: qp as u32, opcode, ack_req, psn, payload: payload as u16, reth }
    }

    fn begin(&mut self, requester: Requester) -> (u8, Reth, u32, Option<(bool, u32)>) {
        let mtu = requester.settings.mtu;
        const BEGIN: [u8; 7] = [
            opcode::SEND_FIRST,
            opcode::SEND_ONLY,
            opcode::SEND_ONLY_WITH_IMM,
            opcode::WRITE_FIRST,
            opcode::WRITE_ONLY,
            opcode::WRITE_ONLY_WITH_IMM,
            opcode::READ_REQUEST,
        ];
        let opcode = match self.random.below(100) {
            0 => self.random.below(256) as u8,
            1 => self.random.below(13) as u8,
            n => BEGIN[n as usize % BEGIN.len()],
        };
        let reth = self.reth(requester, opcode);
        let some = self.random.below(4 * u64::from(mtu)) as u32 + 1;
        match opcode {
            opcode::SEND_FIRST => (opcode, reth, mtu, Some((true, some))),
            opcode::WRITE_FIRST => {
                (opcode, reth, mtu, Some((false, reth.length.saturating_sub(mtu).min(1 << 20))))
            }
            opcode::WRITE_ONLY | opcode::WRITE_ONLY_WITH_IMM => (opcode, reth, reth.length.min(mtu), None),
            opcode::READ_REQUEST => (opcode, reth, 0, None),
            _ => (opcode, reth, some.min(mtu), None),
        }
    }

    /// What the model decides on a request. `None` if it is silent.
    fn expect(&mut self, request: Request) -> Option<Expected> {
        let info = opcode::info(request.opcode)?;
        let payload = vec![0; request.payload.into()];
        let packet = Packet {
            bth: Bth { opcode: request.opcode, ack_req: request.ack_req, psn: request.psn, ..Bth::default() },
            reth: info.reth.then_some(request.reth),
            imm: info.immdt.then_some(0),
            payload: if info.payload { &payload } else { &[] },
            ..Packet::default()
        };
        let before = *self.model.counters();
        let decision = self.model.packet(request.qp, &packet)?;
        let after = self.model.counters();
        let duplicate = after.duplicate_request > before.duplicate_request;
        let gap = after.out_of_seq_request > before.out_of_seq_request;
        Some(Expected { request, decision, duplicate, gap })
    }

    /// Sends a burst of requests and compares the decisions. Returns the number of requests.
    fn burst(&mut self) -> u64 {
        let qps = 1 + self.random.below(QUEUE_PAIRS);
        let mut expected = VecDeque::new();
        let count = 1 + self.random.below(24);
        for _ in 0..count {
            let qp = self.random.below(qps) as usize;
            let request = self.request(qp);
            let Some(info) = opcode::info(request.opcode) else { continue };
            // The responder never gets answers, nor packets that have a payload where their opcode has none.
            let is_answer = matches!(
                info.operation,
                opcode::Operation::Acknowledge | opcode::Operation::ReadResponse | opcode::Operation::Cnp
            );
            if is_answer || !info.payload && request.payload > 0 {
                continue;
            }
            self.ends.requests.push_back(request);
            if let Some(expect) = self.expect(request) {
                let requester = &mut self.requesters[qp];
                requester.is_open &= !expect.decision.failed;
                let is_next = request.psn == requester.next && !expect.gap && !expect.duplicate;
                let is_nak = matches!(
                    expect.decision.response,
                    Some(Response::Ack { syndrome, .. }) if !matches!(syndrome, roce::wire::Syndrome::Ack(_))
                );
                if is_next && !is_nak {
                    let packets = match expect.decision.response {
                        Some(Response::Read { packets, .. }) => packets,
                        _ => 1,
                    };
                    requester.next = requester.next.plus(packets);
                }
                let dropped = expect.decision.reads_dropped;
                expected.push_back(expect);
                // READs that were dropped count no more for the next packet, so that the module has to know of them before that.
                if dropped > 0 {
                    self.settle(&mut expected);
                    for _ in 0..dropped {
                        self.pulse("read_done_valid", &[("read_done_qp", qp as u64)]);
                    }
                }
            }
        }
        self.settle(&mut expected);
        count
    }

    /// Waits until all decisions came out, and compares them.
    fn settle(&mut self, expected: &mut VecDeque<Expected>) {
        let mut idle = 0;
        let begun = self.bench.cycles();
        while idle < 150 {
            assert!(self.bench.cycles() - begun < 5000, "{} requests wait", self.ends.requests.len());
            let before = (self.ends.requests.len(), self.ends.decisions.len());
            self.bench.cycle(&mut [&mut self.ends]);
            let after = (self.ends.requests.len(), self.ends.decisions.len());
            idle = if before == after && after.0 == 0 { idle + 1 } else { 0 };
        }
        let mut of_qp: Vec<VecDeque<Expected>> = vec![VecDeque::new(); QUEUE_PAIRS as usize];
        for expect in expected.drain(..) {
            of_qp[expect.request.qp as usize].push_back(expect);
        }
        for seen in std::mem::take(&mut self.ends.decisions) {
            let expect = of_qp[seen.qp as usize].pop_front();
            let expect = expect.unwrap_or_else(|| panic!("not expected: {seen:?}"));
            let decision = Decision { reads_dropped: 0, ..expect.decision };
            let context = (expect.request, self.requesters[seen.qp as usize]);
            assert_eq!(seen.decision, decision, "{context:?}");
            assert_eq!((seen.duplicate, seen.gap), (expect.duplicate, expect.gap), "{context:?}");
            for kind in kinds(&seen) {
                *self.kinds.entry(kind).or_default() += 1;
            }
        }
        assert!(of_qp.iter().all(VecDeque::is_empty), "no decision on {of_qp:?}");
    }
}

/// The names of what a decision contains, to count them.
fn kinds(seen: &DecisionOutput) -> Vec<String> {
    let Decision { response, placed, receive, failed, .. } = seen.decision;
    let response = match response {
        None => "no answer".to_owned(),
        Some(Response::Ack { syndrome, .. }) => format!("{syndrome:?}"),
        Some(Response::Read { source, repeated, .. }) => {
            format!("read, again {repeated}, of any bytes {}", source.is_some())
        }
    };
    let placed = placed.map(|placed| format!("placed {}", matches!(placed, PayloadLocation::Region(_))));
    let receive = receive.map(|receive| match receive {
        Receive::Done(_) => "received".to_owned(),
        Receive::DoneByWrite(_) => "received by a WRITE".to_owned(),
        Receive::Failed => "a receive failed".to_owned(),
    });
    let other = [("failed", failed), ("duplicate", seen.duplicate), ("gap", seen.gap)];
    let other = other.into_iter().filter(|(_, is)| *is).map(|(name, _)| name.to_owned());
    [Some(response), placed, receive].into_iter().flatten().chain(other).collect()
}

#[test]
fn random_requests_are_decided_as_the_model_does() {
    let count = number("NAA_FPGA_PACKETS", 100_000);
    let first = number("NAA_FPGA_SEED", 1);
    let mut kinds = BTreeMap::<String, u64>::new();
    for (at, idle) in [[0, 0], [60, 0], [0, 120], [100, 60]].into_iter().enumerate() {
        let seed = first + at as u64;
        println!("seed {seed}");
        let Some(mut rig) = Rig::new(seed, idle) else { return };
        let mut packets = 0;
        while packets < count / 4 {
            for _ in 0..rig.random.below(6) {
                rig.drive();
            }
            packets += rig.burst();
        }
        rig.kinds.into_iter().for_each(|(kind, times)| *kinds.entry(kind).or_default() += times);
    }
    all_came(&kinds, 18, count, 50_000);
}

#[test]
fn reads_are_taken_up_to_the_limit() {
    let Some(mut rig) = Rig::new(1, [0, 0]) else { return };
    for reads in (0..8).map(|bit| 1 << bit).chain([u8::MAX]) {
        let settings = QpConfig { reads, ..rig.settings() };
        rig.connect_as(0, settings);
        let mut expected = VecDeque::new();
        for at in 0..=u32::from(reads) {
            // A READ of no bytes needs no region.
            let (psn, reth) = (settings.psn.plus(at), Reth::default());
            let request =
                Request { qp: 0, opcode: opcode::READ_REQUEST, ack_req: false, psn, payload: 0, reth };
            rig.ends.requests.push_back(request);
            expected.extend(rig.expect(request));
        }
        assert_eq!(expected.len(), usize::from(reads) + 1);
        assert!(
            expected
                .iter()
                .all(|expect| expect.decision.failed
                    == (expect.request.psn == settings.psn.plus(reads.into())))
        );
        rig.settle(&mut expected);
    }
}

#[test]
fn receives_are_counted_for_a_long_time() {
    let Some(mut rig) = Rig::new(1, [0, 0]) else { return };
    let settings = QpConfig { mtu: 256, receive: 100, ..rig.settings() };
    rig.connect_as(0, settings);
    let mut psn = settings.psn;
    // The counter has 16 bits, and begins again at 0 in a long run.
    for _ in 0..(number("NAA_FPGA_PACKETS", 100_000) / 20).min(3000) {
        let (mut expected, posts) = (VecDeque::new(), 24);
        for _ in 0..posts {
            rig.model.post(0);
            rig.pulse("post_valid", &[("post_qp", 0)]);
        }
        // There is no receive for the last SEND, which comes again in the next round.
        for at in 0..=posts {
            let (psn, reth) = (psn.plus(at), Reth::default());
            let request = Request { qp: 0, opcode: opcode::SEND_ONLY, ack_req: true, psn, payload: 1, reth };
            rig.ends.requests.push_back(request);
            expected.extend(rig.expect(request));
        }
        assert_eq!(expected.iter().filter(|expect| expect.decision.receive.is_some()).count(), 24);
        rig.settle(&mut expected);
        psn = psn.plus(posts);
    }
}

#[test]
fn a_decision_takes_16_cycles() {
    let Some(mut rig) = Rig::new(1, [0, 0]) else { return };
    let psn = rig.requesters[0].next;
    // A duplicate is always answered.
    let request = Request {
        qp: 0,
        opcode: opcode::SEND_ONLY,
        ack_req: true,
        psn: psn.minus(1),
        payload: 0,
        reth: Reth::default(),
    };
    rig.ends.requests.push_back(request);
    let begun = rig.bench.cycles();
    while rig.ends.decisions.is_empty() {
        rig.bench.cycle(&mut [&mut rig.ends]);
        assert!(rig.bench.cycles() - begun < 100);
    }
    // The decision is taken in the cycle in which it is there.
    assert_eq!(rig.bench.cycles() - begun - 1, 16);
}
