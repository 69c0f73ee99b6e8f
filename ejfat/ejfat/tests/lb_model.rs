//! Tests that compare routing by compiled tables with a model that searches the rules.

mod lb_common;

use std::collections::BTreeSet;

use ejfat::{
    lb::{
        DropCause, Epoch, Forward, LbId, Member, Route, Rule, RuleError, Rules, Table, Tables, TickPrefix,
        calendar, diff, prefixes,
    },
    segment::IpVersion::{V4, V6},
    wire::{LbHeader, Select},
};
use lb_common::{address, all_ticks, lb, member, model_route, random_header, random_rules, rules, seeds};
use simnet::Random;

/// An LB header of version 2 that E2SAR 0.3.2 has sent.
const E2SAR_V2: u128 = 0x4c42_0201_0000_ccb3_0006_60c4_50dc_cce5;
/// An LB header of version 3 that E2SAR 0.3.2 has sent.
const E2SAR_V3: u128 = 0x4c42_0301_c0e5_c7cd_0006_60c4_5105_c0e5;

fn decode(bits: u128) -> LbHeader {
    LbHeader::decode(&bits.to_be_bytes()).unwrap().0
}

#[test]
fn packets_of_e2sar_find_their_members() {
    let (lb, from) = (lb(5), address(V4, 1));
    let members: Vec<u16> = (0..512).map(|slot| 1000 + slot).collect();
    let mut rules = rules(calendar(lb, 7, &members));
    rules.insert(Rule::Source { lb, address: from }, false).unwrap();
    // The ticks in the LB headers `E2SAR_V2` and `E2SAR_V3` are among the 30,000,000 ticks from `start` on.
    let start = 0x0006_60c4_5000_0000;
    for ticks in prefixes(start..start + 30_000_000) {
        rules.insert(Rule::Epoch { lb, ticks, epoch: Epoch::new(7) }, false).unwrap();
    }
    for id in members {
        rules.insert(member(lb, id, (address(V4, 100), 10_000).into(), 4, false), false).unwrap();
    }
    let tables = Tables::new(&rules);
    for (header, slot, port) in [(E2SAR_V2, 0xe5, 10_003), (E2SAR_V3, 0xe5, 10_013)] {
        let route = tables.route(lb, from, &decode(header)).unwrap();
        let to = (address(V4, 100), port).into();
        let expected =
            Route { lb, epoch: 7, slot, member: 1000 + slot, mac: None, to, keep_lb_header: false };
        assert_eq!(route, expected);
    }
    let later = LbHeader { tick: start + 30_000_000, ..decode(E2SAR_V3) };
    assert_eq!(tables.route(lb, from, &later), Err(DropCause::EpochAssignMiss));
    assert_eq!(tables.route(lb, address(V6, 1), &later), Err(DropCause::BlockedSrc));
    for ticks in prefixes(..start) {
        let epoch = Epoch { id: 7, slot_bits: 4, xor: 0xf };
        rules.insert(Rule::Epoch { lb, ticks, epoch }, false).unwrap();
    }
    let earlier = LbHeader { tick: 0, select: Select::V3 { slot: 0xc0e5, port: 0 }, protocol: 1 };
    assert_eq!(Tables::new(&rules).route(lb, from, &earlier).unwrap().slot, 0xa);
}

#[test]
fn ports_wrap() {
    let (lb, from) = (lb(0), address(V6, 1));
    let rules = rules([
        Rule::Source { lb, address: from },
        all_ticks(lb, Epoch { id: 0, slot_bits: 0, xor: 0 }),
        Rule::Slot { lb, epoch: 0, slot: 0, member: 9 },
        member(lb, 9, (address(V6, 100), 65_000).into(), 14, true),
    ]);
    let header = LbHeader { select: Select::V2 { entropy: u16::MAX }, protocol: 1, tick: u64::MAX };
    let route = Tables::new(&rules).route(lb, from, &header).unwrap();
    assert_eq!((route.to.port(), route.slot), ((65_000 + 16_383 - 65_536) as u16, 0));
}

