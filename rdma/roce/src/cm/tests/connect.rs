use std::time::Duration;

use verbs::{CmEvent, ConnParam, RejectReason, Unreachable};

use super::Net;
use crate::wire::mad::{CmMessage, Rep, Req};

#[test]
fn both_sides_learn_what_the_other_offers() {
    let mut net = Net::new(1);
    let listener = net.listen();
    let offer = ConnParam {
        private_data: b"hello".to_vec(),
        responder_resources: 4,
        initiator_depth: 7,
        retry_count: 5,
        rnr_retry_count: 6,
        ack_timeout: Some(15),
        connect_timeout: None,
    };
    let active = net.connect(0x123, &offer);
    net.run_until(|net| net.hosts[1].request().is_some());
    let CmEvent::ConnectRequest { listener: at, id: passive, endpoints, param } = &net.hosts[1].events[0]
    else {
        panic!("a request comes first");
    };
    let passive = *passive;
    assert_eq!(*at, listener);
    assert_eq!(endpoints.local, "10.0.0.2:12345".parse().unwrap());
    assert_eq!(endpoints.remote, net.hosts[0].cm.endpoints(active).unwrap().local);
    assert_eq!((param.responder_resources, param.initiator_depth), (7, 4));
    assert_eq!((param.retry_count, param.rnr_retry_count, param.ack_timeout), (5, 6, Some(15)));
    assert_eq!(param.private_data.len(), Req::USER_PRIVATE);
    assert_eq!(param.private_data[..6], *b"hello\0");

    net.accept(passive, 0x456).unwrap();
    net.run_until(|net| net.hosts.iter().all(|host| host.established() == 1));
    let [a, p] = net.hosts.each_ref().map(|host| &host.bindings[0]);
    assert_eq!((a.qpn, a.attr.remote_qpn), (p.attr.remote_qpn, p.qpn));
    let (a, p) = (a.attr, p.attr);
    assert_eq!((a.send_psn, a.recv_psn), (p.recv_psn, p.send_psn));
    assert_eq!(a.recv_psn, 0x123 * 3);
    assert_eq!((a.peer, p.peer), (net.hosts[1].address, net.hosts[0].address));
    assert_eq!((a.responder_resources, a.initiator_depth), (1, 1));
    assert_eq!((p.responder_resources, p.initiator_depth), (1, 1));
    assert_eq!((a.retry_count, a.rnr_retry_count, a.ack_timeout), (5, 7, 15));
    assert_eq!((p.retry_count, p.rnr_retry_count, p.ack_timeout), (5, 6, 15));
    assert!(a.embedded_peer && p.embedded_peer);
    let CmEvent::Established { param, .. } = &net.hosts[0].events[0] else { panic!("established") };
    assert_eq!(param.private_data.len(), Rep::PRIVATE);
    assert_eq!(param.private_data[..8], *b"welcome\0");
}

#[test]
fn source_ports_are_in_the_upper_half() {
    for seed in 0..8 {
        let mut net = Net::new(seed);
        let active = net.connect(0x11, &ConnParam::default());
        assert!(net.hosts[0].cm.endpoints(active).unwrap().local.port() >= 32_768, "seed {seed}");
    }
}

#[test]
fn the_number_of_connections_is_limited() {
    let mut net = Net::with(1, |config| config.max_connections = 2);
    let param = ConnParam::default();
    let first = net.connect(0x11, &param);
    net.connect(0x12, &param);
    let args = net.args(0, 0x13, &param);
    let error = net.hosts[0].cm.connect(net.now, args, &mut net.random).unwrap_err().to_string();
    assert!(error.contains("connections") && error.contains("destroy some"), "{error}");
    net.hosts[0].cm.destroy(net.now, first).unwrap();
    net.connect(0x13, &param);
}

#[test]
fn loss_and_duplication_never_make_a_second_event() {
    for seed in 0..400 {
        let mut net = Net::new(seed);
        (net.loss, net.duplication) = (seed as u32 % 20, 30);
        let (active, passive) = net.connected();
        net.run(Duration::from_secs(5));
        for host in &net.hosts {
            assert_eq!(host.established(), 1, "seed {seed}");
            assert_eq!(host.bindings.len(), 1, "seed {seed}");
        }
        let requests = net.hosts[1].events.len() - net.hosts[1].established();
        assert_eq!(requests, 1, "seed {seed}");
        // Depending on the seed, one of the two sides ends the connection, or both sides end it at the same time.
        if seed % 3 != 1 {
            net.hosts[0].cm.disconnect(net.now, active).unwrap();
        }
        if seed % 3 != 0 {
            net.hosts[1].cm.disconnect(net.now, passive).unwrap();
        }
        net.assert_quiet();
        for (side, host) in net.hosts.iter().enumerate() {
            // A side gets no CM event `Disconnected` if every DREQ of the other side was lost.
            if host.disconnected() == 0 {
                assert!(net.loss > 5, "seed {seed} side {side}");
                continue;
            }
            assert_eq!((host.disconnected(), host.failed.len()), (1, 1), "seed {seed} side {side}");
        }
    }
}

