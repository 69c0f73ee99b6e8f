//! Tests how devices are opened and used: ports, address families, MTUs, several peers, and memory that is deregistered
//! during a transfer.

mod side;

use std::{
    thread,
    time::{Duration, Instant},
};

use roce_udp::{EmbeddedConfig, open};
use side::{Side, address, connect, counter, device, remote, round_trip, set_device_option};
use verbs::{
    Access, ConnParam, Error, Payload, QpCap, RecvWr, SendFlags, SendOp, SendWr, WaitMode, WaitOn, Wake,
    WcStatus,
};

#[test]
fn a_second_device_on_an_address_dials_only() {
    let (ip, options) = (address(), EmbeddedConfig::default());
    let first = Side::on(device(ip, &options));
    assert!(first.context.attr().can_listen);
    let error = open(ip, &EmbeddedConfig { must_listen: true, ..options.clone() }).unwrap_err();
    assert!(matches!(error, Error::AddressInUse { .. }), "{error}");
    let second = open(ip, &options).unwrap();
    assert!(!second.attr().can_listen && second.attr().address == ip, "{:?}", second.attr());
    let text = second.create_channel().unwrap().listen(0, 1).unwrap_err().to_string();
    let holder = format!("this device cannot listen: {ip}:4791 is held by process {} (", std::process::id());
    assert!(text.starts_with(&holder), "{text}");
    // The device `second` does not hold the UDP port 4791 of `ip`, but must still be able to connect. It connects to a
    // device with another address, and to the device of `first`, which holds the port.
    for peer in [&Side::new(), &first] {
        let second = Side::on(second.clone());
        connect(&second, peer);
        round_trip(&second, peer, 1 << 20);
        round_trip(peer, &second, 100_000);
    }
}

#[test]
fn ipv6() {
    let ip = "::1".parse().unwrap();
    let first = match open(ip, &EmbeddedConfig { must_listen: true, ..EmbeddedConfig::default() }) {
        Ok(context) => Side::on(context),
        Err(error) => return println!("skipped: no device on ::1 ({error})"),
    };
    let second = Side::on(open(ip, &EmbeddedConfig::default()).unwrap());
    connect(&second, &first);
    round_trip(&second, &first, 1 << 20);
    round_trip(&first, &second, 1001);
    // Devices of different address families cannot connect.
    let other = Side::new();
    let remote = std::net::SocketAddr::new(ip, 1);
    let error = other.channel.connect(&other.qp, remote, &ConnParam::default()).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[test]
fn the_mtu_can_be_limited() {
    let small = EmbeddedConfig { max_path_mtu: Some(1024), ..EmbeddedConfig::default() };
    let (a, b) = (Side::on(device(address(), &small)), Side::new());
    assert_eq!((a.context.attr().max_path_mtu, b.context.attr().max_path_mtu), (1024, 4096));
    connect(&a, &b);
    round_trip(&a, &b, 1 << 20);
    // The side with the larger path MTU repeats its connection request with the smaller path MTU.
    let (c, d) = (Side::new(), Side::on(device(address(), &small)));
    connect(&c, &d);
    round_trip(&c, &d, 1 << 20);
    // A round trip writes 1 MiB and reads 1 MiB back with a path MTU of 1024 bytes, so each side has sent at least 1024
    // packets.
    for side in [&a, &b] {
        assert!(counter(&side.context, "sent_pkts") >= 1024, "{:?}", side.context.driver().counters());
    }
    let none = EmbeddedConfig { max_path_mtu: Some(255), ..EmbeddedConfig::default() };
    assert!(matches!(open(address(), &none), Err(Error::Invalid(_))));
}

#[test]
fn a_device_that_keeps_access_still_checks_the_rights_and_the_key() {
    let keeps_access = EmbeddedConfig { keeps_access: true, ..EmbeddedConfig::default() };
    let (a, b) = (Side::new(), Side::on(device(address(), &keeps_access)));
    connect(&a, &b);
    let memory = region::alloc(64).unwrap();
    let target = b.pd.reg_mr(&memory, Access::REMOTE_WRITE).unwrap();
    let beyond = target.set_access(Access::ALL);
    assert!(matches!(beyond, Err(Error::Invalid(_))), "{beyond:?}");
    let unknown = b.context.driver().set_mr_access(target.lkey() ^ 1, Access::LOCAL);
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
    target.set_access(Access::LOCAL).unwrap();
    a.post(SendOp::Write(remote(&target)), Payload::Inline(&[5; 64]));
    assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
    assert_eq!(memory.to_vec(0, 64), [5; 64]);
}

#[test]
fn an_interface_may_refuse_super_packets() {
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    // The Linux kernel refuses to split the super-packets of a socket that sends no UDP checksums (`SO_NO_CHECK`).
    set_device_option(a.context.attr().address, (libc::SOL_SOCKET, libc::SO_NO_CHECK), 1);
    for len in [3 << 20, 10_000] {
        round_trip(&a, &b, len);
        round_trip(&b, &a, len);
    }
    for side in [&a, &b] {
        assert_eq!(counter(&side.context, "send_errors"), 0);
        assert_eq!(counter(&side.context, "rx_icrc_encapsulated"), 0);
    }
}

#[test]
fn several_peers_at_once() {
    const PEERS: usize = 4;
    const LEN: usize = 2 << 20;
    let server = device(address(), &EmbeddedConfig::default());
    let pairs = [(); PEERS].map(|_| {
        let (near, far) = (Side::on(server.clone()), Side::new());
        connect(&far, &near);
        (near, far)
    });
    thread::scope(|scope| {
        for (near, far) in &pairs {
            scope.spawn(|| (0..3).for_each(|_| round_trip(far, near, LEN)));
        }
    });
    assert_eq!(counter(&server, "rx_icrc_encapsulated"), 0);
}

#[test]
fn memory_may_go_while_it_is_being_sent() {
    let (a, b) = (Side::new(), Side::new());
    for round in 0..20 {
        let (near, far) = (Side::on(a.context.clone()), Side::on(b.context.clone()));
        connect(&near, &far);
        let (source, target) = (near.region(8 << 20), far.region(8 << 20));
        near.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, 8 << 20)]));
        thread::sleep(Duration::from_micros(100 * (round % 5)));
        let region = if round % 2 == 0 { source } else { target };
        // The memory of the region is unmapped here, perhaps during the WRITE. A region of the next round may get the
        // same addresses.
        drop(region);
        let status = near.completion(WaitMode::Block).status;
        let expected = match round % 2 {
            0 => matches!(status, WcStatus::LocalProtectionError | WcStatus::Success),
            _ => matches!(status, WcStatus::RemoteAccessError | WcStatus::Success),
        };
        assert!(expected, "round {round}: {status}");
    }
    // Both devices can still make a connection after regions were dropped during WRITEs.
    connect(&a, &b);
    round_trip(&a, &b, 1 << 20);
}

