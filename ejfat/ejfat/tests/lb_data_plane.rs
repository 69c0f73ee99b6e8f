//! Tests that change the tables of a data plane while the data plane routes packets.

mod lb_common;

use std::{collections::BTreeMap, sync::Arc};

use ejfat::{
    lb::{
        BeyondHorizon, DataPlane, DropCause, EngineCounters, LbId, LbTables, Rule, Rules, StageError, Tables,
        WithdrawError,
    },
    segment::IpVersion::V4,
};
use lb_common::{LB, address, datagram, header, lb, member, packet, route, rules_at, seeds, tables};
use simnet::Random;

/// Returns the part of `tables` that belongs to load balancer [`LB`].
fn of(tables: Tables) -> Arc<LbTables> {
    tables.of(lb(LB)).clone()
}

#[test]
fn each_tick_has_its_tables() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    for set in 1..=16 {
        plane.stage(of(tables(&[set])), u64::from(set) * 100).unwrap();
    }
    assert_eq!(plane.stage(of(tables(&[17])), 1700), Err(StageError::Full));
    for (tick, member) in [(0, 0), (400, 4), (99, 0), (100, 1), (u64::MAX, 16), (399, 3), (200, 2)] {
        assert_eq!(route(&mut plane, tick), member);
    }
    assert_eq!(plane.retire(lb(LB), 99), 0);
    assert_eq!(plane.retire(lb(LB), 350), 3);
    assert_eq!(plane.retire(lb(LB), 350), 0);
    assert_eq!(
        plane.sets(lb(LB)).map(|(from, _)| from).collect::<Vec<_>>(),
        (3..=16).map(|set| set * 100).collect::<Vec<_>>()
    );
    assert_eq!((route(&mut plane, 5), route(&mut plane, 399)), (3, 3));
    assert_eq!(plane.retire(lb(LB), u64::MAX), 13);
}

#[test]
fn ticks_that_were_routed_keep_their_tables() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    assert_eq!(plane.stage(of(tables(&[1])), 0), Err(StageError::Taken { from: 0 }));
    route(&mut plane, 1000);
    route(&mut plane, 500);
    assert_eq!(plane.newest_tick(lb(LB)), Some(1000));
    let refused = plane.stage(of(tables(&[1])), 1000).unwrap_err();
    assert_eq!(refused, StageError::Routed { from: 1000, newest: 1000 });
    assert!(refused.to_string().contains("up to 1000"), "{refused}");
    plane.stage(of(tables(&[1])), 1001).unwrap();
    assert_eq!(plane.stage(of(tables(&[2])), 1001), Err(StageError::Taken { from: 1001 }));
    assert_eq!((route(&mut plane, 1000), route(&mut plane, 1001)), (0, 1));
}

#[test]
fn what_is_dropped_is_not_routed() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    let stranger = plane.route(address(V4, 50), address(V4, 2), &datagram(u64::MAX));
    assert_eq!(stranger, Err(DropCause::BlockedSrc));
    assert_eq!(plane.route(address(V4, 50), address(V4, 1), b"LB\x04"), Err(DropCause::NoUdplbHdr));
    let elsewhere = plane.route(address(V4, 51), address(V4, 1), &datagram(7));
    assert_eq!((elsewhere, plane.unaddressed().of(DropCause::BadIp)), (Err(DropCause::BadIp), 1));
    assert_eq!(plane.newest_tick(lb(LB)), None);
    plane.stage(of(tables(&[1])), 1).unwrap();
}

#[test]
fn the_operator_can_force_tables() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    // The tick `u64::MAX` comes from a sender whose clock is wrong.
    route(&mut plane, u64::MAX);
    plane.stage(of(tables(&[1])), 100).unwrap_err();
    assert_eq!(plane.force(of(tables(&[1])), 100), Ok(0));
    assert_eq!(plane.newest_tick(lb(LB)), Some(99));
    for set in 2..=16 {
        plane.stage(of(tables(&[set])), u64::from(set) * 100).unwrap();
    }
    assert_eq!(plane.force(of(tables(&[9])), 1700), Err(StageError::Full));
    assert_eq!(plane.force(of(tables(&[9])), 200), Ok(15));
    assert_eq!([99, 100, 200, 1000].map(|tick| route(&mut plane, tick)), [0, 1, 9, 9]);
    assert_eq!(plane.force(of(tables(&[7])), 0), Ok(3));
    assert_eq!((plane.newest_tick(lb(LB)), route(&mut plane, 99)), (None, 7));
}

