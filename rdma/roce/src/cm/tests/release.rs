use std::time::Duration;

use verbs::{CmEvent, ConnParam, RejectReason};

use super::Net;
use crate::{
    cm::rejection,
    wire::mad::{Answered, CmMessage, CommIds, Mad},
};

#[test]
fn disconnecting_does_not_wait_for_the_peer() {
    for side in [0, 1] {
        let mut net = Net::new(1);
        let ids: [_; 2] = net.connected().into();
        // The test drops all DREPs, because NAAICE's C servers never respond to a DREQ.
        net.lose = Box::new(|message| matches!(message, CmMessage::Drep(_)));
        net.hosts[side].cm.disconnect(net.now, ids[side]).unwrap();
        net.hosts[side].collect();
        assert_eq!(net.hosts[side].events.last(), Some(&CmEvent::Disconnected { id: ids[side] }));
        assert_eq!(net.hosts[side].failed.len(), 1);
        net.run(Duration::from_millis(1));
        assert_eq!(net.hosts[1 - side].events.last(), Some(&CmEvent::Disconnected { id: ids[1 - side] }));
        net.run(Duration::from_millis(1500));
        // Another disconnect has no effect, even after the connection is forgotten.
        net.hosts[side].cm.disconnect(net.now, ids[side]).unwrap();
        net.assert_quiet();
        net.hosts[side].cm.disconnect(net.now, ids[side]).unwrap();
        net.hosts[side].cm.destroy(net.now, ids[side]).unwrap();
        assert_eq!((net.hosts[0].disconnected(), net.hosts[1].disconnected()), (1, 1));
        assert!(net.count(|m| matches!(m, CmMessage::Dreq(_))) <= 4);
    }
}

#[test]
fn destroying_disconnects_without_events() {
    let mut net = Net::new(2);
    let (active, passive) = net.connected();
    let before = net.hosts[0].events.len();
    net.hosts[0].cm.destroy(net.now, active).unwrap();
    net.run(Duration::from_millis(10));
    assert_eq!(net.hosts[0].events.len(), before);
    assert_eq!(net.hosts[0].failed, [0x11]);
    assert_eq!(net.hosts[1].events.last(), Some(&CmEvent::Disconnected { id: passive }));
    net.assert_quiet();
}

#[test]
fn an_unconfirmed_connection_can_be_ended_by_either_side() {
    for side in [0, 1] {
        let mut net = Net::new(3);
        net.lose = Box::new(|message| matches!(message, CmMessage::Rtu(_)));
        let ids: [_; 2] = net.accepted(&ConnParam::default()).into();
        net.run(Duration::from_millis(10));
        net.hosts[side].cm.disconnect(net.now, ids[side]).unwrap();
        net.run(Duration::from_millis(10));
        assert_eq!((net.hosts[0].disconnected(), net.hosts[1].disconnected()), (1, 1), "side {side}");
        assert_eq!((&net.hosts[0].failed, &net.hosts[1].failed), (&vec![0x11], &vec![0x22]));
        net.assert_quiet();
    }
}

#[test]
fn a_dreq_for_another_queue_pair_or_from_another_host_is_ignored() {
    let mut net = Net::new(4);
    let (active, _) = net.connected();
    net.lose = Box::new(|_| true);
    net.hosts[0].cm.disconnect(net.now, active).unwrap();
    net.pump();
    let Some(CmMessage::Dreq(dreq)) = net.sent.last().cloned() else { panic!("a DREQ") };
    let mut wrong = dreq;
    wrong.remote_qpn += 1;
    let from = net.hosts[0].address;
    net.deliver(1, from, &Mad::new(1, CmMessage::Dreq(wrong)).encode());
    assert_eq!(net.hosts[1].cm.counters().rx_unexpected, 1);
    let right = Mad::new(1, CmMessage::Dreq(dreq)).encode();
    net.deliver(1, "10.0.0.3:50001".parse().unwrap(), &right);
    assert_eq!(net.hosts[1].cm.counters().rx_wrong_source, 1);
    net.pump();
    assert_eq!(net.hosts[1].disconnected(), 0);
    net.deliver(1, "10.0.0.1:1".parse().unwrap(), &right);
    net.pump();
    assert_eq!(net.hosts[1].disconnected(), 1);
    assert!(matches!(net.sent.last(), Some(CmMessage::Drep(_))));
}

#[test]
fn a_queue_pair_used_again_is_stale() {
    let mut net = Net::new(5);
    net.connected();
    // Host 0 restarts and connects with the same queue pair number.
    net.hosts[0].cm = super::Cm::new(super::CmConfig::new(super::embedded_guid(1), 4096));
    net.connect(0x11, &ConnParam::default());
    net.run(Duration::from_millis(20));
    let stale =
        |event: &CmEvent| matches!(event, CmEvent::Rejected { reason: RejectReason::STALE_CONNECTION, .. });
    assert!(stale(net.hosts[0].events.last().unwrap()));
    assert_eq!((net.hosts[1].disconnected(), &net.hosts[1].failed), (1, &vec![0x22]));
    // Host 1 still has the connection from before the restart, in the state TimeWait or DreqSent. This connection has
    // the queue pair of host 0 as its remote queue pair, so host 1 also rejects the next REQ of host 0.
    net.connect(0x11, &ConnParam::default());
    net.run(Duration::from_millis(20));
    assert!(stale(net.hosts[0].events.last().unwrap()));
    net.run(Duration::from_secs(5));
    net.connect(0x11, &ConnParam::default());
    let requests = |net: &Net| {
        let requests = net.hosts[1].events.iter();
        requests.filter(|event| matches!(event, CmEvent::ConnectRequest { .. })).count()
    };
    net.run_until(|net| requests(net) == 2);
}

#[test]
fn a_rejected_reply_fails_the_queue_pair_and_is_no_connection() {
    let mut net = Net::new(9);
    net.lose = Box::new(|message| matches!(message, CmMessage::Rep(_)));
    let (_, passive) = net.accepted(&ConnParam::default());
    net.pump();
    let Some(CmMessage::Rep(rep)) = net.sent.last().cloned() else { panic!("a REP") };
    let ids = CommIds { local: rep.ids.remote, remote: rep.ids.local };
    let rej = rejection(ids, Answered::Rep, RejectReason::CONSUMER_DEFINED);
    let from = net.hosts[0].address;
    net.deliver(1, from, &Mad::new(1, CmMessage::Rej(rej)).encode());
    net.pump();
    assert_eq!(net.hosts[1].failed, [0x22]);
    assert!(matches!(net.hosts[1].events.last(), Some(CmEvent::Rejected { id, .. }) if *id == passive));
    assert_eq!(net.hosts[1].cm.counters().established, 0);
}

#[test]
fn established_connections_are_counted_on_both_sides() {
    let mut net = Net::new(10);
    net.connected();
    assert_eq!(net.hosts.each_ref().map(|host| host.cm.counters().established), [1, 1]);
}

#[test]
fn an_ended_connection_waits_twice_the_ack_timeout_within_bounds() {
    for (code, expected) in [(0, 250), (16, 536), (17, 1073), (25, 4000)] {
        let mut net = Net::new(11);
        let (active, _) = net.accepted(&ConnParam { ack_timeout: Some(code), ..ConnParam::default() });
        net.run(Duration::from_millis(10));
        net.hosts[0].cm.destroy(net.now, active).unwrap();
        net.run_until(|net| net.hosts[1].disconnected() == 1);
        let left = net.hosts[1].cm.poll_timeout().unwrap() - net.now;
        assert_eq!(left.as_millis(), expected, "code {code}");
    }
}