#[test]
fn tables_are_the_model() {
    let mut reached = BTreeSet::new();
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 0);
        let rules = random_rules(random);
        let tables = Tables::new(&rules);
        let listed: Vec<_> = rules.iter().collect();
        for _ in 0..100 {
            let (lb, ip) = (lb(random.below(4) as u8), random.pick(&[V4, V6]));
            let from = address(ip, random.range(1..=4) as u8 + u8::from(random.chance(20_000)));
            let header = random_header(random, &listed);
            let expected = model_route(&listed, lb, from, &header);
            assert_eq!(tables.route(lb, from, &header), expected, "seed {seed}: {header:?} from {from}");
            reached.insert(expected.err().map(|cause| cause.name()));
        }
    }
    assert!(seeds() < 100 || reached.len() == 7, "{reached:?}");
}

/// Returns random rules of one load balancer. In most of the calendars, only a few calendar slots have rules, and the
/// numbers of these calendar slots are far apart. Some epochs share a calendar.
fn sparse_rules(random: &mut Random) -> Rules {
    let lb = lb(1);
    let mut rules = rules([Rule::Source { lb, address: address(V4, 1) }]);
    for tick in 0..8 {
        let epoch = Epoch {
            id: tick as u32 / 3,
            slot_bits: random.range(10..=14) as u8,
            xor: random.pick(&[0, 0x2aaa]),
        };
        rules.insert(Rule::Epoch { lb, ticks: TickPrefix::new(tick, 64).unwrap(), epoch }, false).unwrap();
    }
    for epoch in 0..3 {
        for _ in 0..random.pick(&[0, 1, 2, 40, 200, 3000]) {
            let slot = random.next_u32() as u16 & random.pick(&[0x3fff, 0x3fff, 0xff]);
            rules.insert(Rule::Slot { lb, epoch, slot, member: slot % 7 }, true).unwrap();
        }
    }
    for id in 0..7 {
        rules.insert(member(lb, id, (address(V4, 100), 10_000).into(), 4, false), false).unwrap();
    }
    rules
}

#[test]
fn slots_far_apart_are_the_models() {
    let mut routed = 0;
    for seed in 0..seeds().min(60) {
        let random = &mut Random::new(seed, 3);
        let rules = sparse_rules(random);
        let tables = Tables::new(&rules);
        let listed: Vec<_> = rules.iter().collect();
        for _ in 0..100 {
            let tick = random.below(9);
            let slot_of = |rule: &Rule| match rule {
                Rule::Slot { epoch, slot, .. } if u64::from(*epoch) == tick / 3 => Some(*slot),
                _ => None,
            };
            // A random calendar slot seldom has a rule. On average, two of three packets therefore get a slot number
            // that is derived from a slot with a rule, or from slot 0. The number is not changed, or its lowest bit is
            // inverted, or it is XORed with 0x2aaa, the `xor` of some epochs.
            let slots: Vec<_> = listed.iter().filter_map(slot_of).chain([0]).collect();
            let near = random.pick(&slots) ^ random.pick(&[0, 0, 0x2aaa, 1]);
            let anywhere = random.next_u32() as u16;
            let select = Select::V3 { slot: random.pick(&[near, near, anywhere]), port: 3 };
            let header = LbHeader { select, protocol: 1, tick };
            let (lb, from) = (lb(1), address(V4, 1));
            let expected = model_route(&listed, lb, from, &header);
            assert_eq!(tables.route(lb, from, &header), expected, "seed {seed}: {header:?}");
            routed += u32::from(expected.is_ok());
        }
    }
    assert!(seeds() < 60 || routed > 500, "only {routed} packets had a route");
}

