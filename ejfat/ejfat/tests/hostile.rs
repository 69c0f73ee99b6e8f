//! Tests with the datagrams of hostile senders, who try to crash a receiver, to corrupt events or to fill memory. These
//! datagrams must not affect the events of an honest sender.

mod common;

use std::{net::IpAddr, time::Duration};

use common::{NOW, WorkerModel, segment};
use ejfat::{
    Time,
    reassembly::{Config, ConfigError, Reassembler, SegmentDropCause},
    wire::{LbHeader, ReHeader, Select, Versions},
};
use simnet::Random;

const HONEST: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
const HOSTILE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

fn small() -> Config {
    Config {
        slots: 32,
        max_open: 16,
        max_open_per_source: 8,
        max_event: 1 << 20,
        memory: 4 << 20,
        max_sources: 4,
        remembered: 64,
        chunks: 64,
        ..Config::default()
    }
}

#[test]
fn segments_that_are_none() {
    let mut worker = WorkerModel::new(small());
    let whole = segment(0, 0, 8, &[1; 8]);
    for len in 0..ReHeader::LEN {
        assert_eq!(worker.handle(NOW, None, &whole[..len]).unwrap_err(), SegmentDropCause::Short);
    }
    let other_version = [&[0x30], &whole[1..]].concat();
    assert_eq!(worker.handle(NOW, None, &other_version).unwrap_err(), SegmentDropCause::Version);
    let lb = [b"LB\x09\x01", &[0; 12][..], &whole[..]].concat();
    assert_eq!(worker.handle(NOW, None, &lb).unwrap_err(), SegmentDropCause::Version);
    assert_eq!(worker.handle(NOW, None, b"LB\x02").unwrap_err(), SegmentDropCause::Short);
    assert_eq!(worker.reassembler.open_events(), 0);
}

#[test]
fn headers_that_lie() {
    let mut worker = WorkerModel::new(small());
    let most = u32::MAX;
    let cases = [
        (segment(1, 0x3000_0000, 3000, &[1; 8]), SegmentDropCause::BeyondEnd),
        (segment(1, most, 1 << 20, &[1; 8]), SegmentDropCause::BeyondEnd),
        (segment(1, 0, 7, &[1; 8]), SegmentDropCause::BeyondEnd),
        (segment(1, 0, most, &[1; 8]), SegmentDropCause::TooLong),
        (segment(1, most - 7, most, &[1; 8]), SegmentDropCause::TooLong),
        (segment(1, 0, 0, &[]), SegmentDropCause::Empty),
        (segment(1, 0, 8, &[]), SegmentDropCause::Empty),
        (segment(1, 0, 0, &[1; 8]), SegmentDropCause::Empty),
    ];
    for (datagram, cause) in &cases {
        assert_eq!(worker.handle(NOW, HOSTILE, datagram).unwrap_err(), *cause);
    }
    assert_eq!((worker.reassembler.open_events(), worker.reassembler.touched_memory()), (0, 0));
    assert_eq!(worker.reassembler.counters().dropped_of_any_cause(), cases.len() as u64);
}

#[test]
fn changing_lengths_and_overlaps_complete_nothing() {
    let mut worker = WorkerModel::new(small());
    use SegmentDropCause::{Conflict, Duplicate, Overlap};
    let cases = [
        (segment(1, 0, 24, &[1; 8]), None),
        (segment(1, 0, 8, &[2; 8]), Some(Conflict)),
        (segment(1, 0, 8, &[2; 8]), Some(Conflict)),
        (segment(1, 7, 24, &[3; 8]), Some(Overlap)),
        (segment(1, 1, 24, &[3; 6]), Some(Duplicate)),
        (segment(1, 15, 24, &[3; 9]), None),
        (segment(1, 0, 24, &[4; 8]), Some(Duplicate)),
        (segment(1, 8, 24, &[4; 7]), None),
    ];
    for (number, (datagram, cause)) in cases.iter().enumerate() {
        assert_eq!(worker.handle(NOW, HOSTILE, datagram).err(), *cause, "segment {number}");
    }
    // The three accepted segments have 8 bytes at offset 0, 9 bytes at offset 15 and 7 bytes at offset 8. Together,
    // they are all 24 bytes of the event.
    assert_eq!(worker.reassembler.counters().complete, 1);
}