#[test]
fn all_tables_can_be_replaced_at_once() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    plane.stage(of(tables(&[1])), 100).unwrap();
    route(&mut plane, 50);
    plane.replace(&tables(&[2]));
    assert_eq!([49, 100].map(|tick| route(&mut plane, tick)), [2, 2]);
    assert_eq!(plane.newest_tick(lb(LB)), Some(100), "what was routed stays known");
    assert_eq!(plane.members()[&(lb(LB), 2)].packets, 2);
}

#[test]
fn the_next_tick_comes_before_tables_that_are_staged_ahead() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    plane.stage(of(tables(&[1])), 1000).unwrap();
    assert_eq!(plane.stage_next(of(tables(&[2]))), Ok(0), "nobody met the first ones");
    route(&mut plane, 100);
    assert_eq!(plane.stage_next(of(tables(&[3]))), Ok(101));
    assert_eq!(plane.stage_next(of(tables(&[4]))), Ok(101), "nobody met the third ones");
    assert_eq!([100, 101, 999, 1000].map(|tick| route(&mut plane, tick)), [2, 4, 4, 1]);
    assert_eq!(plane.sets(lb(LB)).map(|(from, _)| from).collect::<Vec<_>>(), [0, 101, 1000]);
}

#[test]
fn a_wrong_tick_is_forgotten() {
    let mut plane = DataPlane::new(&tables(&[0]), 1);
    route(&mut plane, 10);
    route(&mut plane, u64::MAX);
    assert!(matches!(plane.stage_next(of(tables(&[1]))), Err(StageError::Routed { .. })));
    plane.age();
    route(&mut plane, 11);
    assert_eq!(plane.newest_tick(lb(LB)), Some(u64::MAX), "it might not have been wrong");
    plane.age();
    assert_eq!(plane.stage_next(of(tables(&[1]))), Ok(12));
    plane.age();
    plane.age();
    // The last two calls of `age` have forgotten tick 11, so no tick is remembered as routed any more, and no event is
    // in flight. The next tick is 12, which is one above the forgotten tick 11. Tables that begin at tick 12 were
    // already staged before the last two calls of `age`. The new tables also begin at tick 12, so they replace the
    // earlier tables.
    assert_eq!((plane.newest_tick(lb(LB)), plane.stage_next(of(tables(&[2])))), (None, Ok(12)));
    assert_eq!([11, 12].map(|tick| route(&mut plane, tick)), [0, 2]);
}

#[test]
fn no_update_splits_an_event() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 0);
        let mut plane = DataPlane::new(&tables(&[0]), seed);
        let (mut clock, mut member_of, mut updates) = (0, BTreeMap::new(), 0);
        let mut on_their_way: Vec<u64> = Vec::new();
        for _ in 0..600 {
            clock += random.below(50);
            if random.chance(300_000) {
                // An event has one to five segments with the same tick. The segments are routed in a random order, so
                // some segments of an event are routed much later than others.
                let tick = clock.saturating_sub(random.below(100));
                on_their_way.extend(vec![tick; random.range(1..=5) as usize]);
            }
            if random.chance(50_000) {
                let members: Vec<_> = (0..random.range(1..=9)).map(|_| random.below(20) as u16).collect();
                let from = clock.saturating_sub(50) + random.below(400);
                updates += u64::from(plane.stage(of(tables(&members)), from).is_ok());
            }
            if !on_their_way.is_empty() {
                let at = random.below(on_their_way.len() as u64) as usize;
                let tick = on_their_way.swap_remove(at);
                let member = route(&mut plane, tick);
                assert_eq!(
                    *member_of.entry(tick).or_insert(member),
                    member,
                    "seed {seed}: tick {tick} split"
                );
            }
            let oldest = on_their_way.iter().min().map_or(clock, |oldest| clock.min(*oldest));
            plane.retire(lb(LB), oldest.saturating_sub(100));
        }
        assert!(updates > 0, "seed {seed}");
    }
}

