//! Tests the socket layer on loopback: datagrams arrive whole, and errors name the address and the cause.
#![allow(unsafe_code)]

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd as _},
    time::{Duration, Instant},
};

use naa_udp::{Port, PortConfig, Ready, RecvBatch, Rest, SendBatch, Waker, local_mtu, wait};

const SINGLY: PortConfig = PortConfig { receive_buffer: 4 << 20, gro: false, gso: false };

fn port(ip: &str, config: &PortConfig) -> Port {
    Port::bind(SocketAddr::new(ip.parse().expect("an IP address"), 0), config).expect("a loopback port")
}

/// Sets the option `name` of a socket, at the level `level`, to the value `value`.
fn set_option(socket: &impl AsFd, (level, name): (libc::c_int, libc::c_int), value: libc::c_int) {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is an integer of 4 bytes, and the last argument is this length.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the `len` bytes of the test's datagram with the number `number`. Each byte depends on this number and on the
/// position of the byte.
fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + (at >> 8)) as u8).collect()
}

/// Adds a datagram with the bytes `body` to the batch. The first 12 and the last 4 bytes are copied. The bytes between
/// them stay in `body`, and the batch stores a pointer to them. Returns the datagram's IP identification.
fn put(batch: &mut SendBatch, to: SocketAddr, body: &[u8]) -> u16 {
    let mut segment = batch.segment(to, body.len()).expect("room");
    let id = segment.ip_id();
    let (header, rest) = body.split_at(body.len().min(12));
    let (middle, trailer) = rest.split_at(rest.len().saturating_sub(4));
    segment.copy(header);
    // SAFETY: every caller of `put` keeps `body` until the batch has been flushed.
    unsafe { segment.gather(middle.as_ptr(), middle.len()) };
    segment.finish(trailer);
    id
}

/// Binds two ports to the loopback address 127.0.0.1.
fn two_ports() -> (Port, Port) {
    let [a, b] = [(); 2].map(|()| port("127.0.0.1", &PortConfig::default()));
    (a, b)
}

fn flush(batch: &mut SendBatch, port: &Port, datagrams: usize) {
    let outcome = batch.flush(port).expect("a usable socket");
    assert_eq!((outcome.sent, outcome.dropped, outcome.rest), (datagrams, 0, Rest::Empty), "{outcome:?}");
    assert!(batch.is_empty());
}

struct Datagram {
    from: SocketAddr,
    index: u16,
    bytes: Vec<u8>,
}

/// Receives until `count` datagrams have arrived.
fn receive(port: &Port, count: usize) -> Vec<Datagram> {
    let mut batch = RecvBatch::new(8);
    let mut all = Vec::new();
    while all.len() < count {
        let ready = wait(&[port], None, false, Some(Duration::from_secs(5))).expect("a wait");
        assert!(ready.readable, "{} of {count} datagrams came", all.len());
        port.recv(&mut batch).expect("a usable socket");
        for message in batch.messages() {
            let from = message.from;
            let datagrams = message.segments();
            all.extend(datagrams.map(|(index, bytes)| Datagram { from, index, bytes: bytes.to_vec() }));
        }
    }
    assert_eq!(all.len(), count);
    all
}

fn assert_bodies(got: &[Datagram], sent: &[Vec<u8>]) {
    assert_eq!(got.len(), sent.len());
    for (number, (got, sent)) in got.iter().zip(sent).enumerate() {
        assert!(got.bytes == *sent, "datagram {number}: {} bytes, {} sent", got.bytes.len(), sent.len());
    }
}

