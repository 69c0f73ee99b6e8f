//! Tests runs: rows of MIDDLE packets that the endpoint grants at once, and that the caller builds.

mod pair;

use pair::{A, B, HALF, MTU, PSN_A, Pair, Side, ok};
use roce::{
    RefusalCause, opcode,
    wire::{Bth, NakCode, Syndrome},
};
use verbs::{Access, Payload, SendFlags, SendOp, SendWr};

/// A pair of which A may send `packets` packets without an acknowledgement.
fn with_window(packets: u32) -> Pair {
    Pair::with(|setup| {
        let config = &mut setup.config;
        (config.initial_window_bytes, config.max_window_bytes) = (packets * MTU, packets * MTU);
    })
}

/// Lets `side` build all packets that it may send now. Returns, for each run, its first PSN, its length, and the offset of
/// the first payload byte. A packet without followers is a run of one packet.
fn runs(pair: &mut Pair, side: Side) -> Vec<(u32, u32, u64)> {
    let now = pair.now;
    let end = pair.end(side);
    let mut runs = Vec::new();
    while end.endpoint.poll_transmit(now, &mut end.transmit) {
        let bth = Bth::decode(end.transmit.header.as_slice().first_chunk().unwrap());
        let (first, mut len) = (end.transmit.pieces[0], 1);
        while end.transmit.next_of_run() {
            let next = Bth::decode(end.transmit.header.as_slice().first_chunk().unwrap());
            assert_eq!(next, Bth { psn: bth.psn.plus(len), ..bth });
            let offset = first.offset + u64::from(len) * u64::from(MTU);
            assert_eq!(end.transmit.pieces, [roce::Piece { offset, ..first }]);
            len += 1;
        }
        runs.push((bth.psn.value() - PSN_A, len, first.offset));
    }
    runs
}

/// The lengths of the runs.
fn lengths(pair: &mut Pair) -> Vec<u32> {
    runs(pair, A).iter().map(|(_, len, _)| *len).collect()
}

#[test]
fn runs_end_at_requests_for_acknowledgements_and_before_the_last_packet() {
    let mut pair = with_window(1000);
    pair.write(1, 100 * MTU);
    // The packets 31, 63 and 95 request an acknowledgement, and packet 99 is the last one. A queue pair sends at most 64
    // packets before the next queue pair's turn.
    let at = |packet: u32| u64::from(packet * MTU);
    let expected = [(0, 1), (1, 30), (31, 1), (32, 31), (63, 1), (64, 31), (95, 1), (96, 3), (99, 1)];
    assert_eq!(runs(&mut pair, A), expected.map(|(first, len)| (first, len, at(first))));
}

