//! Tables that are loaded and edited while packets meet them.

mod engine_common;
#[path = "../../ejfat/tests/lb_common/mod.rs"]
mod lb_common;

use engine_common::new_plane;
use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use ejfat::{
    lb::{
        BeyondHorizon, DropCause, ImageError, LbId, Rule, RuleError, Rules, StageError, Table, WithdrawError,
    },
    segment::IpVersion::V4,
};
use ejfat_lb::{LbStage, SharedDataPlane, TableSet, When, WriteError, message};
use lb_common::{address, header, lb, member, rules_at, rules_to};
use proto::lb::v1;

const LATER: Duration = Duration::from_secs(3);

/// All slots lead to one member.
fn to(id: u16) -> Rules {
    rules_at(lb(0), 50, &[id])
}

fn route(plane: &SharedDataPlane, tick: u64) -> u16 {
    plane.path().route(address(V4, 50), address(V4, 1), &header(tick).encode()).unwrap().member
}

fn sets(plane: &SharedDataPlane) -> Vec<TableSet> {
    plane.sets().unwrap()
}

fn froms(plane: &SharedDataPlane) -> Vec<u64> {
    sets(plane).iter().map(|set| set.from).collect()
}

#[test]
fn the_next_tables_do_not_wait_for_those_staged_ahead() {
    let plane = new_plane(to(0), 1);
    route(&plane, 100);
    assert_eq!(plane.load(&to(1), When::Tick(1_000_000)), Ok(1_000_000));
    assert_eq!(plane.load(&to(2), When::Next), Ok(101));
    assert_eq!([100, 101, 999_999, 1_000_000].map(|tick| route(&plane, tick)), [0, 2, 2, 1]);
    assert_eq!(froms(&plane), [0, 101, 1_000_000]);
    assert_eq!(sets(&plane)[2].rules, to(1).into());
    assert_eq!(plane.load(&to(3), When::Now), Ok(0));
    assert_eq!([100, 2_000_000].map(|tick| route(&plane, tick)), [3, 3]);
    assert_eq!(froms(&plane), [0]);
}

