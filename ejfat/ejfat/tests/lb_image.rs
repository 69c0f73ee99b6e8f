//! Tests that look up routes in an `Image`, like hardware does, and compare the routes with those of `DataPlane`.

mod lb_common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ejfat::{
    lb::{
        DataPlane, DropCause, Epoch, Image, ImageEntry, ImageError, ImageTable, LbId, LbTables, Route, Rule,
        Rules, Tables, calendar,
    },
    segment::IpVersion::{V4, V6},
    wire::{LbHeader, Select},
};
use lb_common::{
    Site, address, all_ticks, lb, member, random_header, random_rules_of, rules, seeds, stage_random,
};
use simnet::Random;

/// An entry of an image table, whose fields are read one after another from the lowest bit on. The `usize` is the index
/// of the lowest bit of the next field.
struct Fields(ImageEntry, usize);

impl Fields {
    fn of(image: &Image, table: ImageTable, at: usize) -> Self {
        Self(image.table(table)[at], 0)
    }

    fn next(&mut self, bits: usize) -> u128 {
        let bit = |at: usize| u128::from(self.0[at / 64] >> (at % 64) & 1);
        let value = (0..bits).fold(0, |value, at| value | bit(self.1 + at) << at);
        self.1 += bits;
        value
    }
}

fn bits(address: IpAddr) -> (u128, u128) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 0),
        IpAddr::V6(v6) => (v6.to_bits(), 1),
    }
}

/// Searches `table` for the entry with the key (`address`, `of`). Returns the value of this entry, or `None` if no
/// entry has this key. In the table of source addresses, `of` is the number of a load balancer. In the table of
/// destination addresses, `of` is 0. Hardware reads only the four entries that the hash of the address selects, but
/// this function reads all entries.
fn find(image: &Image, table: ImageTable, of: u128, address: IpAddr) -> Option<u128> {
    let (low, is_v6) = bits(address);
    let mut found = (0..table.entries()).filter_map(|at| {
        let mut entry = Fields::of(image, table, at);
        let key = (entry.next(128), entry.next(1), entry.next(3));
        let (value, is_valid) = (entry.next(5), entry.next(1));
        (is_valid == 1 && key == (low, is_v6, of)).then_some(value)
    });
    let first = found.next();
    assert_eq!(found.next(), None, "an address is there twice");
    first
}

/// Returns the index of the entry in `ImageTable::Ranges` for the range that contains `key`. `key` consists of the
/// number of a load balancer and a tick. The table `ImageTable::Begins` is a search tree in which the function finds
/// the index.
fn range(image: &Image, key: (u128, u128)) -> usize {
    let mut place = 1;
    while place < ImageTable::Begins.entries() {
        let mut begin = Fields::of(image, ImageTable::Begins, place);
        let tick = begin.next(64);
        place = 2 * place + usize::from(key >= (begin.next(3), tick));
    }
    place - ImageTable::Begins.entries()
}