/// Sends datagrams with the lengths `lens` from one loopback address to another, and checks that all datagrams arrive
/// in order. Returns the IP identifications of the datagrams in the order in which they were sent.
fn transfer(ips: [&str; 2], sender: &PortConfig, receiver: &PortConfig, lens: &[usize]) -> Vec<u16> {
    let (a, b) = (port(ips[0], sender), port(ips[1], receiver));
    let bodies: Vec<_> = lens.iter().enumerate().map(|(number, len)| pattern(number, *len)).collect();
    let mut batch = SendBatch::new(lens.len(), 1 << 20, a.gso());
    let ids = bodies.iter().map(|body| put(&mut batch, b.local_addr(), body)).collect();
    flush(&mut batch, &a, lens.len());
    let got = receive(&b, lens.len());
    assert_bodies(&got, &bodies);
    assert!(got.iter().all(|datagram| datagram.from == a.local_addr()));
    if b.gro() && a.gso() {
        let indices: Vec<_> = got.iter().map(|datagram| datagram.index).collect();
        assert_eq!(indices, ids, "loopback keeps super-packets whole");
    }
    ids
}

#[test]
fn one_datagram() {
    for ips in [["127.0.0.1", "127.0.0.2"], ["::1", "::1"]] {
        assert_eq!(transfer(ips, &PortConfig::default(), &PortConfig::default(), &[1068]), [0]);
    }
}

#[test]
fn super_packet_is_split_again() {
    // The lengths of a long datagram, four of one length, two short ones, and one more of the former length. A
    // datagram that is shorter than the first datagram of its super-packet ends the super-packet.
    let lens = [4128, 4112, 4112, 4112, 4112, 40, 40, 4112];
    let gso = PortConfig::default();
    for ips in [["127.0.0.1", "127.0.0.2"], ["::1", "::1"]] {
        for receiver in [&gso, &SINGLY] {
            assert_eq!(transfer(ips, &gso, receiver, &lens), [0, 1, 0, 1, 2, 3, 0, 0]);
            assert_eq!(transfer(ips, &SINGLY, receiver, &lens), [0; 8]);
        }
    }
}

#[test]
fn super_packets_are_bounded() {
    let config = PortConfig::default();
    let transfer = |lens: &[usize]| transfer(["127.0.0.1"; 2], &config, &config, lens);
    let ids = transfer(&[20; 130]);
    assert_eq!((ids[63], ids[64], ids[129]), (63, 0, 1), "64 segments at most");
    let ids = transfer(&[8192; 9]);
    assert_eq!((ids[6], ids[7]), (6, 0), "65,000 bytes at most");
    transfer(&[65_507, 1, 65_507]);
}

#[test]
fn a_super_packet_has_one_destination() {
    let ((a, b), c) = (two_ports(), port("127.0.0.3", &PortConfig::default()));
    let mut batch = SendBatch::new(4, 4096, true);
    let bodies: Vec<_> = (0..4).map(|number| pattern(number, 100)).collect();
    for (body, to) in bodies.iter().zip([&b, &c, &c, &b]) {
        put(&mut batch, to.local_addr(), body);
    }
    flush(&mut batch, &a, 4);
    assert_bodies(&receive(&b, 2), &[bodies[0].clone(), bodies[3].clone()]);
    assert_bodies(&receive(&c, 2), &[bodies[1].clone(), bodies[2].clone()]);
}

#[test]
fn pieces_from_many_places_arrive_in_order() {
    let (a, b) = two_ports();
    let body = pattern(5, 5000);
    let mut batch = SendBatch::new(8, 1 << 16, true);
    for _ in 0..2 {
        let mut segment = batch.segment(b.local_addr(), body.len()).expect("room");
        segment.copy(&body[..10]);
        segment.space(5).copy_from_slice(&body[10..15]);
        for (number, chunk) in body[15..4000].chunks(400).enumerate() {
            match number % 3 {
                0 => segment.copy(chunk),
                // SAFETY: `body` lives until the batch has been flushed.
                _ => unsafe { segment.gather(chunk.as_ptr(), chunk.len()) },
            }
        }
        segment.finish(&body[4000..]);
    }
    flush(&mut batch, &a, 2);
    assert_bodies(&receive(&b, 2), &[body.clone(), body]);
}

