//! Tests that a bridge delivers events again if the worker that had these events has ended.

mod bridge_common;

use bridge_common::{ANYBODY, Bench, SLOT, config, data_ids, deliveries, hold, member};
use ejfat::{
    bridge::{BackPressure, Config, DispatchAction, EligibleWorkers, WorkerId},
    ring::{DeliveryMode, Descriptor, Filter},
};

fn of_version_2(bench: &mut Bench, slots: u32) -> WorkerId {
    bench.worker_of(true, slots, Filter::default(), DeliveryMode::Store)
}

fn redeliveries(actions: &[DispatchAction]) -> Vec<(WorkerId, u64, WorkerId, Descriptor)> {
    let its = actions.iter().filter_map(|action| match *action {
        DispatchAction::Redeliver { from, offset, worker, descriptor } => {
            Some((from, offset, worker, descriptor))
        }
        _ => None,
    });
    its.collect()
}

/// Returns the worker and the number of given-up events of each [`DispatchAction::Forget`] in `actions`.
fn forgotten(actions: &[DispatchAction]) -> Vec<(WorkerId, u32)> {
    let its = actions.iter().filter_map(|action| match *action {
        DispatchAction::Forget { worker, given_up } => Some((worker, given_up)),
        _ => None,
    });
    its.collect()
}

#[test]
fn what_a_worker_had_goes_to_another_in_the_order_it_came_and_says_so() {
    for placing in [DeliveryMode::Store, DeliveryMode::Shared] {
        let mut bench = hold();
        let dies = bench.worker(4, Filter::default(), placing);
        let told: Vec<_> = [1, 2, 1].into_iter().map(|slots| bench.delivered(slots, ANYBODY).1).collect();
        assert!(told.iter().all(|its| !its.delivered_again));
        bench.give_back(dies, &told[0]);
        let lives = of_version_2(&mut bench, 8);
        let actions = bench.remove(dies);
        let all = redeliveries(&actions);
        assert_eq!(all.len(), 2, "what was given back does not come again");
        for (number, ((from, offset, worker, its), first)) in (1..).zip(all.iter().zip(&told[1..])) {
            assert_eq!((*from, *offset, *worker), (dies, first.offset, lives));
            let same = Descriptor {
                sequence: number,
                generation: its.generation,
                slot: its.slot,
                offset: its.offset,
                delivered_again: true,
                ..*first
            };
            assert_eq!(*its, same);
        }
        assert_eq!(forgotten(&actions), [(dies, 0)], "the ring is not wanted any more");
        let counters = bench.dispatcher.counters();
        assert_eq!((counters.sent, counters.held_by_ended, counters.delivered_again), (3, 2, 2));
        for (_, _, _, its) in &all {
            bench.give_back(lives, its);
        }
        assert_eq!((bench.dispatcher.counters().released, bench.dispatcher.fill()), (3, 0.0));
    }
}

#[test]
fn without_a_worker_of_version_2_it_counts_as_held_and_is_forgotten_at_once() {
    let mut bench = hold();
    let dies = bench.worker(4, Filter::default(), DeliveryMode::Store);
    bench.worker(4, data_ids(9, 9), DeliveryMode::Store);
    bench.delivered(1, EligibleWorkers::DataId(1));
    let actions = bench.remove(dies);
    assert_eq!(actions, [DispatchAction::Forget { worker: dies, given_up: 0 }]);
    let counters = bench.dispatcher.counters();
    assert_eq!((counters.held_by_ended, counters.delivered_again), (1, 0));
}

#[test]
fn a_worker_of_version_1_gets_nothing_again() {
    let mut bench = hold();
    let dies = of_version_2(&mut bench, 4);
    bench.delivered(1, ANYBODY);
    bench.worker(4, Filter::default(), DeliveryMode::Store);
    assert_eq!(bench.remove(dies), []);
    assert_eq!(bench.dispatcher.waiting_for_redelivery(), 1);
    assert_eq!(bench.after(50), []);
    let (first, its) = bench.delivered(1, ANYBODY);
    assert_eq!((first.number(), its.delivered_again), (2, false));
}

#[test]
fn it_waits_for_the_worker_that_comes_back_as_long_as_events_wait() {
    let mut bench = hold();
    let dies = of_version_2(&mut bench, 4);
    bench.delivered(1, ANYBODY);
    assert_eq!((bench.remove(dies), bench.after(99)), (vec![], vec![]));
    let back = of_version_2(&mut bench, 4);
    let actions = bench.after(0);
    assert_eq!(redeliveries(&actions).len(), 1);
    assert_eq!(redeliveries(&actions)[0].2, back);
    assert_eq!(forgotten(&bench.remove(back)), []);
    assert_eq!(bench.after(100), [DispatchAction::Forget { worker: back, given_up: 1 }]);
    let (waiting, counters) = (bench.dispatcher.waiting_for_redelivery(), bench.dispatcher.counters());
    assert_eq!((waiting, counters.held_by_ended), (0, 2));
}