fn look_up(image: &Image, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
    let of = find(image, ImageTable::Destinations, 0, to).ok_or(DropCause::BadIp)?;
    let last = find(image, ImageTable::Sources, of, from).ok_or(DropCause::BlockedSrc)?;
    let (header, _) = LbHeader::decode(datagram)?;
    let mut range = Fields::of(image, ImageTable::Ranges, range(image, (of, header.tick.into())));
    let (place, has_epoch, set) = (range.next(10) as usize, range.next(1), range.next(5));
    if set > last {
        return Err(DropCause::BlockedSrc);
    }
    if has_epoch == 0 {
        return Err(DropCause::EpochAssignMiss);
    }
    let mut epoch = Fields::of(image, ImageTable::Epochs, place);
    let (flips, mask) = (epoch.next(16), (1 << epoch.next(4)) - 1);
    let (length, first) = (epoch.next(15), epoch.next(14));
    let slot = (u128::from(header.slot_select()) ^ flips) & mask;
    if slot >= length {
        return Err(DropCause::LbCalendarMiss);
    }
    let mut at = Fields::of(image, ImageTable::Slots, (first + slot) as usize);
    let (number, is_there) = (at.next(10) as usize, at.next(1));
    if is_there == 0 {
        return Err(DropCause::LbCalendarMiss);
    }
    let mut entry = Fields::of(image, ImageTable::Members, 2 * number + usize::from(from.is_ipv6()));
    let (address, mac, sum) = (entry.next(128), entry.next(48), entry.next(16));
    let (port_bits, port, keeps, kind) = (entry.next(4), entry.next(16), entry.next(1), entry.next(2));
    match kind {
        0 => return Err(DropCause::MbrInfoMiss),
        2 => return Err(DropCause::MbrDropSoftEvicted),
        3 => return Err(DropCause::MbrDropDeregistered),
        _ => {}
    }
    let words = (0..8).map(|word| address >> (16 * word) & 0xffff).sum::<u128>();
    assert_eq!(words % 0xffff, sum % 0xffff);
    let ip: IpAddr = if from.is_ipv4() {
        Ipv4Addr::from_bits(address as u32).into()
    } else {
        Ipv6Addr::from_bits(address).into()
    };
    let port = (port + (u128::from(header.port_select()) & ((1 << port_bits) - 1))) as u16;
    let (lb, member) = image.member(number).unwrap();
    assert_eq!(u128::from(lb.get()), of);
    Ok(Route {
        lb,
        epoch: image.epoch(place).unwrap(),
        slot: slot as u16,
        member,
        mac: (mac != 0).then(|| mac.to_be_bytes()[10..].try_into().unwrap()),
        to: SocketAddr::new(ip, port),
        keep_lb_header: keeps == 1,
    })
}

#[test]
fn an_image_leads_where_the_sets_lead() {
    let mut routed = 0;
    for seed in 0..seeds().div_ceil(30) {
        let mut random = Random::new(seed, 0);
        let site = Site::random(&mut random);
        let first = random_rules_of(&mut random, site);
        let mut plane = DataPlane::new(&Tables::new(&first), seed);
        let mut all: Vec<_> = first.iter().collect();
        for _ in 0..random.below(6) {
            stage_random(&mut random, &mut plane, site, &mut all);
        }
        let image = plane.image().unwrap();
        for _ in 0..200 {
            let ip = random.pick(&[V4, V6]);
            let mut datagram = random_header(&mut random, &all).encode();
            if random.chance(30_000) {
                datagram[random.below(3) as usize] ^= 1 << random.below(8);
            }
            let to = site.lb(ip, random.below(4) as u8);
            let from = site.sender(ip, random.range(1..=5) as u8);
            let expected = plane.route(to, from, &datagram);
            assert_eq!(look_up(&image, to, from, &datagram), expected, "seed {seed}");
            routed += u64::from(expected.is_ok());
        }
    }
    assert!(routed > 0);
}

/// Returns the rules of an epoch that contains all ticks. The calendar slots are assigned to `members` in turn.
fn one_epoch(of: LbId, id: u32, members: &[u16]) -> Vec<Rule> {
    let mut rules = calendar(of, id, members);
    rules.push(all_ticks(of, Epoch::new(id)));
    rules
}

fn image(rules: &Rules) -> Result<Image, ImageError> {
    DataPlane::new(&Tables::new(rules), 1).image()
}

#[test]
fn the_highest_tick_of_the_last_load_balancer_is_behind_no_range() {
    // The unused entries of `ImageTable::Begins` are filled with the last load balancer and the tick 2^64 - 1. A search
    // for this load balancer and this tick must nevertheless find the range that contains the tick.
    let of = lb(LbId::P4_COUNT as u8 - 1);
    let (to, from) = (address(V4, 50), address(V4, 1));
    let mut all = rules(one_epoch(of, 1, &[7]));
    for rule in [
        Rule::Destination { address: to, lb: of },
        Rule::Source { lb: of, address: from },
        member(of, 7, (address(V4, 100), 10_000).into(), 0, false),
    ] {
        all.insert(rule, false).unwrap();
    }
    let plane = DataPlane::new(&Tables::new(&all), 1);
    for tick in [0, u64::MAX - 1, u64::MAX] {
        let datagram = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick }.encode();
        let expected = plane.clone().route(to, from, &datagram);
        assert!(expected.is_ok());
        assert_eq!(look_up(&plane.image().unwrap(), to, from, &datagram), expected, "{tick:#x}");
    }
}