#[test]
fn a_lost_rtu_is_made_up_for_by_the_next_reply_or_by_data() {
    for data in [false, true] {
        let mut net = Net::new(2);
        net.lose_some(2, |message| matches!(message, CmMessage::Rtu(_)));
        net.accepted(&ConnParam::default());
        net.run(Duration::from_millis(100));
        assert_eq!((net.hosts[0].established(), net.hosts[1].established()), (1, 0));
        if data {
            net.hosts[1].cm.data_arrived(0x33);
            net.hosts[1].cm.data_arrived(0x22);
            net.hosts[1].cm.data_arrived(0x22);
        }
        net.run(Duration::from_secs(3));
        assert_eq!((net.hosts[0].established(), net.hosts[1].established()), (1, 1));
    }
}

#[test]
fn a_reply_that_nobody_confirms_is_withdrawn() {
    let mut net = Net::new(3);
    net.lose = Box::new(|message| matches!(message, CmMessage::Rtu(_)));
    let (_, passive) = net.accepted(&ConnParam::default());
    net.run(Duration::from_secs(11));
    let last = net.hosts[1].events.last();
    assert_eq!(last, Some(&CmEvent::Unreachable { id: passive, why: Unreachable::NotConfirmed }));
    assert_eq!((&net.hosts[1].failed, &net.hosts[0].failed), (&vec![0x22], &vec![0x11]));
    assert_eq!(net.hosts[0].disconnected(), 1);
    net.assert_quiet();
}

#[test]
fn nobody_listening_and_no_answer_and_no_route() {
    let mut net = Net::new(4);
    let id = net.connect(0x11, &ConnParam::default());
    net.run(Duration::from_millis(10));
    let CmEvent::Rejected { id: rejected, reason, .. } = &net.hosts[0].events[0] else { panic!("rejected") };
    assert_eq!((*rejected, *reason), (id, RejectReason::INVALID_SERVICE_ID));

    net.loss = 100;
    let param = ConnParam { connect_timeout: Some(Duration::from_secs(3)), ..ConnParam::default() };
    let (id, begin) = (net.connect(0x12, &param), net.now);
    net.run_until(|net| net.hosts[0].events.len() == 2);
    assert_eq!(net.hosts[0].events[1], CmEvent::Unreachable { id, why: Unreachable::NoAnswer });
    assert_eq!(net.now - begin, Duration::from_secs(3));

    let id = net.connect(0x13, &ConnParam::default());
    net.hosts[0].cm.send_failed("10.0.0.9:4791".parse().unwrap());
    net.hosts[0].cm.send_failed(net.hosts[1].address);
    net.pump();
    assert_eq!(net.hosts[0].events[2..], [CmEvent::Unreachable { id, why: Unreachable::Network }]);
    net.assert_quiet();
}

#[test]
fn a_rejection_carries_data_and_is_repeated() {
    let mut net = Net::new(5);
    net.lose_some(1, |message| matches!(message, CmMessage::Rej(_)));
    let (id, passive) = net.requested(&ConnParam::default());
    assert!(net.hosts[1].cm.reject(net.now, passive, &[0; 149]).is_err());
    net.hosts[1].cm.reject(net.now, passive, b"no").unwrap();
    assert!(net.accept(passive, 0x22).is_err());
    net.run(Duration::from_secs(1));
    let CmEvent::Rejected { id: rejected, reason, private_data } = &net.hosts[0].events[0] else {
        panic!("rejected");
    };
    assert_eq!((*rejected, *reason), (id, RejectReason::CONSUMER_DEFINED));
    assert_eq!((private_data.len(), &private_data[..3]), (148, &b"no\0"[..]));
    assert_eq!(net.hosts[1].events.len(), 1);
    net.assert_quiet();
}

