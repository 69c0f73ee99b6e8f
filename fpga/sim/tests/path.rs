//! `lb_path` against `ejfat::lb::DataPlane`: packets byte for byte, some of them damaged, at both widths.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;
mod one_member;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use common::{all_came, model, random_run, tables::Images};
use ejfat::{
    lb::{DataPlane, DropCause, Route, Rule, Tables},
    segment::IpVersion,
    wire::LbHeader,
};
use lb_common::{Site, damage, lb, random_packet_of, random_rules_of, stage_random};
use naa_fpga::{
    Bench, Device, Model, Module, Packet, Port, Rates, Reader, Sink, Source, frames::without_padding,
};
use one_member::{packet_of, rules_to};
use simnet::Random;

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    route: Result<Route, DropCause>,
    /// The load balancer that the packet belongs to, if there is one.
    lb: Option<u8>,
    /// The length of the IP packet, if it is one.
    length: Option<usize>,
}

/// What the module says of a packet.
#[derive(Clone, Debug)]
struct PathOutput {
    image: usize,
    /// The packet is none of IP.
    is_bad: bool,
    length: usize,
    route: Reader,
    /// Its tick, whether the version of its LB header is 3, whether it has one, and whether it is of IPv6.
    headers: (u64, bool, bool, bool),
}

/// Collects what the module says of each packet.
struct Outcomes {
    valid: Port,
    route: Port,
    done: Port,
    outputs: Vec<PathOutput>,
}

impl Outcomes {
    fn new(model: &Model) -> Self {
        let [valid, route, done] = ["done_valid", "done_route", "done"].map(|name| model.port(name));
        Self { valid, route, done, outputs: Vec::new() }
    }
}

impl Device for Outcomes {
    fn drive(&mut self, _: &mut Model) {}

    fn sample(&mut self, model: &Model) {
        if model.get(self.valid) == 1 {
            let mut done = Reader::new(model, self.done);
            let mut route = Reader::new(model, self.route);
            let (length, image) = (done.field(16) as usize, done.field(1) as usize);
            // What the counters need of the route is said twice.
            let of_done = (done.field(1), done.field(10), done.field(5), done.field(1), done.field(3));
            let _ = (route.field(128), route.field(48 + 16 + 16));
            let (keeps, member, _) = (route.field(1), route.field(10), route.field(10 + 14));
            assert_eq!(of_done, (keeps, member, route.field(5), route.field(1), route.field(3)));
            let (cause, of_route) = (done.field(4), route.field(4));
            let is_bad = cause == DropCause::NotIp as u128;
            assert!(is_bad || cause == of_route);
            let headers = [&mut done, &mut route].map(|fields| {
                let (tick, mut flag) = (fields.field(64) as u64, || fields.field(1) == 1);
                (tick, flag(), flag(), flag())
            });
            assert_eq!(headers[0], headers[1]);
            let (route, headers) = (Reader::new(model, self.route), headers[0]);
            self.outputs.push(PathOutput { image, is_bad, length, route, headers });
        }
    }
}

/// Holds packets at random times, and compares what the module says of its room with the packets that are inside.
struct Gate {
    hold: Port,
    is_empty: Port,
    valid: Port,
    ready: Port,
    last: Port,
    done: Port,
    random: Random,
    is_held: bool,
    /// The beats that came of each packet that is not done.
    inside: VecDeque<u64>,
    /// The next beat is the first one of a packet.
    is_first: bool,
}

impl Gate {
    /// The most packets that are inside before the module takes no more, and the most beats.
    const PACKETS: usize = 120;
    const BEATS: u64 = 504;

    fn new(model: &Model, seed: u64) -> Self {
        let [hold, is_empty, valid, ready, last, done] =
            ["hold", "is_empty", "s_tvalid", "s_tready", "s_tlast", "done_valid"]
                .map(|name| model.port(name));
        let (random, inside) = (Random::new(seed, 7), VecDeque::new());
        Self { hold, is_empty, valid, ready, last, done, random, is_held: false, inside, is_first: true }
    }
}

impl Device for Gate {
    fn drive(&mut self, model: &mut Model) {
        let changes = self.random.below(if self.is_held { 16 } else { 256 }) == 0;
        self.is_held ^= changes;
        model.set(self.hold, self.is_held.into());
    }

