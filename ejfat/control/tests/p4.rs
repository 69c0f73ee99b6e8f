//! Epochs of planes that are programmed rule by rule.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ejfat::{
    lb::{Forward, LbId, Member, Rule, Rules, Table, Tables},
    segment::IpVersion,
    wire::{LbHeader, Select},
};
use ejfat_control::{
    calendar::{Calendar, MemberId},
    p4::{Change, Epochs, MOST_EPOCHS, Members},
};
use simnet::Random;

fn lb() -> LbId {
    LbId::new(5).unwrap()
}

fn members(ids: &[MemberId]) -> Members {
    let forward = |&id: &MemberId| {
        let address = Ipv4Addr::new(10, 0, (id >> 8) as u8, id as u8).into();
        let to = Forward { mac: None, address, port: 10_000, port_bits: 0, keep_lb_header: false };
        ((id, IpVersion::V4), Member::Forward(to))
    };
    ids.iter().map(forward).collect()
}

fn apply(rules: &mut Rules, change: Change) {
    match change {
        Change::Insert(rule) => rules.insert_p4(rule, false).unwrap(),
        Change::Replace(rule) => {
            assert!(rules.get(&rule.key()).is_some(), "{rule:?} replaces nothing");
            rules.insert_p4(rule, true).unwrap();
        }
        Change::Delete(key) => drop(rules.remove(&key).expect("what is deleted is there")),
    }
}

/// The members that ticks lead to.
fn routes(rules: &Rules, ticks: &[u64]) -> Vec<Option<MemberId>> {
    let source = Rule::Source { lb: lb(), address: Ipv4Addr::LOCALHOST.into() };
    let mut rules = rules.clone();
    rules.insert(source, true).unwrap();
    let tables = Tables::new(&rules);
    let route = |&tick: &u64| {
        let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick };
        tables.route(lb(), Ipv4Addr::LOCALHOST.into(), &header).ok().map(|route| route.member)
    };
    ticks.iter().map(route).collect()
}

fn dealt(random: &mut Random, most: u64) -> (Calendar, Vec<MemberId>) {
    let count = random.range(1..=most);
    let first = random.below(40) as MemberId;
    let ids: Vec<_> = (0..count as MemberId).map(|id| first + id).collect();
    let share = 512 / count as u32;
    let wanted: Vec<_> = ids.iter().map(|&id| (id, share)).collect();
    (Calendar::empty(512).unwrap().next(&wanted), ids)
}

#[test]
fn no_change_alters_what_a_tick_below_the_boundary_meets() {
    for seed in 0..20 {
        let random = &mut Random::new(seed, 0);
        let (mut rules, mut epochs) = (Rules::default(), Epochs::new(lb()));
        let mut boundary = random.below(1 << 50);
        for _ in 0..12 {
            let (calendar, ids) = dealt(random, 6);
            let newest = boundary;
            let bits = random.below(24);
            boundary += 1 + random.below(1 << bits);
            // Ticks around the boundary, and of the epochs that may still be on their way.
            let mut ticks: Vec<u64> = (0..12).map(|at| boundary.saturating_sub(6) + at).collect();
            ticks.extend((0..12).map(|_| newest + random.below(boundary - newest + 1000)));
            let before = routes(&rules, &ticks);
            // The first epoch takes all ticks, so there is no boundary yet.
            let is_first = rules.count(Table::Epoch) == 0;
            let changes = epochs.begin(boundary, &calendar, &members(&ids), newest).unwrap();
            let (mut switched, mut now) = (false, before);
            for change in changes {
                let deletes = matches!(change, Change::Delete(_));
                apply(&mut rules, change);
                // Looking at each of the thousand slots takes long, and those that are not led to alter nothing.
                if matches!(change, Change::Insert(Rule::Slot { slot, .. }) if slot % 64 != 0) {
                    continue;
                }
                let after = routes(&rules, &ticks);
                for (at, tick) in ticks.iter().enumerate() {
                    let is_new = *tick >= boundary;
                    let slot = calendar.slots()[(tick % 512) as usize];
                    assert!(
                        after[at] == now[at] || is_first || (is_new && after[at] == slot),
                        "seed {seed}: {change:?} alters tick {tick}, boundary {boundary}"
                    );
                }
                let new = |at: usize| ticks[at] >= boundary && after[at] != now[at];
                if !is_first && (0..ticks.len()).any(new) {
                    assert!(!switched, "seed {seed}: the new epoch comes by one change, {change:?}");
                    assert!(!deletes);
                    switched = true;
                }
                now = after;
            }
            let expected: Vec<_> = ticks.iter().map(|tick| calendar.slots()[(tick % 512) as usize]).collect();
            for (at, tick) in ticks.iter().enumerate().filter(|(_, tick)| **tick >= boundary) {
                assert_eq!(now[at], expected[at], "seed {seed}: tick {tick}");
            }
            let whole = epochs.whole();
            assert_eq!(whole.len(), rules.iter().count(), "seed {seed}");
            assert!(whole.iter().all(|rule| rules.get(&rule.key()) == Some(*rule)), "seed {seed}");
        }
    }
}

