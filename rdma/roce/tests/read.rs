//! READs: their requests, their responses, and their order with other requests (IBTA vol. 1, 9.7.5.1.1 and 9.7.5.2.5).

mod pair;

use std::time::Duration;

use pair::{A, B, DELAY, Fault, HALF, MTU, PSN_A, Pair, failed, ok};
use roce::{
    RefusalCause, opcode,
    wire::{NakCode, Packet, Syndrome},
};
use verbs::{Access, RemoteAddr, SendOp, WcStatus};

/// Makes a pair with congestion windows of 4 packets, which do not grow.
fn narrow() -> Pair {
    Pair::with(|setup| {
        (setup.config.initial_window_bytes, setup.config.max_window_bytes) = (4 * MTU, 4 * MTU);
    })
}

#[test]
fn a_read_takes_as_many_psns_as_its_responses() {
    let mut pair = Pair::new();
    pair.read(1, 3 * MTU);
    pair.write(2, 10);
    assert_eq!((pair.finish(), pair.a.got(3 * MTU)), (ok([1, 2]), pair.b.own(3 * MTU)));
    let responses = ["READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST", "ACK"];
    assert_eq!((pair.requests(), pair.kinds(B)), (vec![PSN_A, PSN_A + 3], responses.to_vec()));
}

#[test]
fn a_read_of_one_packet_has_one_response() {
    for len in [1, 3, MTU] {
        let mut pair = Pair::new();
        pair.read(1, len);
        assert_eq!((pair.finish(), pair.kinds(B)), (ok([1]), vec!["READ_RESPONSE_ONLY"]));
        assert_eq!((pair.a.got(len), pair.a.got(len + 1)[len as usize]), (pair.b.own(len), 0));
    }
}

#[test]
fn a_read_of_no_bytes_has_an_empty_response_and_needs_no_key() {
    let mut pair = Pair::new();
    pair.a.post(1, SendOp::Read(RemoteAddr { addr: 5, rkey: 6 }), HALF, 0);
    assert_eq!((pair.finish(), pair.kinds(B)), (ok([1]), vec!["READ_RESPONSE_ONLY"]));
    assert_eq!(pair.sent[1].len, 0);
}

#[test]
fn first_and_last_responses_have_an_aeth_with_the_number_of_messages() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.read(2, 4 * MTU);
    pair.finish();
    let aeths: Vec<_> = pair.sent.iter().filter(|p| p.from == B).map(|p| p.aeth.map(|a| a.msn)).collect();
    assert_eq!(aeths, [Some(1), Some(2), None, None, Some(2)]);
}

#[test]
fn a_read_request_asks_for_a_window_at_most() {
    let mut pair = narrow();
    pair.read(1, 10 * MTU);
    assert_eq!((pair.finish(), pair.a.got(10 * MTU)), (ok([1]), pair.b.own(10 * MTU)));
    let va = pair.b.va;
    let requests: Vec<_> = pair.sent.iter().filter_map(|p| Some((p.psn() - PSN_A, p.reth?))).collect();
    let asked: Vec<_> = requests.iter().map(|(psn, r)| (*psn, r.addr - va, r.length)).collect();
    assert_eq!(asked, [(0, 0, 4 * MTU), (4, 1024, 4 * MTU), (8, 2048, 2 * MTU)]);
}

#[test]
fn a_requester_has_as_many_reads_outstanding_as_its_initiator_depth() {
    let mut pair = Pair::with(|setup| setup.initiator_depth = 2);
    (1..=5).for_each(|id| pair.read(id, 10));
    pair.transmit();
    assert_eq!(pair.requests().len(), 2);
    pair.step();
    pair.step();
    pair.step();
    pair.transmit();
    assert_eq!(pair.requests().len(), 3, "the response to the first READ makes room for another one");
    assert_eq!(pair.finish(), ok([1, 2, 3, 4, 5]));
}

#[test]
fn a_write_does_not_wait_for_reads() {
    let mut pair = Pair::with(|setup| setup.initiator_depth = 1);
    pair.read(1, 10);
    pair.write(2, 10);
    pair.read(3, 10);
    pair.write(4, 10);
    pair.transmit();
    assert_eq!(pair.kinds(A), ["READ_REQUEST", "WRITE_ONLY"]);
    assert_eq!((pair.finish(), pair.count("READ_REQUEST")), (ok([1, 2, 3, 4]), 2));
}

