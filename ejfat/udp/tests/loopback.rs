//! Events over loopback.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    listen::Listen,
    reassembly::{Config, Reassembler},
    segment::LbVersion,
    wire::ReHeader,
};
use ejfat_udp::{EventMemory, Receiver, ReceiverConfig, Sender, SenderConfig};

const TIMEOUT: Duration = Duration::from_secs(20);

fn event(number: u64) -> Vec<u8> {
    let len = [1, 100, 1436, 1437, 8_000, 100_000, 1_000_000][number as usize % 7];
    (0..len).map(|at: u64| (at.wrapping_mul(number + 7) >> 3) as u8).collect()
}

fn receiver(ip: IpAddr, buffer: usize) -> Receiver {
    let reassembly = Config { max_event: 1 << 20, memory: 64 << 20, ..Config::default() };
    let listen = vec![Listen::Port(SocketAddr::new(ip, 0))];
    Receiver::new(ReceiverConfig { listen, buffer: Some(buffer), reassembly }).unwrap()
}

/// Paced, so that socket buffers of any system hold what is on its way.
fn all_arrive(ip: IpAddr, version: LbVersion, mtu: u16) {
    let mut receiver = receiver(ip, 8 << 20);
    let to = receiver.addresses()[0];
    let config = SenderConfig { mtu, version, data_id: 9, rate: Some(100e6), ..SenderConfig::new(to) };
    let sending = std::thread::spawn(move || {
        let mut sender = Sender::new(config).unwrap();
        (0..35).map(|number| sender.send(number, 5, &event(number)).unwrap()).collect::<Vec<_>>()
    });
    let mut delivered = BTreeMap::new();
    let begin = Instant::now();
    while delivered.len() < 35 && begin.elapsed() < TIMEOUT {
        let deliver = |event: ejfat_udp::ReceivedEvent<'_>| {
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
fn other_threads_see_how_full_it_is_even_while_an_event_is_taken() {
    let mut receiver = receiver(Ipv4Addr::LOCALHOST.into(), 200_000);
    let gauge = receiver.gauge().unwrap();
    assert_eq!(gauge.read().fill, 0.0);
    let mut sender = Sender::new(SenderConfig::new(receiver.addresses()[0])).unwrap();
    sender.send(0, 0, &event(1)).unwrap();
    let (mut before, mut after) = (0.0, 0.0);
    let deliver = |_: ejfat_udp::ReceivedEvent<'_>| {
        before = gauge.read().fill;
        // The event is larger than the socket's receive buffer.
        sender.send(1, 0, &event(6)).unwrap();
        after = gauge.read().fill;
    };
    receiver.poll(TIMEOUT, deliver, |_| ()).unwrap();
    assert!(before < 0.5 && after > 0.9 && after <= 1.0, "{before} {after}");
    let reading = receiver.gauge().unwrap().read();
    // The first segments of the second event were read together with the first event.
    assert_eq!((reading.opened, reading.complete), (2, 1));
    assert!(reading.segments > 1 && reading.bytes > 1400);
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
    let mut memory = EventMemory::new(&bounds);
    let mut reassembler = Reassembler::new(Config { memory: 8 << 20, ..bounds }).unwrap();
    let mut open = |event: u64, memory: &mut EventMemory| {
        let header = ReHeader { data_id: 0, offset: 0, length: 1 << 20, event };
        let datagram = [&header.encode()[..], &vec![7; 1 << 19]].concat();
        let place = reassembler.handle(Time(0), None, &datagram).unwrap();
        memory.place(&place, &datagram[ReHeader::LEN..]).unwrap();
        place.id
    };
    let ids: Vec<_> = (0..6).map(|event| open(event, &mut memory)).collect();
    assert_eq!(memory.touched(), 3 << 20);
    for &id in &ids[..5] {
        memory.release(id);
    }
    let next = open(6, &mut memory);
    assert_eq!(memory.touched(), 1 << 20, "of the two events that are open");
    for (id, byte) in [(ids[0], 0), (ids[5], 7), (next, 7)] {
        assert!(memory.bytes(id.slot(), 1 << 19).iter().all(|&found| found == byte));
    }
}

#[test]
fn addresses_of_events_are_taken_when_they_begin() {
    let bounds =
        Config { slots: 1024, max_open: 1024, max_event: 64 << 20, memory: 64 << 20, ..Config::default() };
    let mut memory = EventMemory::new(&bounds);
    assert_eq!(memory.mapped(), 0);
    let mut reassembler = Reassembler::new(Config { memory: u64::MAX, ..bounds.clone() }).unwrap();
    let mut round = |first: u64, count: u64, length: u32, memory: &mut EventMemory| {
        let ids: Vec<_> = (first..first + count)
            .map(|event| {
                let header = ReHeader { data_id: 0, offset: length - 8, length, event };
                let datagram = [&header.encode()[..], &event.to_le_bytes()].concat();
                let from = Some(IpAddr::from([10, 0, (event >> 8) as u8, event as u8]));
                let place = reassembler.handle(Time(0), from, &datagram).unwrap();
                memory.place(&place, &datagram[ReHeader::LEN..]).unwrap();
                (event, place.id)
            })
            .collect();
        let mapped = memory.mapped();
        for (event, id) in ids {
            assert_eq!(memory.bytes(id.slot(), length as usize)[length as usize - 8..], event.to_le_bytes());
            memory.release(id);
            reassembler.release(id);
        }
        mapped
    };
    assert_eq!(round(0, 100, 1000, &mut memory), 100 << 16);
    // As many long events as may be claimed are opened first, and then short ones in the same slots.
    let most = bounds.max_claimed() as usize;
    assert!(round(1000, 16, 64 << 20, &mut memory) <= most * 5 / 2);
    assert!(round(2000, 256, 1 << 20, &mut memory) <= most * 5 / 2);
    assert!(round(3000, 256, 64 << 10, &mut memory) <= most * 5 / 2);
}

#[test]
fn one_reader_has_a_whole_range_of_ports_without_those_that_are_taken() {
    let ip: IpAddr = "127.0.33.1".parse().unwrap();
    let (first, last) = (20_000, 20_099);
    let taken = UdpSocket::bind((ip, 20_050)).unwrap();
    let reassembly = Config { max_event: 1 << 20, memory: 64 << 20, ..Config::default() };
    let config = ReceiverConfig { listen: vec![Listen::Range { ip, first, last }], buffer: None, reassembly };
    let mut receiver = Receiver::new(config).unwrap();
    assert_eq!((receiver.addresses().len(), receiver.skipped()), (99, &[taken.local_addr().unwrap()][..]));
    let ports = [20_000, 20_049, 20_099];
    for (event, port) in (0..).zip(ports) {
        let config = SenderConfig { data_id: port, ..SenderConfig::new(SocketAddr::new(ip, port)) };
        Sender::new(config).unwrap().send(event, 0, &[7; 5000]).unwrap();
    }
    assert_eq!(drain(&mut receiver), 15_000);
    assert_eq!(receiver.all_kernel_drops().unwrap(), 0);
    let counted = receiver.port_counters();
    let counted: Vec<_> = counted.iter().map(|of| (of.at.port(), of.datagrams, of.kernel_drops)).collect();
    assert_eq!(counted, ports.map(|port| (port, 4, 0)));
}

#[test]
fn a_named_port_that_is_taken_is_an_error_that_names_holder_and_remedy() {
    let taken = UdpSocket::bind("127.0.33.2:0").unwrap();
    let listen = vec![Listen::Port(taken.local_addr().unwrap())];
    let config = ReceiverConfig { listen, buffer: None, reassembly: Config::default() };
    let error = Receiver::new(config).unwrap_err().to_string();
    let pid = format!("process {}", std::process::id());
    assert!(error.contains(&pid) && error.contains("stop it, or use another address"), "{error}");
    // 192.0.2.0/24 is of documentation only.
    for (ip, hint) in [("192.0.2.1", ""), ("fd00::1:9100", "[fd00::1]:9100")] {
        let listen = vec![Listen::Port(SocketAddr::new(ip.parse().unwrap(), 19_522))];
        let config = ReceiverConfig { listen, buffer: None, reassembly: Config::default() };
        let error = Receiver::new(config).unwrap_err().to_string();
        assert!(error.contains("is not an address of this machine") && error.contains(hint), "{error}");
    }
}

/// Polls until nothing comes any more. Gives the bytes of the events that were complete.
fn drain(receiver: &mut Receiver) -> u64 {
    let mut delivered = 0;
    loop {
        let before = receiver.reassembler().counters().segments;
        let deliver = |event: ejfat_udp::ReceivedEvent<'_>| delivered += event.bytes.len() as u64;
        receiver.poll(Duration::from_millis(50), deliver, |_| {}).unwrap();
        if receiver.reassembler().counters().segments == before {
            return delivered;
        }
    }
}

#[test]
fn a_received_byte_is_copied_once() {
    let mut receiver = receiver(Ipv4Addr::LOCALHOST.into(), 8 << 20);
    let to = receiver.addresses()[0];
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
    // The reassembler is lent datagrams and events are lent by the event memory: nothing else can have been copied.
    assert_eq!((receiver.event_memory().copied(), counters.placed_bytes), (delivered, delivered));
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let mut receiver = receiver(Ipv4Addr::LOCALHOST.into(), 4096);
    assert_eq!(receiver.kernel_drops().unwrap(), 0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.addresses()[0];
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

#[test]
fn each_event_is_told_when_it_was_taken_though_many_came_in_one_batch() {
    let mut receiver = receiver(Ipv4Addr::LOCALHOST.into(), 200_000);
    let gauge = receiver.gauge().unwrap();
    // One socket and no pace: the kernel may merge what it can.
    let config = SenderConfig { sockets: 1, ..SenderConfig::new(receiver.addresses()[0]) };
    let mut sender = Sender::new(config).unwrap();
    for number in 0..20 {
        sender.send(number, 0, &[7; 1400]).unwrap();
    }
    let mut readings = Vec::new();
    let begin = Instant::now();
    while readings.len() < 20 && begin.elapsed() < TIMEOUT {
        receiver.poll(Duration::from_millis(100), |_| readings.push(gauge.read()), |_| {}).unwrap();
    }
    for (taken, reading) in readings.iter().enumerate() {
        assert_eq!((reading.delivered, reading.complete), (taken as u64, taken as u64 + 1));
    }
    assert_eq!(gauge.read().delivered, 20);
    // What is still to be taken counts as held, wherever it is.
    let first = readings[0].fill;
    assert!(first > 19.0 * 1400.0 / 400_000.0 && first > readings[19].fill, "{readings:?}");
    assert_eq!(gauge.read().fill, 0.0);
}
