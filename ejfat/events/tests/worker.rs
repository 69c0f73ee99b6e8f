//! Workers beside a bridge that does as it should, over both transports.

mod bridge;

use std::{
    thread,
    time::{Duration, Instant},
};

use bridge::{BridgeSide, RingModel, check, config, content, local, local_pair, remote, remote_pair, until};
use naa_events::{BridgeAddress, Error, Event, SubscribeRefusal, WaitMode, Worker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Events of many sizes, some spanning slots, given back out of order and by another thread, more than the ring holds.
fn stream<M: RingModel + Send>(
    mut side: BridgeSide<M>,
    mut worker: Worker,
    events: u64,
) -> (BridgeSide<M>, Worker) {
    let lens = [0, 1, 64, 65, 300, 500];
    let (give, given) = std::sync::mpsc::sync_channel::<Event>(8);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for event in 0..events {
                let bytes = content(event, lens[event as usize % lens.len()]);
                until("no room", || side.put(event, &bytes));
            }
            until("credit is missing", || {
                side.look();
                side.slots.outstanding() == 0
            });
            assert_eq!((side.wrong, side.slots.in_use()), (0, 0));
        });
        let other = scope.spawn(|| given.into_iter().for_each(drop));
        let mut kept = Vec::new();
        for expected in 0..events {
            let event = worker.next_until(Some(Instant::now() + Duration::from_secs(10))).unwrap().unwrap();
            assert_eq!(event.descriptor().name.event, expected);
            check(&event);
            match expected % 3 {
                0 => drop(event),
                1 => give.send(event).unwrap(),
                _ => kept.push(event),
            }
            if kept.len() == 3 {
                check(&kept[0]);
                drop(kept.remove(1));
                kept.truncate(1);
            }
        }
        kept.clear();
        drop(give);
        other.join().unwrap();
        // Credit of the last ones goes out though nobody waits for more.
        assert!(worker.next_until(Some(Instant::now())).unwrap().is_none());
        sending.join().unwrap();
    });
    let stats = worker.stats();
    assert_eq!((stats.events, stats.held, stats.reconnects), (events, 0, 0));
    (side, worker)
}

#[test]
fn every_event_comes_whole_and_in_order() {
    for (number, wait) in [WaitMode::Adaptive, WaitMode::Block, WaitMode::Spin].into_iter().enumerate() {
        let mut config = config(16, 64);
        config.session.wait = wait;
        let (_bridge, side, worker) = local_pair(&format!("stream-{number}"), &config);
        assert!(worker.describe().contains("shared"), "{}", worker.describe());
        stream(side, worker, 5000);
        let (_bridge, side, worker) = remote_pair(&format!("127.0.6.{}", 1 + number), &config, &[]);
        assert!(worker.describe().contains("store: RDMA"), "{}", worker.describe());
        stream(side, worker, 5000);
    }
}

#[test]
fn events_that_come_with_the_answer_are_not_lost() {
    let early: Vec<_> = (0..16).map(|event| content(event, 64)).collect();
    let early: Vec<_> = early.iter().map(Vec::as_slice).collect();
    let (_bridge, _side, mut worker) = remote_pair("127.0.6.10", &config(16, 64), &early);
    thread::sleep(Duration::from_millis(20));
    let events: Vec<_> = (0..16).map(|_| worker.next().unwrap()).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.descriptor().name.event, number as u64);
        check(event);
    }
    assert!(worker.try_next().unwrap().is_none());
}

/// A worker that holds all slots gets more events as soon as another thread releases one, even if the worker sleeps.
fn sleeping<M: RingModel + Send>(mut side: BridgeSide<M>, mut worker: Worker) {
    assert!(side.put(0, &content(0, 64 * 8)));
    let first = worker.next().unwrap();
    assert!(!side.put(1, &content(1, 64)));
    thread::scope(|scope| {
        let next = scope.spawn(|| worker.next().unwrap());
        thread::sleep(Duration::from_millis(20));
        drop(first);
        until("no credit", || side.put(1, &content(1, 64 * 8)));
        check(&next.join().unwrap());
    });
}

#[test]
fn credit_leaves_while_the_worker_sleeps() {
    let (_bridge, side, worker) = local_pair("sleep", &config(8, 64));
    sleeping(side, worker);
    let (_bridge, side, worker) = remote_pair("127.0.6.20", &config(8, 64), &[]);
    sleeping(side, worker);
}

/// An event loop that sleeps on the descriptor misses nothing.
fn event_loop<M: RingModel + Send>(mut side: BridgeSide<M>, mut worker: Worker) {
    const EVENTS: u64 = 2000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for event in 0..EVENTS {
                let bytes = content(event, 64);
                until("no room", || side.put(event, &bytes));
                if event.is_multiple_of(7) {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let (mut number, mut idle) = (0, 0);
        while number < EVENTS {
            let mut fds = [PollFd::from_borrowed_fd(worker.descriptor().unwrap(), PollFlags::IN)];
            let ready = poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
            assert_eq!(ready, 1, "asleep after {number}");
            let before = number;
            while let Some(event) = worker.try_next().unwrap() {
                assert_eq!(event.descriptor().name.event, number);
                check(&event);
                number += 1;
            }
            idle += u64::from(before == number);
        }
        // It sleeps instead of being called for nothing.
        assert!(idle < EVENTS, "{idle}");
    });
    let quiet = || Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut called = 0;
    for _ in 0..20 {
        let mut fds = [PollFd::from_borrowed_fd(worker.descriptor().unwrap(), PollFlags::IN)];
        called += poll(&mut fds, Some(&quiet())).unwrap();
        assert!(worker.try_next().unwrap().is_none());
    }
    assert!(called < 15, "called {called} times");
}