#[test]
fn a_claim_reserves_no_memory() {
    let config = Config { max_event: u32::MAX, memory: 4 << 30, ..small() };
    let mut worker = Reassembler::new(config).unwrap();
    for event in 0..8 {
        worker.handle(NOW, HOSTILE, &segment(event, 0, u32::MAX, &[1; 8])).unwrap();
    }
    assert_eq!(worker.touched_memory(), 8 * 4096);
}

#[test]
fn touched_pages_are_bounded() {
    // The length of each event is equal to the size of the reassembler's memory. An event that is longer than this
    // memory could never be complete, so the reassembler refuses the event's segments.
    let length: u32 = 512 << 10;
    let config = Config { max_event: u32::MAX, memory: length.into(), ..small() };
    let mut worker = Reassembler::new(config).unwrap();
    let longer = segment(0, 0, length + 1, &[1; 8]);
    assert_eq!(worker.handle(NOW, HOSTILE, &longer).unwrap_err(), SegmentDropCause::TooLong);
    let mut most = 0;
    for page in 0..10_000u32 {
        let (event, offset) = (page * 8192 / length, page * 8192 % length);
        match worker.handle(NOW, HOSTILE, &segment(event.into(), offset, length, &[1; 8])) {
            Err(SegmentDropCause::Memory | SegmentDropCause::Scattered) => {}
            other => assert!(other.is_ok(), "{other:?}"),
        }
        most = worker.touched_memory().max(most);
    }
    assert_eq!(most, worker.config().memory);
}

/// Sends 200 events of an honest sender, and hostile datagrams before each segment of these events. `every` is the
/// number of hostile datagrams before each segment. Returns the worker and the number of delivered events.
fn beside(hostile: impl Fn(&mut Random, u64) -> (Option<IpAddr>, Vec<u8>), every: u64) -> (WorkerModel, u64) {
    let mut worker = WorkerModel::new(small());
    let random = &mut Random::new(1, 0);
    // If the senders that never completed an event have together more than half of all open events, only these senders
    // lose events. The same is true if they have more than half of the memory of all open events. The honest sender
    // completes an event here, so that it is not one of these senders.
    worker.event(NOW, HONEST, &segment(u64::MAX, 0, 1, &[1])).unwrap();
    let mut delivered = 0;
    for event in 0..200u64 {
        let bytes = vec![event as u8; 5 * 100];
        for (at, part) in bytes.chunks(100).enumerate() {
            for n in 0..every {
                let (from, datagram) = hostile(random, event * every + n);
                let _ = worker.event(NOW, from, &datagram);
            }
            let datagram = segment(event, at as u32 * 100, 500, part);
            if let Some(whole) = worker.event(NOW, HONEST, &datagram).unwrap() {
                assert_eq!(whole, bytes);
                delivered += 1;
            }
        }
        assert!(worker.reassembler.open_events() <= 16);
        assert!(worker.reassembler.touched_memory() <= 4 << 20);
    }
    (worker, delivered)
}

#[test]
fn a_million_event_numbers_displace_their_senders_only() {
    let flood = |_: &mut Random, n| (HOSTILE, segment(n, 0, 1000, &[6; 8]));
    let (worker, delivered) = beside(flood, 1000);
    assert_eq!(delivered, 200);
    assert_eq!(worker.reassembler.open_events(), 8);
    for sender in worker.reassembler.senders() {
        let evicted = sender.counters.evicted_for_any_reason();
        assert_eq!(evicted > 0, sender.address == HOSTILE, "{sender:?}");
    }
}