/// Returns the smallest number of `TickPrefix` values that together have exactly the ticks which are in both `node` and
/// `range`. Each argument consists of the first tick and the last tick of a range. The ticks of `node` are the ticks of
/// one `TickPrefix`.
fn fewest(node: (u64, u64), range: (u64, u64)) -> usize {
    if node.1 < range.0 || range.1 < node.0 {
        return 0;
    }
    if range.0 <= node.0 && node.1 <= range.1 {
        return 1;
    }
    let middle = node.0 + (node.1 - node.0) / 2;
    fewest((node.0, middle), range) + fewest((middle + 1, node.1), range)
}

#[test]
fn ranges_are_the_fewest_prefixes() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 1);
        let shift = random.below(64) as u32;
        let (a, b) = (random.next_u64() >> shift, random.next_u64() >> random.pick(&[shift, 0]));
        let (first, last) = (a.min(b), a.max(b));
        let found = prefixes(first..=last);
        assert_eq!(found[0].first(), first, "seed {seed}");
        assert_eq!(found.last().unwrap().last(), last, "seed {seed}");
        assert!(found.windows(2).all(|pair| pair[0].last() + 1 == pair[1].first()), "seed {seed}");
        assert_eq!(found.len(), fewest((0, u64::MAX), (first, last)), "seed {seed}");
        assert_eq!(prefixes(first..last), if first < last { prefixes(first..=last - 1) } else { vec![] });
    }
    assert_eq!(prefixes(..), [TickPrefix::new(0, 0).unwrap()]);
    assert_eq!(prefixes(u64::MAX..), [TickPrefix::new(u64::MAX, 64).unwrap()]);
    assert_eq!(prefixes(1..u64::MAX).len(), 126);
    assert!(prefixes(5..5).is_empty());
}

#[test]
fn calendars_are_dealt() {
    let slots = calendar(lb(1), 3, &[5, 6, 6]);
    assert_eq!(slots.len(), 512);
    let of =
        |id| slots.iter().filter(|rule| matches!(rule, Rule::Slot { member, .. } if *member == id)).count();
    assert_eq!((of(5), of(6)), (171, 341));
    assert_eq!(slots[511], Rule::Slot { lb: lb(1), epoch: 3, slot: 511, member: 6 });
    assert!(calendar(lb(1), 3, &[]).is_empty());
}

/// Returns `count` rules of a table, in the order of their keys.
fn many(table: Table, count: usize) -> impl Iterator<Item = Rule> {
    (0..count).map(move |at| {
        let (of, low, high) = (lb((at % 8) as u8), (at % 256) as u8, (at / 256) as u8);
        let v4 = [10, 9, high, low].into();
        match table {
            Table::Destination => Rule::Destination { address: v4, lb: of },
            Table::SourceV4 => Rule::Source { lb: lb(0), address: v4 },
            Table::SourceV6 => Rule::Source { lb: lb(high), address: address(V6, low) },
            Table::Epoch => {
                let ticks = TickPrefix::new(at as u64, 64).unwrap();
                Rule::Epoch { lb: of, ticks, epoch: Epoch::new(0) }
            }
            Table::Calendar => {
                Rule::Slot { lb: of, epoch: (at / 8 / 512) as u32, slot: (at / 8 % 512) as u16, member: 1 }
            }
            Table::Member => {
                Rule::Member { lb: of, ip: V6, id: (at / 8) as u16, member: Member::SoftEvicted }
            }
        }
    })
}

#[test]
fn tables_are_bounded() {
    assert_eq!(Table::ALL.map(Table::p4_limit), [64, 256, 256, 1024, 16_384, 1024]);
    assert_eq!(Table::ALL.map(Table::limit), [128, 256, 256, 1024, 32_768, 2048]);
    are_bounded(Table::limit, Rules::insert);
    are_bounded(Table::p4_limit, Rules::insert_p4);
}