#[test]
fn event_loops_sleep_on_the_descriptor() {
    let (_bridge, side, worker) = local_pair("loop", &config(16, 64));
    event_loop(side, worker);
    let (_bridge, side, worker) = remote_pair("127.0.6.30", &config(16, 64), &[]);
    event_loop(side, worker);
}

fn delivered_again<M: RingModel>(mut side: BridgeSide<M>, mut worker: Worker) {
    assert!(worker.answer().redelivery);
    for event in 0..6 {
        assert!(side.put_with(event, &content(event, 64), |its| its.delivered_again = event % 3 == 1));
        let its = worker.next().unwrap();
        assert_eq!(its.delivered_again(), event % 3 == 1);
        check(&its);
    }
    assert_eq!((worker.stats().events, worker.stats().again), (6, 2));
}

#[test]
fn who_asks_for_events_of_others_that_ended_sees_which_they_are() {
    let config = naa_events::Config { again: true, ..config(8, 64) };
    let (_bridge, side, worker) = local_pair("again", &config);
    delivered_again(side, worker);
    let (_bridge, side, worker) = remote_pair("127.0.6.80", &config, &[]);
    delivered_again(side, worker);
}

#[test]
fn events_outlive_worker_and_bridge() {
    let (bridge, mut side, mut worker) = local_pair("outlive", &config(8, 64));
    assert!(side.put(0, &content(0, 400)));
    let event = worker.next().unwrap();
    drop((side, bridge));
    assert!(matches!(worker.next(), Err(Error::BridgeGone { .. })));
    assert!(matches!(worker.next(), Err(Error::Over { .. })));
    drop(worker);
    check(&event);
    let (bridge, mut side, mut worker) = remote_pair("127.0.6.40", &config(8, 64), &[]);
    assert!(side.put(0, &content(0, 400)));
    let event = worker.next().unwrap();
    drop((side, bridge));
    let gone = worker.next().unwrap_err();
    assert!(matches!(gone, Error::BridgeGone { .. }), "{gone}");
    drop(worker);
    check(&event);
}

/// What was given back just before the end counts as given back.
fn last_credit<M: RingModel>(mut side: BridgeSide<M>, mut worker: Worker) {
    (0..3).for_each(|event| assert!(side.put(event, &content(event, 64))));
    let events: Vec<_> = (0..3).map(|_| worker.next().unwrap()).collect();
    drop(events);
    drop(worker);
    side.look();
    assert_eq!((side.slots.outstanding(), side.wrong), (0, 0));
}

#[test]
fn credit_of_the_last_events_arrives_before_the_end() {
    for round in 0..20 {
        let (_bridge, side, worker) = local_pair(&format!("credit-{round}"), &config(64, 64));
        last_credit(side, worker);
        let (_bridge, side, worker) = remote_pair("127.0.6.70", &config(64, 64), &[]);
        last_credit(side, worker);
    }
}

#[test]
fn what_a_bridge_told_before_it_ended_is_given() {
    let (_bridge, mut side, mut worker) = local_pair("last", &config(8, 64));
    (0..5).for_each(|event| assert!(side.put(event, &content(event, 64))));
    drop(side);
    (0..5).for_each(|_| check(&worker.next().unwrap()));
    assert!(worker.next().is_err());
}

#[test]
fn a_refusal_says_why() {
    let bridge = local::LocalBridgeModel::start("refuse");
    let source = BridgeAddress::Local(bridge.path.clone());
    let refused = thread::scope(|scope| {
        scope.spawn(|| bridge.refuse(SubscribeRefusal::Full));
        Worker::open(&source, &config(8, 64)).unwrap_err()
    });
    assert!(refused.to_string().contains("--max-workers"), "{refused}");
    let bridge = remote::RemoteBridgeModel::start("127.0.6.50", 0);
    let source = BridgeAddress::Remote(bridge.address);
    let refused = thread::scope(|scope| {
        scope.spawn(|| bridge.refuse(SubscribeRefusal::Full));
        Worker::open(&source, &config(8, 64)).unwrap_err()
    });
    assert!(refused.to_string().contains("--max-workers"), "{refused}");
    let mut config = config(8, 64);
    config.session.setup_timeout = Duration::from_millis(200);
    for (source, remedy) in
        [("127.0.6.51:9", "see whether a program listens there"), ("unix:/nowhere", "`naa bridge --listen")]
    {
        let nobody = Worker::open(&source.parse().unwrap(), &config).unwrap_err();
        assert!(nobody.to_string().contains(remedy), "{nobody}");
    }
}