#[test]
fn made_up_senders_displace_no_known_one() {
    let flood = |random: &mut Random, n| {
        let from = IpAddr::from([11, random.next_u32() as u8, random.next_u32() as u8, 1]);
        (Some(from), segment(n, 0, 1000, &[6; 8]))
    };
    let (worker, delivered) = beside(flood, 100);
    assert_eq!(delivered, 200);
    let senders: Vec<_> = worker.reassembler.senders().collect();
    assert!(senders.len() <= 5);
}

#[test]
fn a_receiver_that_does_not_release_keeps_what_it_has() {
    let mut reassembler = Reassembler::new(Config { slots: 4, max_open: 2, ..small() }).unwrap();
    let whole = |reassembler: &mut Reassembler, event| {
        reassembler.handle(NOW, HONEST, &segment(event, 0, 8, &[1; 8]))
    };
    let places = [0, 1, 2, 3].map(|event| whole(&mut reassembler, event).unwrap());
    assert!(places.iter().all(|place| place.complete));
    assert_eq!(whole(&mut reassembler, 4).unwrap_err(), SegmentDropCause::NoSlot);
    assert!(reassembler.release(places[2].id));
    assert!(!reassembler.release(places[2].id), "it is released already");
    let place = whole(&mut reassembler, 5).unwrap();
    assert_eq!(place.id.slot(), places[2].id.slot());
    assert_ne!(place.id, places[2].id);
    assert!(!reassembler.release(places[2].id), "another event has its slot");
    // A late segment of a released event does not open the event again.
    assert_eq!(whole(&mut reassembler, 2).unwrap_err(), SegmentDropCause::Duplicate);
}

/// A late segment of a released event is refused as a duplicate. This is so even if the caller gave `poll_given_up` a
/// time that is earlier than the event's arrival.
#[test]
fn who_asks_by_an_earlier_time_knows_duplicates_all_the_same() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let late = Time(60_000_000_000);
    let place = reassembler.handle(late, HONEST, &segment(1, 0, 8, &[1; 8])).unwrap();
    assert_eq!((reassembler.poll_evicted(), reassembler.poll_given_up(Time(0))), (None, None));
    assert!(reassembler.release(place.id));
    let again = reassembler.handle(Time(late.0 + 1_000), HONEST, &segment(1, 0, 8, &[1; 8]));
    assert_eq!(again.unwrap_err(), SegmentDropCause::Duplicate);
}

#[test]
fn a_caller_whose_clock_goes_back_does_not_make_events_time_out() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let late = Time(60_000_000_000);
    let whole = reassembler.handle(late, HONEST, &segment(1, 0, 8, &[1; 8])).unwrap();
    assert!(reassembler.release(whole.id));
    reassembler.handle(Time(1), HONEST, &segment(2, 0, 8, &[1; 4])).unwrap();
    assert_eq!(reassembler.poll_given_up(late), None);
}

#[test]
fn events_without_news_time_out() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let ms = |ms: u64| Time(ms * 1_000_000);
    assert_eq!(reassembler.next_timeout(), None);
    for (at, event) in [(0, 1), (100, 2)] {
        reassembler.handle(ms(at), HONEST, &segment(event, 0, 16, &[1; 4])).unwrap();
    }
    reassembler.handle(ms(200), HONEST, &segment(1, 4, 16, &[1; 4])).unwrap();
    // A duplicate segment does not begin the time-out again.
    reassembler.handle(ms(300), HONEST, &segment(2, 0, 16, &[1; 4])).unwrap_err();
    assert_eq!(reassembler.next_timeout(), Some(ms(600)));
    assert_eq!(reassembler.poll_given_up(ms(599)), None);
    let expired = reassembler.poll_given_up(ms(650)).unwrap();
    assert_eq!((expired.name.event, expired.received, expired.length), (2, 4, 16));
    assert_eq!(reassembler.poll_given_up(ms(650)), None);
    assert_eq!(reassembler.next_timeout(), Some(ms(200) + Duration::from_millis(500)));
    let late = reassembler.handle(ms(650), HONEST, &segment(2, 4, 16, &[1; 4]));
    assert_eq!(late.unwrap_err(), SegmentDropCause::Late);
    assert_eq!(reassembler.counters().timed_out, 1);
}

