//! Tests of the choice of the worker that gets an event, and of events that wait or are lost.

mod bridge_common;

use std::time::Duration;

use bridge_common::{ANYBODY, Bench, config, data_ids, deliveries, hold, member};
use ejfat::{
    bridge::{
        BackPressure, Config, DispatchAction, EligibleWorkers, EventLocation, EventLossCause, EventOutcome,
    },
    ring::{CreditCounts, DeliveryMode, Filter},
};

#[test]
fn the_least_filled_worker_gets_an_event() {
    let mut bench = hold();
    let small = bench.worker(4, Filter::default(), DeliveryMode::Store);
    let large = bench.worker(8, Filter::default(), DeliveryMode::Cut);
    let got: Vec<_> = (0..6).map(|_| bench.delivered(1, ANYBODY).0).collect();
    let of = |worker| got.iter().filter(|&&its| its == worker).count();
    assert_eq!((of(small), of(large)), (2, 4));
    assert_eq!(bench.dispatcher.fill(), 0.5);
}

#[test]
fn data_ids_choose_among_those_who_take_them() {
    let mut bench = hold();
    let low = bench.worker(4, data_ids(0, 9), DeliveryMode::Store);
    let high = bench.worker(4, data_ids(10, 20), DeliveryMode::Store);
    for (id, worker) in [(0, low), (9, low), (10, high), (20, high)] {
        assert_eq!(bench.delivered(1, EligibleWorkers::DataId(id)).0, worker);
    }
    // The event waits, because a worker that takes data id 21 may subscribe soon.
    let (id, actions) = bench.event(1, EligibleWorkers::DataId(21));
    assert_eq!(actions, []);
    assert_eq!(bench.after(101), [DispatchAction::Drop { id }]);
    assert_eq!(bench.lost(), [(EventLossCause::NoWorker, 1)]);
}

#[test]
fn what_waits_for_nobody_is_in_nobodys_way() {
    let mut bench = hold();
    let worker = bench.worker(1, data_ids(0, 9), DeliveryMode::Store);
    let (_, descriptor) = bench.delivered(1, EligibleWorkers::DataId(5));
    bench.event(1, EligibleWorkers::DataId(21));
    bench.event(1, EligibleWorkers::DataId(5));
    assert_eq!(deliveries(&bench.give_back(worker, &descriptor)).len(), 1);
}

#[test]
fn the_share_of_a_member_is_anybodys_while_it_is_away_or_stalls() {
    let mut bench = hold();
    let first = bench.worker(8, member(1), DeliveryMode::Store);
    let second = bench.worker(8, member(2), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, EligibleWorkers::Member(1));
    for _ in 0..3 {
        assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, first);
    }
    bench.acknowledge(first, 4);
    bench.after(10);
    // The stalled worker gets one event.
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, first);
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, second);
    bench.credit(first, its.slot, its.generation);
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, first);
    bench.remove(first);
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, second);
}

#[test]
fn a_worker_that_gives_nothing_back_gets_one_now_and_then_until_it_does() {
    let mut bench = hold();
    let slow = bench.worker(8, Filter::default(), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, ANYBODY);
    bench.acknowledge(slow, 1);
    bench.after(10);
    // A stalled worker gets one more event after the stall time. Some workers release an event only when the next event
    // comes, and would otherwise stay stalled.
    bench.delivered(1, ANYBODY);
    bench.acknowledge(slow, 1);
    let (_, actions) = bench.event(1, ANYBODY);
    assert_eq!((actions, bench.dispatcher.waiting()), (vec![], 1));
    assert_eq!(deliveries(&bench.after(9)).len(), 0);
    assert_eq!(deliveries(&bench.after(1)).len(), 1);
    bench.acknowledge(slow, 1);
    let (_, actions) = bench.event(1, ANYBODY);
    assert_eq!((actions, bench.dispatcher.waiting()), (vec![], 1));
    let (_, actions) = bench.credit(slow, its.slot, its.generation);
    assert_eq!(deliveries(&actions).len(), 1);
}

