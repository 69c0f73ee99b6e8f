//! PSNs have 24 bits and wrap. A packet is ahead of the expected PSN if its PSN is 1 to 2^23 - 1 later, modulo 2^24. A
//! packet with any other unexpected PSN is behind the expected PSN (IBTA vol. 1, 9.7.2).

mod pair;

use std::time::Duration;

use pair::{A, B, DELAY, Fault, MTU, PSN_A, Pair, ok};
use roce::{RefusalCause, opcode, psn::Psn, wire::Syndrome};

/// Makes two connected endpoints, A and B. The third request packet that A sends has the PSN 0.
fn near_the_wrap() -> Pair {
    Pair::with(|setup| setup.psn = [0xff_fffe, 0xff_fffd])
}

#[test]
fn a_write_crosses_the_wrap() {
    let mut pair = near_the_wrap();
    pair.write(1, 4 * MTU);
    assert_eq!((pair.finish(), pair.requests()), (ok([1]), vec![0xff_fffe, 0xff_ffff, 0, 1]));
    assert_eq!((pair.refused.len(), pair.b.got(4 * MTU)), (0, pair.a.own(4 * MTU)));
}

#[test]
fn any_packet_lost_at_the_wrap_is_sent_again() {
    for lost in [0xff_fffe, 0xff_ffff, 0, 1, 2] {
        let mut pair = near_the_wrap();
        let mut left = 1;
        pair.rule(move |p| {
            (p.from == A && p.psn() == lost && std::mem::take(&mut left) > 0).then_some(Fault::Lose)
        });
        pair.b.recv(9, 5 * MTU);
        pair.send(1, 5 * MTU);
        assert_eq!(pair.finish(), ok([1]), "{lost:#x}");
        let naks = if lost == 2 { vec![] } else { vec![lost] };
        assert_eq!((pair.psns("NAK_SEQUENCE"), pair.b.got(5 * MTU)), (naks, pair.a.own(5 * MTU)));
    }
}

#[test]
fn an_acknowledgement_behind_the_wrap_covers_requests_before_it() {
    let mut pair = near_the_wrap();
    (1..=3).for_each(|nth| pair.lose("ACK", nth));
    (1..=4).for_each(|id| pair.write(id, 10));
    assert_eq!((pair.finish(), pair.psns("ACK")), (ok([1, 2, 3, 4]), vec![0xff_fffe, 0xff_ffff, 0, 1]));
    assert_eq!(pair.requests().len(), 4);
}

#[test]
fn a_sequence_nak_at_the_wrap_acknowledges_the_packets_before_it() {
    let mut pair = near_the_wrap();
    pair.lose("ACK", 1);
    pair.lose("ACK", 2);
    pair.lose("WRITE_ONLY", 3);
    (1..=4).for_each(|id| pair.write(id, 10));
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.a.completed(), pair.psns("NAK_SEQUENCE")), (ok([1, 2]), vec![0]));
    assert_eq!(pair.finish(), ok([3, 4]));
}

#[test]
fn an_rnr_nak_at_the_wrap_is_for_its_request_only() {
    let mut pair = near_the_wrap();
    pair.write(1, 2 * MTU);
    pair.send(2, 10);
    pair.drive_for(2 * DELAY);
    assert_eq!((pair.a.completed(), pair.psns("RNR_NAK")), (ok([1]), vec![0]));
    pair.b.recv(9, 10);
    assert_eq!(pair.finish(), ok([2]));
}

#[test]
fn the_responses_of_a_read_cross_the_wrap() {
    let mut pair = near_the_wrap();
    pair.read(1, 5 * MTU);
    pair.write(2, MTU);
    assert_eq!((pair.finish(), pair.a.got(5 * MTU)), (ok([1, 2]), pair.b.own(5 * MTU)));
    assert_eq!(pair.psns("READ_RESPONSE_MIDDLE"), [0xff_ffff, 0, 1]);
    assert_eq!((pair.psns("READ_RESPONSE_LAST"), pair.psns("WRITE_ONLY")), (vec![2], vec![3]));
}