#[test]
fn calendars_and_members_that_are_alike_are_there_once() {
    let mut all = rules(one_epoch(lb(0), 1, &[7, 8]));
    all.insert(member(lb(0), 7, (address(V4, 100), 10_000).into(), 0, false), false).unwrap();
    let mut plane = DataPlane::new(&Tables::new(&all), 1);
    let used = |plane: &DataPlane| {
        let slots = plane.image().unwrap();
        slots.table(ImageTable::Slots).iter().filter(|entry| **entry != ImageEntry::default()).count()
    };
    assert_eq!(used(&plane), 512);
    for from in 1..=10 {
        plane.stage(LbTables::new(lb(0), &all).into(), from).unwrap();
    }
    assert_eq!(used(&plane), 512);
    assert_eq!(plane.image().unwrap().members().count(), 2);
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    // An image has room for sixteen different calendars of 1024 calendar slots each.
    let calendars = |count: u16| {
        let mut plane = DataPlane::new(&Tables::new(&Rules::default()), 1);
        for set in 0..count {
            let slot = |slot| Rule::Slot { lb: lb(0), epoch: 0, slot, member: (slot + set) % 1000 };
            let mut all: Vec<_> = (0..1024).map(slot).collect();
            all.push(all_ticks(lb(0), Epoch { slot_bits: 10, ..Epoch::new(0) }));
            plane.stage(LbTables::new(lb(0), &rules(all)).into(), u64::from(set) + 1).unwrap();
        }
        plane.image().map(drop)
    };
    assert_eq!(calendars(16), Ok(()));
    let mut plane = DataPlane::new(&Tables::new(&Rules::default()), 1);
    let far = Rule::Slot { lb: lb(1), epoch: 0, slot: Rule::MOST_SLOT, member: 1 };
    let near = Rule::Slot { lb: lb(1), epoch: 0, slot: 0, member: 1 };
    let wide = Epoch { slot_bits: 14, ..Epoch::new(0) };
    for (from, slots) in [(1, vec![far]), (2, vec![far, near])] {
        let all = rules(slots.into_iter().chain([all_ticks(lb(1), wide)]));
        plane.stage(LbTables::new(lb(1), &all).into(), from).unwrap();
    }
    let full = |table, count, limit| Err(ImageError::Full { table, count, limit });
    assert_eq!(plane.image().map(drop), full(ImageTable::Slots, 32_768, 16_384));

    let members: Vec<_> = (0..512).collect();
    let mut all = rules(one_epoch(lb(0), 0, &members));
    let more: Vec<_> = (512..1024).collect();
    one_epoch(lb(1), 0, &more).into_iter().for_each(|rule| all.insert(rule, false).unwrap());
    assert_eq!(image(&all).map(drop), Ok(()));
    one_epoch(lb(2), 0, &[1]).into_iter().for_each(|rule| all.insert(rule, false).unwrap());
    assert_eq!(image(&all).map(drop), full(ImageTable::Members, 1025, 1024));

    let (lb, address) = (lb(8), address(V4, 1));
    for rule in [Rule::Source { lb, address }, Rule::Destination { lb, address }] {
        let refused = Err(ImageError::LoadBalancer { lb: 8, limit: 8 });
        assert_eq!(image(&rules([rule])).map(drop), refused, "{rule:?}");
    }
}

#[test]
fn as_many_addresses_as_rules_may_have_find_a_place() {
    for seed in 0..20 {
        let mut random = Random::new(seed, 1);
        let mut all = Rules::default();
        for n in 0..256_u32 {
            let of = lb(random.below(8) as u8);
            let v4 =
                Ipv4Addr::from_bits(0x0a00_0000 | if seed % 2 == 0 { n } else { random.next_u32() >> 8 });
            let v6 = Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n) << (seed * 4));
            for address in [IpAddr::from(v4), v6.into()] {
                all.insert(Rule::Source { lb: of, address }, true).unwrap();
            }
            if n < 32 {
                for address in [IpAddr::from(v4), v6.into()] {
                    all.insert(Rule::Destination { address, lb: of }, true).unwrap();
                }
            }
        }
        image(&all).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
