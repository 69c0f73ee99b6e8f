//! Bridges that break the protocol: each is named, none is believed.

mod bridge;

use std::{fs::File, os::fd::OwnedFd, thread, time::Duration};

use bridge::{Medium, Seat, config, content, local, local_pair, remote_pair};
use naa_events::{Descriptor, Error, Source, Worker};

/// A descriptor that is changed ends the subscription, and does so once.
fn lie<M: Medium>(mut seat: Seat<M>, mut worker: Worker, what: &str, lie: impl FnOnce(&mut Descriptor)) {
    assert!(seat.put(0, &content(0, 64)));
    let first = worker.next().unwrap();
    assert!(seat.put_with(1, &content(1, 64), lie));
    let error = worker.next().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{what}: {error}");
    assert!(error.to_string().contains("breaks the protocol"), "{error}");
    assert!(matches!(worker.try_next(), Err(Error::Over { .. })), "{what}");
    // What was told before is as good as before.
    assert_eq!(first.bytes(), content(0, 64));
}

type Lie = fn(&mut Descriptor);

const LIES: [(&str, Lie); 6] = [
    ("another number", |d| d.sequence += 1),
    ("slots that are taken", |d| (d.slot, d.offset) = (0, 0)),
    ("slots beyond the ring", |d| (d.slot, d.offset) = (8, 512)),
    ("an offset inside a slot", |d| d.offset += 1),
    ("a length beyond its slots", |d| d.length = u32::MAX),
    ("a length that needs fewer slots", |d| d.slots = 2),
];

#[test]
fn descriptors_that_cannot_be_end_the_subscription() {
    for (number, (what, change)) in LIES.into_iter().enumerate() {
        let (_bridge, seat, worker) = local_pair(&format!("lie-{number}"), &config(8, 64));
        lie(seat, worker, what, change);
        let (_bridge, seat, worker) = remote_pair(&format!("127.0.6.{}", 100 + number), &config(8, 64), &[]);
        lie(seat, worker, what, change);
    }
}

#[test]
fn a_head_that_runs_ahead_is_found_out() {
    let (_bridge, seat, mut worker) = local_pair("head", &config(8, 64));
    seat.medium.events.write(ejfat::ring::shared::HEAD_AT, &0x8000_0000_u32.to_le_bytes());
    let error = worker.next().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

fn files(name: &str, change: impl FnOnce([OwnedFd; 2]) -> [OwnedFd; 2] + Send) -> Error {
    let bridge = local::Bridge::start(name);
    let source = Source::Local(bridge.path.clone());
    thread::scope(|scope| {
        let _seat = scope.spawn(|| bridge.accept_with(change));
        Worker::open(&source, &config(8, 64)).unwrap_err()
    })
}

#[test]
fn files_that_could_go_away_or_are_none_are_not_mapped() {
    let short = files("short", |[_, credits]| [region::memfd("short", 100).unwrap().0, credits]);
    assert!(short.to_string().contains("shorter"), "{short}");
    let open = files("open", |[_, credits]| {
        let file = File::create(std::env::temp_dir().join("naa-events-open")).unwrap();
        file.set_len(1 << 20).unwrap();
        [file.into(), credits]
    });
    assert!(open.to_string().contains("could shrink"), "{open}");
    // Credits that cannot be written.
    let swapped = files("swapped", |[events, _]| [events.try_clone().unwrap(), events]);
    assert!(matches!(swapped, Error::Files { .. }), "{swapped}");
}

#[test]
fn who_answers_nothing_is_waited_for_in_vain_but_not_for_ever() {
    let bridge = local::Bridge::start("mute");
    let mut config = config(8, 64);
    config.session.setup_timeout = Duration::from_millis(50);
    let mute = Worker::open(&Source::Local(bridge.path.clone()), &config).unwrap_err();
    assert!(matches!(mute, Error::Local { what: "no answer", .. }), "{mute}");
}

#[test]
fn a_ring_beyond_the_device_is_refused_with_a_remedy() {
    let too_many = Worker::open(&"127.0.6.120".parse().unwrap(), &config(1 << 16, 64)).unwrap_err();
    assert!(too_many.to_string().contains("fewer slots"), "{too_many}");
}
