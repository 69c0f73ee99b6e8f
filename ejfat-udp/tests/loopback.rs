//! Events over loopback.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    reassembly::{Config, Reassembler},
    segment::LbVersion,
    wire::ReHeader,
};
use ejfat_udp::{Arena, Receiver, ReceiverConfig, Sender, SenderConfig};

const PATIENCE: Duration = Duration::from_secs(20);

fn event(number: u64) -> Vec<u8> {
    let len = [1, 100, 1436, 1437, 8_000, 100_000, 1_000_000][number as usize % 7];
    (0..len).map(|at: u64| (at.wrapping_mul(number + 7) >> 3) as u8).collect()
}

fn receiver(ip: IpAddr) -> Receiver {
    let reassembly = Config { max_event: 1 << 20, memory: 64 << 20, ..Config::default() };
    let listen = vec![SocketAddr::new(ip, 0)];
    Receiver::new(ReceiverConfig { listen, buffer: Some(8 << 20), by_source: true, reassembly }).unwrap()
}

/// Paced, so that socket buffers of any system hold what is on its way.
fn all_arrive(ip: IpAddr, version: LbVersion, mtu: u16) {
    let mut receiver = receiver(ip);
    let to = receiver.addresses().unwrap()[0];
    let config = SenderConfig { mtu, version, data_id: 9, rate: Some(100e6), ..SenderConfig::new(to) };
    let sending = std::thread::spawn(move || {
        let mut sender = Sender::new(config).unwrap();
        (0..35).map(|number| sender.send(number, 5, &event(number)).unwrap()).collect::<Vec<_>>()
    });
    let mut delivered = BTreeMap::new();
    let begin = Instant::now();
    while delivered.len() < 35 && begin.elapsed() < PATIENCE {
        let deliver = |event: ejfat_udp::Event<'_>| {
            assert_eq!((event.name.data_id, event.from), (9, Some(ip)));
            assert!(delivered.insert(event.name.event, event.bytes.to_vec()).is_none());
        };
        receiver.poll(Duration::from_millis(100), deliver, |lost| panic!("{lost:?}")).unwrap();
    }
    let ticks = sending.join().unwrap();
    assert!(ticks.is_sorted() && ticks.len() == 35);
    assert!(delivered.into_iter().eq((0..35).map(|number| (number, event(number)))));
    assert_eq!(receiver.reassembler().counters().dropped_of_any_cause(), 0);
}

#[test]
fn v4_v2() {
    all_arrive(Ipv4Addr::LOCALHOST.into(), LbVersion::V2, 1500);
}

#[test]
fn v6_v3_jumbo() {
    all_arrive(Ipv6Addr::LOCALHOST.into(), LbVersion::V3, 9000);
}

#[test]
fn small_packets() {
    all_arrive(Ipv4Addr::LOCALHOST.into(), LbVersion::V2, 576);
}

#[test]
fn pages_of_events_that_are_over_are_given_back() {
    let bounds = Config { slots: 8, max_open: 8, max_event: 1 << 20, memory: 3 << 20, ..Config::default() };
    let mut arena = Arena::new(&bounds).unwrap();
    let mut reassembler = Reassembler::new(Config { memory: 8 << 20, ..bounds }).unwrap();
    let mut open = |event: u64, arena: &mut Arena| {
        let header = ReHeader { data_id: 0, offset: 0, length: 1 << 20, event };
        let datagram = [&header.encode()[..], &vec![7; 1 << 19]].concat();
        let place = reassembler.handle(Time(0), None, &datagram).unwrap();
        arena.place(&place, &datagram[ReHeader::LEN..]);
        place.id
    };
    let ids: Vec<_> = (0..6).map(|event| open(event, &mut arena)).collect();
    assert_eq!(arena.touched(), 3 << 20);
    for &id in &ids[..5] {
        arena.release(id);
    }
    let next = open(6, &mut arena);
    assert_eq!(arena.touched(), 1 << 20, "of the two events that are open");
    for (id, byte) in [(ids[0], 0), (ids[5], 7), (next, 7)] {
        assert!(arena.bytes(id.slot(), 1 << 19).iter().all(|&found| found == byte));
    }
}
