//! A super-packet has the effect of its datagrams one after the other. Two pairs of ends do the same work over the same
//! faulty network: the ends of one pair get each datagram by itself, and the ends of the other pair get super-packets.

mod pair;

use std::{collections::BTreeSet, time::Duration};

use pair::{
    A, B, HALF, MTU, Pair, Setup, Side,
    end::{End, numbers},
    failed, ok,
};
use roce::{
    DatagramMeta, Entropy, Observer, Refusal, RefusalCause, opcode,
    psn::Psn,
    wire::{Bth, Packet, Syndrome},
};
use verbs::{Access, MrKeys, Payload, QpNum, SendFlags, SendOp, SendWr, Sge, Wc, WcStatus};

/// The address of the first byte of each end's second region.
const SECOND: u64 = 0x1000;
const READ_ONLY: Access = Access { local_write: false, remote_write: false, remote_read: true };
const ZEROS: [u8; 2 * MTU as usize] = [0; 2 * MTU as usize];

/// Random numbers, which a test draws from its seed.
struct Random(Box<dyn Entropy + Send>);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0.next_u32() % end
    }

    /// True in `percent` of 100 cases.
    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

/// The refused packets: the cause, and the PSN if the datagram is a packet.
#[derive(Default)]
struct Refused(Vec<(RefusalCause, Option<Psn>)>);

impl Observer for Refused {
    fn refused(&mut self, refusal: &Refusal<'_>) {
        self.0.push((refusal.cause, refusal.packet.map(|packet| packet.bth.psn)));
    }
}

/// Two ends with two connections between them.
struct World {
    pair: Pair,
    qps: [[QpNum; 2]; 2],
    /// The keys of the second region of each end.
    second: [MrKeys; 2],
    /// Whether the ends get super-packets.
    merged: bool,
    refused: Refused,
    done: Vec<Wc>,
}

/// Something that a program does at one end.
#[derive(Clone, Copy)]
enum Action {
    Post {
        qp: usize,
        kind: u32,
        offset: u32,
        len: u32,
    },
    Receive {
        qp: usize,
        len: u32,
    },
    /// A READ to two regions.
    ReadToBoth {
        qp: usize,
        len: u32,
    },
    SetAccess(Access),
    SetSecond(Access),
    Deregister,
}

impl World {
    /// With `carried`, request packets carry acknowledgements.
    fn new(window: u32, carried: bool, merged: bool) -> Self {
        let change = |setup: &mut Setup| {
            (setup.cap.late_acks, setup.offers_carried_acks) = (carried, carried);
            let config = &mut setup.config;
            (config.initial_window_bytes, config.max_window_bytes) = (window * MTU, window * MTU);
        };
        let mut setup = Setup::default();
        change(&mut setup);
        let mut pair = Pair::with(change);
        let (first, second) = ([pair.a.qp, pair.b.qp], [pair.a.another_qp(), pair.b.another_qp()]);
        let addresses = [pair.a.addr, pair.b.addr];
        for (n, end) in [&mut pair.a, &mut pair.b].into_iter().enumerate() {
            // The PSNs of the second connection wrap around soon.
            let psns = [[0xff_ffc0, 0xff_ffe0], [0xff_ffe0, 0xff_ffc0]][n];
            let attr = setup.attr(addresses[1 - n], second[1 - n].0, psns);
            end.endpoint.connect_qp(second[n], &attr).unwrap();
        }
        let qps = [[first[0], second[0]], [first[1], second[1]]];
        let second = [A, B].map(|side| pair.end(side).register(SECOND, HALF, Access::ALL));
        Self { pair, qps, second, merged, refused: Refused::default(), done: Vec::new() }
    }