#[test]
fn only_chosen_versions() {
    let versions = Versions::ONE;
    let mut reassembler = Reassembler::new(Config { versions, ..small() }).unwrap();
    for (first, taken) in [(0x00, false), (0x10, true), (0x20, false)] {
        let datagram = [&[first], &segment(u64::from(first), 0, 8, &[1; 8])[1..]].concat();
        assert_eq!(reassembler.handle(NOW, None, &datagram).is_ok(), taken);
    }
}

#[test]
fn bounds_that_exclude_each_other() {
    assert!(Reassembler::new(Config { slots: 1, ..small() }).is_err());
    assert!(Reassembler::new(Config { chunks: 0, ..small() }).is_err());
    let none = Reassembler::new(Config { memory: 0, ..small() });
    assert!(matches!(none, Err(ConfigError::Zero("memory"))));
}

/// Returns an LB header with the tick `tick`, followed by the bytes of `datagram`.
fn with_tick(tick: u64, datagram: &[u8]) -> Vec<u8> {
    let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: 1, tick };
    [&header.encode()[..], datagram].concat()
}

#[test]
fn a_sender_started_again_is_no_duplicate() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let whole = segment(0, 0, 4, &[1; 4]);
    let mut handle = |ms: u64, datagram: &[u8]| {
        let place = reassembler.handle(Time(ms * 1_000_000), HONEST, datagram)?;
        assert!(place.complete && reassembler.release(place.id));
        Ok(())
    };
    assert_eq!(handle(0, &with_tick(1, &whole)), Ok(()));
    assert_eq!(handle(1, &with_tick(1, &whole)), Err(SegmentDropCause::Duplicate));
    assert_eq!(handle(2, &with_tick(2, &whole)), Ok(()), "another tick");
    // A segment without a tick is refused as a duplicate of a released event only until `Config::timeout` has passed
    // since the release. The time-out is 500 ms here. The event with tick 2 was released at 2 ms, so segments without a
    // tick are refused until 502 ms.
    assert_eq!(handle(400, &whole), Err(SegmentDropCause::Duplicate));
    assert_eq!(handle(503, &whole), Ok(()));
}

#[test]
fn an_event_is_not_made_of_two() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    reassembler.handle(NOW, HONEST, &with_tick(1, &segment(0, 0, 8, &[1; 4]))).unwrap();
    let other = with_tick(2, &segment(0, 4, 8, &[2; 4]));
    assert_eq!(reassembler.handle(NOW, HONEST, &other).unwrap_err(), SegmentDropCause::Conflict);
}

#[test]
fn an_event_cannot_be_kept_open_for_ever() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let ms = |ms: u64| Time(ms * 1_000_000);
    let mut open_until = 0;
    for at in 0..100 {
        let datagram = segment(0, at, 1000, &[1]);
        if reassembler.handle(ms(u64::from(at) * 400), HOSTILE, &datagram).is_err() {
            break;
        }
        open_until = at * 400;
        while reassembler.poll_given_up(ms(u64::from(at) * 400 + 399)).is_some() {}
    }
    assert!((19_000..=20_000).contains(&open_until), "{open_until} ms");
}

