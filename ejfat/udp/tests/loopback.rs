//! Events over loopback.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
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

/// Polls until nothing comes any more. Gives the bytes of the events that were complete.
fn drain(receiver: &mut Receiver) -> u64 {
    let mut delivered = 0;
    loop {
        let before = receiver.reassembler().counters().segments;
        let deliver = |event: ejfat_udp::Event<'_>| delivered += event.bytes.len() as u64;
        receiver.poll(Duration::from_millis(50), deliver, |_| {}).unwrap();
        if receiver.reassembler().counters().segments == before {
            return delivered;
        }
    }
}

#[test]
fn a_received_byte_is_copied_once() {
    let mut receiver = receiver(Ipv4Addr::LOCALHOST.into());
    let to = receiver.addresses().unwrap()[0];
    let mut sender = Sender::new(SenderConfig::new(to)).unwrap();
    let mut delivered = 0;
    for number in 0..35 {
        sender.send(number, 0, &event(number)).unwrap();
        delivered += drain(&mut receiver);
    }
    // Another length: not placed, so not copied.
    sender.send(35, 0, &[1; 3000]).unwrap();
    let other = [&ReHeader { data_id: 0, offset: 0, length: 5, event: 36 }.encode()[..], &[0; 9]].concat();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&other, to).unwrap();
    delivered += drain(&mut receiver);
    let counters = receiver.reassembler().counters();
    assert_eq!((counters.complete, counters.dropped_of_any_cause()), (36, 1));
    assert_eq!(sender.sent().bytes, delivered);
    // The reassembler is lent datagrams and events are lent by the arena: nothing else can have been copied.
    assert_eq!((receiver.arena().copied(), counters.placed_bytes), (delivered, delivered));
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    let config =
        ReceiverConfig { listen, buffer: Some(4096), by_source: true, reassembly: Config::default() };
    let mut receiver = Receiver::new(config).unwrap();
    assert_eq!(receiver.kernel_drops().unwrap(), 0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.addresses().unwrap()[0];
    for event in 0..200 {
        let header = ReHeader { data_id: 0, offset: 0, length: 1000, event };
        socket.send_to(&[&header.encode()[..], &[0; 1000]].concat(), to).unwrap();
    }
    drain(&mut receiver);
    let received = receiver.reassembler().counters().segments;
    assert!((1..200).contains(&received), "{received} of 200 went into 4 KiB");
    assert_eq!(receiver.kernel_drops().unwrap(), 200 - received);
    assert_eq!(receiver.kernel_drops().unwrap(), 200 - received, "counted once");
}