    /// Returns true if the end permits the action.
    fn act(&mut self, side: Side, action: Action) -> bool {
        let remote = self.pair.end(side.other()).remote(0);
        let at = |offset: u32| verbs::RemoteAddr { addr: remote.addr + u64::from(offset), ..remote };
        let (qps, second) = (self.qps[side as usize], self.second[side as usize]);
        let end = self.pair.end(side);
        match action {
            Action::Post { qp, kind, offset, len } => {
                end.qp = qps[qp];
                let op = match kind {
                    0..5 => SendOp::Write(at(HALF + offset)),
                    5 => SendOp::WriteWithImm(at(HALF + offset), len),
                    6 => SendOp::Send,
                    _ => SendOp::Read(at(offset)),
                };
                let from = if kind > 6 { HALF + offset } else { offset };
                end.post_with(u64::from(offset), op, from, len, SendFlags::SIGNALED).is_ok()
            }
            Action::Receive { qp, len } => {
                end.qp = qps[qp];
                let sges = [end.sge(HALF, len)];
                end.endpoint.post_recv(end.qp, &verbs::RecvWr { wr_id: 9, sges: &sges }).is_ok()
            }
            Action::ReadToBoth { qp, len } => {
                let sges = [end.sge(HALF, len), Sge { addr: SECOND, length: len, lkey: second.lkey }];
                let (op, payload, flags) = (SendOp::Read(at(0)), Payload::Sges(&sges), SendFlags::SIGNALED);
                end.endpoint.post_send(qps[qp], &SendWr { wr_id: 7, op, payload, flags }).is_ok()
            }
            Action::SetAccess(access) => end.endpoint.set_mr_access(end.keys.lkey, access).is_ok(),
            Action::SetSecond(access) => end.endpoint.set_mr_access(second.lkey, access).is_ok(),
            Action::Deregister => end.endpoint.dereg_mr(end.keys.lkey).is_ok(),
        }
    }

    /// Returns the packets that `side` sends now, without their ICRCs.
    fn transmit(&mut self, side: Side) -> Vec<Vec<u8>> {
        let now = self.pair.now;
        let end = self.pair.end(side);
        let mut sent = Vec::new();
        while end.endpoint.poll_transmit(now, &mut end.transmit) {
            sent.push(end.gather(&end.transmit));
        }
        sent
    }

    fn deliver(&mut self, to: Side, datagrams: &[Vec<u8>]) {
        let (now, merged) = (self.pair.now, self.merged);
        let from = self.pair.end(to.other()).addr;
        let End { endpoint, memory, addr, .. } = self.pair.end(to);
        let datagrams = datagrams.iter().enumerate().map(|(index, bytes)| (index as u16, &bytes[..]));
        if merged {
            endpoint.handle_super_packet(now, [from, *addr], datagrams, memory, &mut self.refused);
            return;
        }
        for (index, datagram) in datagrams {
            let meta = DatagramMeta { from, to: *addr, index };
            endpoint.handle_datagram(now, &meta, datagram, memory, &mut self.refused);
        }
    }

    fn advance(&mut self, time: Duration) {
        self.pair.now = self.pair.now + time;
        let now = self.pair.now;
        for side in [A, B] {
            let end = self.pair.end(side);
            end.endpoint.handle_timeout(now);
            self.done.extend(end.poll(end.send_cq));
            self.done.extend(end.poll(end.recv_cq));
        }
    }

    fn states(&self) -> Vec<&'static str> {
        let ends = [(&self.pair.a, self.qps[0]), (&self.pair.b, self.qps[1])];
        ends.iter().flat_map(|(end, qps)| qps.map(|qp| end.endpoint.qp_state(qp).unwrap())).collect()
    }

    fn assert_same(&self, other: &Self, seed: u64) {
        for (one, two) in [(&self.pair.a, &other.pair.a), (&self.pair.b, &other.pair.b)] {
            assert_eq!(one.endpoint.counters(), two.endpoint.counters(), "seed {seed}");
            assert_eq!(one.endpoint.poll_timeout(), two.endpoint.poll_timeout(), "seed {seed}");
            assert!(one.memory.0 == two.memory.0, "seed {seed}: the memory differs");
        }
        assert_eq!(self.refused.0, other.refused.0, "seed {seed}");
        assert_eq!(self.done, other.done, "seed {seed}");
        assert_eq!(self.states(), other.states(), "seed {seed}");
    }
}

