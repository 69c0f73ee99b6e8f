//! `lb_path` against `ejfat::lb::Balancer`: packets byte for byte, some of them damaged, at both widths.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use common::{
    number,
    packets::{damage, without_padding},
    tables::{Images, cause},
};
use ejfat::{
    lb::{Balancer, DropCause, Epoch, Route, Rule, Tables},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use lb_common::{address, lb, random_packet, random_rules, stage_random};
use naa_fpga::{Bench, Device, Model, Module, Packet, Port, Rates, Reader, Sink, Source, Tools};
use simnet::Random;

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    cause: Option<DropCause>,
    /// The load balancer, the epoch, the slot and the member, if the packet was forwarded.
    route: Option<(u8, u32, u16, u16)>,
    /// The load balancer that the packet belongs to, if there is one.
    lb: Option<u8>,
}

/// Collects what the module says of each packet.
struct Outcomes {
    valid: Port,
    route: Port,
    done: Port,
    /// The image, the cause and the route of each packet.
    seen: Vec<(usize, u128, Reader)>,
}

impl Outcomes {
    fn new(model: &Model) -> Self {
        let [valid, route, done] = ["done_valid", "done_route", "done"].map(|name| model.port(name));
        Self { valid, route, done, seen: Vec::new() }
    }
}

impl Device for Outcomes {
    fn drive(&mut self, _: &mut Model) {}

    fn sample(&mut self, model: &Model) {
        if model.get(self.valid) == 1 {
            let mut done = Reader::new(model, self.done);
            let (_length, image) = (done.field(16), done.field(1) as usize);
            // The member, the set, and what was known of the packet's source are those of the route.
            let _route = done.field(1 + 10 + 5 + 1);
            let (_lb, cause) = (done.field(3), done.field(4));
            self.seen.push((image, cause, Reader::new(model, self.route)));
        }
    }
}

fn outcome(images: &Images, image: usize, number: u128, mut fields: Reader) -> Outcome {
    let _to = (fields.field(48), fields.field(16), fields.field(128), fields.field(16), fields.field(1));
    let image = images.get(image);
    let member = image.member(fields.field(10) as usize);
    let epoch = image.epoch(fields.field(10) as usize);
    let slot = fields.field(14) as u16;
    let (_set, _is_known, lb) = (fields.field(5), fields.field(1), fields.field(3) as u8);
    let cause = cause(number);
    let route = cause.is_none().then(|| (lb, epoch.unwrap(), slot, member.unwrap().1));
    let lb = (!matches!(cause, Some(DropCause::NotIp | DropCause::BadIp))).then_some(lb);
    Outcome { cause, route, lb }
}

/// What the balancer does with a frame. Padding may follow the IP packet in it.
fn model(
    balancer: &mut Balancer,
    frame: &[u8],
    lb_of: impl Fn(&[u8]) -> Option<u8>,
) -> (Outcome, Option<Vec<u8>>) {
    let mut packet = without_padding(frame).to_vec();
    let result = balancer.forward(&mut packet);
    let cause = result.err();
    let route = result.ok().map(|forwarded| {
        let Route { lb, epoch, slot, member, .. } = forwarded.route;
        (lb.get(), epoch, slot, member)
    });
    let is_ours = !matches!(cause, Some(DropCause::NotIp | DropCause::BadIp));
    let lb = is_ours.then(|| lb_of(frame)).flatten();
    (Outcome { cause, route, lb }, result.ok().map(|forwarded| packet[forwarded.start..].to_vec()))
}

