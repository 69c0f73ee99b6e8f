//! `lb_lookup` against `ejfat::lb::DataPlane`: random tables, several sets of each load balancer, images that are swapped.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use common::{all_came, model, random_run, tables::Images};
use ejfat::{
    lb::{DataPlane, DropCause, Epoch, Image, Route, Rule, Rules, Tables, TickPrefix},
    segment::IpVersion,
    wire::LbHeader,
};
use lb_common::{Site, address, lb, random_header, random_rules_of, stage_random};
use naa_fpga::{Bench, Module, Port, Reader, Writer};
use simnet::Random;

/// What has to come out for a key.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// The image in which the key is looked up.
    image: usize,
    route: Result<Route, DropCause>,
    /// Fields of the key that are passed on: its tick, whether the version is 3, whether it has a tick, and whether it is of IPv6.
    passed: (u64, bool, bool, bool),
}

/// The module with its two images.
struct Rig {
    bench: Bench,
    images: Images,
    key: Port,
    key_valid: Port,
    route: Port,
    route_valid: Port,
    route_image: Port,
    expected: VecDeque<Expected>,
    causes: BTreeMap<String, u64>,
}

impl Rig {
    fn new() -> Option<Self> {
        let model = model(Module::new("lb_lookup"))?;
        let [key, key_valid, route, route_valid, route_image] =
            ["key", "key_valid", "route", "route_valid", "route_image"].map(|name| model.port(name));
        let mut bench = Bench::new(model);
        let images = Images::new(&mut bench);
        let (expected, causes) = (VecDeque::new(), BTreeMap::new());
        Some(Self { bench, images, key, key_valid, route, route_valid, route_image, expected, causes })
    }

    /// Uses another image.
    fn load(&mut self, image: Image) {
        self.drain();
        self.images.load(&mut self.bench, image);
    }

    fn cycle(&mut self) {
        self.bench.cycle(&mut []);
        if self.bench.model.get(self.route_valid) == 1 {
            let expected = self.expected.pop_front().expect("a key for each route");
            let mut fields = Reader::new(&self.bench.model, self.route);
            let (_, route) = self.images.route(expected.image, &mut fields);
            assert_eq!(route, expected.route);
            let (tick, mut flag) = (fields.field(64) as u64, || fields.field(1) == 1);
            assert_eq!((tick, flag(), flag(), flag()), expected.passed);
            let image = self.bench.model.get(self.route_image) as usize;
            assert_eq!(image, expected.image);
            let mut fields = Reader::new(&self.bench.model, self.route);
            let (set, is_known, lb) = self.images.set(&mut fields);
            match route {
                Err(DropCause::NotIp | DropCause::BadIp) => {}
                _ => assert_eq!(set, self.images.set_of(image, lb, tick)),
            }
            assert!(
                is_known || matches!(route, Err(DropCause::NotIp | DropCause::BadIp | DropCause::BlockedSrc))
            );
            let kind = route.map_or_else(|cause| cause.name().to_owned(), |_| "routed".to_owned());
            *self.causes.entry(kind).or_default() += 1;
        }
    }

    /// Asks for a packet's route, one key per cycle. Its headers say that it is no IP packet, or that it has expired, or nothing more.
    fn ask(
        &mut self,
        to: IpAddr,
        from: IpAddr,
        datagram: &[u8],
        known: Option<DropCause>,
        mut route: Result<Route, DropCause>,
    ) {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let decoded = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let (header, cause) = match decoded {
            Ok(header) => (header, DropCause::ALL.len()),
            Err(cause) => (random_header(&mut Random::new(0, 0), &[]), cause as usize),
        };
        // The first cause in the order of causes counts.
        let is_later = |than: DropCause| {
            route.map_or_else(|cause| cause as usize, |_| DropCause::ALL.len()) > than as usize
        };
        route = known.filter(|&known| is_later(known)).map_or(route, Err);
        let is_expired = known == Some(DropCause::TtlExpired);
        let cause = if known == Some(DropCause::NotIp) { DropCause::NotIp as usize } else { cause };
        let is_v3 = header.version() == 3;
        let key = Writer::default()
            .field(header.port_select().into(), 16)
            .field(header.slot_select().into(), 16)
            .field(header.tick.into(), 64)
            .field(is_v3.into(), 1)
            .field(is_expired.into(), 1)
            .field(bits(to), 128)
            .field(bits(from), 128)
            .field((from.is_ipv6()).into(), 1)
            .field(cause as u128, 4);
        key.give(&mut self.bench.model, self.key);
        let passed = (header.tick, is_v3, cause == DropCause::ALL.len(), from.is_ipv6());
        self.expected.push_back(Expected { image: self.images.chosen(), route, passed });
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
    let Some(mut rig) = Rig::new() else { return };
    let (count, seed, mut random) = random_run(0);
    let per_image = 2000;
    for _ in 0..count.div_ceil(per_image) {
        let site = Site::random(&mut random);
        let mut rules = random_rules_of(&mut random, site);
        let [sources, destinations] = fill(&mut random, site.lbs, &mut rules);
        let mut balancer = DataPlane::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.pick(&[0, 1, 5, 25]) {
            stage_random(&mut random, &mut balancer, site, &mut all);
        }
        let image = balancer.image().unwrap();
        rig.load(image);
        for _ in 0..per_image {
            let ip = random.pick(&[IpVersion::V4, IpVersion::V6]);
            let mut header = random_header(&mut random, &all).encode();
            if random.chance(30_000) {
                header[random.below(4) as usize] ^= 1 << random.below(8);
            }
            let to = site.lb(ip, random.below(3) as u8 + 3 * u8::from(random.chance(20_000)));
            let from = site.sender(ip, random.range(1..=4) as u8 + u8::from(random.chance(50_000)));
            let is_other = random.chance(500_000);
            let (to, from) =
                if is_other { (random.pick(&destinations), random.pick(&sources)) } else { (to, from) };
            let from = if from.is_ipv4() == to.is_ipv4() { from } else { address(IpVersion::of(to), 1) };
            let expected = balancer.route(to, from, &header);
            let known = match random.below(50) {
                0 => Some(DropCause::NotIp),
                1 => Some(DropCause::TtlExpired),
                _ => None,
            };
            rig.ask(to, from, &header, known, expected);
        }
    }
    rig.drain();
    all_came(&rig.causes, 12, count, 2000);
}

#[test]
fn a_route_takes_38_cycles() {
    let Some(mut rig) = Rig::new() else { return };
    let mut balancer = DataPlane::new(&Tables::new(&Rules::default()), 1);
    let (to, from) = (address(IpVersion::V4, 50), address(IpVersion::V4, 1));
    let expected = balancer.route(to, from, &[]);
    assert_eq!(expected, Err(DropCause::BadIp));
    rig.ask(to, from, &[], None, expected);
    assert_eq!(rig.drain() + 1, 38);
}