/// Draws what the programs at one end do now.
fn actions(random: &mut Random, hostile: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    for _ in 0..random.below(3) {
        let (qp, kind) = (random.below(2) as usize, random.below(9));
        let offset = random.below(HALF / 2);
        let len = random.pick(&[0, 1, 100, MTU, 3 * MTU + 5, 40 * MTU, 120 * MTU]);
        actions.push(Action::Post { qp, kind, offset, len });
    }
    if random.chance(40) {
        let len = random.pick(&[MTU, 130 * MTU]);
        actions.push(Action::Receive {
            qp: random.below(2) as usize,
            len: if hostile { len } else { 130 * MTU },
        });
    }
    if random.chance(20) {
        let len = random.pick(&[10, 10 * MTU, 20 * MTU]);
        actions.push(Action::ReadToBoth { qp: random.below(2) as usize, len });
    }
    if hostile && random.chance(10) {
        actions.push(Action::SetSecond(random.pick(&[Access::ALL, READ_ONLY])));
    }
    if hostile && random.chance(2) {
        actions.push(Action::SetAccess(random.pick(&[Access::ALL, Access::LOCAL, Access::REMOTE_WRITE])));
    }
    if hostile && random.chance(1) {
        actions.push(Action::Deregister);
    }
    actions
}

/// Returns the packet `body` with a changed field.
fn changed(random: &mut Random, body: &[u8], qps: [QpNum; 2]) -> Vec<u8> {
    let mut bytes = body.to_vec();
    bytes.extend([0; 4]);
    let Ok(mut packet) = Packet::decode(&bytes) else { return body.to_vec() };
    let bth = &mut packet.bth;
    let mut out = Vec::new();
    match random.below(14) {
        // A MIDDLE packet in place of the LAST one, or one that is too long.
        12 if bth.opcode == opcode::WRITE_LAST => bth.opcode = opcode::WRITE_MIDDLE,
        12 if bth.opcode == opcode::READ_RESPONSE_LAST => {
            (bth.opcode, packet.aeth) = (opcode::READ_RESPONSE_MIDDLE, None);
        }
        13 => packet.payload = &ZEROS[..(packet.payload.len() + 4).min(ZEROS.len())],
        0 => bth.opcode = random.pick(&[opcode::WRITE_MIDDLE, opcode::WRITE_LAST, opcode::SEND_MIDDLE, 0x1f]),
        1 => bth.psn = bth.psn.plus(random.below(5)).minus(2),
        2 => bth.dest_qp = random.pick(&[qps[0].0, qps[1].0, 0, 77]),
        3 => bth.pad = random.below(4) as u8,
        4 => bth.tver = 1,
        5 => bth.p_key = random.pick(&[0x7fff, 0xfffe]),
        6 | 7 => bth.ack_req = !bth.ack_req,
        8 => (bth.fecn, bth.reserved6, bth.solicited, bth.reserved7) = (true, 5, true, 1),
        9 => packet.payload = &packet.payload[..packet.payload.len() / 8 * 4],
        10 => packet.reth.iter_mut().for_each(|reth| reth.rkey ^= 1),
        _ => packet.aeth.iter_mut().for_each(|aeth| aeth.syndrome = Syndrome::Reserved(0x50)),
    }
    packet.encode(&mut out);
    out.truncate(out.len() - 4);
    out
}

/// Draws what the network makes of the packets `sent`, and in which super-packets they arrive. `old` has packets of
/// before, which can arrive again.
fn network(
    random: &mut Random,
    faults: u32,
    hostile: bool,
    sent: Vec<Vec<u8>>,
    old: &mut Vec<Vec<u8>>,
    qps: [QpNum; 2],
) -> Vec<Vec<Vec<u8>>> {
    let mut arriving: Vec<Vec<u8>> = Vec::new();
    for body in sent {
        if hostile && random.chance(3) {
            arriving.push(changed(random, &body, qps));
            // The network may lose the packet that was not changed.
            if random.chance(50) {
                continue;
            }
        }
        if random.chance(faults) && !old.is_empty() {
            let n = random.below(old.len() as u32) as usize;
            arriving.push(old[n].clone());
        }
        if random.chance(faults) {
            let noise = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            arriving.push(noise);
        }
        if !random.chance(faults) {
            arriving.push(body.clone());
        }
        if arriving.len() > 1 && random.chance(faults) {
            let last = arriving.len() - 1;
            arriving.swap(last, last - 1);
        }
        old.push(body);
    }
    let keep = old.len().saturating_sub(100);
    old.drain(..keep);
    let mut groups = Vec::new();
    while !arriving.is_empty() {
        let most = random.pick(&[1, 2, 16, 64]);
        groups.push(arriving.drain(..most.min(arriving.len())).collect());
    }
    groups
}