    fn sample(&mut self, model: &Model) {
        let get = |port| model.get(port) == 1;
        assert_eq!(get(self.is_empty), self.inside.is_empty() && self.is_first);
        let beats: u64 = self.inside.iter().sum();
        let ready = get(self.ready);
        if self.is_held && self.is_first || self.inside.len() >= Self::PACKETS {
            assert!(!ready, "{} packets are inside", self.inside.len());
        } else if beats < Self::BEATS {
            assert!(ready, "{} packets of {beats} beats are inside", self.inside.len());
        }
        if get(self.valid) && ready {
            if self.is_first {
                self.inside.push_back(1);
            } else if let Some(beats) = self.inside.back_mut() {
                *beats += 1;
            }
            self.is_first = get(self.last);
        }
        if get(self.done) {
            assert!(self.inside.pop_front().is_some(), "more packets are done than came");
        }
    }
}

/// The MAC address that goes with each packet that leaves, which all of its beats have.
struct MacsOut {
    valid: Port,
    ready: Port,
    last: Port,
    mac: Port,
    current: Option<u64>,
    sent: VecDeque<u64>,
}

impl MacsOut {
    fn new(model: &Model) -> Self {
        let [valid, ready, last, mac] =
            ["m_tvalid", "m_tready", "m_tlast", "m_mac"].map(|name| model.port(name));
        Self { valid, ready, last, mac, current: None, sent: VecDeque::new() }
    }
}

impl Device for MacsOut {
    fn drive(&mut self, _: &mut Model) {}

    fn sample(&mut self, model: &Model) {
        if model.get(self.valid) == 1 && model.get(self.ready) == 1 {
            let mac = model.get(self.mac);
            assert_eq!(*self.current.get_or_insert(mac), mac, "the address changes within a packet");
            if model.get(self.last) == 1 {
                self.sent.extend(self.current.take());
            }
        }
    }
}

fn bench(width: u64) -> Option<Bench> {
    model(Module::new("lb_path").with("Width", width)).map(Bench::new)
}

fn outcome(images: &Images, output: &PathOutput, frame: &[u8]) -> Outcome {
    let (lb, route) = images.route(output.image, &mut output.route.clone());
    let route = if output.is_bad { Err(DropCause::NotIp) } else { route };
    let (tick, is_v3, has_header, is_v6) = output.headers;
    if route != Err(DropCause::NotIp) {
        assert_eq!(is_v6, frame[0] >> 4 == 6);
    }
    // A packet without an LB header has one of these causes.
    match route {
        Err(DropCause::NotIp | DropCause::BadIp | DropCause::BlockedSrc) => {}
        Err(DropCause::NoUdplbHdr | DropCause::BadUdplbVersion) => assert!(!has_header),
        _ => {
            let header = LbHeader::decode(&frame[lb_common::udp_at(frame) + 8..]).map(|(header, _)| header);
            assert_eq!(Ok((tick, is_v3)), header.map(|header| (header.tick, header.version() == 3)));
            assert!(has_header);
            let (set, is_known, lb) = images.set(&mut output.route.clone());
            assert_eq!((set, is_known), (images.set_of(output.image, lb, tick), true));
        }
    }
    let length = output.length;
    let lb = (!matches!(route, Err(DropCause::NotIp | DropCause::BadIp))).then_some(lb);
    Outcome { route, lb, length: (route != Err(DropCause::NotIp)).then_some(length) }
}

/// What the balancer does with a frame. Padding may follow the IP packet in it.
fn by_balancer(
    balancer: &mut DataPlane,
    frame: &[u8],
    lb_of: impl Fn(&[u8]) -> Option<u8>,
) -> (Outcome, Option<Vec<u8>>) {
    let mut packet = without_padding(frame).to_vec();
    let length = packet.len();
    let result = balancer.forward(&mut packet);
    let route = result.map(|forwarded| forwarded.route);
    let is_ours = !matches!(route, Err(DropCause::NotIp | DropCause::BadIp));
    let lb = is_ours.then(|| lb_of(frame)).flatten();
    let length = (route != Err(DropCause::NotIp)).then_some(length);
    (Outcome { route, lb, length }, result.ok().map(|forwarded| packet[forwarded.start..].to_vec()))
}

