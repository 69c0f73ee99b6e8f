//! Tests how a connection ends after a failure, after a disconnect by the CM, and after the destruction of a queue pair
//! (IBTA vol. 1, 10.3.1, 12.9 and 12.10).

mod pair;

use std::time::Duration;

use pair::{A, B, DELAY, Fault, HALF, MTU, PSN_A, Pair, failed, ok};
use roce::{RefusalCause, opcode};
use verbs::{CmEvent, Error, RejectReason, Unreachable, WcStatus};

const FLUSHED: WcStatus = WcStatus::WrFlushError;

#[test]
fn a_failure_flushes_all_requests_in_their_order() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.b.keys.rkey ^= 1;
    pair.write(2, 10);
    pair.read(3, 10);
    pair.send(4, 10);
    let expected = [ok([1]), failed(WcStatus::RemoteAccessError, [2, 3, 4])].concat();
    assert_eq!((pair.finish(), pair.a.state()), (expected, "in the error state"));
}

#[test]
fn a_failure_flushes_all_receives_in_their_order() {
    let mut pair = Pair::new();
    (7..=9).for_each(|id| pair.a.recv(id, 10));
    (4..=6).for_each(|id| pair.b.recv(id, 10));
    pair.b.keys.rkey ^= 1;
    pair.write(1, 10);
    pair.drive();
    assert_eq!(
        (pair.a.received(), pair.b.received()),
        (failed(FLUSHED, [7, 8, 9]), failed(FLUSHED, [4, 5, 6]))
    );
}

#[test]
fn a_receive_that_is_partly_filled_is_flushed_first() {
    let mut pair = Pair::new();
    pair.b.recv(8, 3 * MTU);
    pair.b.recv(9, 10);
    pair.rule(|p| (p.kind != "SEND_FIRST").then_some(Fault::Lose));
    pair.send(1, 3 * MTU);
    pair.drive_for(DELAY);
    pair.b.endpoint.fail_qp(pair.b.qp);
    assert_eq!(pair.b.received(), failed(FLUSHED, [8, 9]));
}

#[test]
fn requests_posted_after_the_failure_are_flushed_at_once() {
    let mut pair = Pair::new();
    pair.a.endpoint.fail_qp(pair.a.qp);
    pair.write(1, 10);
    pair.a.recv(2, 10);
    assert_eq!((pair.a.completed(), pair.a.received()), (failed(FLUSHED, [1]), failed(FLUSHED, [2])));
    pair.transmit();
    assert_eq!(pair.sent.len(), 0);
}

#[test]
fn unsignaled_requests_complete_if_they_fail() {
    let mut pair = Pair::new();
    pair.silence(A);
    let to = pair.b.remote(HALF);
    pair.a.post_with(1, verbs::SendOp::Write(to), 0, 10, verbs::SendFlags::default()).unwrap();
    pair.a.endpoint.fail_qp(pair.a.qp);
    assert_eq!(pair.a.completed(), failed(FLUSHED, [1]));
}

#[test]
fn a_queue_pair_that_fails_again_completes_nothing_twice() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.a.endpoint.fail_qp(pair.a.qp);
    pair.a.endpoint.fail_qp(pair.a.qp);
    assert_eq!((pair.a.completed(), pair.a.state()), (failed(FLUSHED, [1]), "in the error state"));
}

#[test]
fn a_queue_pair_without_a_connection_takes_receives_only() {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    let to = pair.b.remote(HALF);
    let posted = pair.a.post_with(1, verbs::SendOp::Write(to), 0, 10, verbs::SendFlags::SIGNALED);
    assert!(matches!(posted, Err(Error::QpState("not connected"))), "{posted:?}");
    pair.a.recv(2, 10);
    assert_eq!((pair.a.received(), pair.a.state()), (vec![], "not connected"));
    pair.a.endpoint.fail_qp(pair.a.qp);
    assert_eq!((pair.a.received(), pair.a.state()), (failed(FLUSHED, [2]), "in the error state"));
    pair.write(3, 10);
    assert_eq!(pair.a.completed(), failed(FLUSHED, [3]));
}