#[test]
fn an_edit_begins_with_the_rules_it_will_replace() {
    let plane = new_plane(to(0), 1);
    route(&plane, 100);
    plane.load(&to(1), When::Tick(1000)).unwrap();
    let add = |rules: &mut Rules| -> Result<(), Problem> {
        Ok(rules.insert(Rule::Source { lb: lb(0), address: address(V4, 2) }, false)?)
    };
    assert_eq!(plane.edit(When::Next, add), Ok(101));
    assert_eq!(route(&plane, 101), 0);
    const EXISTS: Problem = Problem::Rule(RuleError::Exists(Table::SourceV4));
    assert_eq!(plane.edit(When::Next, add), Err(EXISTS), "it is there already");
    assert_eq!(route(&plane, 1000), 1);
    assert_eq!(plane.edit(When::Tick(999), add), Err(EXISTS));
    assert_eq!(
        plane.edit(When::Tick(1000), add),
        Err(Problem::Write(StageError::Routed { from: 1000, newest: 1000 }.into()))
    );
    assert_eq!(froms(&plane), [0, 101, 1000]);
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

#[test]
fn one_wrong_tick_neither_retires_tables_nor_stands_in_the_way() {
    let plane = new_plane(to(0), 1);
    plane.load(&to(1), When::Tick(1 << 40)).unwrap();
    let mut now = Instant::now();
    route(&plane, 1 << 62);
    for tick in 10..20 {
        assert_eq!(route(&plane, tick), 0);
        now += LATER;
        plane.tidy(now);
    }
    assert_eq!(froms(&plane), [0, 1 << 40]);
    assert_eq!(plane.load(&to(2), When::Next), Ok(20));
    assert_eq!([19, 20, 1 << 40].map(|tick| route(&plane, tick)), [0, 2, 1]);
}

/// What was sent to the members that are counted.
fn counted(plane: &SharedDataPlane) -> BTreeMap<u16, u64> {
    plane.counters().members.iter().map(|(&(_, id), sent)| (id, sent.packets)).collect()
}

#[test]
fn members_that_are_long_gone_are_not_told_any_more() {
    let minute = Duration::from_secs(61);
    for when in [When::Now, When::Next] {
        let plane = new_plane(to(1), 1);
        let mut now = Instant::now();
        let mut later = |by| {
            now += by;
            plane.tidy(now);
        };
        route(&plane, 100);
        plane.load(&to(2), when).unwrap();
        later(LATER);
        route(&plane, 101);
        later(LATER);
        assert_eq!(counted(&plane), [(1, 1), (2, 1)].into(), "{when:?}");

        // One that is registered again within the minute goes on counting.
        later(Duration::from_secs(50));
        plane.load(&to(1), when).unwrap();
        route(&plane, 102);
        assert_eq!(counted(&plane), [(1, 2), (2, 1)].into(), "{when:?}");
        later(LATER);
        later(minute);
        later(LATER);
        assert_eq!(counted(&plane), [(1, 2)].into(), "{when:?}");
        later(minute);
        later(LATER);
        assert_eq!(counted(&plane), [(1, 2)].into(), "the tables have it, {when:?}");
        assert_eq!(plane.counters().lbs[0].sent.packets, 3, "what was sent to others stays counted");
        assert_eq!(plane.counters().lbs[0].received.packets, 3);
    }
}

#[test]
fn a_member_of_the_tables_is_told_though_no_slot_leads_to_it() {
    let mut rules = to(1);
    rules.insert(member(lb(0), 2, (address(V4, 101), 10_000).into(), 0, false), false).unwrap();
    assert_eq!(counted(&new_plane(rules, 1)), [(1, 0), (2, 0)].into());
}

#[test]
fn tables_out_of_use_make_room_and_those_in_use_do_not() {
    let plane = new_plane(to(0), 1);
    let full = |plane: &SharedDataPlane| {
        for set in 0..40u16 {
            route(plane, u64::from(set) * 10);
            if let Err(error) = plane.load(&to(set), When::Next) {
                return error;
            }
        }
        panic!("there is room for {:?}", froms(plane));
    };
    assert_eq!(full(&plane), WriteError::Stage(StageError::Full));
    let sets = froms(&plane);
    assert_eq!(sets.len(), 17);
    plane.tidy(Instant::now());
    assert_eq!(
        plane.load(&to(50), When::Tick(1 << 30)),
        Err(StageError::Full.into()),
        "segments may be on their way"
    );
    std::thread::sleep(Duration::from_millis(2100));
    plane.tidy(Instant::now());
    assert_eq!(plane.load(&to(50), When::Tick(1 << 30)), Ok(1 << 30));
    assert_eq!(froms(&plane)[0], sets[1]);
}

#[test]
fn tables_of_a_load_balancer_whose_packets_pass_other_data_planes_make_room() {
    let plane = new_plane(to(0), 1);
    let stage = |from, horizon| {
        let stage = LbStage { lb: lb(0), rules: to(1), from, horizon, in_place: false, reset: false };
        plane.write(None).unwrap().stage(&stage)
    };
    for from in 1..=16 {
        stage(from * 100, Some(from * 1000)).unwrap();
    }
    plane.tidy(Instant::now());
    assert_eq!(stage(5000, Some(90_000)), Err(StageError::Full.into()), "packets may be on their way");
    std::thread::sleep(Duration::from_millis(2100));
    plane.tidy(Instant::now());
    assert_eq!(stage(5000, None), Err(StageError::Full.into()), "nobody follows the ticks");
    assert_eq!(stage(5000, Some(90_000)), Ok(()));
    let sets = froms(&plane);
    assert_eq!((sets.len(), sets[0], sets[16]), (17, 100, 5000));
}

/// A sender's ticks rise on another thread, and each of them meets one set of tables, however close tables are staged.
#[test]
fn tables_are_refused_together_with_the_look_at_what_was_routed() {
    let mut staged = 0;
    // An attempt takes a hundred times as long in simulation.
    let rounds = if engine_common::is_rtl() { 2 } else { 20 };
    for round in 0..rounds {
        let plane = &new_plane(to(0), round);
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for tick in 0.. {
                    // The segments of an event, between which tables may be staged.
                    let first = route(plane, tick);
                    assert_eq!(route(plane, tick), first, "round {round}: tick {tick}");
                    if stop.load(Relaxed) {
                        return;
                    }
                }
            });
            for attempt in 0..200 {
                let from = plane.ticks().routed.get(&lb(0)).copied().unwrap_or(0) + 1 + attempt % 8;
                let rules = to(attempt as u16);
                let stage = LbStage { lb: lb(0), rules, from, horizon: None, in_place: false, reset: false };
                match plane.write(None).unwrap().stage(&stage) {
                    Ok(()) => staged += 1,
                    Err(WriteError::Stage(StageError::Routed { .. } | StageError::Taken { .. })) => {}
                    Err(WriteError::Stage(StageError::Full)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            stop.store(true, Relaxed);
        });
    }
    assert!(staged > 0);
}