#[test]
fn an_unfinished_segment_leaves_no_trace() {
    let (a, b) = two_ports();
    let bodies = [pattern(0, 64), pattern(1, 64)];
    let mut batch = SendBatch::new(2, 4096, true);
    put(&mut batch, b.local_addr(), &bodies[0]);
    batch.segment(b.local_addr(), 64).expect("room").copy(&[9; 20]);
    put(&mut batch, b.local_addr(), &bodies[1]);
    assert!(batch.segment(b.local_addr(), 64).is_none(), "the batch is full");
    flush(&mut batch, &a, 2);
    assert_bodies(&receive(&b, 2), &bodies);
}

#[test]
fn a_full_arena_refuses() {
    let to = "127.0.0.1:9".parse().expect("an address");
    let mut batch = SendBatch::new(10, 100, true);
    put(&mut batch, to, &pattern(0, 90));
    assert!(batch.segment(to, 85).is_none(), "16 of 100 bytes are copied already");
    assert!(batch.segment(to, 84).is_some());
}

#[test]
#[should_panic(expected = "announced as 10 bytes")]
fn a_datagram_keeps_to_its_length() {
    let mut batch = SendBatch::new(1, 100, true);
    batch.segment("127.0.0.1:9".parse().expect("an address"), 10).expect("room").copy(&[0; 11]);
}

#[test]
fn a_large_batch_needs_several_system_calls() {
    let lens: Vec<_> = (0..100).map(|number| 300 + number).collect();
    transfer(["127.0.0.1", "127.0.0.1"], &PortConfig::default(), &PortConfig::default(), &lens);
}

#[test]
fn refused_messages_are_dropped_and_counted() {
    let (a, b) = two_ports();
    let bodies = [pattern(0, 64), pattern(1, 65), pattern(2, 64)];
    let mut batch = SendBatch::new(4, 4096, true);
    put(&mut batch, b.local_addr(), &bodies[0]);
    put(&mut batch, "[::1]:9".parse().expect("an address"), &bodies[1]);
    put(&mut batch, SocketAddr::new(b.local_addr().ip(), 0), &bodies[1]);
    put(&mut batch, b.local_addr(), &bodies[2]);
    let outcome = batch.flush(&a).expect("a usable socket");
    assert_eq!((outcome.sent, outcome.dropped, outcome.rest), (2, 2, Rest::Empty));
    assert!(outcome.error.is_some() && a.gso());
    assert_bodies(&receive(&b, 2), &[bodies[0].clone(), bodies[2].clone()]);
}

#[test]
fn an_unreachable_peer_does_not_disturb_the_socket() {
    let (a, closed) = (port("127.0.0.1", &SINGLY), port("127.0.0.1", &SINGLY).local_addr());
    let mut batch = SendBatch::new(2, 4096, false);
    for _ in 0..2 {
        let body = pattern(0, 64);
        put(&mut batch, closed, &body);
        flush(&mut batch, &a, 1);
        assert_eq!(a.recv(&mut RecvBatch::new(1)).expect("no error"), 0);
    }
}

#[test]
fn ungrouping_renumbers_what_had_another_id() {
    let (a, b) = two_ports();
    let mut bodies: Vec<_> = [80, 80, 40, 40].iter().map(|len| pattern(*len, *len)).collect();
    let mut batch = SendBatch::new(4, 4096, true);
    let ids: Vec<_> = bodies.iter().map(|body| put(&mut batch, b.local_addr(), body)).collect();
    assert_eq!(ids, [0, 1, 2, 0]);
    let mut seen = Vec::new();
    batch.ungroup(|len, id, trailer| {
        seen.push((len, id));
        trailer.copy_from_slice(&[0xa0 + id as u8; 4]);
    });
    assert_eq!(seen, [(80, 1), (40, 2)]);
    bodies[1][76..].fill(0xa1);
    bodies[2][36..].fill(0xa2);
    flush(&mut batch, &a, 4);
    let got = receive(&b, 4);
    assert_bodies(&got, &bodies);
    assert!(got.iter().all(|datagram| datagram.index == 0));
    assert_eq!(
        [put(&mut batch, b.local_addr(), &bodies[0]), put(&mut batch, b.local_addr(), &bodies[1])],
        [0; 2]
    );
}

