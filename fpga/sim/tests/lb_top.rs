//! `lb_top` against `ejfat::lb::DataPlane`: frames byte for byte, counters, answers, and images that are swapped while frames flow.

mod common;
#[path = "../../../ejfat/ejfat/tests/lb_common/mod.rs"]
mod lb_common;
mod one_member;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use common::{number, random_run};
use ejfat::{
    lb::{BeyondHorizon, DataPlane, DropCause, EngineError, LbId, LbTables, Rule, Rules, Tables},
    segment::IpVersion,
};
use lb_common::{Site, address, damage, lb, random_packet_of, random_rules_of, stage_random};
use naa_fpga::{
    Driver, LbTop, Lengths, Macs, Packet, Rates, Registers as _,
    frames::{self, TYPE_V4, TYPE_V6, type_of},
};
use one_member::{MACS, header, load, packet_of, rules_to, top};
use simnet::Random;

const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn frame(to: [u8; 6], ether: [u8; 2], packet: &[u8]) -> Packet {
    Packet { bytes: [&to[..], &SENDER, &ether, packet].concat(), ..Packet::default() }
}

/// Sets any MAC addresses.
fn random_macs(random: &mut Random, top: &mut LbTop) -> Macs {
    let mut macs = Macs { own: [0; 6], hop: [0; 6] };
    for (register, mac) in at::MACS.step_by(8).zip([&mut macs.own, &mut macs.hop]) {
        random.fill(mac);
        assert!(top.write(register, u32::from_be_bytes(mac[2..].try_into().unwrap())));
        assert!(top.write(register + 4, u16::from_be_bytes([mac[0], mac[1]]).into()));
    }
    macs
}