/// All slots of a load balancer lead to one member.
fn own(of: LbId, id: u16) -> Rules {
    rules_to(of, &[id])
}

/// Two load balancers with a member 0 each.
fn two() -> SharedDataPlane {
    let mut all = own(lb(0), 0);
    all.add(&own(lb(1), 0));
    for of in [lb(0), lb(1)] {
        all.insert(Rule::Destination { address: address(V4, 60 + of.get()), lb: of }, false).unwrap();
    }
    new_plane(all, 1)
}

fn try_of(plane: &SharedDataPlane, of: LbId, from: u8, tick: u64) -> Result<u16, DropCause> {
    let to = address(V4, 60 + of.get());
    plane.path().route(to, address(V4, from), &header(tick).encode()).map(|route| route.member)
}

fn route_of(plane: &SharedDataPlane, of: LbId, tick: u64) -> u16 {
    try_of(plane, of, 1, tick).unwrap()
}

fn stage_of(plane: &SharedDataPlane, of: LbId, id: u16, from: u64) -> Result<(), WriteError> {
    plane.write(None).unwrap().stage(&stage(of, own(of, id), from))
}

fn stage(lb: LbId, rules: Rules, from: u64) -> LbStage {
    LbStage { lb, rules, from, horizon: None, in_place: false, reset: false }
}

fn add_source(rules: &mut Rules, of: u8) -> Result<(), WriteError> {
    rules.insert(Rule::Source { lb: lb(of), address: address(V4, 9) }, false).unwrap();
    Ok(())
}

#[test]
fn an_edit_leaves_load_balancers_alone_whose_rules_it_does_not_change() {
    for when in [When::Next, When::Tick(51), When::Force(51)] {
        let plane = two();
        route_of(&plane, lb(1), 50);
        stage_of(&plane, lb(1), 7, 100).unwrap();
        let edited = plane.edit(when, |rules| {
            // Packets of the load balancer that is not edited meet its next tables meanwhile.
            assert_eq!(route_of(&plane, lb(1), 100), 7);
            add_source(rules, 0)
        });
        assert!(edited.is_ok(), "{edited:?}");
        assert_eq!(route_of(&plane, lb(1), 101), 7, "{when:?}");
        assert_eq!(plane.sets_of(lb(1)).len(), 2, "{when:?}");
        assert!(try_of(&plane, lb(0), 9, 51).is_ok(), "{when:?}: the edited one has the rule");
    }
}

#[test]
fn an_edit_is_of_the_tables_that_packets_meet_when_it_is_done() {
    for when in [When::Next, When::Now] {
        let plane = two();
        route_of(&plane, lb(1), 50);
        stage_of(&plane, lb(1), 7, 100).unwrap();
        let mut times = 0;
        let edited = plane.edit(when, |rules| {
            times += 1;
            assert_eq!(route_of(&plane, lb(1), 100), 7);
            add_source(rules, 1)
        });
        assert_eq!((edited, times), (Ok(if when == When::Now { 0 } else { 101 }), 2), "{when:?}");
        assert_eq!((route_of(&plane, lb(1), 101), try_of(&plane, lb(1), 9, 101)), (7, Ok(7)), "{when:?}");
    }
}

#[test]
fn an_edit_that_packets_overtake_again_and_again_is_given_up() {
    let plane = two();
    route_of(&plane, lb(1), 50);
    for set in 1..=16 {
        stage_of(&plane, lb(1), set, u64::from(set) * 100).unwrap();
    }
    let mut tick = 0;
    let edited = plane.edit(When::Next, |rules| {
        tick += 100;
        route_of(&plane, lb(1), tick);
        add_source(rules, 1)
    });
    assert_eq!(edited, Err(WriteError::Moved));
    assert!(tick < 1000, "after {tick}");
    assert_eq!(try_of(&plane, lb(1), 9, 1600), Err(DropCause::BlockedSrc), "nothing changed");
}