#[test]
fn queue_pairs_may_go_while_they_send() {
    let (a, b) = (Side::new(), Side::new());
    for round in 0..20 {
        let (near, far) = (Side::on(a.context.clone()), Side::on(b.context.clone()));
        connect(&near, &far);
        let (source, target) = (near.region(4 << 20), far.region(4 << 20));
        near.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, 4 << 20)]));
        thread::sleep(Duration::from_micros(100 * (round % 5)));
        let Side { qp, cq, .. } = near;
        drop(qp);
        drop(source);
        // A dropped queue pair makes no completion, so the wait must time out. On a busy machine, the WRITE may have
        // completed before the queue pair was dropped, so a successful completion is accepted, too.
        let wake = cq.wait(WaitMode::Block, Some(Instant::now())).unwrap();
        let ended = cq.poll_one().unwrap().is_some_and(|wc| wc.status == WcStatus::Success);
        assert!(wake == Wake::TimedOut || ended, "round {round}");
    }
    connect(&a, &b);
    round_trip(&a, &b, 1 << 20);
}

/// If a receive is posted to a failed queue pair, the receive completes at once, and threads that wait for the
/// completion are notified.
#[test]
fn a_flushed_receive_wakes_the_waiter() {
    let (a, b) = (Side::new(), Side::new());
    let (active, _) = connect(&a, &b);
    a.channel.disconnect(active).unwrap();
    a.event();
    let other = a.context.create_cq(1).unwrap();
    let soon = || Some(Instant::now() + Duration::from_secs(5));
    let start = Instant::now();
    thread::scope(|scope| {
        // One of the two threads is the progress owner, and the other thread is a waiter.
        let waiters = [(); 2].map(|_| scope.spawn(|| a.cq.wait(WaitMode::Block, soon()).unwrap()));
        thread::sleep(Duration::from_millis(50));
        a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Wake::Ready; 2]);
    });
    assert!(start.elapsed() < Duration::from_secs(4));
    drop(other);
}

/// Closes devices while their progress threads are at different points of their work.
#[test]
fn devices_come_and_go() {
    for round in 0..50 {
        let ip = address();
        let (a, b) = (Side::on(device(ip, &EmbeddedConfig::default())), Side::new());
        if round % 5 == 0 {
            connect(&a, &b);
            let cq = WaitOn { cq: Some(a.cq.id()), channel: None };
            a.context.wait(cq, WaitMode::Block, Some(Instant::now() + Duration::from_millis(2))).unwrap();
        }
        thread::sleep(Duration::from_micros(100 * (round % 20)));
        drop(a);
        // As soon as a device is closed, another device can get the UDP port 4791 of its address.
        drop(device(ip, &EmbeddedConfig::default()));
    }
}

#[test]
fn partly_posted_lists_are_sent() {
    let (a, b) = (Side::new(), Side::new());
    let cap = QpCap { max_send_wr: 2, ..QpCap::default() };
    let a = Side { qp: a.pd.create_qp(&a.cq, &a.cq, cap).unwrap(), ..a };
    connect(&a, &b);
    let target = b.region(64);
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Write(remote(&target)),
        payload: Payload::Inline(&[5; 64]),
        flags: SendFlags::SIGNALED,
    };
    let (posted, error) = a.qp.post_send(&[wr; 3]).unwrap_err();
    assert!(posted == 2 && matches!(error, Error::Exhausted { .. }), "{posted}, {error}");
    (0..2).for_each(|_| assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success));
    assert_eq!(target.memory().to_vec(0, 64), [5; 64]);
}

#[test]
fn a_late_acknowledgement_comes_before_the_goodbye() {
    for _ in 0..20 {
        let (a, mut b) = (Side::new(), Side::new());
        let cap = QpCap { late_acks: true, ..QpCap::default() };
        b.qp = b.pd.create_qp(&b.cq, &b.cq, cap).unwrap();
        let (_, passive) = connect(&a, &b);
        let buffer = b.region(64);
        b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[buffer.sge(0, 64)] }).unwrap();
        a.post(SendOp::Send, Payload::Inline(b"last words"));
        assert_eq!(b.completion(WaitMode::Spin).status, WcStatus::Success);
        b.channel.disconnect(passive).unwrap();
        assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
    }
}