#[test]
fn what_waits_for_a_worker_that_stalls_goes_to_others() {
    let mut bench = hold();
    let slow = bench.worker(1, Filter::default(), DeliveryMode::Store);
    bench.delivered(1, ANYBODY);
    bench.acknowledge(slow, 1);
    bench.event(1, ANYBODY);
    let other = bench.worker(1, Filter::default(), DeliveryMode::Shared);
    let (worker, its) = deliveries(&bench.after(1))[0];
    assert_eq!((worker, its.sequence), (other, 1));
}

#[test]
fn a_silent_worker_gets_nothing_until_it_answers() {
    let mut bench = hold();
    let silent = bench.worker(4, Filter::default(), DeliveryMode::Store);
    bench.delivered(1, ANYBODY);
    bench.after(2);
    assert_eq!(bench.event(1, ANYBODY).1, []);
    bench.acknowledge(silent, 1);
    assert_eq!(deliveries(&bench.after(1)).len(), 1);
}

#[test]
fn events_longer_than_every_ring_are_too_large() {
    let mut bench = hold();
    let small = bench.worker(2, Filter::default(), DeliveryMode::Store);
    assert_eq!(bench.open(3, ANYBODY).1, Err(EventLossCause::TooLarge));
    // The ring of `large` is long enough for an event of 3 slots. While `large` is stalled, such an event waits for
    // this worker, and is not lost as too large.
    let large = bench.worker(3, member(1), DeliveryMode::Store);
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, large);
    bench.acknowledge(large, 1);
    bench.after(10);
    assert_eq!(bench.delivered(1, EligibleWorkers::Member(1)).0, large);
    bench.acknowledge(large, 1);
    let (waits, location) = bench.open(3, ANYBODY);
    assert_eq!((location, bench.complete(waits)), (Ok(EventLocation::Spill), vec![]));
    // The event that waits for room in the ring of the worker `large` does not block events for the worker `small`.
    assert_eq!(bench.delivered(1, ANYBODY).0, small);
    let gone = DispatchAction::Forget { worker: large, given_up: 0 };
    assert_eq!(bench.remove(large), [DispatchAction::Drop { id: waits }, gone]);
    assert_eq!(bench.lost(), [(EventLossCause::TooLarge, 2)]);
}

#[test]
fn nothing_waits_where_the_newest_is_dropped() {
    let mut bench = Bench::new(config(BackPressure::DropNewest, 8));
    bench.worker(1, Filter::default(), DeliveryMode::Store);
    bench.delivered(1, ANYBODY);
    let (id, actions) = bench.event(1, ANYBODY);
    assert_eq!(actions, [DispatchAction::Drop { id }]);
    assert_eq!(bench.lost(), [(EventLossCause::NoCredit, 1)]);
}

#[test]
fn what_is_held_waits_so_long_and_so_many() {
    let mut bench = Bench::new(config(BackPressure::Hold, 2));
    bench.worker(1, Filter::default(), DeliveryMode::Store);
    bench.delivered(1, ANYBODY);
    let [first, second, third] = [(); 3].map(|()| bench.event(1, ANYBODY));
    assert_eq!((first.1, second.1, third.1), (vec![], vec![], vec![DispatchAction::Drop { id: third.0 }]));
    assert_eq!(bench.after(99), []);
    assert_eq!(bench.after(1), [DispatchAction::Drop { id: first.0 }, DispatchAction::Drop { id: second.0 }]);
    assert_eq!(bench.lost(), [(EventLossCause::NoCredit, 1), (EventLossCause::Expired, 2)]);
}

#[test]
fn the_target_of_which_most_wait_makes_room() {
    for (pressure, loss) in [
        (BackPressure::Hold, EventLossCause::NoCredit),
        (BackPressure::DropOldest, EventLossCause::Displaced),
    ] {
        let mut bench = Bench::new(config(pressure, 3));
        for id in [1, 2] {
            bench.worker(1, data_ids(id, id), DeliveryMode::Store);
            bench.delivered(1, EligibleWorkers::DataId(id));
        }
        let quiet = bench.event(1, EligibleWorkers::DataId(1)).0;
        let many = [(); 2].map(|()| bench.event(1, EligibleWorkers::DataId(2)).0);
        let (newest, actions) = bench.event(1, EligibleWorkers::DataId(2));
        let victim = if pressure == BackPressure::Hold { newest } else { many[0] };
        assert_eq!(actions, [DispatchAction::Drop { id: victim }]);
        assert!(bench.dispatcher.location(quiet).is_some());
        assert_eq!(bench.lost(), [(loss, 1)]);
    }
}