#[test]
fn it_goes_to_those_who_may_have_it() {
    let mut bench = hold();
    let other = bench.worker_of(true, 4, data_ids(9, 9), DeliveryMode::Store);
    let its = bench.worker_of(true, 4, data_ids(1, 1), DeliveryMode::Store);
    let (dies, _) = bench.delivered(1, EligibleWorkers::DataId(1));
    assert_eq!(dies, its);
    assert_eq!(bench.remove(dies), [], "nobody else takes this data id");
    let back = bench.worker_of(true, 4, data_ids(0, 5), DeliveryMode::Store);
    let actions = bench.after(1);
    assert_eq!(redeliveries(&actions)[0].2, back);
    bench.remove(back);
    bench.remove(other);

    let mut bench = hold();
    let first = bench.worker_of(true, 4, member(3), DeliveryMode::Store);
    let same = bench.worker_of(true, 4, member(3), DeliveryMode::Store);
    let other = bench.worker_of(true, 8, member(4), DeliveryMode::Store);
    let (dies, _) = bench.delivered(1, EligibleWorkers::Member(3));
    let stays = if dies == first { same } else { first };
    let actions = bench.remove(dies);
    assert_eq!(redeliveries(&actions)[0].2, stays);
    let actions = bench.remove(stays);
    assert_eq!(redeliveries(&actions)[0].2, other, "a member that is not there is anybody");
}

#[test]
fn segments_that_went_past_the_bridges_memory_do_not_come_again() {
    let mut bench = hold();
    let dies = bench.worker_of(true, 2, Filter::default(), DeliveryMode::Cut);
    let (_, segment_by_segment) = bench.delivered(2, ANYBODY);
    let (id, _) = bench.open(1, ANYBODY);
    bench.complete(id);
    // The second event is in spill memory, so the bridge copies it to the staging ring when the first event is
    // released.
    let moved = deliveries(&bench.give_back(dies, &segment_by_segment))[0].1;
    let lives = of_version_2(&mut bench, 4);
    let actions = bench.remove(dies);
    assert_eq!(redeliveries(&actions).len(), 1);
    let (from, offset, worker, its) = redeliveries(&actions)[0];
    assert_eq!((from, offset, worker, its.name), (dies, moved.offset, lives, moved.name));

    let mut bench = hold();
    let dies = bench.worker_of(true, 2, Filter::default(), DeliveryMode::Cut);
    bench.delivered(1, ANYBODY);
    of_version_2(&mut bench, 4);
    assert_eq!(bench.remove(dies), [DispatchAction::Forget { worker: dies, given_up: 0 }]);
}

#[test]
fn it_waits_for_room_before_what_waits() {
    let mut bench = hold();
    let dies = of_version_2(&mut bench, 1);
    bench.delivered(1, ANYBODY);
    let lives = of_version_2(&mut bench, 1);
    let (_, has) = bench.delivered(1, ANYBODY);
    let (new, _) = bench.event(1, ANYBODY);
    assert_eq!(bench.remove(dies), []);
    let told = bench.give_back(lives, &has);
    assert!(told.iter().all(|action| !matches!(action, DispatchAction::Deliver { id, .. } if *id == new)));
    let (_, _, _, its) = redeliveries(&told)[0];
    let told = bench.give_back(lives, &its);
    assert!(!deliveries(&told)[0].1.delivered_again);
}

/// An event is delivered again at most [`Config::max_redeliveries`] times. Without this limit, an event that makes
/// workers crash would make one worker after the other crash.
#[test]
fn an_event_is_not_delivered_again_for_ever() {
    let mut bench = hold();
    let mut dies = of_version_2(&mut bench, 1);
    bench.delivered(1, ANYBODY);
    for _ in 0..Config::default().max_redeliveries {
        let next = of_version_2(&mut bench, 1);
        assert_eq!(redeliveries(&bench.remove(dies))[0].2, next);
        dies = next;
    }
    of_version_2(&mut bench, 1);
    assert_eq!(bench.remove(dies), [DispatchAction::Forget { worker: dies, given_up: 0 }]);
    let counters = bench.dispatcher.counters();
    assert_eq!((counters.sent, counters.held_by_ended, counters.delivered_again), (1, 3, 2));
}

#[test]
fn rings_that_are_kept_are_few_and_the_largest_goes() {
    let redelivery_bytes = u64::from(10 * SLOT);
    let mut bench = Bench::new(Config { redelivery_bytes, ..config(BackPressure::Hold, 8) });
    // Each worker takes only events with a data id of its own, so that the events of an ended worker are not delivered
    // again to the next worker.
    let mut dead = |slots: u32| {
        let data_id = slots as u16;
        let dies = bench.worker_of(true, slots, data_ids(data_id, data_id), DeliveryMode::Store);
        bench.delivered(1, EligibleWorkers::DataId(data_id));
        (dies, forgotten(&bench.remove(dies)))
    };
    let (small, none) = dead(2);
    assert_eq!(none, []);
    let (large, none) = dead(6);
    assert_eq!(none, []);
    assert_eq!(dead(3).1, [(large, 1)]);
    let (too_large, gone) = dead(11);
    assert_eq!(gone, [(too_large, 1)]);
    assert_eq!(bench.dispatcher.waiting_for_redelivery(), 2);
    bench.dispatcher.forget(small);
    bench.dispatcher.forget_all();
    assert_eq!(forgotten(&bench.after(0)).len(), 2);
    let dies = of_version_2(&mut bench, 2);
    bench.delivered(1, ANYBODY);
    assert_eq!(bench.remove(dies), [DispatchAction::Forget { worker: dies, given_up: 0 }], "the bridge ends");
}