fn random_frame(random: &mut Random, own: [u8; 6], site: Site, rules: &[Rule]) -> Packet {
    let mut packet = random_packet_of(random, site, rules);
    if random.chance(2000) {
        lb_common::lengthen(random, &mut packet);
    }
    let is_damaged = damage(random, &mut packet);
    let mut to = own;
    if random.chance(50_000) {
        to[random.below(6) as usize] ^= 1 << random.below(8);
    }
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
fn assert_counted(driver: &mut Driver<LbTop>, before: &DataPlane, model: &DataPlane) {
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
    let Some(mut driver) = top(width, [Rates::full(), Rates::full()]) else { return };
    let (count, seed, mut random) = random_run(0);
    let per_image = 1000;
    for round in 0..count.div_ceil(per_image) {
        let site = Site::random(&mut random);
        let rules = random_rules_of(&mut random, site);
        let mut balancer = DataPlane::new(&Tables::new(&rules), seed);
        let mut all: Vec<_> = rules.iter().collect();
        for _ in 0..random.below(4) {
            stage_random(&mut random, &mut balancer, site, &mut all);
        }
        for id in site.lbs {
            let horizon =
                if random.chance(500_000) { u64::MAX } else { lb_common::random_tick(&mut random, &all) };
            balancer.set_horizon(lb(id), horizon);
            driver.set_horizon(lb(id), horizon);
        }
        driver.load(balancer.image().unwrap(), &BTreeMap::new()).unwrap();
        let before = balancer.clone();
        let [idle, stall] = [[0, 0], [80, 0], [0, 80], [120, 120]][round as usize % 4];
        driver.registers.set_rates([Rates::idle(idle, seed + round), Rates::idle(stall, !(seed + round))]);
        let macs = random_macs(&mut random, &mut driver.registers);
        let mut expected = VecDeque::new();
        for _ in 0..per_image {
            let frame = random_frame(&mut random, macs.own, site, &all);
            let sent = frames::forward(&mut balancer, macs, &frame.bytes, frame.last == 1);
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

/// A frame with a tick for the load balancer of this number, and nothing else behind its LB header.
fn frame_to(of: u8, tick: u64) -> Packet {
    let hosts = [1, 50 + of].map(|host| address(IpVersion::V4, host));
    let bytes = frames::of_datagram([SENDER, MACS.own], hosts, &header(tick)).unwrap();
    Packet { bytes, ..Packet::default() }
}

#[test]
fn frames_that_carry_no_ip_packet_are_counted_and_do_not_leave() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    load(&mut driver, &rules_to(lb(0), 100));
    let kinds = [(TYPE_V6, IpVersion::V4), (TYPE_V4, IpVersion::V6), ([0x81, 0], IpVersion::V4)];
    let frames: Vec<_> = [0, 20, 500]
        .into_iter()
        .flat_map(|data| kinds.map(|(ether, ip)| frame(MACS.own, ether, &packet_of(ip, 7, data))))
        .collect();
    let count = frames.len() as u64;
    // Frames that are marked as bad do not leave, either.
    assert_eq!(driver.registers.pass(frames), []);
    let counted = driver.take(Lengths::Packets);
    assert_eq!(counted.unaddressed, [(DropCause::NotIp, count)].into_iter().collect());
}

#[test]
fn images_are_swapped_between_two_packets_and_no_event_is_split() {
    let Some(mut driver) = top(512, [Rates::idle(200, 1), Rates::idle(100, 2)]) else { return };
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 1);
    let (mut swapped, mut late) = (0, 0);
    for round in 0..60 {
        let old = DataPlane::new(&Tables::new(&rules_to(lb(0), 100)), 1);
        driver.load(old.image().unwrap(), &BTreeMap::new()).unwrap();
        let _ = driver.take(Lengths::Packets);
        let mut new = old.clone();
        let from = 1000;
        new.stage(LbTables::new(lb(0), &rules_to(lb(0), 101)).into(), from).unwrap();
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

/// Addresses of registers, and kinds of counters.
mod at {
    pub(crate) const VERSION: u16 = 0x000;
    pub(crate) const STATUS: u16 = 0x004;
    pub(crate) const SWAP: u16 = 0x008;
    pub(crate) const ENTRY: u16 = 0x00c;
    pub(crate) const TAKE: u16 = 0x010;
    pub(crate) const MACS: std::ops::Range<u16> = 0x018..0x028;
    pub(crate) const TAKEN: std::ops::Range<u16> = 0x060..0x078;
    pub(crate) const GUARDS: std::ops::Range<u16> = 0x100..0x140;
    pub(crate) const HORIZONS: std::ops::Range<u16> = 0x140..0x180;

    pub(crate) const PACKETS: u32 = 0 << 16;
    pub(crate) const NEWEST: u32 = 3 << 16;
}

#[test]
fn entries_of_the_image_in_use_are_refused() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    load(&mut driver, &rules_to(lb(0), 100));
    let used = driver.registers.read(at::STATUS) & 1;
    assert!(!driver.registers.write(at::ENTRY, used << 14));
    assert!(driver.registers.write(at::ENTRY, (1 - used) << 14));
}

#[test]
fn registers_hold_what_is_written() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 3);
    let registers = || [at::MACS, at::GUARDS, at::HORIZONS].into_iter().flatten().step_by(4);
    let mut values: BTreeMap<u16, u32> = registers().map(|at| (at, random.next_u32())).collect();
    let image = driver.registers.read(at::STATUS);
    for (&at, &value) in &values {
        assert!(driver.registers.write(at, value));
    }
    let others: Vec<u16> = (0..0x1000)
        .filter(|at| ![at::SWAP, at::ENTRY, at::TAKE].contains(at) && !values.contains_key(at))
        .collect();
    let held: Vec<u16> = registers().collect();
    for round in 0..12 {
        driver.registers.accesses = Rates::idle([0, 100, 200, 50][round % 4], 5 + round as u64);
        for _ in 0..200 {
            // Addresses between two registers, and those of no register, change nothing.
            let at = match random.below(4) {
                0 => random.pick(&others),
                1 => random.below(0x180) as u16,
                _ => random.pick(&held),
            };
            let value = random.next_u32();
            if ![at::SWAP, at::ENTRY, at::TAKE].contains(&at) {
                assert!(driver.registers.write(at, value));
                values.entry(at).and_modify(|held| *held = value);
            }
        }
        let taken: Vec<_> = at::TAKEN.step_by(4).map(|at| driver.registers.read(at)).collect();
        for at in (0..0x1000).filter(|at| at % 4 == 0 || *at < 0x190) {
            let expected = match at {
                at::VERSION => 1,
                at::STATUS => image,
                _ if at::TAKEN.contains(&at) && at % 4 == 0 => taken[usize::from(at - at::TAKEN.start) / 4],
                _ => values.get(&at).copied().unwrap_or(0),
            };
            assert_eq!(driver.registers.read(at), expected, "register {at:#x}");
        }
    }
    // A reset clears the MAC addresses, and no tick is above a horizon.
    driver.registers.bench.reset();
    for (at, value) in values {
        let value = match at {
            _ if at::MACS.contains(&at) => 0,
            _ if at::HORIZONS.contains(&at) => u32::MAX,
            _ => value,
        };
        assert_eq!(driver.registers.read(at), value, "register {at:#x}");
    }
    assert_eq!(driver.registers.read(at::STATUS), 0);
}

#[test]
fn while_a_swap_waits_for_packets_nothing_else_begins() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    load(&mut driver, &rules_to(lb(0), 100));
    let packet = packet_of(IpVersion::V4, 7, 500);
    let frame = frame(MACS.own, TYPE_V4, &packet);
    for round in 0..3 {
        let used = driver.registers.read(at::STATUS);
        assert_eq!(used & !1, 0);
        let other = (1 - used) << 14;
        driver.registers.set_rates([Rates::full(), Rates::idle(u8::MAX, 1)]);
        (0..10).for_each(|_| driver.registers.source.push(frame.clone()));
        (0..100).for_each(|_| driver.registers.cycle());
        assert!(driver.registers.write(at::SWAP, 0));
        (0..20).for_each(|_| driver.registers.source.push(frame.clone()));
        for _ in 0..4 {
            (0..100).for_each(|_| driver.registers.cycle());
            assert_eq!(driver.registers.read(at::STATUS), used | 2);
            for (at, value) in [(at::SWAP, 0xff), (at::TAKE, 0), (at::ENTRY, other), (at::ENTRY, used << 14)]
            {
                assert!(!driver.registers.write(at, value), "{at:#x}");
            }
            // Other registers are as they always are.
            let guard = at::GUARDS.start + 4 * round;
            assert!(driver.registers.write(guard, 0x1234_5678));
            assert_eq!(driver.registers.read(guard), 0x1234_5678);
        }
        // None of those that wait has entered.
        assert!(driver.registers.source.len() >= 19, "{} frames wait", driver.registers.source.len());
        driver.registers.set_rates([Rates::full(), Rates::full()]);
        assert_eq!(driver.finish(), 1 - used);
        let sent = driver.registers.pass([]);
        // The other image is empty, so that those that waited are dropped.
        assert_eq!(sent.len(), 10);
        while driver.registers.read(at::STATUS) != used {
            assert!(driver.registers.write(at::SWAP, 0));
            driver.finish();
        }
    }
}

