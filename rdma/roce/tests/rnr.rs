//! RNR NAKs: what happens when a message needs a receive and none is posted (IBTA vol. 1, 9.7.5.2.8).

mod pair;

use std::time::Duration;

use pair::{B, DELAY, Fault, HALF, MTU, PSN_A, Pair, failed, ok};
use roce::RefusalCause;
use verbs::WcStatus;

/// The delay of each RNR NAK timer code (IBTA vol. 1, table 45), in units of 10 us.
const DELAYS: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

#[test]
fn a_send_without_a_receive_gets_an_rnr_nak_and_comes_again() {
    let mut pair = Pair::new();
    pair.send(1, 10);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.psns("RNR_NAK"), pair.b.endpoint.counters().send_rnr_err), (vec![PSN_A], 1));
    assert_eq!((pair.causes(B), pair.a.completed()), (vec![RefusalCause::ReceiverNotReady], vec![]));
    assert_eq!(pair.a.endpoint.counters().rcvd_rnr_err, 1);
    pair.b.recv(9, 10);
    assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([9])));
    assert_eq!((pair.count("SEND_ONLY"), pair.b.got(10)), (2, pair.a.own(10)));
}

#[test]
fn a_requester_waits_for_the_time_of_the_timer_code() {
    for (code, delay) in (0..).zip(DELAYS) {
        let mut pair = Pair::with(|setup| setup.config.rnr_timer = code);
        pair.send(1, 10);
        pair.drive_for(2 * DELAY);
        pair.b.recv(9, 10);
        assert_eq!(pair.finish(), ok([1]));
        let times: Vec<_> = pair.sent.iter().filter(|p| p.kind == "SEND_ONLY").map(|p| p.at).collect();
        let waited = times[1] - times[0] - 2 * DELAY;
        assert_eq!((times.len(), waited), (2, Duration::from_micros(10 * delay)), "code {code}");
    }
}

#[test]
fn nothing_is_sent_while_a_requester_waits() {
    let mut pair = Pair::new();
    pair.send(1, 10);
    pair.drive_for(2 * DELAY);
    pair.write(2, 10);
    pair.drive_for(Duration::from_micros(639));
    assert_eq!(pair.requests(), [PSN_A]);
    pair.drive_for(Duration::from_micros(2));
    assert_eq!(pair.requests(), [PSN_A, PSN_A, PSN_A + 1]);
}

#[test]
fn the_retransmission_timer_does_not_run_while_a_requester_waits() {
    let mut pair = Pair::with(|setup| {
        (setup.config.rnr_timer, setup.ack_timeout, setup.retry_count) = (0, 8, 0);
    });
    pair.send(1, 10);
    pair.drive_for(Duration::from_millis(600));
    pair.b.recv(9, 10);
    assert_eq!((pair.finish(), pair.a.endpoint.counters().local_ack_timeout_err), (ok([1]), 0));
}

#[test]
fn the_retransmission_timer_runs_after_the_wait() {
    let mut pair = Pair::new();
    pair.lose("SEND_ONLY", 2);
    pair.send(1, 10);
    pair.drive_for(2 * DELAY);
    pair.b.recv(9, 10);
    assert_eq!((pair.finish(), pair.a.endpoint.counters().local_ack_timeout_err), (ok([1]), 1));
}

#[test]
fn an_rnr_nak_without_retries_left_fails_the_request_and_flushes_the_rest() {
    for retries in [0, 1, 6] {
        let mut pair = Pair::with(|setup| setup.rnr_retry_count = retries);
        pair.send(1, 10);
        pair.write(2, 10);
        assert_eq!(pair.finish(), failed(WcStatus::RnrRetryExceeded, [1, 2]));
        assert_eq!(pair.count("RNR_NAK"), usize::from(retries) + 1);
        assert_eq!(pair.a.endpoint.counters().retry_rnr_exceeded_err, 1);
        assert_eq!((pair.a.state(), pair.b.state()), ("in the error state", "connected"));
    }
}

