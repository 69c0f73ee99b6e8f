use std::{
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use verbs::{CmEvent, ConnParam};

use super::Net;
use crate::{
    cm::active::answer_address,
    entropy::Entropy,
    wire::mad::{Answered, CmMessage, CommIds, MAD_LEN, Mad, Mra},
};

/// Returns the REQ of a connection attempt that host 0 has already destroyed.
fn request(net: &mut Net) -> Mad {
    let id = net.connect(0x11, &ConnParam::default());
    let (_, mad) = net.hosts[0].cm.poll_transmit().unwrap();
    net.hosts[0].cm.destroy(net.now, id).unwrap();
    while net.hosts[0].cm.poll_transmit().is_some() {}
    Mad::decode(&mad).unwrap()
}

#[test]
fn a_flood_of_requests_is_bounded() {
    let mut net = Net::with(1, |config| config.max_half_open = 40);
    for port in 1..=5 {
        net.hosts[1].cm.listen(port, 16, &mut net.random).unwrap();
    }
    let mut mad = request(&mut net);
    for n in 0..10_000_u32 {
        let CmMessage::Req(req) = &mut mad.message else { unreachable!() };
        req.service_id = crate::wire::mad::service_id(1 + (n % 5) as u16);
        (req.local_comm_id, req.qpn) = (1000 + n, 1000 + n);
        let from = SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 4791));
        net.deliver(1, from, &mad.encode());
        net.hosts[1].collect_unread();
        let host = &net.hosts[1];
        assert!(host.cm.table.len() <= 40 && host.events.len() <= 40 && host.cm.transmits.len() <= 1024);
    }
    assert_eq!(net.hosts[1].cm.counters().displaced, 10_000 - 40);
    assert!(net.hosts[1].cm.counters().tx_dropped > 0);
    // The application has 30 s to accept or reject a request. After 31 s, the requests are dropped, together with their
    // CM events.
    net.now = net.now + Duration::from_secs(31);
    net.hosts[1].cm.handle_timeout(net.now);
    net.hosts[1].collect_unread();
    assert_eq!((net.hosts[1].events.len(), net.hosts[1].cm.table.half_open().len()), (0, 0));
    net.now = net.now + Duration::from_secs(5);
    net.hosts[1].cm.handle_timeout(net.now);
    assert_eq!(net.hosts[1].cm.table.len(), 0);
}

#[test]
fn a_request_of_another_host_does_not_make_a_queue_pair_stale() {
    let mut net = Net::new(6);
    net.hosts[1].cm.listen(super::PORT, 16, &mut net.random).unwrap();
    let mad = request(&mut net).encode();
    let requests = |net: &mut Net| {
        net.hosts[1].collect_unread();
        let events = net.hosts[1].events.iter();
        events.filter(|event| matches!(event, CmEvent::ConnectRequest { .. })).count()
    };
    // The attacker claims the GUID and the queue pair of host 0.
    net.deliver(1, "10.9.0.9:4791".parse().unwrap(), &mad);
    assert_eq!(requests(&mut net), 1);
    let from = net.hosts[0].address;
    net.deliver(1, from, &mad);
    assert_eq!(requests(&mut net), 2);
}

/// Delivers REQ number `n` from the address 10.9.0.`source`.
fn flood(net: &mut Net, mad: &mut Mad, source: u8, n: u32) {
    let CmMessage::Req(req) = &mut mad.message else { unreachable!() };
    (req.local_comm_id, req.qpn) = (1000 + n, 1000 + n);
    net.deliver(1, SocketAddr::from(([10, 9, 0, source], 4791)), &mad.encode());
    net.hosts[1].collect_unread();
    while net.hosts[1].cm.poll_transmit().is_some() {}
}

#[test]
fn a_newcomer_gets_in_and_stays_in_while_others_flood() {
    let mut net = Net::with(5, |config| config.max_half_open = 40);
    net.hosts[1].cm.listen(super::PORT, 64, &mut net.random).unwrap();
    let mut mad = request(&mut net);
    // REQs from 30 IP addresses fill the 40 places for half-open requests, so some IP addresses have two places.
    (0..300).for_each(|n| flood(&mut net, &mut mad, (n % 30) as u8, n));
    assert!(net.hosts[1].cm.counters().no_room > 200);
    net.hosts[1].events.clear();
    let active = net.connect(0x11, &ConnParam::default());
    let (_, req) = net.hosts[0].cm.poll_transmit().unwrap();
    net.deliver(1, net.hosts[0].address, &req);
    net.hosts[1].collect();
    let id = net.hosts[1].request().expect("there is room");
    (300..600).for_each(|n| flood(&mut net, &mut mad, (n % 30) as u8, n));
    let psn = crate::psn::Psn::new(1);
    net.hosts[1].cm.accept(net.now, id, 77, psn, &ConnParam::default()).expect("it was not displaced");
    let (_, rep) = net.hosts[1].cm.poll_transmit().unwrap();
    (600..900).for_each(|n| flood(&mut net, &mut mad, (n % 30) as u8, n));
    net.deliver(0, net.hosts[1].address, &rep);
    let (_, rtu) = net.hosts[0].cm.poll_transmit().unwrap();
    net.deliver(1, net.hosts[0].address, &rtu);
    net.hosts[1].collect();
    assert_eq!(net.hosts[1].established(), 1, "{active:?}");
    assert_eq!(net.hosts[1].cm.counters().displaced, 1);
}

