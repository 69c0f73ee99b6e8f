//! `lb_top` against `ejfat::lb::Balancer`: frames byte for byte, counters, answers, and images that are swapped while frames flow.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use common::number;
use ejfat::{
    lb::{Balancer, EngineError, Epoch, LbId, LbTables, Rule, Rules, Tables},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use lb_common::{address, damage, lb, random_lbs, random_packet, random_rules_of, stage_random};
use naa_fpga::{
    Driver, LbTop, Lengths, Macs, Module, Packet, Rates, Tools,
    frames::{self, TYPE_V4, TYPE_V6, type_of},
};
use simnet::Random;

const MACS: Macs = Macs { own: [2, 0x4e, 0x41, 0x41, 0, 1], hop: [2, 0x4e, 0x41, 0x41, 0, 2] };
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn top(width: u64, rates: [Rates; 2]) -> Option<Driver<LbTop>> {
    let tools = Tools::for_test()?;
    let module = Module::new("lb_top").with("Width", width);
    let model = module.model(&tools).unwrap_or_else(|error| panic!("{error}"));
    Some(Driver::new(LbTop::new(model, rates), MACS).unwrap())
}

fn frame(to: [u8; 6], ether: [u8; 2], packet: &[u8]) -> Packet {
    Packet { bytes: [&to[..], &SENDER, &ether, packet].concat(), ..Packet::default() }
}

fn random_frame(random: &mut Random, rules: &[Rule]) -> Packet {
    let mut packet = random_packet(random, rules);
    let is_damaged = damage(random, &mut packet);
    let to = if random.chance(950_000) { MACS.own } else { [2, 0, 0, 0, 0, 1] };
    let ether = match random.below(40) {
        0 => TYPE_V4,
        1 => TYPE_V6,
        2 => [0x81, 0],
        _ => type_of(&packet),
    };
    let mut frame = frame(to, ether, &packet);
    if random.chance(20_000) {
        frame.bytes.truncate(random.range(6..=20) as usize);
    }
    if !is_damaged && random.chance(20_000) {
        frame.last = 1;
    }
    frame
}

/// Compares what the hardware counted with what the balancer counted for the same packets.
fn assert_counted(driver: &mut Driver<LbTop>, before: &Balancer, model: &Balancer) {
    let mut counted = before.clone();
    counted.absorb(&driver.take(Lengths::Packets));
    for lb in LbId::all().take(LbId::P4_COUNT) {
        assert_eq!(counted.counters(lb), model.counters(lb), "{lb:?}");
        assert_eq!(counted.sets(lb).collect::<Vec<_>>(), model.sets(lb).collect::<Vec<_>>(), "{lb:?}");
        assert_eq!(counted.newest_tick(lb), model.newest_tick(lb), "{lb:?}");
        assert_eq!(counted.beyond(lb), model.beyond(lb), "{lb:?}");
    }
    assert_eq!(counted.unaddressed(), model.unaddressed());
    assert_eq!(counted.members(), model.members());
}

fn whole_frames(width: u64) {
    let seed = number("NAA_FPGA_SEED", 1);
    let rates = [Rates::full(), Rates::full()];
    let Some(mut driver) = top(width, rates) else { return };
    println!("seed {seed}");
    let count = number("NAA_FPGA_PACKETS", 100_000);
    let mut random = Random::new(seed, 0);
    let per_image = 1000;
    for round in 0..count.div_ceil(per_image) {
        let lbs = random_lbs(&mut random);
        let rules = random_rules_of(&mut random, lbs);
        let mut balancer = Balancer::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.below(4) {
            stage_random(&mut random, &mut balancer, lbs, &mut all);
        }
        for id in lbs {
            let horizon =
                if random.chance(500_000) { u64::MAX } else { lb_common::random_tick(&mut random, &all) };
            balancer.set_horizon(lb(id), horizon);
            driver.set_horizon(lb(id), horizon);
        }
        driver.load(balancer.image().unwrap(), &BTreeMap::new()).unwrap();
        let before = balancer.clone();
        let [idle, stall] = [[0, 0], [80, 0], [0, 80], [120, 120]][round as usize % 4];
        driver.registers.set_rates([Rates::idle(idle, seed + round), Rates::idle(stall, !(seed + round))]);
        let mut expected = VecDeque::new();
        for _ in 0..per_image {
            let frame = random_frame(&mut random, &all);
            let sent = frames::forward(&mut balancer, MACS, &frame.bytes, frame.last == 1);
            expected.extend(sent.map(|sent| (sent, frame.bytes.clone())));
            driver.registers.source.push(frame);
        }
        let mut cycles = 0;
        while !expected.is_empty() || !driver.registers.source.is_empty() {
            driver.registers.cycle();
            while let Some(sent) = driver.registers.sink.pop() {
                // The MAC does not send frames that are marked as bad.
                if sent.last == 0 {
                    let (expected, frame) = expected.pop_front().expect("no more frames");
                    assert_eq!(sent.bytes, expected, "{frame:02x?}");
                }
            }
            cycles += 1;
            assert!(cycles < 100 * per_image, "{} frames are missing", expected.len());
        }
        (0..200).for_each(|_| driver.registers.cycle());
        assert!(std::iter::from_fn(|| driver.registers.sink.pop()).all(|frame| frame.last == 1));
        assert!(driver.registers.sink.is_between_packets());
        assert_counted(&mut driver, &before, &balancer);
    }
}

#[test]
fn frames_of_512_bits_per_cycle_are_forwarded_and_counted_as_the_balancer_does() {
    whole_frames(512);
}

#[test]
fn frames_of_128_bits_per_cycle_are_forwarded_and_counted_as_the_balancer_does() {
    whole_frames(128);
}

/// A load balancer whose packets of all ticks go to one member, which is a host of this number.
fn rules_to(host: u8) -> Rules {
    let mut rules = lb_common::rules(ejfat::lb::calendar(lb(0), 0, &[1]));
    for ip in [IpVersion::V4, IpVersion::V6] {
        for rule in [
            Rule::Destination { address: address(ip, 50), lb: lb(0) },
            Rule::Source { lb: lb(0), address: address(ip, 1) },
            lb_common::member(lb(0), 1, (address(ip, host), 10_000).into(), 0, false),
        ] {
            rules.insert(rule, false).unwrap();
        }
    }
    rules.insert(lb_common::all_ticks(lb(0), Epoch::new(0)), false).unwrap();
    rules
}

fn packet_of(ip: IpVersion, tick: u64, data: usize) -> Vec<u8> {
    let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick };
    let packet = lb_common::Udp {
        from: (address(ip, 1), 1).into(),
        to: (address(ip, 50), 19_522).into(),
        hops: 64,
        options: Vec::new(),
        payload: [&header.encode()[..], &vec![0; data]].concat(),
        checksum: true,
    };
    packet.bytes()
}