#[test]
fn epochs_of_eight_load_balancers_fit_into_the_tables() {
    let mut rules = Rules::default();
    for number in 0..LbId::P4_COUNT as u8 {
        let lb = LbId::new(number).unwrap();
        let mut epochs = Epochs::new(lb);
        let random = &mut Random::new(number.into(), 1);
        // Microseconds of 2026, an epoch a second.
        let mut boundary = 1_795_000_000_000_000 + random.below(1 << 40);
        for _ in 0..10 {
            let newest = boundary;
            boundary += 1_000_000;
            let ids: Vec<MemberId> = (0..128).map(|id| id + 128 * MemberId::from(number)).collect();
            let wanted: Vec<_> = ids.iter().map(|&id| (id, 4)).collect();
            let calendar = Calendar::empty(512).unwrap().next(&wanted);
            // Each change finds room, in the limits of the tables of all load balancers together.
            let changes = epochs.begin(boundary, &calendar, &members(&ids), newest).unwrap();
            changes.into_iter().for_each(|change| apply(&mut rules, change));
        }
    }
    assert_eq!(rules.count(Table::Calendar), 8 * MOST_EPOCHS * 512);
    assert_eq!(rules.count(Table::Member), 1024);
}

#[test]
fn an_epoch_whose_ticks_may_be_on_their_way_is_not_ended() {
    let mut epochs = Epochs::new(lb());
    let calendar = Calendar::empty(512).unwrap().next(&[(1, 512)]);
    let mut begin = |boundary, over| epochs.begin(boundary, &calendar, &members(&[1]), over).map(drop);
    for boundary in [100, 200, 300, 400] {
        begin(boundary, 0).unwrap();
    }
    assert_eq!(begin(500, 199), None, "the oldest one ends at tick 200");
    assert_eq!(begin(400, 500), None, "the newest one begins there");
    assert_eq!(begin(500, 200), Some(()));
}

#[test]
fn members_stay_as_long_as_an_epoch_names_them() {
    let (mut rules, mut epochs) = (Rules::default(), Epochs::new(lb()));
    let mut present = BTreeMap::new();
    for (number, id) in [1, 2, 3, 4, 5].into_iter().enumerate() {
        let calendar = Calendar::empty(512).unwrap().next(&[(id, 512)]);
        let boundary = 100 * (number as u64 + 1);
        let changes = epochs.begin(boundary, &calendar, &members(&[id]), boundary - 1).unwrap();
        changes.into_iter().for_each(|change| apply(&mut rules, change));
        present.insert(number, rules.count(Table::Member));
    }
    assert_eq!(present.into_values().collect::<Vec<_>>(), [1, 2, 3, 4, 4]);
}