#[test]
fn a_read_cannot_be_posted_with_an_initiator_depth_of_zero() {
    let mut pair = Pair::with(|setup| setup.initiator_depth = 0);
    let posted = pair.a.post_with(1, SendOp::Read(pair.b.remote(0)), HALF, 10, verbs::SendFlags::SIGNALED);
    assert!(matches!(posted, Err(verbs::Error::Invalid(_))), "{posted:?}");
    pair.write(2, 10);
    assert_eq!(pair.finish(), ok([2]));
}

#[test]
fn more_reads_than_responder_resources_are_an_invalid_request() {
    let mut pair = Pair::with(|setup| (setup.responder_resources, setup.initiator_depth) = (2, 3));
    pair.batches = true;
    (1..=3).for_each(|id| pair.read(id, 10));
    // B has two responder resources, so B refuses the third READ, but answers the two READs before it.
    let expected = [(1, WcStatus::Success), (2, WcStatus::Success), (3, WcStatus::RemoteInvalidRequest)];
    assert_eq!(pair.finish(), expected);
    assert_eq!(
        (pair.causes(B), pair.psns("NAK_INVALID")),
        (vec![RefusalCause::TooManyReads], vec![PSN_A + 2])
    );
    assert_eq!(pair.b.state(), "in the error state");
}

#[test]
fn responder_resources_are_limited_by_the_device() {
    let mut pair = Pair::with(|setup| {
        (setup.config.max_responder_resources, setup.responder_resources) = (1, 200);
    });
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A, 0, 10)), None);
    let second = pair.read_request(PSN_A + 1, 0, 10);
    assert_eq!(pair.deliver(B, &second), Some(RefusalCause::TooManyReads));
}

#[test]
fn an_answered_read_frees_its_responder_resource() {
    let mut pair = Pair::with(|setup| setup.responder_resources = 1);
    for psn in PSN_A..PSN_A + 5 {
        assert_eq!(pair.deliver(B, &pair.read_request(psn, 0, 10)), None);
        pair.transmit();
    }
    assert_eq!(pair.count("READ_RESPONSE_ONLY"), 5);
}

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut pair = Pair::new();
    pair.read(1, 10);
    pair.write(2, 10);
    pair.fenced_write(3, 10);
    pair.write(4, 10);
    pair.drive_for(DELAY);
    assert_eq!(pair.kinds(A), ["READ_REQUEST", "WRITE_ONLY"]);
    assert_eq!(pair.finish(), ok([1, 2, 3, 4]));
}

#[test]
fn a_fence_does_not_wait_for_writes() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.fenced_write(2, 2 * MTU);
    pair.transmit();
    assert_eq!(pair.requests().len(), 3);
}

#[test]
fn a_lost_request_is_asked_for_by_a_sequence_nak() {
    let mut pair = Pair::new();
    pair.lose("READ_REQUEST", 1);
    pair.read(1, 3 * MTU);
    pair.write(2, 10);
    assert_eq!((pair.finish(), pair.psns("NAK_SEQUENCE")), (ok([1, 2]), vec![PSN_A]));
}

#[test]
fn a_lost_request_with_nothing_behind_it_is_repeated_by_the_timer() {
    let mut pair = Pair::new();
    pair.warm_up();
    pair.lose("READ_REQUEST", 1);
    pair.read(1, 3 * MTU);
    let start = pair.now;
    assert_eq!(pair.finish(), ok([1]));
    let times: Vec<_> =
        pair.sent.iter().filter(|p| p.kind == "READ_REQUEST").map(|p| (p.at - start).as_micros()).collect();
    // The requester waits 250 us until its first tail probe, then 500 us until its second tail probe, and then 4000 us
    // until it sends all unacknowledged packets again. A READ request is never a tail probe, so nothing is sent at the
    // times of the two tail probes.
    assert_eq!(times, [0, 250 + 500 + 4000]);
}

