//! Bridges that end and come back.

mod bridge;

use std::{
    thread,
    time::{Duration, Instant},
};

use bridge::{check, config, content, local_pair, remote, remote_pair, until};
use naa_events::{Config, Error, Worker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn reconnecting() -> Config {
    Config { reconnect: Some(Duration::from_secs(20)), ..config(8, 64) }
}

fn readable(worker: &mut Worker) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(worker.descriptor().unwrap(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_bridge_on_this_host_is_found_again_and_its_old_events_stay() {
    let (bridge, mut side, mut worker) = local_pair("again", &reconnecting());
    for round in 0..3 {
        assert!(side.put(round, &content(round, 100)));
        let old = worker.next().unwrap();
        drop(side);
        side = thread::scope(|scope| {
            let side = scope.spawn(|| {
                let mut side = bridge.accept();
                assert!(side.put(100 + round, &content(100 + round, 500)));
                side
            });
            let new = worker.next().unwrap();
            assert_eq!(new.descriptor().name.event, 100 + round);
            check(&new);
            side.join().unwrap()
        });
        check(&old);
        assert_eq!(worker.stats().held, 1);
        drop(old);
        until("credit went astray", || {
            assert!(worker.try_next().unwrap().is_none());
            side.look();
            side.slots.outstanding() == 0
        });
        assert_eq!((worker.stats().reconnects, side.wrong), (round + 1, 0));
    }
}

#[test]
fn a_remote_bridge_is_found_again_whether_it_says_goodbye_or_not() {
    let (bridge, mut side, mut worker) = remote_pair("127.0.6.60", &reconnecting(), &[]);
    let port = bridge.address.port();
    let mut bridge = Some(bridge);
    for round in 0..3 {
        until("no credit", || side.put(round, &content(round, 100)));
        let old = worker.next().unwrap();
        if round == 1 {
            side.ring.vanish();
        }
        drop((side, bridge.take()));
        let (again, more) = thread::scope(|scope| {
            let side = scope.spawn(move || {
                let bridge = remote::RemoteBridgeModel::start("127.0.6.60", port);
                let side = bridge.accept(&[&content(0, 500)]);
                (bridge, side)
            });
            check(&worker.next().unwrap());
            side.join().unwrap()
        });
        (bridge, side) = (Some(again), more);
        check(&old);
        assert_eq!(worker.stats().reconnects, round + 1);
    }
}

#[test]
fn an_event_loop_does_not_wait_for_a_bridge_that_is_away() {
    let (bridge, mut side, mut worker) = local_pair("away", &reconnecting());
    assert!(readable(&mut worker));
    assert!(worker.try_next().unwrap().is_none());
    let number = worker.descriptor().map(|fd| std::os::fd::AsRawFd::as_raw_fd(&fd)).unwrap();
    drop(side);
    assert!(readable(&mut worker));
    let before = Instant::now();
    assert!(worker.try_next().unwrap().is_none());
    assert!(before.elapsed() < Duration::from_millis(100));
    assert!(worker.describe().starts_with("looking for"), "{}", worker.describe());
    side = bridge.accept();
    assert!(side.put(0, &content(0, 64)));
    let event = loop {
        assert!(readable(&mut worker));
        if let Some(event) = worker.try_next().unwrap() {
            break event;
        }
    };
    check(&event);
    assert_eq!(worker.descriptor().map(|fd| std::os::fd::AsRawFd::as_raw_fd(&fd)).unwrap(), number);
}

#[test]
fn who_does_not_come_back_is_given_up_in_time() {
    let config = Config { reconnect: Some(Duration::from_millis(500)), ..config(8, 64) };
    let (bridge, side, mut worker) = local_pair("given-up", &config);
    drop((side, bridge));
    let before = Instant::now();
    assert!(worker.next_until(Some(before + Duration::from_millis(50))).unwrap().is_none());
    let gone = worker.next().unwrap_err();
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    assert!(matches!(gone, Error::BridgeGone { tried: Some(_), .. }), "{gone}");
    let text = gone.to_string();
    assert!(text.contains("within 500ms") && text.contains("closed its socket"), "{text}");
}

#[test]
fn a_bridge_that_comes_back_with_a_refusal_for_ever_is_not_asked_again() {
    let (bridge, side, mut worker) = local_pair("refused", &reconnecting());
    drop(side);
    let refused = thread::scope(|scope| {
        scope.spawn(|| bridge.refuse(naa_events::SubscribeRefusal::Version));
        worker.next().unwrap_err()
    });
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
}