/// Appends the ICRCs of a super-packet's datagrams, some of which are wrong.
fn seal(random: &mut Random, faults: u32, pair: &mut Pair, from: Side, group: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut sealed = Vec::new();
    for (index, body) in group.into_iter().enumerate() {
        if body.len() < Bth::LEN {
            sealed.push(body);
            continue;
        }
        pair.ip_id = if random.chance(faults) { random.pick(&[0, 3, 127, 128]) } else { index as u16 };
        let mut datagram = pair.seal(from, body);
        if random.chance(faults) {
            let at = random.below(datagram.len() as u32) as usize;
            datagram[at] ^= 1 << random.below(8);
        }
        sealed.push(datagram);
    }
    sealed
}

/// Runs both worlds with the seed `seed`. Returns the causes of the refused packets, and the number of work requests
/// that succeeded.
fn run(seed: u64) -> (BTreeSet<&'static str>, usize) {
    let mut random = Random(numbers(seed));
    let window = random.pick(&[8, 64, 1000]);
    let faults = random.pick(&[0, 1, 1, 3]);
    let (hostile, carried) = (random.chance(40), random.chance(50));
    let mut worlds = [false, true].map(|merged| World::new(window, carried, merged));
    let mut old = [Vec::new(), Vec::new()];
    // What an end sends before its turn arrives in its turn.
    let mut early: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..60 {
        for side in [A, B] {
            for action in actions(&mut random, hostile) {
                let [one, two] = worlds.each_mut().map(|world| world.act(side, action));
                assert_eq!(one, two, "seed {seed}");
            }
            let [sent, same] = worlds.each_mut().map(|world| world.transmit(side));
            assert_eq!(sent, same, "seed {seed}");
            let sent = [std::mem::take(&mut early[side as usize]), sent].concat();
            let qps = worlds[0].qps[side.other() as usize];
            let groups = network(&mut random, faults, hostile, sent, &mut old[side as usize], qps);
            for group in groups {
                let datagrams = seal(&mut random, faults, &mut worlds[0].pair, side, group);
                worlds.iter_mut().for_each(|world| world.deliver(side.other(), &datagrams));
                let [one, two] = &worlds;
                one.assert_same(two, seed);
                if random.chance(30) {
                    let [sent, same] = worlds.each_mut().map(|world| world.transmit(side.other()));
                    assert_eq!(sent, same, "seed {seed}");
                    early[side.other() as usize].extend(sent);
                }
            }
        }
        let time = Duration::from_micros(random.pick(&[1, 20, 300, 5000]));
        worlds.iter_mut().for_each(|world| world.advance(time));
        let [one, two] = &worlds;
        one.assert_same(two, seed);
    }
    let [world, _] = &worlds;
    let succeeded = world.done.iter().filter(|wc| wc.status == WcStatus::Success).count();
    (world.refused.0.iter().map(|(cause, _)| cause.name()).collect(), succeeded)
}

#[test]
fn a_super_packet_has_the_effect_of_its_datagrams_one_after_the_other() {
    let runs: Vec<_> = (0..200).map(run).collect();
    let causes: BTreeSet<_> = runs.iter().flat_map(|(causes, _)| causes).copied().collect();
    for cause in [
        "bad-response",
        "duplicate",
        "icrc",
        "malformed",
        "opcode-sequence",
        "out-of-sequence",
        "payload-length",
        "receiver-not-ready",
        "remote-access",
        "response-gap",
        "stray-response",
        "unknown-qp",
        "version",
    ] {
        assert!(causes.contains(cause), "{cause} never happened, but {causes:?}");
    }
    let succeeded: usize = runs.iter().map(|(_, succeeded)| succeeded).sum();
    assert!(succeeded > 5000, "{succeeded}");
}