#[test]
fn a_failed_responder_still_sends_its_nak_and_then_nothing() {
    let mut pair = Pair::new();
    pair.batches = true;
    pair.write(1, 10);
    pair.b.keys.rkey ^= 1;
    pair.write(2, 10);
    pair.write(3, 10);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.kinds(B), pair.psns("NAK_ACCESS")), (vec!["ACK", "NAK_ACCESS"], vec![PSN_A + 1]));
    assert_eq!(pair.causes(B), [RefusalCause::RemoteAccess, RefusalCause::UnknownQp]);
}

#[test]
fn a_lost_fatal_nak_ends_in_exhausted_retries() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 1));
    pair.lose("NAK_ACCESS", 1);
    pair.b.keys.rkey ^= 1;
    pair.write(1, 10);
    assert_eq!((pair.finish(), pair.count("NAK_ACCESS")), (failed(WcStatus::RetryExceeded, [1]), 1));
}

#[test]
fn a_full_send_completion_queue_fails_the_queue_pair() {
    let mut pair = Pair::with(|setup| setup.cq_depth = 2);
    (1..=5).for_each(|id| pair.write(id, 10));
    pair.drive();
    assert_eq!((pair.a.completed(), pair.a.state()), (ok([1, 2]), "in the error state"));
    assert_eq!(pair.a.endpoint.counters().cq_overrun, 3);
}

#[test]
fn a_full_receive_completion_queue_fails_the_queue_pair() {
    let mut pair = Pair::with(|setup| setup.cq_depth = 1);
    pair.b.recv(8, 10);
    pair.b.recv(9, 10);
    pair.send(1, 10);
    pair.send(2, 10);
    pair.drive();
    assert_eq!((pair.b.received(), pair.b.state()), (ok([8]), "in the error state"));
    // The completion queue has no room for the completion of the second message, so the second message is not
    // acknowledged.
    assert_eq!((pair.psns("ACK"), pair.a.state()), (vec![PSN_A], "in the error state"));
}

#[test]
fn memory_that_is_deregistered_before_it_is_sent_fails_its_request_when_it_is_the_oldest() {
    let mut pair = Pair::new();
    let keys = pair.a.register(1 << 40, 64, verbs::Access::LOCAL);
    pair.write(1, 10);
    let sges = [verbs::Sge { addr: 1 << 40, length: 64, lkey: keys.lkey }];
    let (op, flags) = (verbs::SendOp::Write(pair.b.remote(HALF)), verbs::SendFlags::SIGNALED);
    let wr = verbs::SendWr { wr_id: 2, op, payload: verbs::Payload::Sges(&sges), flags };
    pair.a.endpoint.post_send(pair.a.qp, &wr).unwrap();
    pair.write(3, 10);
    pair.a.endpoint.dereg_mr(keys.lkey).unwrap();
    pair.transmit();
    assert_eq!((pair.requests(), pair.a.state()), (vec![PSN_A], "connected"));
    let expected = [ok([1]), failed(WcStatus::LocalProtectionError, [2, 3])].concat();
    assert_eq!((pair.finish(), pair.requests()), (expected, vec![PSN_A]));
}

#[test]
fn a_connection_by_the_cm_carries_messages_both_ways() {
    let (mut pair, _, _) = Pair::by_cm();
    assert_eq!((pair.kinds(A), pair.kinds(B)), (vec!["REQ", "RTU"], vec!["REP"]));
    pair.write(1, 3 * MTU);
    pair.b.post(2, verbs::SendOp::Write(pair.a.remote(HALF)), 0, 10);
    assert_eq!((pair.finish(), pair.b.completed()), (ok([1]), ok([2])));
    assert_eq!((pair.b.got(MTU), pair.a.got(10)), (pair.a.own(MTU), pair.b.own(10)));
}

#[test]
fn a_disconnect_flushes_both_ends() {
    let (mut pair, id_a, id_b) = Pair::by_cm();
    pair.send(1, 10);
    pair.b.recv(9, 10);
    pair.sent.clear();
    pair.a.endpoint.disconnect(pair.now, id_a).unwrap();
    assert_eq!(
        (pair.a.event(), pair.a.completed()),
        (Some(CmEvent::Disconnected { id: id_a }), failed(FLUSHED, [1]))
    );
    assert!(pair.a.endpoint.is_disconnecting());
    pair.drive();
    assert_eq!(
        (pair.b.event(), pair.b.received()),
        (Some(CmEvent::Disconnected { id: id_b }), failed(FLUSHED, [9]))
    );
    assert_eq!((pair.kinds(A), pair.kinds(B)), (vec!["DREQ"], vec!["DREP"]));
    assert!(!pair.a.endpoint.is_disconnecting());
}