#[test]
fn a_run_ends_before_the_packet_that_fills_the_window() {
    let mut pair = with_window(16);
    pair.write(1, 100 * MTU);
    // One of four packets requests an acknowledgement.
    assert_eq!(lengths(&mut pair), [1, 2, 1, 3, 1, 3, 1, 3, 1]);
    let mut pair = with_window(9);
    pair.write(1, 100 * MTU);
    assert_eq!(lengths(&mut pair), [1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a_run_ends_with_its_buffer() {
    let mut pair = with_window(1000);
    let op = SendOp::Write(pair.b.remote(HALF));
    let sges = [pair.a.sge(0, 5 * MTU), pair.a.sge(7 * MTU, 4 * MTU + 8), pair.a.sge(20 * MTU, 6 * MTU)];
    let flags = SendFlags::SIGNALED;
    pair.a
        .endpoint
        .post_send(pair.a.qp, &SendWr { wr_id: 1, op, payload: Payload::Sges(&sges), flags })
        .unwrap();
    let (end, now) = (&mut pair.a, pair.now);
    let mut pieces = Vec::new();
    while end.endpoint.poll_transmit(now, &mut end.transmit) {
        let mut len = 1;
        let first = end.transmit.pieces.clone();
        while end.transmit.next_of_run() {
            len += 1;
        }
        pieces.push((first[0].offset / u64::from(MTU), first.len(), len));
    }
    // The packet at the end of the second buffer has two pieces, and the packets behind it are no multiple of the MTU away
    // from the start of the third buffer.
    assert_eq!(pieces, [(0, 1, 1), (1, 1, 4), (7, 1, 4), (11, 2, 1), (20, 1, 5), (25, 1, 1)]);
}

#[test]
fn inline_data_and_small_messages_have_no_runs() {
    let mut pair = with_window(1000);
    for (id, len) in [(1, 0), (2, MTU), (3, 2 * MTU), (4, 3 * MTU)] {
        pair.write(id, len);
    }
    let end = &mut pair.a;
    while end.endpoint.poll_transmit(pair.now, &mut end.transmit) {
        assert!(!end.transmit.next_of_run());
    }
}

#[test]
fn packets_of_a_run_that_the_caller_forgets_are_sent_again() {
    let mut pair = with_window(1000);
    pair.write(1, 100 * MTU);
    for _ in 0..5 {
        assert!(pair.transmit_one(A));
    }
    pair.a.transmit.end_run();
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.b.got(100 * MTU), pair.a.own(100 * MTU));
}

/// A pair of which A has granted a run, of which it has built the first packet. Returns the PSN of this packet, too.
fn in_a_run() -> (Pair, u32) {
    let mut pair = with_window(1000);
    pair.write(1, 100 * MTU);
    for _ in 0..5 {
        assert!(pair.transmit_one(A));
    }
    assert!(pair.a.transmit.clone().next_of_run());
    let psn = pair.sent.last().unwrap().psn();
    (pair, psn)
}

#[test]
fn a_run_ends_when_its_packets_are_sent_again() {
    let (mut pair, last) = in_a_run();
    let nak = pair.forge_ack(A, PSN_A + 1, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(pair.deliver(A, &nak), None);
    assert!(pair.transmit_one(A));
    assert_eq!((last, pair.sent.last().unwrap().psn()), (PSN_A + 4, PSN_A + 1));
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.b.got(100 * MTU), pair.a.own(100 * MTU));
}

#[test]
fn a_run_ends_with_its_queue_pair_and_with_its_region() {
    let ends: [fn(&mut Pair); 3] = [
        |pair| pair.a.endpoint.destroy_qp(pair.a.qp).unwrap(),
        |pair| _ = pair.a.endpoint.dereg_mr(pair.a.keys.lkey).unwrap(),
        |pair| {
            let nak = pair.forge_ack(A, PSN_A + 1, Syndrome::Nak(NakCode::RemoteAccess));
            assert_eq!(pair.deliver(A, &nak), None);
        },
    ];
    for end in ends {
        let (mut pair, _) = in_a_run();
        end(&mut pair);
        assert!(!pair.transmit_one(A), "{:?}", pair.sent.last());
    }
}

#[test]
fn one_packet_of_a_run_overtakes_a_late_acknowledgement() {
    let mut pair = Pair::with(|setup| {
        setup.cap.late_acks = true;
        let config = &mut setup.config;
        (config.initial_window_bytes, config.max_window_bytes) = (1000 * MTU, 1000 * MTU);
    });
    pair.b.recv(9, MTU);
    pair.b.post(2, SendOp::Write(pair.a.remote(HALF)), 0, 100 * MTU);
    for _ in 0..2 {
        assert!(pair.transmit_one(B));
    }
    pair.b.transmit.end_run();
    assert!(pair.transmit_one(B));
    // The next packet is a MIDDLE packet, which could begin a run.
    pair.send(1, 10);
    assert!(pair.transmit_one(A));
    while pair.b.received().is_empty() {
        pair.step_without_sending();
    }
    for _ in 0..3 {
        assert!(pair.transmit_one(B));
    }
    assert_eq!(pair.kinds(B)[3..], ["WRITE_MIDDLE", "ACK", "WRITE_MIDDLE"]);
}

/// A pair of which B has received a READ request for `packets` packets.
fn asked(packets: u32) -> Pair {
    let mut pair = with_window(1000);
    pair.read(1, packets * MTU);
    assert!(pair.transmit_one(A));
    pair.step_without_sending();
    pair
}

#[test]
fn the_middle_responses_of_a_read_are_runs() {
    let mut pair = asked(100);
    // A queue pair sends at most 64 packets before the next queue pair's turn.
    let expected = [(0, 1), (1, 63), (64, 35), (99, 1)];
    let at = |packet: u32| u64::from(packet * MTU);
    assert_eq!(runs(&mut pair, B), expected.map(|(first, len)| (first, len, at(first))));
    assert_eq!(pair.b.endpoint.counters().sent_pkts, 100);
    let sizes = [1, 2, 3, 4].map(|packets| runs(&mut asked(packets), B).len());
    assert_eq!(sizes, [1, 2, 3, 3]);
}

/// A pair of which B has granted a run of READ responses, of which it has built the first packet.
fn in_a_response_run() -> Pair {
    let mut pair = asked(50);
    for _ in 0..2 {
        assert!(pair.transmit_one(B));
    }
    assert!(pair.b.transmit.clone().next_of_run());
    pair
}

#[test]
fn responses_of_a_run_that_the_caller_forgets_are_asked_for_again() {
    let mut pair = in_a_response_run();
    pair.b.transmit.end_run();
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.a.got(50 * MTU), pair.b.own(50 * MTU));
}

#[test]
fn a_run_of_responses_ends_when_the_read_is_repeated() {
    let mut pair = in_a_response_run();
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A + 1, MTU, 49 * MTU)), None);
    assert!(pair.transmit_one(B));
    let last = pair.sent.last().unwrap();
    assert_eq!((last.kind, last.psn()), ("READ_RESPONSE_FIRST", PSN_A + 1));
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.a.got(50 * MTU), pair.b.own(50 * MTU));
}