/// Returns the rules of load balancer `of`, with `id` as the only member. The rules have one source address and one
/// destination address.
fn own(of: u8, id: u16) -> Rules {
    rules_at(lb(of), 50 + of, &[id])
}

fn route_of(plane: &mut DataPlane, of: u8, tick: u64) -> u16 {
    plane.route(address(V4, 50 + of), address(V4, 1), &datagram(tick)).unwrap().member
}

fn lb_tables(of: u8, id: u16) -> Arc<LbTables> {
    Arc::new(LbTables::new(lb(of), &own(of, id)))
}

#[test]
fn load_balancers_with_different_ticks_do_not_disturb_each_other() {
    let mut all = Rules::default();
    LbId::all().for_each(|lb| all.add(&own(lb.get(), 0)));
    let mut plane = DataPlane::new(&Tables::new(&all), 1);
    // The ticks of each load balancer start at a different number. Each load balancer gets a new epoch every second.
    let tick = |of: u8, second: u64| second * 1000 + u64::from(of) * (1 << 50);
    for second in 1..=60u64 {
        for of in 0..LbId::COUNT as u8 {
            let from = tick(of, second);
            plane.stage(lb_tables(of, second as u16), from).unwrap();
            assert_eq!(route_of(&mut plane, of, from - 1), second as u16 - 1, "second {second}");
            assert_eq!(route_of(&mut plane, of, from), second as u16, "second {second}");
            // Tables that apply only to ticks older than two seconds are dropped, because no segment in this test has
            // such a tick.
            plane.retire(lb(of), tick(of, second.saturating_sub(2)));
            assert!(plane.sets(lb(of)).count() <= 4);
            assert_eq!(plane.newest_tick(lb(of)), Some(from));
        }
    }
}

#[test]
fn full_sets_of_one_load_balancer_refuse_no_other_tables() {
    let mut all = own(0, 0);
    all.add(&own(1, 0));
    let mut plane = DataPlane::new(&Tables::new(&all), 1);
    for set in 1..=16 {
        plane.stage(lb_tables(0, set), set.into()).unwrap();
    }
    assert_eq!(plane.stage(lb_tables(0, 17), 17), Err(StageError::Full));
    plane.stage(lb_tables(1, 1), 1).unwrap();
    assert_eq!((route_of(&mut plane, 0, 16), route_of(&mut plane, 1, 16)), (16, 1));
}

#[test]
fn what_is_withdrawn_leaves_nothing() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    route_of(&mut plane, 0, 10);
    plane.stage(lb_tables(0, 1), 100).unwrap();
    plane.stage(lb_tables(0, 2), 200).unwrap();
    plane.withdraw(lb(0), 100).unwrap();
    assert_eq!(plane.sets(lb(0)).map(|(from, _)| from).collect::<Vec<_>>(), [0, 200]);
    assert_eq!([99, 100, 199, 200].map(|tick| route_of(&mut plane, 0, tick)), [0, 0, 0, 2]);
    assert_eq!(plane.withdraw(lb(0), 100), Err(WithdrawError::Absent { from: 100 }));
    assert_eq!(plane.withdraw(lb(0), 0), Err(WithdrawError::Absent { from: 0 }), "it was not staged");
    assert_eq!(plane.withdraw(lb(0), 200), Err(WithdrawError::Routed { from: 200 }));
    assert_eq!(plane.withdraw(lb(1), 200), Err(WithdrawError::Absent { from: 200 }));
}

#[test]
fn a_forged_tick_beyond_the_horizon_stands_in_nobodys_way() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 1000);
    route_of(&mut plane, 0, 10);
    route_of(&mut plane, 0, 1001);
    route_of(&mut plane, 0, u64::MAX);
    assert_eq!(plane.newest_tick(lb(0)), Some(10));
    plane.stage(lb_tables(0, 1), 11).unwrap();
    route_of(&mut plane, 0, 1000);
    assert_eq!(plane.newest_tick(lb(0)), Some(1000));
    // The calls of `age` stand for a long pause of the senders. A load balancer with a horizon forgets no routed tick
    // during such a pause, so tables that begin at a routed tick are still refused.
    (0..3).for_each(|_| plane.age());
    let late = plane.stage(lb_tables(0, 2), 1000);
    assert_eq!(late, Err(StageError::Routed { from: 1000, newest: 1000 }));
}

