//! `lb_lookup` against `ejfat::lb::Balancer`: random tables, several sets of each load balancer, images that are swapped.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use common::{
    number,
    tables::{Images, cause},
};
use ejfat::{
    lb::{Balancer, DropCause, Image, LbId, Route, Rules, Tables},
    segment::IpVersion,
    wire::LbHeader,
};
use lb_common::{address, random_header, random_rules, stage_random};
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
            let route = self.route(image);
            assert_eq!(route, expected);
            let kind = route.map_or_else(|cause| cause.name().to_owned(), |_| "routed".to_owned());
            *self.causes.entry(kind).or_default() += 1;
        }
    }

    fn route(&self, image: usize) -> Result<Route, DropCause> {
        let mut fields = Reader::new(&self.bench.model, self.route);
        let mac = fields.field(48);
        let _sum = fields.field(16);
        let address = fields.field(128);
        let port = fields.field(16) as u16;
        let keep_lb_header = fields.field(1) == 1;
        let image = self.images.get(image);
        let member = image.member(fields.field(10) as usize);
        let epoch = image.epoch(fields.field(10) as usize);
        let slot = fields.field(14) as u16;
        let (_set, _is_known, lb) = (fields.field(5), fields.field(1), fields.field(3) as u8);
        if let Some(cause) = cause(fields.field(4)) {
            return Err(cause);
        }
        let lb = LbId::new(lb).unwrap();
        let (of, member) = member.unwrap();
        assert_eq!(of, lb);
        let is_v4 = address >> 32 == 0;
        let ip: IpAddr =
            if is_v4 { Ipv4Addr::from(address as u32).into() } else { Ipv6Addr::from(address).into() };
        let mac = (mac != 0).then(|| mac.to_be_bytes()[10..].try_into().unwrap());
        let to = SocketAddr::new(ip, port);
        Ok(Route { lb, epoch: epoch.unwrap(), slot, member, mac, to, keep_lb_header })
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
        let rules = random_rules(&mut random);
        let mut balancer = Balancer::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.below(6) {
            stage_random(&mut random, &mut balancer, &mut all);
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
            let expected = balancer.route(to, from, &header);
            rig.ask(to, from, &header, expected);
        }
    }
    rig.drain();
    println!("{:?}", rig.causes);
    assert!(rig.causes.len() == 10 && rig.causes.values().all(|&times| times > count / 2000));
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