#[test]
fn who_fills_the_memory_makes_room() {
    let mut worker = WorkerModel::new(Config { memory: 40 * 4096, ..small() });
    for page in 0..36 {
        let datagram = segment(page / 18, page as u32 % 18 * 8192, 40 * 4096, &[1; 8]);
        worker.handle(NOW, HOSTILE, &datagram).unwrap();
    }
    let event = vec![3; 8 * 4096];
    for (at, part) in event.chunks(4096).enumerate() {
        let datagram = segment(7, at as u32 * 4096, event.len() as u32, part);
        if let Some(whole) = worker.event(NOW, HONEST, &datagram).unwrap() {
            assert_eq!(whole, event);
        }
    }
    assert_eq!(worker.reassembler.counters().complete, 1);
    let evicted = worker.reassembler.poll_given_up(NOW).unwrap();
    assert!(evicted.name.event < 2 && evicted.received == 18 * 8, "{evicted:?}");
    assert!(worker.reassembler.poll_given_up(NOW).is_none());
}

/// Sends segments of an event, one for each page of the event from page 0 on, so that no two segments touch.
fn one_for_each_page(
    reassembler: &mut Reassembler,
    from: Option<IpAddr>,
    event: u64,
    pages: u32,
    len: usize,
) {
    for page in 0..pages {
        let datagram = segment(event, page * 4096, 30 * 4096, &vec![1; len]);
        reassembler.handle(NOW, from, &datagram).unwrap();
    }
}

#[test]
fn a_segment_that_cannot_be_recorded_evicts_nothing() {
    let mut reassembler = Reassembler::new(Config { memory: 53 * 4096, ..small() }).unwrap();
    one_for_each_page(&mut reassembler, HONEST, 1, 29, 4096);
    // After the next call, the hostile sender's event has 24 separate ranges of bytes, and no more separate ranges can
    // be recorded for this event.
    one_for_each_page(&mut reassembler, HOSTILE, 2, 24, 1);
    let scattered = reassembler.handle(NOW, HOSTILE, &segment(2, 24 * 4096, 30 * 4096, &[1]));
    assert_eq!(scattered.unwrap_err(), SegmentDropCause::Scattered);
    assert_eq!((reassembler.open_events(), reassembler.poll_evicted()), (2, None));
    assert_eq!(reassembler.touched_memory(), 53 * 4096);
    // This segment is adjacent to a recorded range, so the segment can be recorded. The memory is full, so the largest
    // event is evicted for this segment.
    reassembler.handle(NOW, HOSTILE, &segment(2, 1, 30 * 4096, &[1])).unwrap();
    assert_eq!(reassembler.poll_evicted().unwrap().name.event, 1);
    assert_eq!(reassembler.touched_memory(), 25 * 4096);
}

#[test]
fn a_segment_gets_the_bitmap_block_of_the_event_that_it_evicts() {
    let mut reassembler = Reassembler::new(Config { memory: 49 * 4096, chunks: 1, ..small() }).unwrap();
    one_for_each_page(&mut reassembler, HOSTILE, 1, 25, 256);
    one_for_each_page(&mut reassembler, HONEST, 2, 24, 256);
    reassembler.handle(NOW, HONEST, &segment(2, 24 * 4096, 30 * 4096, &[1; 256])).unwrap();
    assert_eq!(reassembler.poll_evicted().unwrap().name.event, 1);
    let again = reassembler.handle(NOW, HONEST, &segment(2, 24 * 4096, 30 * 4096, &[1; 256]));
    assert_eq!(again.unwrap_err(), SegmentDropCause::Duplicate);
}

#[test]
fn seats_of_senders_are_free_again() {
    let mut reassembler = Reassembler::new(small()).unwrap();
    let minutes = |minutes: u64| Time(minutes * 60_000_000_000);
    for round in 0..3u8 {
        for sender in 0..8 {
            let from = Some(IpAddr::from([10, round, 0, sender]));
            let place = reassembler.handle(minutes(round.into()), from, &segment(0, 0, 1, &[1])).ok();
            place.map(|place| reassembler.release(place.id));
        }
        let addresses: Vec<_> = reassembler.senders().filter_map(|sender| sender.address).collect();
        let last = [0, 1, 2, 3].map(|sender| IpAddr::from([10, round, 0, sender]));
        assert_eq!(addresses, last, "round {round}");
    }
}