#[test]
fn addresses_of_one_ipv6_network_are_one_source() {
    let mut net = Net::with(8, |config| config.max_half_open = 40);
    net.hosts[1].cm.listen(super::PORT, 64, &mut net.random).unwrap();
    let mut mad = request(&mut net);
    for n in 0..200 {
        let CmMessage::Req(req) = &mut mad.message else { unreachable!() };
        (req.local_comm_id, req.qpn) = (1000 + n, 1000 + n);
        let from = SocketAddr::new(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, n as u16).into(), 4791);
        net.deliver(1, from, &mad.encode());
    }
    assert_eq!(net.hosts[1].cm.table.half_open().len(), 20, "one source leaves half of the table to others");
    assert_eq!(net.hosts[1].cm.counters().displaced, 0);
}

#[test]
fn a_reply_not_confirmed_makes_room() {
    let mut net = Net::with(6, |config| config.max_half_open = 2);
    net.listen();
    let mut mad = request(&mut net);
    for n in 0..2 {
        flood(&mut net, &mut mad, n, n.into());
        let id = net.hosts[1].request().expect("room for two");
        let psn = crate::psn::Psn::new(1);
        net.hosts[1].cm.accept(net.now, id, 70 + u32::from(n), psn, &ConnParam::default()).unwrap();
        net.hosts[1].collect();
        net.hosts[1].events.clear();
    }
    flood(&mut net, &mut mad, 9, 9);
    assert_eq!(net.hosts[1].failed, [70]);
    assert!(matches!(net.hosts[1].events[..], [CmEvent::Unreachable { .. }, CmEvent::ConnectRequest { .. }]));
}

#[test]
fn cancelled_requests_do_not_pile_up_before_the_application() {
    let mut net = Net::new(7);
    net.listen();
    let mut mad = request(&mut net);
    for n in 0..100 {
        flood(&mut net, &mut mad, 1, n);
        let CmMessage::Req(req) = &mad.message else { unreachable!() };
        let ids = CommIds { local: req.local_comm_id, remote: 0 };
        let mut rej = crate::cm::rejection(ids, Answered::Other(2), verbs::RejectReason::TIMEOUT);
        rej.ari[..8].copy_from_slice(&req.ca_guid.to_be_bytes());
        let cancel = Mad::new(mad.tid, CmMessage::Rej(rej)).encode();
        net.deliver(1, SocketAddr::from(([10, 9, 0, 1], 4791)), &cancel);
        net.hosts[1].collect_unread();
        assert_eq!(net.hosts[1].events.len(), 0);
    }
}

#[test]
fn what_lingers_is_bounded() {
    let mut net = Net::with(2, |config| config.max_lingering = 8);
    net.listen();
    let mut mad = request(&mut net);
    for n in 0..100 {
        let CmMessage::Req(req) = &mut mad.message else { unreachable!() };
        (req.local_comm_id, req.qpn) = (1000 + n, 1000 + n);
        net.deliver(1, net.hosts[0].address, &mad.encode());
        net.hosts[1].events.clear();
        net.hosts[1].collect();
        let id = net.hosts[1].request().unwrap();
        net.hosts[1].cm.reject(net.now, id, b"").unwrap();
        assert!(net.hosts[1].cm.table.len() <= 8);
    }
}

#[test]
fn bad_requests_are_rejected_with_a_reason() {
    let mut net = Net::new(3);
    net.listen();
    let good = request(&mut net);
    type Spoil = fn(&mut crate::wire::mad::Req);
    let cases: [(Spoil, u16); 8] = [
        (|req| req.service_id = super::PORT.into(), 8),
        (|req| req.service_id += 1, 8),
        (|req| req.transport = 1, 9),
        (|req| req.mtu = 0, 26),
        (|req| req.mtu = 6, 26),
        (|req| req.qpn = 1, 5),
        (|req| req.private_data[0] = 1, 5),
        (|req| req.private_data[1] = 0x50, 5),
    ];
    for (n, (spoil, reason)) in cases.into_iter().enumerate() {
        let mut bad = good.clone();
        let CmMessage::Req(req) = &mut bad.message else { unreachable!() };
        spoil(req);
        net.deliver(1, net.hosts[0].address, &bad.encode());
        let (_, rej) = net.hosts[1].cm.poll_transmit().unwrap();
        let CmMessage::Rej(rej) = Mad::decode(&rej).unwrap().message else { panic!("a REJ") };
        assert_eq!(rej.reason, reason, "case {n}");
    }
    assert_eq!(net.hosts[1].cm.table.len(), 0);
}