#[test]
fn an_rnr_retry_count_of_seven_has_no_limit() {
    let mut pair = Pair::with(|setup| setup.rnr_retry_count = 7);
    pair.send(1, 10);
    pair.drive_for(Duration::from_millis(100));
    assert!(pair.count("RNR_NAK") > 100);
    pair.b.recv(9, 10);
    assert_eq!(pair.finish(), ok([1]));
}

#[test]
fn progress_restores_the_rnr_retries() {
    let mut pair = Pair::with(|setup| setup.rnr_retry_count = 1);
    for id in 1..=3 {
        pair.send(id, 10);
        pair.drive_for(2 * DELAY);
        pair.b.recv(id, 10);
        assert_eq!(pair.finish(), ok([id]));
    }
    assert_eq!(pair.count("RNR_NAK"), 3);
}

#[test]
fn an_rnr_nak_that_the_network_repeats_costs_one_retry() {
    let mut pair = Pair::with(|setup| setup.rnr_retry_count = 1);
    pair.on("RNR_NAK", 1, Fault::Repeat);
    pair.send(1, 10);
    pair.drive_for(4 * DELAY);
    pair.b.recv(9, 10);
    assert_eq!((pair.finish(), pair.a.endpoint.counters().rcvd_rnr_err), (ok([1]), 2));
}

#[test]
fn an_rnr_nak_acknowledges_the_packets_before_it() {
    let mut pair = Pair::new();
    pair.lose("ACK", 1);
    pair.write(1, 10);
    pair.send(2, 10);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.a.completed(), pair.psns("RNR_NAK")), (ok([1]), vec![PSN_A + 1]));
    pair.b.recv(9, 10);
    assert_eq!((pair.finish(), pair.count("WRITE_ONLY")), (ok([2]), 1));
}

#[test]
fn the_packets_behind_one_without_a_receive_are_no_gap() {
    let mut pair = Pair::new();
    pair.send(1, 5 * MTU);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.count("RNR_NAK"), pair.count("NAK_SEQUENCE")), (1, 0));
    assert_eq!(pair.causes(B)[1..], [RefusalCause::OutOfSequence; 4]);
    pair.b.recv(9, 5 * MTU);
    assert_eq!((pair.finish(), pair.b.got(5 * MTU)), (ok([1]), pair.a.own(5 * MTU)));
}

#[test]
fn the_first_packet_of_a_send_takes_the_receive() {
    let mut pair = Pair::new();
    pair.b.recv(9, 3 * MTU);
    pair.send(1, 3 * MTU);
    pair.send(2, MTU);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.a.completed(), pair.b.received()), (ok([1]), ok([9])));
    assert_eq!(pair.psns("RNR_NAK"), [PSN_A + 3]);
}

#[test]
fn a_write_with_immediate_without_a_receive_writes_nothing() {
    let mut pair = Pair::new();
    pair.write_imm(1, 10, 7);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.psns("RNR_NAK"), pair.b.got(10)), (vec![PSN_A], &[0; 10][..]));
    pair.b.recv(9, 0);
    assert_eq!((pair.finish(), pair.b.received(), pair.b.got(10)), (ok([1]), ok([9]), pair.a.own(10)));
}

#[test]
fn a_long_write_with_immediate_needs_its_receive_at_the_last_packet() {
    let mut pair = Pair::new();
    pair.write_imm(1, 3 * MTU, 7);
    pair.drive_for(2 * DELAY);
    assert_eq!(pair.psns("RNR_NAK"), [PSN_A + 2]);
    assert_eq!((pair.b.got(2 * MTU), pair.b.got(3 * MTU)[2 * MTU as usize]), (pair.a.own(2 * MTU), 0));
    pair.b.recv(9, 0);
    assert_eq!((pair.finish(), pair.requests().len()), (ok([1]), 4));
}

#[test]
fn a_write_without_immediate_needs_no_receive() {
    let mut pair = Pair::new();
    pair.write(1, HALF);
    assert_eq!((pair.finish(), pair.refused.len()), (ok([1]), 0));
}