#[test]
fn a_destination_changes_at_once_though_another_load_balancer_is_full() {
    let plane = two();
    route_of(&plane, lb(0), 5);
    route_of(&plane, lb(1), 99);
    for set in 0..16 {
        stage_of(&plane, lb(1), set, 1000 + u64::from(set)).unwrap();
    }
    assert_eq!(stage_of(&plane, lb(1), 0, 2000), Err(StageError::Full.into()));
    let add = |host| {
        let rule = Rule::Destination { address: address(V4, host), lb: lb(0) };
        move |rules: &mut Rules| -> Result<(), WriteError> {
            rules.insert(rule, false).unwrap();
            Ok(())
        }
    };
    for (host, when, from) in
        [(70, When::Next, 0), (71, When::Tick(2000), 2000), (72, When::Force(3000), 3000)]
    {
        assert_eq!(plane.edit(when, add(host)), Ok(from), "{when:?}");
        let routed = plane.path().route(address(V4, host), address(V4, 1), &header(5).encode());
        assert_eq!(routed.map(|route| route.lb), Ok(lb(0)), "{when:?}");
        assert_eq!((plane.sets_of(lb(0)).len(), plane.sets_of(lb(1)).len()), (1, 17), "{when:?}");
    }
    let mut whole = plane.newest_set().rules.as_ref().clone();
    whole.remove(&Rule::Destination { address: address(V4, 70), lb: lb(0) }.key()).unwrap();
    let before = (plane.sets_of(lb(0)).len(), plane.sets_of(lb(1)).len());
    assert_eq!(plane.load(&whole, When::Tick(5000)), Ok(5000));
    assert_eq!((plane.sets_of(lb(0)).len(), plane.sets_of(lb(1)).len()), before);
    let gone = plane.path().route(address(V4, 70), address(V4, 1), &header(6).encode());
    assert_eq!(gone, Err(DropCause::BadIp));
}

#[test]
fn tables_are_looked_after_though_somebody_panicked_in_a_write() {
    let plane = two();
    route_of(&plane, lb(0), 99);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        plane.edit(When::Next, |_| -> Result<(), WriteError> { panic!("of the test") })
    }));
    assert!(panicked.is_err());
    (1..4).for_each(|n| plane.tidy(Instant::now() + LATER * n));
    assert_eq!(plane.ticks().routed.get(&lb(0)), None, "it is long ago");
}

#[test]
fn tables_staged_below_the_oldest_leave_these_their_rules() {
    let plane = two();
    stage_of(&plane, lb(0), 1, 1000).unwrap();
    for set in 2..=16 {
        stage_of(&plane, lb(0), set, 1000 + u64::from(set)).unwrap();
    }
    route_of(&plane, lb(0), 5000);
    plane.tidy(Instant::now());
    std::thread::sleep(Duration::from_millis(2100));
    // The oldest makes room for these.
    stage_of(&plane, lb(0), 17, 6000).unwrap();
    let whole = plane.sets_of(lb(0));
    assert_eq!((whole.len(), whole[0].from), (17, 1000));
    let ids = |plane: &SharedDataPlane| {
        let member = |set: &TableSet| {
            (0..18).find(|&id| set.rules.get(&own(lb(0), id).iter().last().unwrap().key()).is_some())
        };
        plane.sets_of(lb(0)).iter().map(|set| (set.from, member(set))).collect::<Vec<_>>()
    };
    let before = ids(&plane);
    plane.write(None).unwrap().withdraw(lb(0), 6000).unwrap();
    (1..4).for_each(|n| plane.tidy(Instant::now() + LATER * n));
    stage_of(&plane, lb(0), 9, 500).unwrap();
    let after = ids(&plane);
    assert_eq!(after[..2], [(0, Some(1)), (500, Some(9))]);
    assert_eq!(after[2..], before[1..16]);
    plane.write(None).unwrap().withdraw(lb(0), 500).unwrap();
    assert_eq!(ids(&plane)[..2], [(0, Some(1)), before[1]]);
}

/// A load balancer with so many members.
fn with_members(of: LbId, count: u16) -> Rules {
    let mut all = own(of, 0);
    for id in 1..count {
        all.insert(member(of, id, (address(V4, 100), 10_000).into(), 4, false), false).unwrap();
    }
    all
}