/// Hands `datagrams` to `to` as a super-packet, and returns the causes of the refused packets.
fn deliver(pair: &mut Pair, to: Side, datagrams: &[Vec<u8>]) -> Vec<RefusalCause> {
    let (now, from) = (pair.now, pair.end(to.other()).addr);
    let mut refused = Refused::default();
    let End { endpoint, memory, addr, .. } = pair.end(to);
    let indexed = datagrams.iter().zip(0..).map(|(datagram, index)| (index, &datagram[..]));
    endpoint.handle_super_packet(now, [from, *addr], indexed, memory, &mut refused);
    refused.0.iter().map(|(cause, _)| *cause).collect()
}

/// Returns the packets that `side` sends now.
fn sent(pair: &mut Pair, side: Side) -> Vec<Vec<u8>> {
    let now = pair.now;
    let mut datagrams = Vec::new();
    let end = pair.end(side);
    while end.endpoint.poll_transmit(now, &mut end.transmit) {
        datagrams.push(end.gather(&end.transmit));
    }
    datagrams.into_iter().map(|body| pair.seal(side, body)).collect()
}

/// Replaces the last packet by a MIDDLE packet with the same payload.
fn without_last(pair: &Pair, from: Side, datagrams: &mut [Vec<u8>]) {
    let last = datagrams.last_mut().unwrap();
    let mut packet = Packet::decode(last).unwrap();
    (packet.bth.opcode, packet.bth.ack_req, packet.aeth) = (packet.bth.opcode - 1, false, None);
    let changed = pair.encode(from, &packet);
    *last = changed;
}

#[test]
fn a_middle_packet_that_ends_a_write_is_refused() {
    let mut pair = Pair::new();
    pair.write(1, 4 * MTU);
    let mut datagrams = sent(&mut pair, A);
    without_last(&pair, A, &mut datagrams);
    assert_eq!(deliver(&mut pair, B, &datagrams), [RefusalCause::MessageLength]);
    assert_eq!(pair.b.got(4 * MTU)[..3 * MTU as usize], *pair.a.own(3 * MTU));
    assert_eq!(pair.b.got(4 * MTU)[3 * MTU as usize..], [0; MTU as usize]);
}

#[test]
fn a_middle_response_that_ends_a_read_completes_it() {
    let mut pair = Pair::new();
    pair.read(1, 4 * MTU);
    let request = sent(&mut pair, A);
    assert_eq!(deliver(&mut pair, B, &request), []);
    let mut datagrams = sent(&mut pair, B);
    without_last(&pair, B, &mut datagrams);
    assert_eq!(deliver(&mut pair, A, &datagrams), []);
    assert_eq!(pair.a.completed(), ok([1]));
    assert_eq!(pair.a.got(4 * MTU), pair.b.own(4 * MTU));
}

#[test]
fn a_read_fails_where_the_memory_for_its_responses_permits_no_writing() {
    let mut pair = Pair::new();
    let second = pair.a.register(SECOND, HALF, Access::ALL);
    let sges = [pair.a.sge(HALF, 3 * MTU), Sge { addr: SECOND, length: 3 * MTU, lkey: second.lkey }];
    let (op, payload, flags) = (SendOp::Read(pair.b.remote(0)), Payload::Sges(&sges), SendFlags::SIGNALED);
    pair.a.endpoint.post_send(pair.a.qp, &SendWr { wr_id: 1, op, payload, flags }).unwrap();
    let request = sent(&mut pair, A);
    assert_eq!(deliver(&mut pair, B, &request), []);
    pair.a.endpoint.set_mr_access(second.lkey, READ_ONLY).unwrap();
    let datagrams = sent(&mut pair, B);
    let unknown = RefusalCause::UnknownQp;
    assert_eq!(deliver(&mut pair, A, &datagrams), [RefusalCause::ResponseMemory, unknown, unknown]);
    assert_eq!(pair.a.completed(), failed(WcStatus::LocalProtectionError, [1]));
    assert_eq!(pair.a.got(3 * MTU), pair.b.own(3 * MTU));
}