#[test]
fn a_slow_application_is_waited_for() {
    let mut net = Net::new(6);
    net.listen();
    net.connect(0x11, &ConnParam::default());
    net.run(Duration::from_secs(25));
    assert!(net.count(|m| matches!(m, CmMessage::Mra(_))) > 1);
    assert!(net.count(|m| matches!(m, CmMessage::Req(_))) < 10);
    let passive = net.hosts[1].request().unwrap();
    net.accept(passive, 0x22).unwrap();
    net.run(Duration::from_secs(1));
    assert_eq!((net.hosts[0].established(), net.hosts[1].established()), (1, 1));
}

#[test]
fn a_request_the_application_ignores_expires() {
    let mut net = Net::new(7);
    net.listen();
    net.connect(0x11, &ConnParam::default());
    net.run(Duration::from_secs(31));
    let passive = net.hosts[1].request().unwrap();
    assert!(matches!(net.hosts[0].events[..], [CmEvent::Rejected { .. }]));
    assert!(net.accept(passive, 0x22).is_err());
    assert_eq!(net.hosts[1].cm.counters().unanswered, 1);
    net.assert_quiet();
}

#[test]
fn giving_up_takes_the_request_back() {
    let mut net = Net::new(8);
    let (active, passive) = net.requested(&ConnParam::default());
    net.hosts[0].cm.destroy(net.now, active).unwrap();
    net.run(Duration::from_millis(10));
    assert!(net.accept(passive, 0x22).is_err());
    assert!(net.hosts[0].events.is_empty());
    net.assert_quiet();
}

#[test]
fn ports_are_taken_once_and_can_be_chosen_freely() {
    let mut net = Net::new(9);
    let listener = net.listen();
    let Net { hosts, random, now, .. } = &mut net;
    let cm = &mut hosts[1].cm;
    assert!(cm.listen(super::PORT, 1, random).is_err());
    let (_, free) = cm.listen(0, 1, random).unwrap();
    assert!(free >= 0x8000);
    cm.destroy(*now, listener).unwrap();
    assert!(cm.listen(super::PORT, 1, random).is_ok());
}

#[test]
fn a_listener_at_any_port_is_told_that_no_port_is_free() {
    let mut net = Net::new(9);
    let Net { hosts, random, .. } = &mut net;
    let cm = &mut hosts[1].cm;
    for port in 0x8000..=u16::MAX {
        cm.listen(port, 1, random).unwrap();
    }
    let error = cm.listen(0, 1, random).unwrap_err().to_string();
    assert!(error.contains("free ports") && error.contains("destroy a listener"), "{error}");
    let taken = cm.listen(u16::MAX, 1, random).unwrap_err().to_string();
    assert!(taken.contains("has the port"), "{taken}");
}

#[test]
fn arguments_are_checked() {
    let mut net = Net::new(10);
    let good = ConnParam::default();
    for bad in [
        ConnParam { private_data: vec![0; 57], ..good.clone() },
        ConnParam { retry_count: 8, ..good.clone() },
        ConnParam { rnr_retry_count: 8, ..good.clone() },
        ConnParam { ack_timeout: Some(32), ..good.clone() },
    ] {
        let args = net.args(0, 5, &bad);
        assert!(net.hosts[0].cm.connect(net.now, args, &mut net.random).is_err());
        let args = super::ConnectArgs { param: &good, path_mtu: 1500, ..args };
        assert!(net.hosts[0].cm.connect(net.now, args, &mut net.random).is_err());
    }
    assert_eq!(net.hosts[0].cm.table.len(), 0);
}

#[test]
fn a_device_connects_to_itself() {
    let mut net = Net::new(11);
    net.listen();
    net.hosts[0].address = net.hosts[1].address;
    let param = ConnParam::default();
    let args = super::ConnectArgs { path_mtu: 4096, ..net.args(1, 5, &param) };
    let active = net.hosts[1].cm.connect(net.now, args, &mut net.random).unwrap();
    let exchange = |net: &mut Net| {
        while let Some((to, mad)) = net.hosts[1].cm.poll_transmit() {
            net.deliver(1, to, &mad);
        }
        net.hosts[1].collect();
    };
    exchange(&mut net);
    let passive = net.hosts[1].request().unwrap();
    net.accept(passive, 6).unwrap();
    exchange(&mut net);
    assert_eq!(net.hosts[1].established(), 2);
    net.hosts[1].cm.disconnect(net.now, active).unwrap();
    exchange(&mut net);
    assert_eq!((net.hosts[1].disconnected(), net.hosts[1].failed.len()), (2, 2));
}