#[test]
fn a_counter_that_begins_again_gets_tables_for_its_low_ticks() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 1 << 40);
    route_of(&mut plane, 0, 1 << 39);
    assert!(plane.stage(lb_tables(0, 1), 5).is_err());
    plane.reset(lb_tables(0, 1));
    assert_eq!((route_of(&mut plane, 0, 5), plane.newest_tick(lb(0))), (1, Some(5)));
    plane.stage(lb_tables(0, 2), 6).unwrap();
    assert_eq!((route_of(&mut plane, 0, 5), route_of(&mut plane, 0, 6)), (1, 2));
}

fn froms(plane: &DataPlane) -> Vec<u64> {
    plane.sets(lb(0)).map(|(from, _)| from).collect()
}

#[test]
fn tables_staged_below_the_oldest_can_be_withdrawn() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.stage(lb_tables(0, 1), 1000).unwrap();
    plane.stage(lb_tables(0, 2), 3000).unwrap();
    route_of(&mut plane, 0, 2000);
    assert_eq!(plane.retire(lb(0), 1000), 1);
    (0..2).for_each(|_| plane.age());
    assert_eq!((froms(&plane), plane.newest_tick(lb(0))), (vec![1000, 3000], None));
    assert_eq!(
        plane.stage(lb_tables(0, 3), 0),
        Err(StageError::Taken { from: 0 }),
        "the first has all ticks"
    );
    assert_eq!(plane.stage(lb_tables(0, 3), 1000), Err(StageError::Taken { from: 1000 }));

    plane.stage(lb_tables(0, 3), 500).unwrap();
    plane.withdraw(lb(0), 500).unwrap();
    assert_eq!([499, 500, 1000].map(|tick| plane.member(lb(0), &header(tick))), [Some(1); 3]);
    plane.stage(lb_tables(0, 3), 500).unwrap();
    assert_eq!([499, 500, 3000].map(|tick| route_of(&mut plane, 0, tick)), [1, 3, 2]);
}

#[test]
fn the_next_tables_of_a_counter_that_began_again_split_no_event() {
    for tick in [300, 999] {
        for in_place in [false, true] {
            let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
            plane.stage(lb_tables(0, 1), 1000).unwrap();
            route_of(&mut plane, 0, 2000);
            plane.retire(lb(0), 1000);
            (0..2).for_each(|_| plane.age());
            assert_eq!(route_of(&mut plane, 0, tick), 1);
            let from = if in_place {
                plane.stage_in_place(lb_tables(0, 2), 1000).unwrap();
                1000
            } else {
                plane.stage_next(lb_tables(0, 2)).unwrap()
            };
            assert_eq!(from, if in_place { 1000 } else { tick + 1 });
            assert_eq!(froms(&plane), [0, from]);
            assert_eq!([tick, from - 1, from].map(|tick| route_of(&mut plane, 0, tick)), [1, 1, 2]);
        }
    }
}

#[test]
fn the_next_tick_is_not_guessed_when_all_that_was_routed_is_beyond_the_horizon() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 100);
    route_of(&mut plane, 0, 5000);
    let refused = plane.stage_next(lb_tables(0, 1));
    assert_eq!(refused, Err(StageError::BeyondHorizon { highest: 5000, horizon: 100 }));
    assert_eq!(plane.check_next(lb(0)), refused);
    assert_eq!(route_of(&mut plane, 0, 5000), 0, "its event is not split");
    plane.set_horizon(lb(0), 10_000);
    assert_eq!(plane.stage_next(lb_tables(0, 1)), Ok(5001));
}

#[test]
fn a_horizon_does_not_keep_tables_of_long_ago() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    route_of(&mut plane, 0, 50);
    (0..2).for_each(|_| plane.age());
    plane.set_horizon(lb(0), 1000);
    assert_eq!(plane.stage_next(lb_tables(0, 1)), Ok(0));
}