#[test]
fn small_events_do_not_starve_a_large_one() {
    // No worker has the member number 9, so any worker may get the second large event.
    for target in [ANYBODY, EligibleWorkers::Member(9)] {
        let mut bench = hold();
        let worker = bench.worker(4, Filter::default(), DeliveryMode::Store);
        let small = [(); 4].map(|()| bench.delivered(1, ANYBODY).1);
        let (large, _) = bench.event(4, target);
        let (behind, _) = bench.event(1, ANYBODY);
        for its in &small[..3] {
            assert_eq!(bench.give_back(worker, its), []);
            // The event `large` needs all four slots of the ring and waits for them, so a new event gets spill memory
            // instead of slots in the ring.
            assert_eq!(bench.open(1, ANYBODY).1, Ok(EventLocation::Spill));
        }
        let actions = bench.give_back(worker, &small[3]);
        let its = deliveries(&actions)[0].1;
        let moved = DispatchAction::Deliver { id: large, worker, descriptor: its, spilled: true };
        assert_eq!((actions[0], its.length, its.offset), (moved, 256, 0));
        assert_eq!(deliveries(&bench.give_back(worker, &its)).len(), 1);
        assert!(bench.dispatcher.location(behind).is_none());
    }
}

#[test]
fn when_a_large_event_is_lost_the_small_ones_behind_it_go_on() {
    for pressure in [BackPressure::Hold, BackPressure::DropOldest] {
        let mut bench = Bench::new(Config { hold: Duration::from_millis(5), ..config(pressure, 2) });
        let worker = bench.worker(4, Filter::default(), DeliveryMode::Shared);
        bench.delivered(1, ANYBODY);
        bench.acknowledge(worker, 1);
        let (large, _) = bench.event(4, ANYBODY);
        bench.after(1);
        assert_eq!(bench.event(1, ANYBODY).1, []);
        let actions = match pressure {
            BackPressure::DropOldest => bench.event(1, ANYBODY).1,
            BackPressure::Hold | BackPressure::DropNewest => bench.after(4),
        };
        assert_eq!(actions[0], DispatchAction::Drop { id: large });
        assert_eq!(deliveries(&actions).len(), if pressure == BackPressure::Hold { 1 } else { 2 });
    }
}

#[test]
fn room_of_an_event_that_was_given_up_is_used() {
    let mut bench = hold();
    bench.worker(1, Filter::default(), DeliveryMode::Store);
    let (given_up, location) = bench.open(1, ANYBODY);
    assert!(matches!(location, Ok(EventLocation::Ring { .. })));
    bench.event(1, ANYBODY);
    bench.dispatcher.gave_up(given_up);
    assert_eq!(deliveries(&bench.after(1)).len(), 1);
    assert_eq!(bench.dispatcher.counters().incomplete, 1);
}

#[test]
fn room_is_used_when_credit_overtook_the_acknowledgement() {
    let mut bench = hold();
    let worker = bench.worker(1, Filter::default(), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, ANYBODY);
    bench.event(1, ANYBODY);
    let (looked, actions) = bench.credit(worker, its.slot, its.generation);
    assert_eq!((looked.credits, actions), (1, vec![]));
    assert_eq!(deliveries(&bench.acknowledge(worker, 1)).len(), 1);
}

#[test]
fn half_of_a_ring_is_for_events_on_their_way() {
    let mut bench = hold();
    bench.worker(5, Filter::default(), DeliveryMode::Cut);
    let locations: Vec<_> = (0..4).map(|_| bench.open(1, ANYBODY).1.unwrap()).collect();
    let in_ring = |location: &&EventLocation| matches!(location, EventLocation::Ring { .. });
    assert_eq!(locations.iter().filter(in_ring).count(), 3);
    assert!(in_ring(&&locations[2]) && locations[3] == EventLocation::Spill);
    // Incomplete events may take only three of the ring's five slots, but a complete event may also take the other two
    // slots.
    bench.delivered(2, ANYBODY);
    assert_eq!(bench.dispatcher.fill(), 1.0);
}

