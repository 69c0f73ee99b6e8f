//! Tests of the counters of packets, bytes and members.

mod lb_common;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ejfat::{
    Time,
    lb::{DataPlane, DropCause, Epoch, LbCounters, LbId, Member, Rule, Rules, Tables, Traffic},
    segment::IpVersion::{V4, V6},
};
use lb_common::{
    LB, Udp, address, all_ticks, datagram, lb, member, model_forward, packet, random_packet, random_rules,
    route, seeds, tables,
};
use simnet::Random;

#[test]
fn every_packet_is_counted() {
    let mut reached = BTreeSet::new();
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 1);
        let rules = random_rules(random);
        let listed: Vec<_> = rules.iter().collect();
        let mut plane = DataPlane::new(&Tables::new(&rules), seed);
        let (mut sent, mut lost) = (BTreeMap::<_, Traffic>::new(), BTreeMap::<_, u64>::new());
        for _ in 0..200 {
            let mut packet = random_packet(random, &listed);
            let at = random.below(packet.len() as u64) as usize;
            packet[at] ^= u8::from(random.chance(200_000)) << random.below(8);
            let expected = model_forward(&listed, &packet);
            let forwarded = plane.forward(&mut packet);
            assert_eq!(forwarded.map(|forwarded| forwarded.route), expected.clone().map(|(_, route)| route));
            match expected {
                Ok((bytes, route)) => {
                    let traffic = sent.entry((route.lb, route.member)).or_default();
                    traffic.packets += 1;
                    traffic.bytes += bytes.len() as u64;
                }
                Err(cause) => *lost.entry(cause.name()).or_default() += 1,
            }
        }
        let used = plane.members().into_iter().filter(|(_, traffic)| traffic.packets > 0);
        assert_eq!(used.collect::<BTreeMap<_, _>>(), sent, "seed {seed}");
        let lbs: Vec<&LbCounters> = LbId::all().map(|lb| plane.counters(lb)).collect();
        for cause in DropCause::ALL {
            let dropped: u64 = lbs.iter().map(|lb| lb.dropped.of(cause)).sum();
            let dropped = dropped + plane.unaddressed().of(cause);
            assert_eq!(dropped, lost.get(cause.name()).copied().unwrap_or(0), "seed {seed}: {cause:?}");
        }
        let unaddressed = plane.unaddressed().of_any_cause();
        let packets: u64 = lbs.iter().map(|lb| lb.received.packets).sum();
        assert_eq!(packets + unaddressed, 200, "seed {seed}");
        for lb in lbs {
            let early = [DropCause::BlockedSrc, DropCause::NoUdplbHdr, DropCause::BadUdplbVersion];
            let early: u64 = early.iter().map(|cause| lb.dropped.of(*cause)).sum();
            assert_eq!(lb.v2 + lb.v3 + early, lb.received.packets, "seed {seed}");
        }
        reached.extend(lost.into_keys());
    }
    assert!(seeds() < 100 || reached.len() == DropCause::ALL.len(), "{reached:?}");
}

#[test]
fn bytes_are_those_of_packets_or_datagrams() {
    let mut plane = DataPlane::new(&tables(&[3]), 1);
    route(&mut plane, 1);
    let udp = Udp { options: vec![1; 8], ..packet(datagram(2)) };
    plane.forward(&mut udp.bytes()).unwrap();
    let counters = plane.counters(lb(LB));
    assert_eq!(counters.received, Traffic { packets: 2, bytes: 100 + 136 });
    assert_eq!((counters.v2, counters.v3, counters.dropped.of_any_cause()), (2, 0, 0));
    assert_eq!(plane.members()[&(lb(LB), 3)], Traffic { packets: 2, bytes: 84 + 120 });
}

/// Returns tables in which 1000 calendar slots name the members `first` to `first` + 999.
fn thousand(first: u16) -> Tables {
    let of = lb(LB);
    let mut all = Rules::default();
    let mut put = |rule| all.insert(rule, false).unwrap();
    put(all_ticks(of, Epoch { id: 0, slot_bits: 10, xor: 0 }));
    put(Rule::Source { lb: of, address: address(V4, 1) });
    put(Rule::Destination { address: address(V4, 50), lb: of });
    for slot in 0..1000 {
        put(Rule::Slot { lb: of, epoch: 0, slot, member: first + slot });
        put(member(of, first + slot, (address(V4, 100), 10_000).into(), 0, true));
    }
    // One calendar slot names a member that has no rule, and one member that has a rule is in no calendar slot.
    put(Rule::Slot { lb: of, epoch: 0, slot: 1000, member: u16::MAX });
    put(Rule::Member { lb: of, ip: V6, id: u16::MAX - 1, member: Member::SoftEvicted });
    Tables::new(&all)
}

/// If members are replaced again and again, the number of members with counters does not grow, and the counters of new
/// members begin at 0.
#[test]
fn members_that_come_and_go_take_no_more_memory_and_count_from_nothing() {
    let mut plane = DataPlane::new(&thousand(0), 1);
    let mut now = Time::default();
    for round in 1..=20u16 {
        let first = round % 3 * 1000;
        plane.replace(&thousand(first));
        assert_eq!(route(&mut plane, 0), first);
        let at = |member| plane.members().get(&(lb(LB), member)).map(|sent| sent.packets);
        assert_eq!(at(first), Some(1), "round {round}");
        for _ in 0..2 {
            plane.look_at_members(now);
            now = now + Duration::from_secs(60);
        }
        plane.look_at_members(now);
        assert_eq!(plane.members().len(), 1001, "round {round}");
    }
}

#[test]
fn members_keep_their_counters_within_bounds() {
    let mut plane = DataPlane::new(&thousand(0), 1);
    let mut most = 0;
    for set in 1..=60u16 {
        let tick = u64::from(set) << 10;
        plane.stage(thousand(set * 1000).of(lb(LB)).clone(), tick).unwrap();
        assert_eq!(route(&mut plane, tick), set * 1000);
        plane.retire(lb(LB), tick);
        let members = plane.members();
        most = most.max(members.len());
        assert_eq!(members[&(lb(LB), set * 1000)].packets, 1);
        // The members of table set `set - 1` still have counters, because table set `set - 1` was in use when table set
        // `set` was staged. No packet was routed by table set 0.
        assert_eq!(members[&(lb(LB), (set - 1) * 1000)].packets, u64::from(set > 1), "set {set}");
    }
    assert_eq!(most, 8001);
}