fn are_bounded(limit_of: fn(Table) -> usize, insert: fn(&mut Rules, Rule, bool) -> Result<(), RuleError>) {
    let mut full = Rules::default();
    for table in Table::ALL {
        let limit = limit_of(table);
        let all: Vec<_> = many(table, limit + 1).collect();
        let (more, fitting) = all.split_last().unwrap();
        fitting.iter().for_each(|rule| insert(&mut full, *rule, false).unwrap());
        let refused = insert(&mut full, *more, true).unwrap_err();
        assert_eq!(refused, RuleError::Full { table, limit });
        let text = refused.to_string();
        assert!(text.contains(table.name()) && text.contains(&limit.to_string()), "{text}");
        assert_eq!(insert(&mut full, fitting[0], false), Err(RuleError::Exists(table)));
        insert(&mut full, fitting[0], true).unwrap();
        assert_eq!(full.remove(&fitting[3].key()), Some(fitting[3]));
        assert_eq!(full.remove(&fitting[3].key()), None);
        insert(&mut full, *more, false).unwrap();
        assert_eq!(full.count(table), limit);
    }
    assert_eq!(full.iter().count(), Table::ALL.map(limit_of).iter().sum());
    assert_eq!(rules(full.iter()), full);
    let tables = Tables::new(&full);
    assert_eq!(tables.lb([10, 9, 0, 9].into()), Some(lb(1)));
}

#[test]
fn rules_that_are_not_sound_are_refused() {
    let forward =
        Forward { mac: None, address: address(V4, 9), port: 1, port_bits: 14, keep_lb_header: false };
    let of = |ip, forward| Rule::Member { lb: lb(0), ip, id: 0, member: Member::Forward(forward) };
    let epoch = |slot_bits| all_ticks(lb(0), Epoch { id: 0, slot_bits, xor: 0 });
    let slot = |slot| Rule::Slot { lb: lb(0), epoch: 0, slot, member: 0 };
    let anywhere = "0.0.0.0".parse().unwrap();
    let group = "ff02::1".parse().unwrap();
    let cases = [
        (of(V4, forward), None),
        (of(V6, forward), Some(RuleError::Family(forward.address))),
        (of(V4, Forward { port: 0, ..forward }), Some(RuleError::PortBase)),
        (of(V4, Forward { port_bits: 15, ..forward }), Some(RuleError::PortBits(15))),
        (of(V4, Forward { address: anywhere, ..forward }), Some(RuleError::NotUnicast(anywhere))),
        (Rule::Destination { address: group, lb: lb(0) }, Some(RuleError::NotUnicast(group))),
        (Rule::Source { address: [255; 4].into(), lb: lb(0) }, Some(RuleError::NotUnicast([255; 4].into()))),
        (epoch(14), None),
        (epoch(15), Some(RuleError::SlotBits(15))),
        (slot(16_383), None),
        (slot(16_384), Some(RuleError::Slot(16_384))),
    ];
    for (rule, error) in cases {
        assert_eq!(Rules::default().insert(rule, true).err(), error, "{rule:?}");
    }
    assert_eq!(LbId::new(64), Err(RuleError::LbId(64)));
    assert_eq!(TickPrefix::new(0, 65), Err(RuleError::PrefixLength(65)));
    assert_eq!(TickPrefix::new(1, 63), Err(RuleError::PrefixBits { value: 1, length: 63 }));
    assert_eq!(TickPrefix::new(1, 64).map(TickPrefix::last), Ok(1));
}

#[test]
fn changes_lead_from_rules_to_rules() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 2);
        let (before, after) = (random_rules(random), random_rules(random));
        let changes = diff(&before, &after);
        let mut edited = before.clone();
        for rule in &changes.removed {
            assert_eq!(edited.remove(&rule.key()), Some(*rule), "seed {seed}");
        }
        for (old, new) in &changes.changed {
            assert!(old != new && edited.get(&new.key()) == Some(*old), "seed {seed}");
            edited.insert(*new, true).unwrap();
        }
        for rule in &changes.inserted {
            edited.insert(*rule, false).unwrap();
        }
        assert_eq!(edited, after, "seed {seed}");
        assert!(diff(&after, &after).is_empty(), "seed {seed}");
    }
}
