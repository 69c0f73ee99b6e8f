//! Tests that an honest sender loses no event when attackers open many events, use much memory or claim long events.

use std::net::{IpAddr, Ipv4Addr};

use ejfat::{
    Time,
    reassembly::{Config, CopyCommand, Eviction, LimitsBy, Reassembler, SegmentDropCause},
    wire::ReHeader,
};

const NOW: Time = Time(1);
const HONEST: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

fn segment(event: u64, offset: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    of_stream(1, event, offset, length, payload)
}

fn of_stream(data_id: u16, event: u64, offset: u32, length: u32, payload: &[u8]) -> Vec<u8> {
    [&ReHeader { data_id, offset, length, event }.encode()[..], payload].concat()
}

fn attacker(n: u8) -> Option<IpAddr> {
    Some(IpAddr::from([10, 0, 1, n]))
}

/// Returns a reassembler with the settings `config`, in which the honest sender has completed an event.
fn knowing_honest(config: Config) -> Reassembler {
    let mut reassembler = Reassembler::new(config).unwrap();
    let place = reassembler.handle(NOW, HONEST, &segment(u64::MAX, 0, 1, &[1])).unwrap();
    assert!(reassembler.release(place.id));
    reassembler
}

/// Sends four events of the honest sender with interleaved segments. Before each segment of the honest sender, the
/// function calls `between`, which sends segments of the attackers. Returns the number of complete events of the honest
/// sender.
fn four_at_once(reassembler: &mut Reassembler, mut between: impl FnMut(&mut Reassembler)) -> usize {
    let mut complete = 0;
    for part in 0..4 {
        for event in 0..4 {
            between(reassembler);
            let placed: Result<CopyCommand, SegmentDropCause> =
                reassembler.handle(NOW, HONEST, &segment(event, part * 100, 400, &[1; 100]));
            complete +=
                usize::from(placed.is_ok_and(|place| place.complete && reassembler.release(place.id)));
        }
    }
    complete
}

#[test]
fn many_senders_with_fewer_open_events_each_do_not_displace_a_proven_one() {
    let config =
        Config { slots: 64, max_open: 32, max_open_per_source: 16, max_sources: 64, ..Config::default() };
    let mut reassembler = knowing_honest(config);
    let mut n = 0u64;
    // Each attacker has at most three open events, and the honest sender has four, so the honest sender has the most
    // open events. The honest sender loses none of these events, because the attackers never completed an event and
    // together have more than half of all open events.
    let complete = four_at_once(&mut reassembler, |reassembler| {
        for _ in 0..12 {
            let _ = reassembler.handle(NOW, attacker((n / 3 % 40) as u8), &segment(n, 0, 1000, &[6; 8]));
            n += 1;
        }
    });
    assert_eq!(complete, 4);
}

#[test]
fn small_events_of_one_sender_do_not_displace_a_larger_one_of_another() {
    // The attacker can have 64 open events. The memory has exactly 32 pages for each of these events.
    let memory = 64 * 32 * 4096;
    let config = Config { slots: 256, max_open: 128, max_open_per_source: 64, memory, ..Config::default() };
    let mut reassembler = knowing_honest(config);
    for page in 0..40 {
        for event in 0..64 {
            let _ = reassembler.handle(NOW, attacker(0), &segment(event, page * 4096, 1 << 20, &[6; 256]));
        }
    }
    // The honest sender's event needs 64 pages. The attacker's open events together have nearly all of the memory's
    // 2048 pages. The attacker always has more pages than the honest sender, so only events of the attacker are
    // evicted.
    let mut complete = false;
    for page in 0..64u32 {
        let placed = reassembler.handle(NOW, HONEST, &segment(7, page * 4096, 64 * 4096, &[1; 4096]));
        complete |= placed.is_ok_and(|place| place.complete);
        let _ = reassembler.handle(
            NOW,
            attacker(0),
            &segment(u64::from(page) % 64, (41 + page) * 4096, 1 << 20, &[6; 256]),
        );
    }
    assert!(complete);
}

#[test]
fn memory_filled_by_many_made_up_senders_does_not_starve_a_proven_one() {
    let config = Config { slots: 256, max_open: 200, max_sources: 128, memory: 4 << 20, ..Config::default() };
    let mut reassembler = knowing_honest(config);
    let flood = |reassembler: &mut Reassembler, round: u32| {
        for n in 0..100 {
            let header = segment(1, round % 256 * 4096, 1 << 20, &[6; 64]);
            let _ = reassembler.handle(NOW, attacker(n), &header);
        }
    };
    (0..20).for_each(|round| flood(&mut reassembler, round));
    // The honest sender's event takes half of all memory. Until the event is complete, the honest sender has less than
    // half. Whenever the memory is full, the attackers therefore have more than half of it. The attackers never
    // completed an event. If such senders have more than half of the memory, only they lose events.
    let mut complete = false;
    for page in 0..512u32 {
        let placed = reassembler.handle(NOW, HONEST, &segment(7, page * 4096, 512 * 4096, &[1; 4096]));
        complete |= placed.is_ok_and(|place| place.complete);
        flood(&mut reassembler, 20 + page);
    }
    assert!(complete);
}