#[test]
fn a_dreq_is_repeated_until_the_drep_arrives() {
    let (mut pair, id_a, _) = Pair::by_cm();
    pair.lose("DREQ", 1);
    pair.lose("DREP", 1);
    pair.a.endpoint.disconnect(pair.now, id_a).unwrap();
    let start = pair.now;
    pair.drive();
    let times: Vec<_> =
        pair.sent.iter().filter(|p| p.kind == "DREQ").map(|p| (p.at - start).as_millis()).collect();
    assert_eq!((times, pair.count("DREP")), (vec![0, 250, 750], 2));
    assert!(!pair.a.endpoint.is_disconnecting());
}

#[test]
fn a_disconnect_does_not_wait_for_a_silent_peer() {
    let (mut pair, id_a, _) = Pair::by_cm();
    pair.silence(B);
    pair.a.endpoint.disconnect(pair.now, id_a).unwrap();
    assert_eq!(pair.a.event(), Some(CmEvent::Disconnected { id: id_a }));
    pair.drive();
    assert_eq!((pair.count("DREQ"), pair.a.endpoint.is_disconnecting()), (4, false));
}

#[test]
fn packets_for_a_disconnected_queue_pair_are_refused() {
    let (mut pair, id_a, _) = Pair::by_cm();
    pair.a.endpoint.disconnect(pair.now, id_a).unwrap();
    assert_eq!(pair.deliver(A, &pair.forge(A, opcode::WRITE_ONLY, 0)), Some(RefusalCause::UnknownQp));
}

#[test]
fn a_rejection_has_the_private_data_of_the_application() {
    let (mut pair, id_a, id_b) = Pair::requested();
    pair.b.endpoint.reject(pair.now, id_b, b"no").unwrap();
    pair.drive();
    let Some(CmEvent::Rejected { id, reason, private_data }) = pair.a.event() else { panic!("no rejection") };
    assert_eq!((id, reason, &private_data[..2]), (id_a, RejectReason::CONSUMER_DEFINED, &b"no"[..]));
    assert_eq!((pair.a.state(), pair.count("REJ")), ("not connected", 1));
}

#[test]
fn a_request_to_a_port_without_a_listener_is_rejected() {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    let id = pair.connect();
    pair.drive();
    let event = pair.a.event();
    let expected = RejectReason::INVALID_SERVICE_ID;
    assert!(
        matches!(event, Some(CmEvent::Rejected { id: got, reason, .. }) if (got, reason) == (id, expected))
    );
}

#[test]
fn a_request_that_nobody_answers_ends_as_unreachable() {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    pair.silence(A);
    let (id, why) = (pair.connect(), Unreachable::NoAnswer);
    pair.drive();
    assert_eq!(pair.a.event(), Some(CmEvent::Unreachable { id, why }));
    assert!(pair.count("REQ") > 3);
}

#[test]
fn a_request_that_the_network_refuses_ends_at_once() {
    let mut pair = Pair::new();
    pair.a.renew_qp();
    let (id, why, to) = (pair.connect(), Unreachable::Network, pair.b.addr);
    pair.a.endpoint.send_failed(to);
    assert_eq!(pair.a.event(), Some(CmEvent::Unreachable { id, why }));
}

#[test]
fn a_packet_confirms_a_connection_whose_rtu_is_lost() {
    let (mut pair, _, id_b) = Pair::requested();
    pair.lose("RTU", 1);
    pair.accept(id_b);
    pair.drive_for(2 * DELAY);
    assert_eq!(pair.b.event(), None);
    pair.write(1, 10);
    pair.drive_for(2 * DELAY);
    let event = pair.b.event();
    assert!(matches!(event, Some(CmEvent::Established { id, .. }) if id == id_b), "{event:?}");
    assert_eq!((pair.finish(), pair.count("REP")), (ok([1]), 1));
}