#[test]
fn a_reset_ends_the_horizon() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 1000);
    route_of(&mut plane, 0, 5000);
    plane.reset(lb_tables(0, 1));
    assert_eq!(plane.beyond(lb(0)), None);
    route_of(&mut plane, 0, 1 << 50);
    assert_eq!(plane.newest_tick(lb(0)), Some(1 << 50), "another reservation has other ticks");
    assert!(plane.stage(lb_tables(0, 2), 1 << 50).is_err());
    (0..2).for_each(|_| plane.age());
    assert_eq!(plane.newest_tick(lb(0)), None, "they are forgotten, as without a horizon");
}

#[test]
fn tables_that_dropped_segments_are_not_withdrawn() {
    let mut all = own(0, 1);
    all.remove(&Rule::Source { lb: lb(0), address: address(V4, 1) }.key()).unwrap();
    let without_source = Arc::new(LbTables::new(lb(0), &all));
    let mut all = own(0, 1);
    all.remove(&member(lb(0), 1, (address(V4, 100), 10_000).into(), 4, false).key()).unwrap();
    let without_member = Arc::new(LbTables::new(lb(0), &all));
    for (tables, cause) in [(without_source, DropCause::BlockedSrc), (without_member, DropCause::MbrInfoMiss)]
    {
        for whole in [false, true] {
            let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
            route_of(&mut plane, 0, 10);
            plane.stage(tables.clone(), 100).unwrap();
            let dropped = if whole {
                plane.forward(&mut packet(datagram(100)).bytes()).map(drop)
            } else {
                plane.route(address(V4, 50), address(V4, 1), &datagram(100)).map(drop)
            };
            assert_eq!(dropped, Err(cause));
            assert_eq!(plane.withdraw(lb(0), 100), Err(WithdrawError::Routed { from: 100 }), "{cause:?}");
            assert_eq!(plane.newest_tick(lb(0)), Some(10), "what is dropped is not routed");
            assert_eq!(plane.sets(lb(0)).map(|(_, hits)| hits).collect::<Vec<_>>(), [1, 0]);
        }
    }
}

#[test]
fn a_new_source_is_let_in_at_once_and_a_removed_one_is_kept_out_from_its_boundary_on() {
    let mut without = own(0, 0);
    without.remove(&Rule::Source { lb: lb(0), address: address(V4, 1) }.key()).unwrap();
    let without = Arc::new(LbTables::new(lb(0), &without));
    let (to, from) = (address(V4, 50), address(V4, 1));
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.reset(without.clone());
    assert_eq!(plane.route(to, from, &datagram(10)), Err(DropCause::BlockedSrc));
    plane.stage(lb_tables(0, 1), 100).unwrap();
    // A source address is allowed if the tables for the packet's tick, or any tables for later ticks, allow it. The
    // tables that are staged for tick 100 allow the source address, so the data plane also routes packets with lower
    // ticks from this address. For tick 20, the current tables choose the member, although they do not allow the source
    // address.
    assert_eq!(plane.route(to, from, &datagram(20)).map(|route| route.member), Ok(0));
    let forwarded = plane.forward(&mut packet(datagram(30)).bytes());
    assert_eq!(forwarded.map(|forwarded| forwarded.route.member), Ok(0));
    assert_eq!(plane.route(to, from, &datagram(100)).map(|route| route.member), Ok(1));
    plane.stage(without, 200).unwrap();
    assert!(plane.route(to, from, &datagram(199)).is_ok());
    assert_eq!(plane.route(to, from, &datagram(200)), Err(DropCause::BlockedSrc));
}

#[test]
fn strangers_and_packets_without_tick_keep_no_tables_from_being_withdrawn() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.stage(lb_tables(0, 1), 100).unwrap();
    let to = address(V4, 50);
    assert_eq!(plane.route(to, address(V4, 9), &datagram(200)), Err(DropCause::BlockedSrc));
    assert_eq!(plane.route(to, address(V4, 1), b"LB"), Err(DropCause::NoUdplbHdr));
    plane.withdraw(lb(0), 100).unwrap();
}