#[test]
fn the_newest_tables_of_all_load_balancers_fit_into_the_tables() {
    let plane = two();
    let many = |of| with_members(of, 1400);
    plane.write(None).unwrap().stage(&stage(lb(0), many(lb(0)), 10)).unwrap();
    let refused = WriteError::Limit { table: Table::Member, rules: 2800 };
    assert_eq!(plane.write(None).unwrap().stage(&stage(lb(1), many(lb(1)), 10)), Err(refused));
    let said = refused.to_string();
    assert!(said.contains("member_info_lookup_table takes 2048 rules") && said.contains("2800"), "{said}");
    assert_eq!(plane.sets_of(lb(1)).len(), 1);
    let reset = LbStage { reset: true, ..stage(lb(1), many(lb(1)), 0) };
    assert_eq!(plane.write(None).unwrap().stage(&reset), Err(refused));
    assert_eq!(plane.sets_of(lb(1)), two().sets_of(lb(1)), "nothing changed");
    // A load of whole tables is refused, too. It would stage 1400 members of one load balancer while the other still has 1400.
    let mut whole = with_members(lb(0), 1);
    whole.add(&many(lb(1)));
    assert_eq!(plane.load(&whole, When::Tick(5)), Err(refused));
    assert_eq!(plane.load(&whole, When::Tick(20)), Ok(20));
}

#[test]
fn tables_that_load_balancers_have_at_different_times_are_told_though_they_exceed_limits_together() {
    let plane = two();
    let stage_at =
        |of, count, from| plane.write(None).unwrap().stage(&stage(of, with_members(of, count), from));
    stage_at(lb(0), 1400, 10).unwrap();
    stage_at(lb(0), 1, 20).unwrap();
    stage_at(lb(1), 1400, 15).unwrap();
    assert!(stage_at(lb(0), 1400, 30).is_err(), "the newest ones do not");
    let sets = plane.sets().unwrap();
    assert!(sets.iter().any(|set| set.rules.count(Table::Member) == 2800));
    assert_eq!(message::sets(&message::of_sets(&sets)), Ok(sets));
    let newest = plane.newest_set();
    assert_eq!(
        message::rules(&message::of_rules(&newest.rules)),
        Ok((*newest.rules).clone()),
        "it can be loaded"
    );

    // What was withdrawn may leave more, which may become fewer.
    plane.write(None).unwrap().withdraw(lb(0), 20).unwrap();
    assert!(stage_at(lb(0), 1401, 40).is_err());
    stage_at(lb(0), 1390, 40).unwrap();
    stage_at(lb(1), 200, 40).unwrap();

    // A rule that comes twice is refused, and so is a load balancer that exceeds the limits by itself.
    let set = |rules| v1::GetReply { sets: vec![v1::TableSet { from_tick: 0, rules }], routed: vec![] };
    let mut rules = message::of_rules(&newest.rules);
    rules.push(rules[rules.len() - 1].clone());
    let twice = message::sets(&set(rules)).unwrap_err();
    assert!(matches!(twice.cause, message::FieldError::Rule(RuleError::Exists(Table::Member))), "{twice}");
    let one = |id| message::of_rule(&member(lb(0), id, (address(V4, 100), 10_000).into(), 4, false));
    let full = message::sets(&set((0..2049).map(one).collect())).unwrap_err();
    assert!(
        matches!(full.cause, message::FieldError::Rule(RuleError::Full { table: Table::Member, .. })),
        "{full}"
    );
}

#[test]
fn an_edit_for_all_ticks_does_not_make_lasting_what_is_too_much_together() {
    let plane = two();
    let stage_at =
        |of, count, from| plane.write(None).unwrap().stage(&stage(of, with_members(of, count), from));
    stage_at(lb(0), 1400, 10).unwrap();
    route_of(&plane, lb(0), 10);
    stage_at(lb(0), 1, 20).unwrap();
    stage_at(lb(1), 1400, 15).unwrap();
    route_of(&plane, lb(1), 15);
    let edited = plane.edit(When::Now, |rules| add_source(rules, 2));
    assert_eq!(edited, Err(WriteError::Limit { table: Table::Member, rules: 2800 }));
    assert_eq!(plane.sets_of(lb(0)).len(), 3);
}