#[test]
fn a_read_resumes_at_the_response_that_was_lost_at_the_wrap() {
    for (nth, psn) in [(1, 0xff_ffff), (2, 0), (3, 1)] {
        let mut pair = near_the_wrap();
        pair.lose("READ_RESPONSE_MIDDLE", nth);
        pair.read(1, 5 * MTU);
        assert_eq!((pair.finish(), pair.a.got(5 * MTU)), (ok([1]), pair.b.own(5 * MTU)));
        assert_eq!(pair.psns("READ_REQUEST"), [0xff_fffe, psn]);
    }
}

#[test]
fn a_request_from_before_the_wrap_is_a_duplicate_behind_it() {
    let mut pair = near_the_wrap();
    pair.write(1, 4 * MTU);
    pair.finish();
    pair.sent.clear();
    for psn in [0xff_fffe, 0xff_ffff, 0, 1] {
        assert_eq!(pair.deliver(B, &pair.forge(B, opcode::WRITE_MIDDLE, psn)), Some(RefusalCause::Duplicate));
        pair.transmit();
    }
    assert_eq!(pair.psns("ACK"), [1; 4]);
}

#[test]
fn a_psn_of_half_the_space_is_behind_and_one_less_is_ahead() {
    for (distance, cause) in [
        (1, RefusalCause::OutOfSequence),
        (0x7f_ffff, RefusalCause::OutOfSequence),
        (0x80_0000, RefusalCause::Duplicate),
        (0xff_ffff, RefusalCause::Duplicate),
    ] {
        let mut pair = Pair::new();
        let request = pair.forge(B, opcode::WRITE_MIDDLE, PSN_A + distance);
        assert_eq!(pair.deliver(B, &request), Some(cause), "{distance:#x}");
    }
}

#[test]
fn an_acknowledgement_of_half_the_space_behind_is_a_repetition_and_one_ahead_is_not() {
    let ack = |distance: u32| {
        let mut pair = near_the_wrap();
        pair.silence(A);
        pair.write(1, 4 * MTU);
        pair.transmit();
        let ack = pair.forge_ack(A, 0xff_fffe + distance, Syndrome::ACK);
        (pair.deliver(A, &ack), pair.a.completed())
    };
    assert_eq!(ack(3), (None, ok([1])));
    assert_eq!(ack(4), (Some(RefusalCause::StrayResponse), vec![]));
    assert_eq!(ack(0x7f_ffff), (Some(RefusalCause::StrayResponse), vec![]));
    assert_eq!(ack(0x80_0000), (None, vec![]));
    assert_eq!(ack(0xff_ffff), (None, vec![]));
}

#[test]
fn a_probe_at_the_wrap_is_the_last_packet() {
    let mut pair = near_the_wrap();
    pair.lose("WRITE_LAST", 1);
    pair.write(1, 3 * MTU);
    pair.drive_for(Duration::from_millis(60));
    assert_eq!((pair.a.completed(), pair.requests()), (ok([1]), vec![0xff_fffe, 0xff_ffff, 0, 0]));
}

#[test]
fn both_directions_wrap_independently() {
    let mut pair = near_the_wrap();
    let to_a = pair.a.remote(pair::HALF);
    pair.b.post(7, verbs::SendOp::Write(to_a), 0, 4 * MTU);
    pair.write(1, MTU);
    assert_eq!((pair.finish(), pair.b.completed()), (ok([1]), ok([7])));
    assert_eq!(pair.psns("WRITE_MIDDLE"), [0xff_fffe, 0xff_ffff]);
}

#[test]
fn a_first_psn_has_24_bits() {
    let mut pair = Pair::with(|setup| setup.psn = [0xab00_0001, 0xcd00_0002]);
    pair.write(1, 10);
    assert_eq!((pair.finish(), pair.psns("WRITE_ONLY")), (ok([1]), vec![Psn::new(1).value()]));
}