#[test]
fn ticks_beyond_the_horizon_are_told_until_it_reaches_them() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    route_of(&mut plane, 0, u64::MAX);
    assert_eq!(plane.beyond(lb(0)), None, "there is no horizon");
    plane.reset(lb_tables(0, 0));
    plane.set_horizon(lb(0), 1000);
    for tick in [10, 5000, 1001, 1000, 2000] {
        route_of(&mut plane, 0, tick);
    }
    let beyond = |packets, lowest, highest| Some(BeyondHorizon { packets, lowest, highest });
    assert_eq!(plane.beyond(lb(0)), beyond(3, 1001, 5000));
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(1))), (Some(1000), None));
    (0..3).for_each(|_| plane.age());
    plane.set_horizon(lb(0), 1000);
    assert_eq!(plane.beyond(lb(0)), beyond(3, 1001, 5000), "nothing is forgotten");

    // The data plane stores only the lowest and the highest of the routed ticks above the horizon, which are 1001 and
    // 5000. The new horizon 3000 is above tick 1001, so tick 1001 is remembered as routed. Tick 2000 was routed, too,
    // but the data plane did not store it, so the newest remembered tick is 1001.
    plane.set_horizon(lb(0), 3000);
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(1001), beyond(3, 5000, 5000)));
    assert_eq!(route_of(&mut plane, 0, 4000), 0);
    assert_eq!(plane.beyond(lb(0)), beyond(4, 4000, 5000));
    plane.set_horizon(lb(0), 5000);
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(5000), None));
    let late = plane.stage(lb_tables(0, 1), 5000);
    assert_eq!(late, Err(StageError::Routed { from: 5000, newest: 5000 }));
}

#[test]
fn ticks_that_an_engine_routed_are_not_forgotten_beside_a_far_tick_of_another_engine() {
    let beyond = |packets, lowest, highest| BeyondHorizon { packets, lowest, highest };
    let counted = |beyond| EngineCounters { beyond: [(lb(0), beyond)].into(), ..EngineCounters::default() };
    let far = 1 << 60;
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 1000);
    plane.absorb(&counted(beyond(2, 2000, far)));
    // The second engine counts the ticks 600 and 900 as above the horizon, because its horizon was still 500 when it
    // routed them. Both ticks are below the horizon of `plane`, which is already 1000. The higher one, 900, is now the
    // highest tick that `plane` remembers as routed.
    plane.absorb(&counted(beyond(2, 600, 900)));
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(900), Some(beyond(4, 2000, far))));
    let late = plane.stage(lb_tables(0, 1), 900);
    assert_eq!(
        late,
        Err(StageError::Routed { from: 900, newest: 900 }),
        "the event of tick 900 is not split"
    );

    plane.absorb(&counted(beyond(2, 950, far - 1)));
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(950), Some(beyond(6, 2000, far))));
    plane.set_horizon(lb(0), 3000);
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(2000), Some(beyond(6, far, far))));
}

#[test]
fn a_horizon_that_reaches_ticks_below_the_newest_one_lowers_nothing() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.set_horizon(lb(0), 1000);
    route_of(&mut plane, 0, 900);
    plane.set_horizon(lb(0), 100);
    route_of(&mut plane, 0, 200);
    plane.set_horizon(lb(0), 1000);
    assert_eq!((plane.newest_tick(lb(0)), plane.beyond(lb(0))), (Some(900), None));
}

#[test]
fn tables_that_no_packet_met_are_replaced_in_place() {
    let mut plane = DataPlane::new(&Tables::new(&own(0, 0)), 1);
    plane.stage_in_place(lb_tables(0, 1), 100).unwrap();
    plane.stage_in_place(lb_tables(0, 2), 100).unwrap();
    assert_eq!(froms(&plane), [0, 100]);
    assert_eq!((route_of(&mut plane, 0, 99), route_of(&mut plane, 0, 100)), (0, 2));
    let refused = plane.stage_in_place(lb_tables(0, 3), 100);
    assert_eq!(refused, Err(StageError::Routed { from: 100, newest: 100 }));
    assert_eq!(route_of(&mut plane, 0, 100), 2);
}