/// Gives a packet the UDP checksum with which the packet that leaves has the checksum 0, which is written as ffff.
fn leave_without_checksum(balancer: &mut DataPlane, packet: &mut [u8]) {
    let checksum = |packet: &[u8]| {
        let at = lb_common::udp_at(packet) + 6;
        u16::from_be_bytes([packet[at], packet[at + 1]])
    };
    let mut sent = packet.to_vec();
    let Ok(forwarded) = balancer.forward(&mut sent) else { return };
    let (came, left) = (checksum(packet), checksum(&sent[forwarded.start..]));
    // One's complement numbers of 16 bits are the numbers modulo ffff. A checksum of 0 says that there is none.
    let lowered = (u32::from(came) + 0xffff - u32::from(left)) % 0xffff;
    let lowered = if lowered == 0 { 0xffff } else { lowered as u16 };
    if came != 0 {
        let at = lb_common::udp_at(packet) + 6;
        packet[at..at + 2].copy_from_slice(&lowered.to_be_bytes());
    }
}

fn whole_packets(width: u64) {
    let Some(mut bench) = bench(width) else { return };
    let mut images = Images::new(&mut bench);
    let (count, seed, mut random) = random_run(0);
    let mut causes = BTreeMap::<&str, u64>::new();
    let per_image = 1000;
    for round in 0..count.div_ceil(per_image) {
        let site = Site::random(&mut random);
        let rules = random_rules_of(&mut random, site);
        let mut balancer = DataPlane::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.below(4) {
            stage_random(&mut random, &mut balancer, site, &mut all);
        }
        let lb_of = |frame: &[u8]| {
            let v4 = |at: usize| Some(<[u8; 4]>::try_from(frame.get(at..at + 4)?).unwrap().into());
            let v6 = |at: usize| Some(<[u8; 16]>::try_from(frame.get(at..at + 16)?).unwrap().into());
            let to: std::net::IpAddr = if frame[0] >> 4 == 4 { v4(16)? } else { v6(24)? };
            rules.iter().find_map(|rule| match rule {
                Rule::Destination { address, lb } if address == to => Some(lb.get()),
                _ => None,
            })
        };
        images.load(&mut bench, balancer.image().unwrap());
        let [idle, stall] = [[0, 0], [80, 0], [0, 80], [120, 120]][round as usize % 4];
        let mut source = Source::new(&bench.model, "s", Rates::idle(idle, seed + round));
        let mut sink = Sink::new(&bench.model, "m", Rates::idle(stall, !(seed + round)));
        let mut outcomes = Outcomes::new(&bench.model);
        let mut gate = Gate::new(&bench.model, seed + round);
        let mut macs = MacsOut::new(&bench.model);
        let mut expected = VecDeque::new();
        let mut sent = VecDeque::new();
        for _ in 0..per_image {
            let mut frame = random_packet_of(&mut random, site, &all);
            if random.chance(3000) {
                lb_common::lengthen(&mut random, &mut frame);
            }
            if random.chance(50_000) {
                leave_without_checksum(&mut balancer, &mut frame);
            }
            damage(&mut random, &mut frame);
            let (outcome, packet) = by_balancer(&mut balancer, &frame, lb_of);
            *causes.entry(outcome.route.map_or_else(DropCause::name, |_| "forwarded")).or_default() += 1;
            let mac = outcome.route.ok().and_then(|route| route.mac).unwrap_or_default();
            let mac = mac.into_iter().fold(0, |mac, byte| mac << 8 | u64::from(byte));
            sent.extend(packet.map(|packet| (packet, mac)));
            expected.push_back((outcome, frame.clone()));
            source.push(Packet { bytes: frame, ..Packet::default() });
        }
        let mut cycles = 0;
        // A packet may be done before its padding has come.
        while !expected.is_empty() || !sent.is_empty() || !source.is_empty() {
            bench.cycle(&mut [&mut source, &mut sink, &mut outcomes, &mut gate, &mut macs]);
            for output in outcomes.outputs.drain(..) {
                let (outcome_expected, frame) = expected.pop_front().unwrap();
                assert_eq!(outcome(&images, &output, &frame), outcome_expected, "{frame:02x?}");
            }
            while let Some(packet) = sink.pop() {
                // The next hop drops packets that are marked as bad.
                let mac = macs.sent.pop_front().unwrap();
                if packet.last == 0 {
                    assert_eq!(Some((packet.bytes, mac)), sent.pop_front());
                }
            }
            cycles += 1;
            assert!(cycles < 100 * per_image, "{} packets are missing", expected.len());
        }
        for _ in 0..20 {
            bench.cycle(&mut [&mut source, &mut sink, &mut outcomes, &mut gate, &mut macs]);
        }
        assert!(sink.is_between_packets() && outcomes.outputs.is_empty() && gate.inside.is_empty());
        bench.model.set(gate.hold, 0);
    }
    all_came(&causes, 12, count, 5000);
}