#[test]
fn events_on_their_way_to_a_worker_that_ends_are_rescued() {
    for placing in [DeliveryMode::Store, DeliveryMode::Shared] {
        let mut bench = hold();
        let dies = bench.worker(4, Filter::default(), placing);
        let (holds, _) = bench.delivered(1, ANYBODY);
        let (id, _) = bench.open(2, ANYBODY);
        let rescue = DispatchAction::Rescue { id, length: 128, worker: dies, offset: 64 };
        let gone = DispatchAction::Forget { worker: dies, given_up: 0 };
        assert_eq!((holds, bench.remove(dies)), (dies, vec![rescue, gone]));
        assert_eq!(bench.dispatcher.location(id), Some(EventLocation::Spill));
        let lives = bench.worker(4, Filter::default(), DeliveryMode::Store);
        let actions = bench.complete(id);
        let its = deliveries(&actions)[0].1;
        let moved = DispatchAction::Deliver { id, worker: lives, descriptor: its, spilled: true };
        assert_eq!((actions[0], its.length, its.offset), (moved, 128, 0));
        let counters = bench.dispatcher.counters();
        assert_eq!((counters.sent, counters.held_by_ended, counters.lost_of_any_cause()), (2, 1, 0));
    }
}

#[test]
fn segments_on_the_wire_to_a_worker_that_ends_are_lost() {
    let mut bench = hold();
    let worker = bench.worker(4, Filter::default(), DeliveryMode::Cut);
    let (id, _) = bench.open(1, ANYBODY);
    let gone = DispatchAction::Forget { worker, given_up: 0 };
    assert_eq!(bench.remove(worker), [DispatchAction::Drop { id }, gone]);
    assert_eq!(bench.lost(), [(EventLossCause::WorkerEnded, 1)]);
}

#[test]
fn credit_that_is_none_is_counted_and_changes_nothing() {
    let mut bench = hold();
    let worker = bench.worker(4, Filter::default(), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, ANYBODY);
    for (slot, value) in [(its.slot, its.generation + 1), (its.slot + 1, 1), (3, u32::MAX)] {
        assert_eq!(bench.credit(worker, slot, value).0, CreditCounts { credits: 0, wrong: 1 });
    }
    let stats = bench.dispatcher.workers().next().unwrap();
    assert_eq!((stats.in_use, stats.outstanding, stats.wrong_credits, stats.bytes), (1, 1, 3, 64));
    bench.give_back(worker, &its);
    assert_eq!(bench.dispatcher.fill(), 0.0);
}

#[test]
fn the_way_of_an_event_is_remembered() {
    let mut bench = hold();
    let worker = bench.worker(1, Filter::default(), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, ANYBODY);
    let tick = its.tick.unwrap();
    let outcome = |bench: &Bench, tick| bench.dispatcher.trace(tick).map(|trace| trace.outcome).next();
    assert_eq!(outcome(&bench, tick), Some(EventOutcome::Sent));
    bench.acknowledge(worker, 1);
    assert_eq!(outcome(&bench, tick), Some(EventOutcome::Delivered));
    bench.credit(worker, its.slot, its.generation);
    let trace = *bench.dispatcher.trace(tick).next().unwrap();
    assert_eq!(
        (trace.outcome, trace.worker, trace.sequence),
        (EventOutcome::Released, Some(worker), Some(1))
    );
    assert_eq!(bench.open(2, ANYBODY).1, Err(EventLossCause::TooLarge));
    assert_eq!(outcome(&bench, tick + 1), Some(EventOutcome::Lost(EventLossCause::TooLarge)));
    assert_eq!(bench.dispatcher.counters().lost_of_any_cause(), 1);
    assert_eq!(outcome(&bench, tick + 2), None);
}

#[test]
fn an_event_that_a_worker_had_when_it_ended_is_remembered_as_such() {
    let mut bench = hold();
    let worker = bench.worker(1, Filter::default(), DeliveryMode::Store);
    let (_, its) = bench.delivered(1, ANYBODY);
    bench.acknowledge(worker, 1);
    bench.remove(worker);
    let trace = *bench.dispatcher.trace(its.tick.unwrap()).next().unwrap();
    assert_eq!((trace.outcome, trace.worker), (EventOutcome::WorkerEnded, Some(worker)));
}