#[test]
fn a_lost_rtu_is_sent_again_for_the_repeated_rep() {
    let (mut pair, _, id_b) = Pair::requested();
    pair.lose("RTU", 1);
    pair.accept(id_b);
    pair.drive();
    assert_eq!((pair.count("REP"), pair.count("RTU")), (2, 2));
    assert!(matches!(pair.b.event(), Some(CmEvent::Established { .. })));
}

#[test]
fn a_forgotten_connection_id_disconnects_its_peer() {
    let (mut pair, id_a, id_b) = Pair::by_cm();
    pair.a.endpoint.destroy_id(pair.now, id_a).unwrap();
    assert_eq!((pair.a.event(), pair.a.state()), (None, "in the error state"));
    pair.drive();
    assert_eq!(pair.b.event(), Some(CmEvent::Disconnected { id: id_b }));
    pair.b.endpoint.destroy_id(pair.now, id_b).unwrap();
    assert!(matches!(pair.b.endpoint.disconnect(pair.now, verbs::CmId(99)), Err(Error::NotFound { .. })));
}

#[test]
fn a_destroyed_queue_pair_neither_sends_nor_receives() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    let destroyed = pair.a.qp;
    pair.a.endpoint.destroy_qp(destroyed).unwrap();
    pair.drive();
    assert_eq!((pair.sent.len(), pair.a.completed()), (0, vec![]));
    assert_eq!(pair.deliver(A, &pair.forge(A, opcode::WRITE_ONLY, 5000)), Some(RefusalCause::UnknownQp));
    assert_eq!(pair.a.endpoint.qp_state(destroyed), None);
    assert!(matches!(pair.a.endpoint.destroy_qp(destroyed), Err(Error::NotFound { .. })));
}

#[test]
fn the_timer_of_a_destroyed_queue_pair_does_nothing() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 10);
    pair.transmit();
    pair.a.endpoint.destroy_qp(pair.a.qp).unwrap();
    pair.drive_for(Duration::from_secs(1));
    assert_eq!((pair.requests().len(), pair.a.endpoint.poll_timeout()), (1, None));
    assert_eq!(pair.a.endpoint.counters().local_ack_timeout_err, 0);
}

#[test]
fn the_timer_of_a_failed_queue_pair_does_nothing() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 10);
    pair.transmit();
    pair.a.endpoint.fail_qp(pair.a.qp);
    pair.drive_for(Duration::from_secs(1));
    assert_eq!((pair.requests().len(), pair.a.completed()), (1, failed(FLUSHED, [1])));
}

#[test]
fn a_peer_that_is_destroyed_ends_in_exhausted_retries() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 1));
    pair.b.endpoint.destroy_qp(pair.b.qp).unwrap();
    pair.write(1, 10);
    assert_eq!(pair.finish(), failed(WcStatus::RetryExceeded, [1]));
    assert_eq!(pair.causes(B), [RefusalCause::UnknownQp; 2]);
}

#[test]
fn a_flushed_receive_names_its_queue_pair_and_operation() {
    let mut pair = Pair::new();
    pair.b.recv(9, 10);
    pair.b.endpoint.fail_qp(pair.b.qp);
    let flushed = pair.b.poll(pair.b.recv_cq);
    assert_eq!(
        (flushed[0].qp, flushed[0].opcode, flushed[0].status),
        (pair.b.qp, verbs::WcOpcode::Recv, FLUSHED)
    );
}

#[test]
fn messages_of_the_cm_are_numbered_and_marked_as_migrated() {
    let (pair, ..) = Pair::by_cm();
    for side in [A, B] {
        let sent =
            pair.sent.iter().filter(|sent| sent.from == side && sent.bth.opcode == opcode::UD_SEND_ONLY);
        let (psns, marks): (Vec<_>, Vec<_>) = sent.map(|sent| (sent.psn(), sent.bth.mig_req)).unzip();
        let numbers: Vec<_> = (psns[0]..).take(psns.len()).collect();
        assert!(psns == numbers && marks.iter().all(|mark| *mark), "{psns:?} {marks:?}");
    }
    assert_eq!(pair.sent.iter().filter(|sent| sent.bth.opcode == opcode::UD_SEND_ONLY).count(), 3);
}