/// Returns a configuration for segments that all come from the address of one load balancer.
fn behind_lb() -> Config {
    Config {
        slots: 2048,
        max_open: 2048,
        max_open_per_source: 8,
        limits_by: LimitsBy::Stream,
        ..Config::default()
    }
}

#[test]
fn senders_behind_one_address_have_limits_of_their_own() {
    let config = Config { max_sources: 1024, ..behind_lb() };
    let mut reassembler = Reassembler::new(config).unwrap();
    // All streams have an open event at the same time, and all these events have the same event number.
    let mut complete = 0;
    for part in 0..2 {
        for stream in 0..1000 {
            let datagram = of_stream(stream, 7, part * 100, 200, &[1; 100]);
            let placed = reassembler.handle(NOW, HONEST, &datagram).unwrap();
            complete += usize::from(placed.complete && reassembler.release(placed.id));
        }
    }
    assert_eq!((complete, reassembler.counters().evicted_for_any_reason()), (1000, 0));
    let streams = reassembler.senders().filter(|sender| sender.data_id.is_some()).count();
    assert_eq!(streams, 1000);
    // A stream that opens more events than its limit loses its own events.
    for event in 100..120 {
        reassembler.handle(NOW, HONEST, &of_stream(3, event, 0, 200, &[1; 100])).unwrap();
    }
    let counters = reassembler.counters();
    assert_eq!((counters.evicted(Eviction::Sender), counters.evicted_for_any_reason()), (12, 12));
}

#[test]
fn made_up_streams_do_not_displace_proven_ones_of_the_same_address() {
    let config = Config { max_sources: 64, ..behind_lb() };
    let mut reassembler = knowing_honest(config);
    let mut n = 0;
    let complete = four_at_once(&mut reassembler, |reassembler| {
        for _ in 0..1000 {
            let _ = reassembler.handle(NOW, HONEST, &of_stream(2 + n % 60_000, 1, 0, 1000, &[6; 8]));
            n += 1;
        }
    });
    assert_eq!(complete, 4);
    assert!(reassembler.senders().count() <= 65, "the number of streams is bounded");
    // `Config::max_sources` is 64, so only 64 streams can have limits of their own. All other streams together count as
    // one sender, and `Config::max_open_per_source` is 8, so these streams together have at most 8 open events.
    let unknown = reassembler.senders().next().unwrap();
    assert_eq!((unknown.address, unknown.data_id, unknown.open), (None, None, 8));
}

#[test]
fn lengths_that_are_claimed_do_not_take_all_addresses() {
    let config = Config { max_event: 1 << 20, memory: 1 << 20, ..Config::default() };
    let most = config.max_claimed();
    let mut reassembler = knowing_honest(config);
    let complete = four_at_once(&mut reassembler, |reassembler| {
        for event in 0..40 {
            let _ = reassembler.handle(NOW, attacker(event as u8 % 3), &segment(event, 0, 1 << 20, &[6; 8]));
        }
        let claimed: u64 = u64::from(reassembler.open_events().saturating_sub(4)) << 20;
        assert!(claimed <= most, "{claimed} bytes are claimed");
    });
    assert_eq!(complete, 4);
    assert!(reassembler.counters().evicted(Eviction::Claimed) > 0);
}

/// Opens `events` events of the honest sender, each with `length` bytes and one segment with the bytes `payload`. Tests
/// that the reassembler refuses each of 100 events of 64 KiB, and evicts no event for them. The 100 events come from
/// `attackers` attackers in turn. The reassembler counts memory in pages of `page` bytes.
fn claims_evict_nothing(page: u32, events: u32, length: u32, payload: &[u8], attackers: u64) {
    let (slots, memory) = (1024, 64 << 10);
    let config =
        Config { slots, max_open: slots, max_open_per_source: slots, memory, page, ..Config::default() };
    let mut reassembler = knowing_honest(config);
    for event in 0..events {
        reassembler.handle(NOW, HONEST, &segment(event.into(), 0, length, payload)).unwrap();
    }
    for event in 0..100 {
        let claim = segment(event, 0, 64 << 10, &[6; 8]);
        let refused = reassembler.handle(NOW, attacker((event % attackers) as u8), &claim);
        assert_eq!(refused.unwrap_err(), SegmentDropCause::Memory);
    }
    assert_eq!((reassembler.open_events(), reassembler.counters().evicted_for_any_reason()), (events, 0));
}

#[test]
fn a_claim_for_which_enough_cannot_be_given_up_evicts_nothing() {
    // The sum of the lengths of the honest sender's 260 open events is just below `Config::max_claimed`. There is
    // therefore no room for an attacker's event of 64 KiB without evictions. The reassembler evicts at most sixteen
    // open events for a new event. Sixteen events of the honest sender are together shorter than one event of the
    // attacker, so their eviction would not make enough room.
    claims_evict_nothing(1, 260, 4032, &[1; 8], 1);
}