#[test]
fn images_are_swapped_between_two_packets_and_no_event_is_split() {
    let Some(mut driver) = top(512, [Rates::idle(200, 1), Rates::idle(100, 2)]) else { return };
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 1);
    let (mut swapped, mut late) = (0, 0);
    for round in 0..60 {
        let old = Balancer::new(&Tables::new(&rules_to(100)), 1);
        driver.load(old.image().unwrap(), &BTreeMap::new()).unwrap();
        let _ = driver.take(Lengths::Packets);
        let mut new = old.clone();
        let from = 1000;
        new.stage(LbTables::new(lb(0), &rules_to(101)).into(), from).unwrap();
        assert_eq!(new.first_difference(&old, lb(0)), Some(from));

        // The image is written while packets flow. Packets of its ticks come before the swap, after it, or within it.
        let first = random.below(1200);
        for place in 0..1000 {
            let tick = if place < first { random.below(from) } else { from + random.below(1000) };
            let ip = random.pick(&[IpVersion::V4, IpVersion::V6]);
            let packet = packet_of(ip, tick, random.below(150) as usize);
            driver.registers.source.push(frame(MACS.own, type_of(&packet), &packet));
        }
        (0..random.below(6000)).for_each(|_| driver.registers.cycle());
        let (image, guards) = (new.image().unwrap(), [(lb(0), from)].into());
        let result = driver.load(image, &guards);
        let is_swapped = result.is_ok();
        assert!(is_swapped || result == Err(EngineError::Late { lb: lb(0) }));
        (swapped, late) = if is_swapped { (swapped + 1, late) } else { (swapped, late + 1) };

        // Whatever the time of the swap: the tick alone says which tables a packet met.
        let sent = driver.registers.pass([]);
        assert_eq!(sent.len(), 1000, "round {round}");
        let mut met = [0; 2];
        for frame in sent {
            let packet = &frame.bytes[14..];
            let to: IpAddr = match packet[0] >> 4 {
                4 => <[u8; 4]>::try_from(&packet[16..20]).unwrap().into(),
                _ => <[u8; 16]>::try_from(&packet[24..40]).unwrap().into(),
            };
            let is_new = [IpVersion::V4, IpVersion::V6].map(|ip| address(ip, 101)).contains(&to);
            met[usize::from(is_new)] += 1;
        }
        let (early, later) = (first.min(1000), 1000 - first.min(1000));
        assert_eq!(met, if is_swapped { [early, later] } else { [1000, 0] }, "round {round}");
        let counted = driver.take(Lengths::Packets);
        let routed: Vec<_> = counted.sets.iter().map(|(&(_, from), met)| (from, met.routed)).collect();
        let newer = if is_swapped { later } else { 0 };
        assert_eq!(routed.iter().map(|(_, packets)| packets).sum::<u64>(), 1000);
        assert!(
            routed.iter().all(|&(of, packets)| packets == if of == from { newer } else { 1000 - newer }),
            "{routed:?}"
        );
    }
    assert!(swapped > 5 && late > 5, "{swapped} {late}");
}