#[test]
fn counters_are_read_between_packets_that_follow_each_other() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    // A packet of one beat is done in each cycle, and belongs to nobody.
    let count = 3000;
    let frame = frame(MACS.own, TYPE_V4, &packet_of(IpVersion::V4, 7, 0)[..44]);
    (0..count).for_each(|_| driver.registers.source.push(frame.clone()));
    let (mut packets, mut reads, mut empty) = (0, 0, 0);
    while !driver.registers.source.is_empty() || empty < 100 {
        assert!(driver.registers.write(at::TAKE, at::PACKETS | DropCause::BadIp as u32));
        assert_eq!(driver.finish() & !1, 0);
        let words: Vec<_> = at::TAKEN.step_by(4).map(|at| driver.registers.read(at)).collect();
        packets += words[0];
        // Packets have 40 bits, and bytes 48.
        let bytes = u64::from(words[1] >> 8) | u64::from(words[2]) << 24;
        assert_eq!(words[1] & 0xff, 0);
        assert_eq!(bytes, 44 * u64::from(words[0]));
        empty = if words[0] == 0 { empty + 1 } else { 0 };
        reads += 1;
        assert!(reads < count, "{} frames wait", driver.registers.source.len());
    }
    assert_eq!(packets, count);
    assert!(reads > 150, "{reads} reads");
}

/// The rules of all load balancers.
fn rules_of_all() -> Rules {
    let mut rules = Rules::default();
    LbId::all().take(LbId::P4_COUNT).for_each(|of| rules.add(&rules_to(of, 100)));
    rules
}