#[test]
fn packets_of_512_bits_per_cycle_are_forwarded_as_the_balancer_does() {
    whole_packets(512);
}

#[test]
fn packets_of_128_bits_per_cycle_are_forwarded_as_the_balancer_does() {
    whole_packets(128);
}

/// A packet for the one member, with `data` bytes behind the LB header.
fn one_packet(data: usize) -> Packet {
    Packet { bytes: packet_of(IpVersion::V4, 5, data), ..Packet::default() }
}

/// The module with 512 bits per cycle and tables of one member.
fn bench_of_one_member() -> Option<Bench> {
    let mut bench = bench(512)?;
    let image = DataPlane::new(&Tables::new(&rules_to(lb(0), 100)), 1).image().unwrap();
    Images::new(&mut bench).load(&mut bench, image);
    Some(bench)
}

/// Sends `count` packets with `data` bytes behind the LB header. Returns the number of cycles, the cycle of the first output beat, and the number
/// of input beats.
fn at_full_speed(bench: &mut Bench, count: usize, data: usize) -> (u64, u64, u64) {
    let packet = one_packet(data);
    let beats = count * packet.bytes.len().div_ceil(64);
    let mut source = Source::new(&bench.model, "s", Rates::full());
    let mut sink = Sink::new(&bench.model, "m", Rates::full());
    (0..count).for_each(|_| source.push(packet.clone()));
    let (mut cycles, mut first, mut came) = (0, 0, 0);
    while came < count {
        bench.cycle(&mut [&mut source, &mut sink]);
        cycles += 1;
        while let Some(packet) = sink.pop() {
            first = if came == 0 { packet.begun } else { first };
            came += 1;
        }
        assert!(cycles < 100_000);
    }
    (cycles, first, beats as u64)
}

/// The cycles between the first beat of a packet and the same beat behind the module, if nothing is in its way.
const LATENCY: RangeInclusive<u64> = 49..=50;

#[test]
fn every_packet_of_79_bytes_on_the_wire_and_more_passes_without_a_stall() {
    let Some(mut bench) = bench_of_one_member() else { return };
    // Ethernet's header and check sequence are 18 of them; IP, UDP and LB header 44.
    for data in (17..300).step_by(7).chain([1400, 8900]) {
        let (cycles, first, beats) = at_full_speed(&mut bench, 500, data);
        let last = 1 + (data as u64 + 28).div_ceil(64);
        assert!(cycles <= beats + first + last, "{data} bytes: {cycles} cycles for {beats} beats");
        assert!(LATENCY.contains(&(first - 1)), "{first}");
    }
}

#[test]
fn while_nothing_leaves_the_queues_fill_and_nothing_is_lost() {
    let Some(mut bench) = bench_of_one_member() else { return };
    // Short packets fill the queue of packets first, and longer ones the queue of beats. Some packets and beats are in the stages behind the queues.
    for (data, most) in [(17, (120, 120)), (260, (102, 509)), (1000 - 44, (32, 509))] {
        let mut source = Source::new(&bench.model, "s", Rates::full());
        let mut sinks =
            [Rates::idle(u8::MAX, 1), Rates::full()].map(|rates| Sink::new(&bench.model, "m", rates));
        let mut gate = Gate::new(&bench.model, 1);
        let count = 200;
        (0..count).for_each(|_| source.push(one_packet(data)));
        for _ in 0..1000 {
            bench.cycle(&mut [&mut source, &mut sinks[0], &mut gate]);
        }
        assert_eq!((gate.inside.len(), gate.inside.iter().sum::<u64>()), most, "packets of {data} bytes");
        let mut came = 0;
        for _ in 0..10_000 {
            bench.cycle(&mut [&mut source, &mut sinks[1], &mut gate]);
            came += std::iter::from_fn(|| sinks[1].pop()).count();
        }
        assert_eq!(came, count);
    }
}