fn whole_packets(width: u64) {
    let Some(tools) = Tools::for_test() else { return };
    let module = Module::new("lb_path").with("Width", width);
    let model_of = module.model(&tools).unwrap_or_else(|error| panic!("{error}"));
    let mut bench = Bench::new(model_of);
    let mut images = Images::new(&mut bench);
    let count = number("NAA_FPGA_PACKETS", 100_000);
    let seed = number("NAA_FPGA_SEED", 1);
    println!("seed {seed}");
    let mut random = Random::new(seed, 0);
    let mut causes = BTreeMap::<&str, u64>::new();
    let per_image = 1000;
    for round in 0..count.div_ceil(per_image) {
        let rules = random_rules(&mut random);
        let mut balancer = Balancer::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.below(4) {
            stage_random(&mut random, &mut balancer, &mut all);
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
        let mut expected = VecDeque::new();
        let mut sent = VecDeque::new();
        for _ in 0..per_image {
            let mut frame = random_packet(&mut random, &all);
            damage(&mut random, &mut frame);
            let (outcome, packet) = model(&mut balancer, &frame, lb_of);
            *causes.entry(outcome.cause.map_or("forwarded", DropCause::name)).or_default() += 1;
            expected.push_back((outcome, frame.clone()));
            sent.extend(packet);
            source.push(Packet { bytes: frame, ..Packet::default() });
        }
        let mut cycles = 0;
        while !expected.is_empty() || !sent.is_empty() {
            bench.cycle(&mut [&mut source, &mut sink, &mut outcomes]);
            for (image, cause, fields) in outcomes.seen.drain(..) {
                let (outcome_expected, frame) = expected.pop_front().unwrap();
                assert_eq!(outcome(&images, image, cause, fields), outcome_expected, "{frame:02x?}");
            }
            while let Some(packet) = sink.pop() {
                // The next hop drops packets that are marked as bad.
                if packet.last == 0 {
                    assert_eq!(Some(packet.bytes), sent.pop_front());
                }
            }
            cycles += 1;
            assert!(cycles < 100 * per_image, "{} packets are missing", expected.len());
        }
        for _ in 0..20 {
            bench.cycle(&mut [&mut source, &mut sink, &mut outcomes]);
        }
        assert!(sink.is_between_packets() && outcomes.seen.is_empty());
    }
    println!("{causes:?}");
    assert!(causes.len() == 12 && causes.values().all(|&times| times > count / 5000), "{causes:?}");
}

#[test]
fn packets_of_512_bits_per_cycle_are_forwarded_as_the_balancer_does() {
    whole_packets(512);
}

#[test]
fn packets_of_128_bits_per_cycle_are_forwarded_as_the_balancer_does() {
    whole_packets(128);
}

/// A load balancer that sends everything to one member.
fn one_member() -> Balancer {
    let mut all = lb_common::rules(ejfat::lb::calendar(lb(0), 0, &[1]));
    let ip = IpVersion::V4;
    for rule in [
        Rule::Destination { address: address(ip, 50), lb: lb(0) },
        Rule::Source { lb: lb(0), address: address(ip, 1) },
        lb_common::all_ticks(lb(0), Epoch::new(0)),
        lb_common::member(lb(0), 1, (address(ip, 100), 10_000).into(), 0, false),
    ] {
        all.insert(rule, false).unwrap();
    }
    Balancer::new(&Tables::new(&all), 1)
}

/// Sends `count` packets with `data` bytes behind the LB header. Returns the number of cycles, the cycle of the first output beat, and the number
/// of input beats.
fn at_full_speed(width: u64, count: usize, data: usize) -> Option<(u64, u64, u64)> {
    let tools = Tools::for_test()?;
    let module = Module::new("lb_path").with("Width", width);
    let mut bench = Bench::new(module.model(&tools).unwrap_or_else(|error| panic!("{error}")));
    let mut images = Images::new(&mut bench);
    images.load(&mut bench, one_member().image().unwrap());
    let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick: 5 };
    let packet = lb_common::Udp {
        from: (address(IpVersion::V4, 1), 1).into(),
        to: (address(IpVersion::V4, 50), 19_522).into(),
        hops: 64,
        options: Vec::new(),
        payload: [&header.encode()[..], &vec![0; data]].concat(),
        checksum: true,
    };
    let bytes = packet.bytes();
    let beats = count * bytes.len().div_ceil(width as usize / 8);
    let mut source = Source::new(&bench.model, "s", Rates::full());
    let mut sink = Sink::new(&bench.model, "m", Rates::full());
    (0..count).for_each(|_| source.push(Packet { bytes: bytes.clone(), ..Packet::default() }));
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
    Some((cycles, first, beats as u64))
}

/// The cycles between the first beat of a packet and the same beat behind the module, if nothing is in its way.
const LATENCY: RangeInclusive<u64> = 49..=50;

#[test]
fn every_packet_of_79_bytes_on_the_wire_and_more_passes_without_a_stall() {
    // Ethernet's header and check sequence are 18 of them; IP, UDP and LB header 44.
    for data in (17..300).step_by(7).chain([1400, 8900]) {
        let Some((cycles, first, beats)) = at_full_speed(512, 500, data) else { return };
        let last = 1 + (data as u64 + 28).div_ceil(64);
        assert!(cycles <= beats + first + last, "{data} bytes: {cycles} cycles for {beats} beats");
        assert!(LATENCY.contains(&(first - 1)), "{first}");
    }
}
