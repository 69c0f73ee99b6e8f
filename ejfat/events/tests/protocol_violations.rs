//! Bridges that break the protocol: each is named, none is believed.

mod bridge;

use std::{fs::File, os::fd::OwnedFd, thread, time::Duration};

use bridge::{BridgeSide, RingModel, config, content, local, local_pair, remote_pair, until};
use naa_events::{BridgeAddress, Descriptor, Error, Event, Worker};

/// A descriptor that is changed ends the subscription, and does so once.
fn violate<M: RingModel>(
    mut side: BridgeSide<M>,
    mut worker: Worker,
    what: &str,
    change: impl FnOnce(&mut Descriptor),
) {
    assert!(side.put(0, &content(0, 64)));
    let first = worker.next().unwrap();
    assert!(side.put_with(1, &content(1, 64), change));
    let error = worker.next().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{what}: {error}");
    assert!(error.to_string().contains("breaks the protocol"), "{error}");
    assert!(matches!(worker.try_next(), Err(Error::Over { .. })), "{what}");
    // What was told before is as good as before.
    assert_eq!(first.to_vec(), content(0, 64));
}

type Violation = fn(&mut Descriptor);

const VIOLATIONS: [(&str, Violation); 7] = [
    ("another number", |d| d.sequence += 1),
    ("slots that are taken", |d| (d.slot, d.offset) = (0, 0)),
    ("slots beyond the ring", |d| (d.slot, d.offset) = (8, 512)),
    ("an offset inside a slot", |d| d.offset += 1),
    ("a length beyond its slots", |d| d.length = u32::MAX),
    ("a length that needs fewer slots", |d| d.slots = 2),
    ("delivered again, though the worker did not ask for that", |d| d.delivered_again = true),
];

#[test]
fn descriptors_that_cannot_be_end_the_subscription() {
    for (number, (what, change)) in VIOLATIONS.into_iter().enumerate() {
        let (_bridge, side, worker) = local_pair(&format!("lie-{number}"), &config(8, 64));
        violate(side, worker, what, change);
        let (_bridge, side, worker) = remote_pair(&format!("127.0.6.{}", 100 + number), &config(8, 64), &[]);
        violate(side, worker, what, change);
    }
}

/// A bridge that writes an event again that it told of: what the worker copied before stays as it was, and what it
/// copies later is what the bridge wrote.
fn overwrite<M: RingModel>(mut side: BridgeSide<M>, mut worker: Worker) {
    // Longer than a piece, in several slots.
    let (before, after) = (content(0, Event::PIECE + 100), content(9, Event::PIECE + 100));
    assert!(side.put(0, &before));
    let event = worker.next().unwrap();
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    event.copy_to(&mut whole);
    let mut number = 0;
    let taken = event.try_pieces(|piece| {
        if number == 0 {
            assert_eq!(piece.len(), Event::PIECE);
            side.overwrite(&event, &after);
            until("the event was not written again", || event.to_vec() == after);
        }
        number += 1;
        pieces.extend_from_slice(piece);
        Ok::<_, Error>(())
    });
    assert!(taken.is_ok() && number == 2);
    assert!(whole == before, "a copy changed");
    let split = Event::PIECE;
    assert!(pieces[..split] == before[..split] && pieces[split..] == after[split..], "a piece changed");
    let mut written = Vec::new();
    event.write_to(&mut written).unwrap();
    let mut last = [0; 3];
    event.read_at(Event::PIECE + 97, &mut last);
    assert!(written == after && last == after[Event::PIECE + 97..]);
}

#[test]
fn what_was_copied_of_an_event_does_not_change_when_the_bridge_writes_it_again() {
    let (_bridge, side, worker) = local_pair("overwrite", &config(16, 4096));
    overwrite(side, worker);
    let (_bridge, side, worker) = remote_pair("127.0.6.130", &config(16, 4096), &[]);
    overwrite(side, worker);
}

#[test]
#[should_panic(expected = "3 bytes at 62 do not lie inside an event of 64")]
fn bytes_behind_an_event_are_not_read() {
    let (_bridge, mut side, mut worker) = local_pair("behind", &config(8, 64));
    assert!(side.put(0, &content(0, 64)));
    assert!(side.put(1, &content(1, 64)));
    worker.next().unwrap().read_at(62, &mut [0; 3]);
}

#[test]
fn a_head_that_runs_ahead_is_found_out() {
    let (_bridge, side, mut worker) = local_pair("head", &config(8, 64));
    side.ring.events.write(ejfat::ring::shared::HEAD_AT, &0x8000_0000_u32.to_le_bytes());
    let error = worker.next().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

fn files(name: &str, change: impl FnOnce([OwnedFd; 2]) -> [OwnedFd; 2] + Send) -> Error {
    let bridge = local::LocalBridgeModel::start(name);
    let source = BridgeAddress::Local(bridge.path.clone());
    thread::scope(|scope| {
        let _side = scope.spawn(|| bridge.accept_with(change));
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
    let bridge = local::LocalBridgeModel::start("mute");
    let mut config = config(8, 64);
    config.session.setup_timeout = Duration::from_millis(50);
    let mute = Worker::open(&BridgeAddress::Local(bridge.path.clone()), &config).unwrap_err();
    assert!(matches!(mute, Error::Local { what: "no answer", .. }), "{mute}");
}

#[test]
fn a_ring_beyond_the_device_is_refused_with_a_remedy() {
    let too_many = Worker::open(&"127.0.6.120".parse().unwrap(), &config(1 << 16, 64)).unwrap_err();
    assert!(too_many.to_string().contains("fewer slots"), "{too_many}");
}