fn term(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

#[test]
fn a_change_that_is_refused_raises_the_term() {
    let plane = two();
    let withdrawn = plane.write(term(9)).unwrap().withdraw(lb(0), 77);
    assert_eq!(withdrawn, Err(WithdrawError::Absent { from: 77 }.into()));
    assert_eq!(plane.ticks().term, term(9));
    assert_eq!(plane.write(term(8)).err(), Some(WriteError::StaleTerm { term: 8, newest: 9 }));
}

#[test]
fn a_data_plane_that_was_started_again_refuses_terms_below_its_least() {
    let plane = new_plane(to(0), 1).with_least_term(term(5).unwrap());
    let refused = WriteError::LeastTerm { least: 5 };
    assert_eq!(plane.write(None).err(), Some(refused));
    assert_eq!(plane.write(term(4)).err(), Some(refused));
    assert_eq!(plane.load(&to(1), When::Now), Err(refused));
    assert_eq!(plane.ticks().term, None, "no control plane has programmed it");
    assert!(plane.write(term(5)).is_ok());
    assert_eq!(plane.ticks().term, term(5));
    assert_eq!(plane.write(None).err(), Some(refused));
    assert!(plane.write(term(6)).is_ok());
    assert_eq!(plane.write(term(5)).err(), Some(WriteError::StaleTerm { term: 5, newest: 6 }));
}

#[test]
fn ticks_beyond_the_horizon_survive_the_wire() {
    let plane = two();
    let with_horizon = LbStage { horizon: Some(100), ..stage(lb(1), own(lb(1), 1), 50) };
    plane.write(term(1)).unwrap().stage(&with_horizon).unwrap();
    for tick in [60, 101, 1 << 63] {
        route_of(&plane, lb(1), tick);
    }
    route_of(&plane, lb(0), 1 << 60);
    let ticks = plane.ticks();
    let beyond = BeyondHorizon { packets: 2, lowest: 101, highest: 1 << 63 };
    assert_eq!(ticks.beyond, [(lb(1), beyond)].into());
    let mut reply = message::of_ticks(&ticks);
    assert_eq!(message::ticks(&reply), Ok(ticks));
    reply.beyond_horizon[0].lb = 64;
    assert_eq!(message::ticks(&reply).unwrap_err().field, "beyond_horizon[0].lb");

    // A later stage without a horizon leaves it; a reset without one takes it away.
    plane.write(term(1)).unwrap().stage(&stage(lb(1), own(lb(1), 2), 90)).unwrap();
    assert_eq!(plane.ticks().beyond, [(lb(1), beyond)].into());
    let reset = LbStage { reset: true, ..stage(lb(1), own(lb(1), 3), 0) };
    plane.write(term(1)).unwrap().stage(&reset).unwrap();
    route_of(&plane, lb(1), 1 << 50);
    assert_eq!(plane.ticks().beyond, BTreeMap::new());
    assert_eq!(plane.ticks().routed.get(&lb(1)), Some(&(1 << 50)));
}

#[test]
fn a_data_plane_has_as_many_load_balancers_as_it_was_started_with() {
    let plane = new_plane(Rules::default(), 1);
    let staged =
        |plane: &SharedDataPlane, of| plane.write(None).unwrap().stage(&stage(lb(of), own(lb(of), 0), 10));
    staged(&plane, 7).unwrap();
    let refused = WriteError::LbId { lb: 8, lbs: 8 };
    assert_eq!(staged(&plane, 8), Err(refused));
    assert_eq!(plane.load(&own(lb(8), 0), When::Now), Err(refused));
    assert_eq!(plane.load(&own(lb(8), 0), When::Next), Err(refused));
    let added = plane.edit(When::Next, |rules| {
        rules.add(&own(lb(8), 0));
        Ok::<_, WriteError>(())
    });
    assert_eq!(added, Err(refused));
    assert_eq!((plane.sets_of(lb(8)).len(), plane.counters().lbs.len()), (1, 8));

    let plane = new_plane(Rules::default(), 1).with_load_balancers(64);
    if engine_common::is_rtl() {
        let refused = ImageError::LoadBalancer { lb: 8, limit: 8 };
        assert_eq!(staged(&plane, 8), Err(WriteError::Engine(refused.into())));
        assert_eq!(plane.ticks().sets.len(), 64);
        return;
    }
    (0..64).for_each(|of| staged(&plane, of).unwrap());
    assert_eq!(plane.ticks().sets.len(), 128);
    assert_eq!(message::ticks(&message::of_ticks(&plane.ticks())), Ok(plane.ticks()));
}