#[test]
fn nothing_is_evicted_from_full_memory_for_a_claim_that_cannot_be_met() {
    // The 512 events of the honest sender take a page each, so these events use all memory. The sum of the lengths of
    // these 512 events is equal to `Config::max_claimed`. An event of an attacker has 64 KiB. The reassembler evicts at
    // most sixteen events for a new event, and sixteen events of the honest sender have only 32 KiB together. Their
    // eviction would not make enough room for an attacker's event, so the reassembler refuses this event.
    claims_evict_nothing(128, 512, 2048, &[1; 128], 100);
}

#[test]
fn an_event_that_needs_memory_and_addresses_is_not_refused_after_an_eviction() {
    let (slots, memory, page) = (1024, 10_000, 1);
    let config =
        Config { slots, max_open: slots, max_open_per_source: slots, memory, page, ..Config::default() };
    let mut reassembler = Reassembler::new(config).unwrap();
    let mut open = |sender, event, length, bytes| {
        reassembler.handle(NOW, attacker(sender), &segment(event, 0, length, &vec![6; bytes])).unwrap();
    };
    // The first sender claims 73000 bytes and has most of the memory. Its event 0 has the most memory of all events.
    // The second sender has many short events, which claim 72000 bytes together. If event 0 is evicted, the second
    // sender claims the most.
    open(0, 0, 3000, 2900);
    (1..8).for_each(|event| open(0, event, 10_000, 800));
    (0..720).for_each(|event| open(1, event, 100, 1));
    open(2, 0, 10_000, 1);
    open(2, 1, 4900, 1);
    // The new event would exceed `Config::memory` by 222 bytes and `Config::max_claimed` by 9900 bytes.
    open(3, 0, 10_000, 1000);
    let evicted: Vec<_> = std::iter::from_fn(|| reassembler.poll_evicted()).map(|of| of.length).collect();
    assert_eq!(evicted, [3000, 10_000]);
}

#[test]
fn several_senders_make_room_where_one_has_too_little() {
    let config = Config { max_event: 1 << 20, memory: 1 << 20, page: 1, ..Config::default() };
    let mut reassembler = knowing_honest(config);
    // 32 senders have an open event of half a MiB each, so the sum of all claimed lengths is equal to
    // `Config::max_claimed`.
    for sender in 0..32 {
        reassembler.handle(NOW, attacker(sender), &segment(1, 0, 512 << 10, &[1; 8])).unwrap();
    }
    reassembler.handle(NOW, attacker(100), &segment(7, 0, 1 << 20, &[1; 8])).unwrap();
    assert_eq!(reassembler.counters().evicted(Eviction::Claimed), 2);
}

#[test]
fn a_stream_gets_a_seat_as_soon_as_one_is_free() {
    let config = Config { max_sources: 2, ..behind_lb() };
    let mut reassembler = Reassembler::new(config).unwrap();
    let open = |reassembler: &mut Reassembler, at: u64, stream: u16| {
        reassembler.handle(Time(at), HONEST, &of_stream(stream, at, 0, 200, &[1; 100])).unwrap().id
    };
    let has_entry = |reassembler: &Reassembler, stream| {
        reassembler.senders().any(|sender| sender.data_id == Some(stream))
    };
    let first = open(&mut reassembler, 1, 1);
    open(&mut reassembler, 2, 2);
    open(&mut reassembler, 3, 3);
    assert!(!has_entry(&reassembler, 3));
    reassembler.release(first);
    open(&mut reassembler, 4, 3);
    assert!(has_entry(&reassembler, 3) && !has_entry(&reassembler, 1));
    // If a sender has completed an event, the reassembler remembers the sender for one minute after the sender's last
    // datagram.
    let minute = 60_000_000_000;
    let proven = reassembler.handle(Time(5), HONEST, &of_stream(2, 2, 100, 200, &[1; 100])).unwrap();
    assert!(proven.complete && reassembler.release(proven.id));
    open(&mut reassembler, 5 + minute - 1, 4);
    assert!(!has_entry(&reassembler, 4));
    open(&mut reassembler, 5 + minute, 4);
    assert!(has_entry(&reassembler, 4) && !has_entry(&reassembler, 2));
}

#[test]
fn an_event_that_is_abandoned_is_not_among_the_complete_ones() {
    let mut reassembler = Reassembler::new(Config::default()).unwrap();
    let complete = reassembler.handle(NOW, HONEST, &segment(1, 0, 8, &[1; 8])).unwrap();
    let open = reassembler.handle(NOW, HONEST, &segment(2, 0, 16, &[1; 8])).unwrap();
    assert!(complete.complete && !open.complete);
    assert_eq!([complete.id, open.id].map(|id| reassembler.abandon(id)), [true, true]);
    assert!(!reassembler.abandon(open.id), "it is gone");
    let counters = reassembler.counters();
    assert_eq!((counters.opened, counters.complete, counters.abandoned), (2, 0, 2));
}