#[test]
fn refused_super_packets_stay_until_ungrouped() {
    let (a, b) = two_ports();
    // The Linux kernel refuses to split the super-packets of a socket that sends no UDP checksums (`SO_NO_CHECK`).
    set_option(&a, (libc::SOL_SOCKET, libc::SO_NO_CHECK), 1);
    let bodies = [pattern(0, 90), pattern(1, 80), pattern(2, 80), pattern(3, 90)];
    let mut batch = SendBatch::new(4, 4096, a.gso());
    let ids: Vec<_> = bodies.iter().map(|body| put(&mut batch, b.local_addr(), body)).collect();
    assert_eq!(ids, [0, 1, 0, 0]);
    let outcome = batch.flush(&a).expect("a usable socket");
    assert_eq!((outcome.sent, outcome.dropped, outcome.rest), (0, 0, Rest::GsoRefused));
    assert!(!a.gso() && !batch.is_empty());
    batch.ungroup(|_, _, _| {});
    flush(&mut batch, &a, 4);
    assert_bodies(&receive(&b, 4), &bodies);
}

#[test]
fn a_conflict_names_the_holder() {
    for ip in ["127.0.0.1", "::1"] {
        let holder = port(ip, &SINGLY);
        let error = Port::bind(holder.local_addr(), &SINGLY).expect_err("the address is taken").to_string();
        let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
        let expected = format!("{} is held by process {} (", holder.local_addr(), std::process::id());
        assert!(error.starts_with(&expected) && error.contains(name.trim()), "{error}");
    }
}

#[test]
fn only_concrete_local_addresses() {
    for wildcard in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0", "224.0.0.1:0", "255.255.255.255:0"] {
        let error = Port::bind(wildcard.parse().expect("an address"), &SINGLY).expect_err(wildcard);
        assert!(error.to_string().contains("one concrete local address"), "{error}");
    }
    let foreign: SocketAddr = "203.0.113.7:0".parse().expect("an address");
    for error in [Port::bind(foreign, &SINGLY).map(drop), local_mtu(foreign.ip()).map(drop)] {
        let error = error.expect_err("not of this machine").to_string();
        assert_eq!(error, "203.0.113.7 is not an address of this machine; `ip addr` lists them");
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    assert!(port("::ffff:127.0.0.1", &SINGLY).local_addr().is_ipv4());
}

#[test]
fn mtu_of_loopback() {
    for ip in ["127.0.0.1", "127.0.0.2", "::1"] {
        assert_eq!(local_mtu(ip.parse().expect("an IP address")).expect("loopback"), 65_536, "{ip}");
    }
}

#[test]
fn receive_buffer_is_reported() {
    let small = port("127.0.0.1", &PortConfig { receive_buffer: 20_000, ..SINGLY });
    assert_eq!(small.recv_buffer(), 40_000);
    let b = port("127.0.0.1", &SINGLY);
    let a = port("127.0.0.1", &SINGLY);
    let mut batch = SendBatch::new(30, 1 << 17, false);
    let bodies: Vec<_> = (0..30).map(|number| pattern(number, 4112)).collect();
    // The receive buffer of the socket `small` is too small for 30 datagrams of 4 KiB.
    for body in &bodies {
        put(&mut batch, small.local_addr(), body);
    }
    flush(&mut batch, &a, 30);
    let mut got = RecvBatch::new(32);
    let mut all = || {
        let (mut kept, mut overflows) = (0, 0);
        while let more @ 1.. = small.recv(&mut got).expect("a usable socket") {
            kept += more;
            overflows = got.overflows().map_or(overflows, |now| now as usize);
        }
        (kept, overflows)
    };
    let (kept, _) = all();
    assert!((1..30).contains(&kept), "{kept}");
    put(&mut batch, small.local_addr(), &bodies[0]);
    flush(&mut batch, &a, 1);
    assert_eq!(all(), (1, 30 - kept));
    // The receive batch `got` now receives from the socket `b`, which has lost no datagram. The number of datagrams
    // that the socket `small` has lost must not stay in `got`.
    put(&mut batch, b.local_addr(), &bodies[0]);
    flush(&mut batch, &a, 1);
    assert_eq!((b.recv(&mut got).expect("a usable socket"), got.overflows()), (1, None));
}