#[test]
fn a_later_response_shows_that_one_was_lost_and_the_read_resumes_there() {
    let mut pair = Pair::new();
    pair.lose("READ_RESPONSE_MIDDLE", 2);
    pair.read(1, 6 * MTU);
    assert_eq!((pair.finish(), pair.a.got(6 * MTU)), (ok([1]), pair.b.own(6 * MTU)));
    assert_eq!(pair.psns("READ_REQUEST"), [PSN_A, PSN_A + 2]);
    assert_eq!(pair.a.endpoint.counters().implied_nak_seq_err, 1);
    assert_eq!(pair.causes(A)[..3], [RefusalCause::ResponseGap; 3]);
}

#[test]
fn a_repeated_request_ends_where_the_first_one_ended() {
    let mut pair = narrow();
    pair.lose("READ_RESPONSE_MIDDLE", 1);
    pair.read(1, 6 * MTU);
    assert_eq!((pair.finish(), pair.a.got(6 * MTU)), (ok([1]), pair.b.own(6 * MTU)));
    let requests = pair.sent.iter().filter_map(|p| Some((p.psn() - PSN_A, p.reth?.length / MTU)));
    assert_eq!(requests.collect::<Vec<_>>(), [(0, 4), (4, 2), (1, 3), (4, 2)]);
    assert!(pair.causes(B).is_empty(), "no request is half duplicate and half new");
}

#[test]
fn a_lost_last_response_is_asked_for_by_the_timer() {
    let mut pair = Pair::new();
    pair.lose("READ_RESPONSE_LAST", 1);
    pair.read(1, 3 * MTU);
    assert_eq!((pair.finish(), pair.a.got(3 * MTU)), (ok([1]), pair.b.own(3 * MTU)));
    assert_eq!(
        (pair.psns("READ_REQUEST"), pair.kinds(B).last()),
        (vec![PSN_A, PSN_A + 2], Some(&"READ_RESPONSE_ONLY"))
    );
}

#[test]
fn an_acknowledgement_does_not_complete_a_read() {
    let mut pair = Pair::new();
    pair.lose("READ_RESPONSE_ONLY", 1);
    pair.read(1, 10);
    pair.write(2, 10);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.a.completed(), pair.psns("ACK")), (vec![], vec![PSN_A + 1]));
    assert_eq!(pair.a.endpoint.counters().implied_nak_seq_err, 1);
    assert_eq!((pair.finish(), pair.a.got(10)), (ok([1, 2]), pair.b.own(10)));
    // The ACK of the WRITE showed that the READ response was lost, so the requester repeated the READ before an ACK
    // timeout expired.
    assert_eq!(pair.a.endpoint.counters().local_ack_timeout_err, 0);
}

#[test]
fn a_response_acknowledges_the_requests_before_its_read() {
    let mut pair = Pair::new();
    pair.lose("ACK", 1);
    pair.write(1, 10);
    pair.read(2, 10);
    assert_eq!((pair.finish(), pair.requests().len()), (ok([1, 2]), 2));
}

#[test]
fn a_nak_behind_a_read_does_not_complete_it() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.read(1, 10);
    pair.write(2, 10);
    pair.transmit();
    let nak = pair.forge_ack(A, PSN_A + 1, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!((pair.deliver(A, &nak), pair.a.completed()), (None, vec![]));
    pair.transmit();
    assert_eq!(pair.requests(), [PSN_A, PSN_A + 1, PSN_A, PSN_A + 1]);
}

#[test]
fn only_one_retransmission_is_in_progress_for_lost_responses() {
    let mut pair = Pair::new();
    pair.lose("READ_RESPONSE_FIRST", 1);
    pair.read(1, 6 * MTU);
    assert_eq!((pair.finish(), pair.count("READ_REQUEST")), (ok([1]), 2));
    assert_eq!(pair.a.endpoint.counters().implied_nak_seq_err, 1);
}

#[test]
fn responses_come_before_the_acknowledgement_of_a_later_request() {
    let mut pair = Pair::new();
    pair.batches = true;
    pair.read(1, 3 * MTU);
    pair.write(2, 10);
    assert_eq!((pair.finish(), pair.kinds(B).last(), pair.kinds(B).len()), (ok([1, 2]), Some(&"ACK"), 4));
}

