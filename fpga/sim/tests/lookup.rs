//! `lb_lookup` against `ejfat::lb::Balancer`: random tables, several sets of each load balancer, images that are swapped.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use common::{all_came, number, tables::Images};
use ejfat::{
    lb::{Balancer, DropCause, Epoch, Image, Route, Rule, Rules, Tables, TickPrefix},
    segment::IpVersion,
    wire::LbHeader,
};
use lb_common::{address, lb, random_header, random_lbs, random_rules_of, stage_random, version};
use naa_fpga::{Bench, Module, Port, Reader, Tools, Writer};
use simnet::Random;

/// The module with its two images.
struct Rig {
    bench: Bench,
    images: Images,
    key: Port,
    key_valid: Port,
    route: Port,
    route_valid: Port,
    expected: VecDeque<(usize, Result<Route, DropCause>)>,
    causes: BTreeMap<String, u64>,
}

impl Rig {
    fn new(tools: &Tools) -> Self {
        let model = Module::new("lb_lookup").model(tools).unwrap_or_else(|error| panic!("{error}"));
        let [key, key_valid, route, route_valid] =
            ["key", "key_valid", "route", "route_valid"].map(|name| model.port(name));
        let mut bench = Bench::new(model);
        let images = Images::new(&mut bench);
        let (expected, causes) = (VecDeque::new(), BTreeMap::new());
        Self { bench, images, key, key_valid, route, route_valid, expected, causes }
    }

    /// Uses another image.
    fn load(&mut self, image: Image) {
        self.drain();
        self.images.load(&mut self.bench, image);
    }

    fn cycle(&mut self) {
        self.bench.cycle(&mut []);
        if self.bench.model.get(self.route_valid) == 1 {
            let (image, expected) = self.expected.pop_front().expect("a key for each route");
            let (_, route) = self.images.route(image, Reader::new(&self.bench.model, self.route));
            assert_eq!(route, expected);
            let kind = route.map_or_else(|cause| cause.name().to_owned(), |_| "routed".to_owned());
            *self.causes.entry(kind).or_default() += 1;
        }
    }

    /// Asks for a packet's route, one key per cycle.
    fn ask(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8], expected: Result<Route, DropCause>) {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let decoded = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let (header, cause) = match decoded {
            Ok(header) => (header, DropCause::ALL.len()),
            Err(cause) => (random_header(&mut Random::new(0, 0), &[]), cause as usize),
        };
        let key = Writer::default()
            .field(header.port_select().into(), 16)
            .field(header.slot_select().into(), 16)
            .field(header.tick.into(), 64)
            .field((header.version() == 3).into(), 1)
            .field(0, 1)
            .field(bits(to), 128)
            .field(bits(from), 128)
            .field((from.is_ipv6()).into(), 1)
            .field(cause as u128, 4);
        key.give(&mut self.bench.model, self.key);
        self.expected.push_back((self.images.chosen(), expected));
        self.bench.model.set(self.key_valid, 1);
        self.cycle();
        self.bench.model.set(self.key_valid, 0);
    }

    /// Waits until all routes came out. Returns the number of cycles.
    fn drain(&mut self) -> u32 {
        let mut cycles = 0;
        while !self.expected.is_empty() {
            self.cycle();
            cycles += 1;
            assert!(cycles < 100, "{} routes are missing", self.expected.len());
        }
        cycles
    }
}

/// Unicast addresses that are as random as possible.
fn random_addresses(random: &mut Random, count: usize) -> Vec<IpAddr> {
    let address = |_| {
        if random.chance(500_000) {
            Ipv4Addr::from_bits(0x8000_0000 | random.next_u32() >> 3).into()
        } else {
            let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
            Ipv6Addr::from_bits(0x2 << 124 | bits >> 4).into()
        }
    };
    (0..count).map(address).collect()
}

/// Fills tables: adds many sources and some destinations to each load balancer, and a calendar that needs all bits of a slot to one of them. Returns
/// the sources and the destinations.
fn fill(random: &mut Random, lbs: [u8; 3], rules: &mut Rules) -> [Vec<IpAddr>; 2] {
    let sources = random_addresses(random, 120);
    let destinations = random_addresses(random, 60);
    let mut put = |rule| rules.insert(rule, true).unwrap();
    for (at, &address) in destinations.iter().enumerate() {
        put(Rule::Destination { address, lb: lb(lbs[at % 3]) });
    }
    for &address in &sources {
        for id in lbs {
            if random.chance(900_000) {
                put(Rule::Source { lb: lb(id), address });
            }
        }
    }
    let (lb, id) = (lb(random.pick(&lbs)), 9);
    for ticks in 0..4 {
        let ticks = TickPrefix::new(ticks << 62, 2).unwrap();
        put(Rule::Epoch { lb, ticks, epoch: Epoch { id, slot_bits: 14, xor: random.next_u32() as u16 } });
    }
    for slot in 0..random.below(9000) as u16 {
        put(Rule::Slot { lb, epoch: id, slot, member: random.below(3) as u16 });
    }
    [sources, destinations]
}

#[test]
fn random_tables_are_looked_up_as_the_balancer_does() {
    let Some(tools) = Tools::for_test() else { return };
    let count = number("NAA_FPGA_PACKETS", 100_000);
    let seed = number("NAA_FPGA_SEED", 1);
    println!("seed {seed}");
    let mut random = Random::new(seed, 0);
    let mut rig = Rig::new(&tools);
    let per_image = 2000;
    for _ in 0..count.div_ceil(per_image) {
        let lbs = random_lbs(&mut random);
        let mut rules = random_rules_of(&mut random, lbs);
        let [sources, destinations] = fill(&mut random, lbs, &mut rules);
        let mut balancer = Balancer::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.pick(&[0, 1, 5, 25]) {
            stage_random(&mut random, &mut balancer, lbs, &mut all);
        }
        let image = balancer.image().unwrap();
        rig.load(image);
        for _ in 0..per_image {
            let ip = random.pick(&[IpVersion::V4, IpVersion::V6]);
            let mut header = random_header(&mut random, &all).encode();
            if random.chance(30_000) {
                header[random.below(4) as usize] ^= 1 << random.below(8);
            }
            let to = address(ip, random.range(50..=52) as u8 + 3 * u8::from(random.chance(20_000)));
            let from = address(ip, random.range(1..=4) as u8 + u8::from(random.chance(50_000)));
            let is_other = random.chance(500_000);
            let (to, from) =
                if is_other { (random.pick(&destinations), random.pick(&sources)) } else { (to, from) };
            let from = if from.is_ipv4() == to.is_ipv4() { from } else { address(version(to), 1) };
            let expected = balancer.route(to, from, &header);
            rig.ask(to, from, &header, expected);
        }
    }
    rig.drain();
    all_came(&rig.causes, 10, count, 2000);
}

#[test]
fn a_route_takes_38_cycles() {
    let Some(tools) = Tools::for_test() else { return };
    let mut rig = Rig::new(&tools);
    let mut balancer = Balancer::new(&Tables::new(&Rules::default()), 1);
    let (to, from) = (address(IpVersion::V4, 50), address(IpVersion::V4, 1));
    let expected = balancer.route(to, from, &[]);
    assert_eq!(expected, Err(DropCause::BadIp));
    rig.ask(to, from, &[], expected);
    assert_eq!(rig.drain() + 1, 38);
}