#[test]
fn waits_end_in_time() {
    let idle = port("127.0.0.1", &SINGLY);
    for micros in [0, 200, 3_000, 20_000] {
        let timeout = Duration::from_micros(micros);
        // The machine may be busy, so it is enough if one of ten tries keeps the time limit.
        let late = (0..10).map(|_| {
            let start = Instant::now();
            assert_eq!(wait(&[&idle], None, false, Some(timeout)).expect("a wait"), Ready::default());
            let elapsed = start.elapsed();
            assert!(elapsed >= timeout, "{elapsed:?} instead of {timeout:?}");
            elapsed - timeout
        });
        let best = late.min().expect("ten tries");
        assert!(best < Duration::from_millis(1), "{timeout:?} is late by {best:?} at best");
    }
}

#[test]
fn wakers_and_ports_end_a_wait() {
    let (a, b) = (port("127.0.0.1", &SINGLY), port("127.0.0.2", &SINGLY));
    let waker = Waker::new().expect("an eventfd");
    assert!(!waker.drain());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
            waker.wake();
        });
        let ready = wait(&[&a, &b], Some(&waker), false, None).expect("a wait");
        assert_eq!(ready, Ready { woken: true, ..Ready::default() });
    });
    assert!(waker.drain() && !waker.drain());
    let ready = wait(&[&a, &b], Some(&waker), true, None).expect("a wait");
    assert_eq!(ready, Ready { writable: true, ..Ready::default() });
    let mut batch = SendBatch::new(1, 4096, false);
    let body = pattern(0, 64);
    put(&mut batch, b.local_addr(), &body);
    flush(&mut batch, &a, 1);
    let ready = wait(&[&a, &b], Some(&waker), false, None).expect("a wait");
    assert_eq!(ready, Ready { readable: true, ..Ready::default() });
    assert!(wait(&[&a; 33], None, false, None).is_err(), "more than one wait can take");
}

#[test]
fn congestion_marks_are_seen() {
    for (ip, set) in
        [("127.0.0.1", (libc::IPPROTO_IP, libc::IP_TOS)), ("::1", (libc::IPPROTO_IPV6, libc::IPV6_TCLASS))]
    {
        let b = port(ip, &PortConfig::default());
        let plain = std::net::UdpSocket::bind((ip, 0)).expect("a socket");
        for mark in [0u8, 2, 3] {
            set_option(&plain, set, libc::c_int::from(mark | 0x68));
            plain.send_to(&[1, 2, 3], b.local_addr()).expect("sent");
            let mut batch = RecvBatch::new(4);
            while b.recv(&mut batch).expect("a usable socket") == 0 {}
            assert_eq!(batch.messages().map(|message| message.ecn).collect::<Vec<_>>(), [mark]);
        }
    }
}

#[test]
fn ipv6_without_checksum_is_received() {
    let b = port("::1", &PortConfig::default());
    let plain = std::net::UdpSocket::bind(("::1", 0)).expect("a socket");
    set_option(&plain, (libc::SOL_UDP, libc::UDP_NO_CHECK6_TX), 1);
    plain.send_to(&[1, 2, 3], b.local_addr()).expect("sent");
    assert_bodies(&receive(&b, 1), &[vec![1, 2, 3]]);
}