#[test]
fn a_response_of_a_wrong_length_fails_the_read() {
    for change in [
        (|p: &mut Packet<'_>| p.payload = &p.payload[1..]) as fn(&mut Packet<'_>),
        |p| p.payload = &[7; MTU as usize + 1],
        |p| p.payload = &[],
    ] {
        let mut pair = Pair::new();
        pair.on("READ_RESPONSE_MIDDLE", 1, Fault::Change(change));
        pair.read(1, 3 * MTU);
        pair.write(2, 10);
        assert_eq!(pair.finish(), failed(WcStatus::BadResponse, [1, 2]));
        assert_eq!(pair.causes(A)[0], RefusalCause::BadResponse);
    }
}

#[test]
fn a_response_to_a_write_fails_the_write() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 10);
    pair.write(2, 10);
    pair.transmit();
    let response = pair.forge(A, opcode::READ_RESPONSE_ONLY, PSN_A + 1);
    assert_eq!(pair.deliver(A, &response), Some(RefusalCause::BadResponse));
    // The READ response has the PSN of request 2. It is refused, because request 2 is a WRITE. It still acknowledges
    // request 1, because request 1 is a WRITE with an earlier PSN.
    assert_eq!(pair.a.completed(), [(1, WcStatus::Success), (2, WcStatus::BadResponse)]);
}

#[test]
fn a_region_that_is_revoked_while_it_is_read_ends_the_read_with_a_nak() {
    let mut pair = Pair::new();
    pair.read(1, 4 * MTU);
    pair.transmit();
    pair.step();
    assert!(pair.transmit_one(B));
    pair.b.endpoint.set_mr_access(pair.b.keys.lkey, Access::LOCAL).unwrap();
    assert_eq!(pair.finish(), failed(WcStatus::RemoteAccessError, [1]));
    assert_eq!(
        (pair.kinds(B), pair.psns("NAK_ACCESS")),
        (vec!["READ_RESPONSE_FIRST", "NAK_ACCESS"], vec![PSN_A + 1])
    );
}

#[test]
fn a_region_that_is_revoked_between_request_and_response_is_not_read() {
    let mut pair = Pair::new();
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A, 0, 4 * MTU)), None);
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A + 4, 0, MTU)), None);
    pair.b.endpoint.dereg_mr(pair.b.keys.lkey).unwrap();
    pair.transmit();
    assert_eq!((pair.kinds(B), pair.psns("NAK_ACCESS")), (vec!["NAK_ACCESS"], vec![PSN_A]));
    assert_eq!(pair.b.state(), "in the error state");
}

#[test]
fn memory_that_is_deregistered_before_a_response_fails_the_read() {
    let mut pair = Pair::new();
    pair.read(1, 3 * MTU);
    pair.drive_for(DELAY);
    pair.a.endpoint.dereg_mr(pair.a.keys.lkey).unwrap();
    pair.drive_for(DELAY);
    assert_eq!(pair.a.completed(), failed(WcStatus::LocalProtectionError, [1]));
    assert_eq!(pair.causes(A)[0], RefusalCause::ResponseMemory);
    assert_eq!((pair.a.state(), pair.b.state()), ("in the error state", "connected"));
}

#[test]
fn responses_are_scattered_to_all_elements_of_a_work_request() {
    let mut pair = Pair::new();
    let sges = [pair.a.sge(HALF + 1000, 100), pair.a.sge(HALF, 300), pair.a.sge(HALF + 2000, 200)];
    let (op, flags) = (SendOp::Read(pair.b.remote(0)), verbs::SendFlags::SIGNALED);
    let wr = verbs::SendWr { wr_id: 1, op, payload: verbs::Payload::Sges(&sges), flags };
    pair.a.endpoint.post_send(pair.a.qp, &wr).unwrap();
    assert_eq!(pair.finish(), ok([1]));
    let (got, own) = (pair.a.got(2200), pair.b.own(600));
    assert_eq!([&got[1000..1100], &got[..300], &got[2000..]], [&own[..100], &own[100..400], &own[400..]]);
}

#[test]
fn a_read_that_nobody_answers_fails_after_its_retries() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 2));
    pair.silence(B);
    pair.read(1, 3 * MTU);
    let start = pair.now;
    assert_eq!(pair.finish(), failed(WcStatus::RetryExceeded, [1]));
    assert_eq!((pair.now - start).as_millis(), Duration::from_nanos(3 * 1_048_576).as_millis());
}