/// What ends a run, and the packets that its end sends after that.
type Ending = (fn(&mut Pair), &'static [&'static str]);

#[test]
fn a_run_of_responses_ends_with_its_queue_pair_its_region_and_its_right_to_read() {
    let endings: [Ending; 3] = [
        (|pair| pair.b.endpoint.destroy_qp(pair.b.qp).unwrap(), &[]),
        (|pair| _ = pair.b.endpoint.dereg_mr(pair.b.keys.lkey).unwrap(), &["NAK_ACCESS"]),
        (
            |pair| pair.b.endpoint.set_mr_access(pair.b.keys.lkey, Access::REMOTE_WRITE).unwrap(),
            &["NAK_ACCESS"],
        ),
    ];
    for (end, expected) in endings {
        let mut pair = in_a_response_run();
        end(&mut pair);
        pair.transmit();
        assert_eq!(pair.kinds(B)[2..], *expected);
    }
}

#[test]
fn a_run_of_responses_goes_on_when_something_else_changes() {
    let others: [fn(&mut Pair); 3] = [
        |pair| {
            let keys = pair.b.register(0x1000, 64, Access::ALL);
            pair.b.endpoint.dereg_mr(keys.lkey).unwrap();
        },
        |pair| pair.b.endpoint.set_mr_access(pair.b.keys.lkey, Access::ALL).unwrap(),
        // A queue pair that failed still sends the responses that wait.
        |pair| {
            let cause = pair.deliver(B, &pair.forge(B, opcode::SEND_MIDDLE, PSN_A + 50));
            assert_eq!(cause, Some(RefusalCause::OpcodeSequence));
        },
    ];
    for (n, other) in others.into_iter().enumerate() {
        let mut pair = in_a_response_run();
        other(&mut pair);
        pair.transmit();
        assert_eq!(pair.count("READ_RESPONSE_MIDDLE"), 48);
        assert_eq!(pair.count("NAK_INVALID"), usize::from(n == 2));
        pair.drive();
        assert_eq!(pair.a.completed(), ok([1]));
        assert_eq!(pair.a.got(50 * MTU), pair.b.own(50 * MTU));
    }
}