#[test]
fn many_packets_above_a_horizon_are_counted() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    load(&mut driver, &rules_of_all());
    // The counters use 16 bits. More would take too long.
    let count = (1 << 15) + 78;
    for of in LbId::all().take(LbId::P4_COUNT) {
        driver.set_horizon(of, 99);
        let frame = frame_to(of.get(), 100);
        (0..count).for_each(|_| driver.registers.source.push(frame.clone()));
        while !driver.registers.source.is_empty() {
            driver.registers.cycle();
            let _ = driver.registers.sink.pop();
        }
    }
    let _ = driver.registers.pass([]);
    let counted = driver.take(Lengths::Packets);
    for of in LbId::all().take(LbId::P4_COUNT) {
        assert_eq!(
            counted.beyond[&of],
            BeyondHorizon { packets: count, lowest: 100, highest: 100 },
            "{of:?}"
        );
    }
}

#[test]
fn a_swap_is_refused_for_each_load_balancer_whose_newest_tick_is_not_below_its_guard() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::full()]) else { return };
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 4);
    let lbs = LbId::P4_COUNT as u8;
    // Both images are the same.
    (0..2).for_each(|_| load(&mut driver, &rules_of_all()));
    let mut newest = vec![None::<u64>; usize::from(lbs)];
    let mut outcomes = [0; 2];
    for round in 0..60 {
        for _ in 0..random.below(20) {
            let of = random.below(lbs.into()) as usize;
            // The first bit that differs from the newest tick may be any.
            let near = newest[of].unwrap_or(0) ^ 1 << random.below(64);
            let tick = random.pick(&[near, newest[of].unwrap_or(5)]);
            driver.registers.source.push(frame_to(of as u8, tick));
            newest[of] = newest[of].max(Some(tick));
        }
        if random.below(4) == 0 {
            let of = random.below(lbs.into()) as usize;
            (0..100).for_each(|_| driver.registers.cycle());
            assert!(driver.registers.write(at::TAKE, at::NEWEST | of as u32));
            driver.finish();
            let words: Vec<_> = at::TAKEN.step_by(4).map(|at| driver.registers.read(at)).collect();
            assert_eq!((words[2], words[3], words[4], words[5]), (newest[of].is_some().into(), 0, 0, 0));
            if let Some(tick) = newest[of].take() {
                assert_eq!(u64::from(words[0]) | u64::from(words[1]) << 32, tick);
            }
        }
        let mut expected = 0;
        // In half of the rounds nothing is late, or one load balancer is.
        let most_late = [0, 1, lbs, lbs][round % 4];
        let guarded = random.next_u32() & 0xff;
        for (of, newest) in newest.iter().enumerate() {
            let is_late =
                of as u32 % 8 >= u32::from(lbs - most_late) || most_late == 1 && of == round / 4 % 8;
            let bit = 1 << random.below(63);
            let below = random.pick(&[0, 0, bit]);
            let guard = match newest {
                Some(tick) if is_late => tick.saturating_sub(below),
                Some(tick) => tick.saturating_add(1 + below),
                None => random.below(2) * random.next_u64(),
            };
            for (half, value) in [guard as u32, (guard >> 32) as u32].into_iter().enumerate() {
                assert!(driver.registers.write(at::GUARDS.start + 8 * of as u16 + 4 * half as u16, value));
            }
            let is_refused = guarded >> of & 1 == 1 && newest.is_some_and(|tick| tick >= guard);
            expected |= u32::from(is_refused) << of;
        }
        let used = driver.registers.read(at::STATUS) & 1;
        assert!(driver.registers.write(at::SWAP, guarded));
        let status = driver.finish();
        let refused = u32::from(expected != 0);
        assert_eq!(
            status,
            expected << 8 | refused << 2 | used ^ (1 - refused),
            "round {round}, {guarded:#x}"
        );
        outcomes[refused as usize] += 1;
        let _ = driver.registers.pass([]);
    }
    assert!(outcomes.iter().all(|&rounds| rounds > 10), "{outcomes:?}");
}

#[test]
fn a_reset_in_the_middle_leaves_no_packet_behind() {
    let Some(mut driver) = top(512, [Rates::full(), Rates::idle(100, 1)]) else { return };
    let balancer = DataPlane::new(&Tables::new(&rules_to(lb(0), 100)), 1);
    let mut random = Random::new(number("NAA_FPGA_SEED", 1), 2);
    for _ in 0..8 {
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
    load(&mut driver, &rules_to(lb(0), 100));
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