#[test]
fn entries_of_the_image_in_use_are_refused() {
    use naa_fpga::Registers as _;
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    driver.load(Balancer::new(&Tables::new(&rules_to(100)), 1).image().unwrap(), &BTreeMap::new()).unwrap();
    let used = driver.registers.read(4) & 1;
    assert!(!driver.registers.write(0xc, used << 14));
    assert!(driver.registers.write(0xc, (1 - used) << 14));
}

#[test]
fn a_reset_in_the_middle_leaves_no_packet_behind() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::idle(100, 1)]) else { return };
    let balancer = Balancer::new(&Tables::new(&rules_to(100)), 1);
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 2);
    for _ in 0..12 {
        let packet = packet_of(IpVersion::V4, 1, 1000);
        (0..40).for_each(|_| driver.registers.source.push(frame(MACS.own, TYPE_V4, &packet)));
        (0..random.below(400)).for_each(|_| driver.registers.cycle());
        let LbTop { mut bench, .. } = driver.registers;
        bench.reset();
        // Tables keep what they hold, and everything else begins anew: the driver writes it again.
        driver = Driver::new(LbTop::on(bench, [Rates::full(), Rates::full()]), MACS).unwrap();
        driver.load(balancer.image().unwrap(), &BTreeMap::new()).unwrap();
        let packet = packet_of(IpVersion::V6, 2, 100);
        (0..10).for_each(|_| driver.registers.source.push(frame(MACS.own, TYPE_V6, &packet)));
        let sent = driver.registers.pass([]);
        let whole = frame(MACS.own, TYPE_V6, &packet);
        let expected = frames::forward(&mut balancer.clone(), MACS, &whole.bytes, false).unwrap();
        assert_eq!(sent.len(), 10);
        assert!(sent.iter().all(|frame| frame.bytes == expected && frame.last == 0));
        let counted = driver.take(Lengths::Packets);
        assert_eq!(counted.lbs[&lb(0)].sent.packets, 10);
    }
}

/// The most cycles from the first beat of a frame to the first beat of its answer, if nothing is in its way.
const LATENCY: u64 = 64;

#[test]
fn a_beat_of_512_bits_passes_in_each_cycle_for_all_frames_of_79_bytes_on_the_wire_and_more() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    driver.load(Balancer::new(&Tables::new(&rules_to(100)), 1).image().unwrap(), &BTreeMap::new()).unwrap();
    // The check sequence is 4 of them.
    for length in (75..400).step_by(9).chain([1514, 9014]) {
        let packet = packet_of(IpVersion::V4, 7, length - 14 - 44);
        let frame = frame(MACS.own, TYPE_V4, &packet);
        assert_eq!(frame.bytes.len(), length);
        let count = 300;
        (0..count).for_each(|_| driver.registers.source.push(frame.clone()));
        let beats = (count * length.div_ceil(64)) as u64;
        let begin = driver.registers.bench.cycles();
        while !driver.registers.source.is_empty() {
            driver.registers.cycle();
        }
        let taken = driver.registers.bench.cycles() - begin;
        assert_eq!(taken, beats, "frames of {length} bytes stall");
        let sent = driver.registers.pass([]);
        assert_eq!(sent.len(), count);
        let first = sent[0].begun - begin;
        assert!(first < LATENCY, "the first beat of a frame of {length} bytes leaves after {first} cycles");
    }
}