#[test]
fn a_peer_that_asks_to_wait_too_often_is_refused() {
    let mut net = Net::new(9);
    net.connect(0x11, &ConnParam::default());
    let (_, req) = net.hosts[0].cm.poll_transmit().unwrap();
    let Mad { tid, message: CmMessage::Req(req), .. } = Mad::decode(&req).unwrap() else { panic!("a REQ") };
    let ids = CommIds { local: 7, remote: req.local_comm_id };
    let mra = Mad::new(tid, CmMessage::Mra(Mra { ids, about: Answered::Req, service_timeout: 20 })).encode();
    for n in 0..20_u64 {
        net.deliver(0, net.hosts[1].address, &mra);
        let counters = net.hosts[0].cm.counters();
        assert_eq!((counters.rx_mra, counters.rx_unexpected), (n + 1, (n + 1).saturating_sub(15)));
    }
}

#[test]
fn foreign_peers_are_answered_at_the_roce_port() {
    let from: SocketAddr = "10.0.0.1:55555".parse().unwrap();
    assert_eq!(answer_address(from, super::embedded_guid(9)), from);
    assert_eq!(answer_address(from, 0x5054_00ff_fe00_0001).port(), 4791);
}

#[test]
fn messages_for_nobody_are_dropped_but_a_goodbye_is_confirmed() {
    let mut net = Net::new(4);
    net.listen();
    for attribute in [0x11_u8, 0x12, 0x13, 0x14, 0x15, 0x16] {
        let mut mad = [7; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&[0, attribute]);
        net.deliver(1, net.hosts[0].address, &mad);
    }
    assert_eq!(net.hosts[1].cm.counters().rx_unknown_id, 6);
    let (_, answer) = net.hosts[1].cm.poll_transmit().expect("the DREQ is answered");
    let CmMessage::Drep(ids) = Mad::decode(&answer).unwrap().message else { panic!("not a DREP") };
    assert_eq!((ids.local, ids.remote), (0x0707_0707, 0x0707_0707));
    assert!(net.hosts[1].cm.poll_transmit().is_none());
}

/// Random messages cause no panic in any state. Many of the random messages have the communication ID of an existing
/// connection.
#[test]
fn hostile_messages_never_panic() {
    for seed in 0..200 {
        let mut net = Net::with(seed, |config| config.max_half_open = 4);
        let (active, _) = net.connected();
        let mut seen: Vec<[u8; MAD_LEN]> = Vec::new();
        for round in 0..300 {
            hostile_step(&mut net, &mut seen, round);
            if round == 150 {
                let _ = net.hosts[0].cm.disconnect(net.now, active);
            }
            assert!(net.hosts.iter().all(|host| host.cm.table.len() < 40), "seed {seed}");
        }
        net.now = net.now + Duration::from_secs(3600);
        net.hosts.iter_mut().for_each(|host| host.cm.handle_timeout(net.now));
    }
}

fn hostile_step(net: &mut Net, seen: &mut Vec<[u8; MAD_LEN]>, round: u32) {
    let side = net.random.below(2) as usize;
    for host in &mut net.hosts {
        host.collect();
        seen.extend(std::iter::from_fn(|| host.cm.poll_transmit()).map(|(_, mad)| mad));
    }
    let mut mad: [u8; MAD_LEN] = std::array::from_fn(|_| net.random.next_u32() as u8);
    if let Some(template) = seen.get(net.random.below(seen.len().max(1) as u32) as usize) {
        mad = *template;
        for _ in 0..net.random.below(4) {
            mad[net.random.below(256) as usize] = net.random.next_u32() as u8;
        }
    }
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16] = 0;
    if round.is_multiple_of(3) {
        mad[17] = 0x10 + net.random.below(7) as u8;
    }
    let comm_ids: Vec<u32> = net.hosts[side].cm.table.comm_ids().collect();
    if let Some(id) = comm_ids.get(net.random.below(6) as usize) {
        mad[28..32].copy_from_slice(&id.to_be_bytes());
    }
    let from = net.hosts[1 - side].address;
    net.deliver(side, from, &mad);
    let last = net.hosts[side].events.last();
    if let Some(CmEvent::ConnectRequest { id, .. }) = last.cloned() {
        let _ = match net.random.below(3) {
            0 => net.hosts[side].cm.destroy(net.now, id),
            1 => net.hosts[side].cm.reject(net.now, id, &[]),
            _ => net.hosts[side].cm.accept(net.now, id, 77, crate::psn::Psn::new(1), &ConnParam::default()),
        };
    }
    net.now = net.now + Duration::from_millis(u64::from(net.random.below(300)));
    net.hosts.iter_mut().for_each(|host| host.cm.handle_timeout(net.now));
}
