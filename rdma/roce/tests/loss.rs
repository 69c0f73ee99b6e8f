//! What requester and responder do when packets are lost, reordered or damaged (IBTA vol. 1, 9.7.3, 9.7.5 and 9.9.2).

mod pair;

use std::time::Duration;

use pair::{A, B, Fault, MTU, PSN_A, Pair, failed, ok};
use roce::{
    RefusalCause, Time, opcode,
    window::{Aimd, Window as _},
    wire::{NakCode, Syndrome},
};
use verbs::WcStatus;

/// In each case, the first packet of the kind `lost` is lost. `psns` are the PSNs of all packets of the kind `kind`,
/// and `naks` are the PSNs of all sequence NAKs.
#[test]
fn a_write_survives_the_loss_of_any_packet() {
    for (lost, kind, psns, naks) in [
        ("WRITE_FIRST", "WRITE_FIRST", vec![PSN_A; 2], vec![PSN_A]),
        ("WRITE_MIDDLE", "WRITE_FIRST", vec![PSN_A], vec![PSN_A + 1]),
        // The lost packet is the last packet of its message, so the responder sees no gap and sends no NAK. The tail
        // probe of the requester sends the lost packet again.
        ("WRITE_LAST", "WRITE_LAST", vec![PSN_A + 4; 2], vec![]),
        ("WRITE_LAST", "WRITE_MIDDLE", vec![PSN_A + 1, PSN_A + 2, PSN_A + 3], vec![]),
    ] {
        let mut pair = Pair::new();
        pair.lose(lost, 1);
        pair.write(1, 5 * MTU);
        assert_eq!((pair.finish(), pair.b.got(5 * MTU)), (ok([1]), pair.a.own(5 * MTU)), "{lost}");
        assert_eq!((pair.psns(kind), pair.psns("NAK_SEQUENCE")), (psns, naks), "{lost}");
    }
}

#[test]
fn a_send_survives_the_loss_of_any_packet() {
    for (lost, naks) in [("SEND_FIRST", vec![PSN_A]), ("SEND_MIDDLE", vec![PSN_A + 1]), ("SEND_LAST", vec![])]
    {
        let mut pair = Pair::new();
        pair.lose(lost, 1);
        pair.b.recv(9, 5 * MTU);
        pair.send(1, 5 * MTU);
        assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([9])), "{lost}");
        assert_eq!((pair.b.got(5 * MTU), pair.psns("NAK_SEQUENCE")), (pair.a.own(5 * MTU), naks), "{lost}");
    }
}

#[test]
fn an_acknowledgement_covers_the_lost_ones_before_it() {
    let mut pair = Pair::new();
    pair.lose("ACK", 1);
    pair.lose("ACK", 2);
    (1..=3).for_each(|id| pair.write(id, 10));
    assert_eq!(pair.finish(), ok([1, 2, 3]));
    assert_eq!((pair.requests().len(), pair.count("ACK")), (3, 3));
}

#[test]
fn a_lost_last_acknowledgement_is_sent_again_for_a_probe() {
    let mut pair = Pair::new();
    pair.lose("ACK", 1);
    pair.write(1, 10);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!((pair.psns("ACK"), pair.causes(B)), (vec![PSN_A; 2], vec![RefusalCause::Duplicate]));
}

#[test]
fn a_sequence_nak_acknowledges_the_packets_before_it() {
    let mut pair = Pair::new();
    pair.lose("WRITE_ONLY", 3);
    pair.lose("ACK", 1);
    pair.lose("ACK", 2);
    (1..=4).for_each(|id| pair.write(id, 10));
    pair.drive_for(2 * pair::DELAY);
    assert_eq!((pair.a.completed(), pair.psns("NAK_SEQUENCE")), (ok([1, 2]), vec![PSN_A + 2]));
    assert_eq!(pair.finish(), ok([3, 4]));
}

/// B sends an ACK before the NAK, because the requester of rxe ignores all NAKs after the first one until an ACK
/// arrives.
#[test]
fn the_packets_before_a_gap_are_acknowledged_before_the_sequence_nak() {
    let mut pair = Pair::new();
    pair.lose("WRITE_MIDDLE", 3);
    pair.write(1, 10 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    let responses: Vec<_> = pair.sent.iter().filter(|p| p.from == B).map(|p| (p.kind, p.psn())).collect();
    let expected = [("ACK", PSN_A + 2), ("NAK_SEQUENCE", PSN_A + 3), ("ACK", PSN_A + 9)];
    assert_eq!(responses, expected);
}

/// The responses of a READ also acknowledge the READ, so it needs no ACK. If an ACK arrives between the responses, the
/// requester of rxe moves its queue pair to the error state.
#[test]
fn a_read_before_a_gap_is_not_acknowledged() {
    let mut pair = Pair::new();
    pair.lose("WRITE_ONLY", 1);
    pair.read(1, 3 * MTU);
    pair.write(2, 10);
    pair.write(3, 10);
    assert_eq!(pair.finish(), ok([1, 2, 3]));
    assert_eq!((pair.psns("ACK"), pair.psns("NAK_SEQUENCE")), (vec![PSN_A + 3, PSN_A + 4], vec![PSN_A + 3]));
}

#[test]
fn a_sequence_nak_is_sent_once_per_gap() {
    let mut pair = Pair::new();
    pair.batches = true;
    pair.lose("WRITE_MIDDLE", 1);
    pair.write(1, 10 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!((pair.count("NAK_SEQUENCE"), pair.causes(B)), (1, vec![RefusalCause::OutOfSequence; 8]));
    assert_eq!(pair.b.endpoint.counters().send_seq_err, 1);
    assert_eq!(pair.a.endpoint.counters().rcvd_seq_err, 1);
}

#[test]
fn another_sequence_nak_is_sent_when_the_requester_has_started_over() {
    let mut pair = Pair::new();
    pair.batches = true;
    pair.rule(|p| (p.psn() == PSN_A + 1 && p.kind == "WRITE_MIDDLE" && p.nth < 12).then_some(Fault::Lose));
    pair.write(1, 10 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.psns("NAK_SEQUENCE"), [PSN_A + 1; 2]);
    // B sends the first ACK before the first NAK. Before the second NAK, B sends no ACK, because it has executed no
    // further packet. The second ACK acknowledges the whole WRITE.
    assert_eq!(pair.psns("ACK"), [PSN_A, PSN_A + 9]);
}

#[test]
fn a_lost_sequence_nak_is_sent_again_for_a_probe() {
    let mut pair = Pair::new();
    pair.warm_up();
    pair.lose("NAK_SEQUENCE", 1);
    pair.lose("WRITE_FIRST", 1);
    pair.write(1, 3 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.count("NAK_SEQUENCE"), 2);
    let first = PSN_A + 1;
    assert_eq!(pair.requests(), [first, first + 1, first + 2, first + 2, first, first + 1, first + 2]);
}

#[test]
fn a_repeated_sequence_nak_does_not_start_over_again() {
    let mut pair = Pair::new();
    pair.lose("WRITE_FIRST", 1);
    pair.on("NAK_SEQUENCE", 1, Fault::Repeat);
    pair.batches = true;
    pair.write(1, 3 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.requests().len(), 6);
}

/// Returns the packets that A sends for a WRITE of 3 packets while all packets from A are lost. An entry of the result
/// has a time in microseconds since the first packet, and the PSNs of the packets that were sent at this time.
fn into_silence(pair: &mut Pair, time: Duration) -> Vec<(u64, Vec<u32>)> {
    pair.silence(A);
    pair.write(1, 3 * MTU);
    let start = pair.now;
    pair.drive_for(time);
    let mut turns: Vec<(u64, Vec<u32>)> = Vec::new();
    for p in pair.sent.iter().filter(|p| p.from == A && p.at >= start) {
        let at = (p.at - start).as_micros() as u64;
        match turns.last_mut().filter(|(last, _)| *last == at) {
            Some((_, psns)) => psns.push(p.psn()),
            None => turns.push((at, vec![p.psn()])),
        }
    }
    turns
}

#[test]
fn the_last_packet_is_probed_before_all_packets_are_sent_again() {
    let mut pair = Pair::new();
    pair.warm_up();
    let (all, last) = (vec![PSN_A + 1, PSN_A + 2, PSN_A + 3], vec![PSN_A + 3]);
    let turns = into_silence(&mut pair, Duration::from_millis(30));
    let expected =
        [(0, all.clone()), (250, last.clone()), (750, last), (4750, all.clone()), (12_750, all.clone())];
    assert_eq!(turns[..5], expected);
    assert_eq!(turns[5], (28_750, all));
}

#[test]
fn a_round_trip_that_is_not_known_is_taken_for_50_ms() {
    let turns = into_silence(&mut Pair::new(), Duration::from_millis(60));
    assert_eq!(turns.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 50_000]);
}

#[test]
fn the_interval_does_not_exceed_the_ack_timeout() {
    let mut pair = Pair::with(|setup| setup.ack_timeout = 8);
    let turns = into_silence(&mut pair, Duration::from_millis(4));
    assert_eq!(turns.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1048, 2097, 3145]);
}

/// Makes a pair with `retry_count` retries and the ACK timeout code 8, which stands for 1.049 ms. Then makes the wire
/// lose all packets from B, posts two WRITEs at A, and runs the pair until A gives up. The first value of the result is
/// the duration of the run in microseconds. The second value of the result is the pair.
fn gives_up_after(retry_count: u8) -> (u64, Pair) {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, retry_count));
    pair.silence(B);
    let start = pair.now;
    pair.write(1, MTU);
    pair.write(2, MTU);
    pair.drive();
    ((pair.now - start).as_micros() as u64, pair)
}

#[test]
fn silence_fails_the_oldest_request_and_flushes_the_rest() {
    let (_, mut pair) = gives_up_after(7);
    assert_eq!(pair.a.completed(), failed(WcStatus::RetryExceeded, [1, 2]));
    assert_eq!((pair.a.endpoint.counters().retry_exceeded_err, pair.a.state()), (1, "in the error state"));
}

#[test]
fn each_ack_timeout_costs_one_retry() {
    assert_eq!(gives_up_after(0).0, 1048);
    assert_eq!(gives_up_after(3).0, 4 * 1_048_576 / 1000);
    assert_eq!(gives_up_after(7).0, 8 * 1_048_576 / 1000);
}

#[test]
fn progress_restores_the_retries() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 1));
    for id in 1..=4 {
        pair.rule(move |p| (p.kind == "WRITE_ONLY" && p.nth % 2 == 1).then_some(Fault::Lose));
        pair.write(id, MTU);
        assert_eq!(pair.finish(), ok([id]));
    }
    assert_eq!(pair.a.endpoint.counters().local_ack_timeout_err, 4);
}

#[test]
fn an_ack_timeout_of_zero_never_gives_up() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (0, 0));
    pair.silence(A);
    pair.write(1, MTU);
    pair.drive_for(Duration::from_secs(600));
    assert_eq!((pair.a.completed(), pair.a.state()), (vec![], "connected"));
    // The retransmission interval is at most 1 s, so A sends at least 600 packets in 600 s.
    assert!(pair.requests().len() >= 600, "{} packets", pair.requests().len());
    pair.clear_rules();
    assert_eq!(pair.finish(), ok([1]));
}

#[test]
fn naks_without_progress_do_not_keep_a_connection_alive() {
    let mut pair = Pair::with(|setup| (setup.ack_timeout, setup.retry_count) = (8, 2));
    pair.rule(|p| (p.kind == "WRITE_FIRST").then_some(Fault::Lose));
    pair.write(1, 3 * MTU);
    assert_eq!(pair.finish(), failed(WcStatus::RetryExceeded, [1]));
    assert!(pair.count("NAK_SEQUENCE") > 1);
}

#[test]
fn packets_out_of_order_are_asked_for_again() {
    let mut pair = Pair::new();
    pair.on("WRITE_MIDDLE", 1, Fault::Delay(Duration::from_micros(1)));
    pair.write(1, 4 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!((pair.psns("NAK_SEQUENCE"), pair.b.got(4 * MTU)), (vec![PSN_A + 1], pair.a.own(4 * MTU)));
}

#[test]
fn a_damaged_packet_is_refused_for_its_icrc_and_sent_again() {
    let mut pair = Pair::new();
    pair.on("WRITE_MIDDLE", 1, Fault::Corrupt);
    pair.write(1, 3 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    assert_eq!(pair.causes(B), [RefusalCause::Icrc, RefusalCause::OutOfSequence]);
    assert_eq!((pair.b.endpoint.counters().rx_icrc_encapsulated, pair.count("WRITE_MIDDLE")), (1, 2));
    assert_eq!(pair.b.got(3 * MTU), pair.a.own(3 * MTU));
}

#[test]
fn a_damaged_acknowledgement_acknowledges_nothing() {
    let mut pair = Pair::new();
    pair.on("ACK", 1, Fault::Corrupt);
    pair.write(1, 10);
    pair.drive_for(Duration::from_millis(1));
    assert_eq!((pair.a.completed(), pair.causes(A)), (vec![], vec![RefusalCause::Icrc]));
    assert_eq!(pair.finish(), ok([1]));
}

/// Makes a pair whose congestion windows begin with 16 packets and grow to at most 64 packets.
fn with_window() -> Pair {
    Pair::with(|setup| {
        (setup.config.initial_window_bytes, setup.config.max_window_bytes) = (16 * MTU, 64 * MTU);
    })
}

/// Posts a WRITE of 100 packets at A, and returns the number of packets that A sends before an acknowledgement arrives.
fn burst(pair: &mut Pair) -> usize {
    let before = pair.requests().len();
    pair.write(99, 100 * MTU);
    pair.transmit();
    pair.requests().len() - before
}

#[test]
fn only_a_window_of_packets_is_sent_without_acknowledgement() {
    let mut pair = with_window();
    assert_eq!(burst(&mut pair), 16);
    assert_eq!(pair.finish(), ok([99]));
    let mut small = Pair::with(|setup| setup.config.initial_window_bytes = 0);
    assert_eq!(burst(&mut small), 4, "the smallest window has 4 packets");
}

#[test]
fn a_full_window_doubles_in_each_round_trip_up_to_its_limit() {
    let mut pair = with_window();
    pair.batches = true;
    pair.write(1, 250 * MTU);
    assert_eq!(pair.finish(), ok([1]));
    let mut turns = std::collections::BTreeMap::<Time, usize>::new();
    pair.sent.iter().filter(|p| p.from == A).for_each(|p| *turns.entry(p.at).or_default() += 1);
    let turns: Vec<usize> = turns.into_values().collect();
    assert_eq!(turns[..4], [16, 32, 64, 64]);
}

#[test]
fn a_window_that_was_reduced_grows_by_two_packets_in_each_round_trip() {
    let mut window = Aimd::new(16, 64);
    window.on_loss(Time(0));
    let mut after = |acked| {
        window.on_ack(acked, true);
        window.packets()
    };
    assert_eq!([12, 13, 1, 15, 1, 17, 1].map(&mut after), [14, 14, 16, 16, 18, 18, 20]);
}

#[test]
fn a_window_that_is_not_full_does_not_grow() {
    let mut pair = with_window();
    for id in 0..20 {
        pair.write(id, MTU);
        pair.drive();
    }
    assert_eq!(burst(&mut pair), 16);
}

#[test]
fn a_sequence_nak_takes_a_quarter_of_the_window() {
    let mut pair = with_window();
    pair.lose("WRITE_FIRST", 1);
    pair.write(1, 3 * MTU);
    assert_eq!((pair.finish(), burst(&mut pair)), (ok([1]), 12));
}

#[test]
fn an_expired_timer_takes_a_quarter_of_the_window_but_a_probe_does_not() {
    let mut probed = with_window();
    probed.lose("WRITE_ONLY", 1);
    probed.write(1, MTU);
    assert_eq!((probed.finish(), burst(&mut probed)), (ok([1]), 16));
    let mut expired = Pair::with(|setup| {
        setup.config.initial_window_bytes = 16 * MTU;
        setup.ack_timeout = 0;
    });
    expired.rule(|p| (p.kind == "WRITE_ONLY" && p.nth <= 3).then_some(Fault::Lose));
    expired.write(1, MTU);
    assert_eq!((expired.finish(), burst(&mut expired)), (ok([1]), 12));
}

#[test]
fn a_congestion_notification_takes_a_quarter_of_the_window() {
    let mut pair = with_window();
    let cnp = pair.forge(A, opcode::CNP, 0);
    assert_eq!(pair.deliver(A, &cnp), None);
    // A second congestion notification that arrives at the same time does not reduce the window again.
    assert_eq!(pair.deliver(A, &cnp), None);
    assert_eq!((pair.a.endpoint.counters().rx_cnp, burst(&mut pair)), (2, 12));
}

#[test]
fn acknowledgements_are_requested_four_times_per_window_and_at_the_end() {
    let mut pair = with_window();
    pair.silence(B);
    pair.write(1, 10 * MTU);
    pair.transmit();
    let asking = pair.sent.iter().filter(|p| p.bth.ack_req).map(|p| p.psn() - PSN_A).collect::<Vec<_>>();
    assert_eq!(asking, [3, 7, 9]);
    pair.write(2, 20 * MTU);
    pair.transmit();
    let asking = pair.sent.iter().filter(|p| p.bth.ack_req).map(|p| p.psn() - PSN_A).collect::<Vec<_>>();
    // `asking` has the numbers of the packets that request an acknowledgement, counted from 0. The congestion window is
    // 16 packets, so A requests an acknowledgement with every fourth packet (3, 7). The last packet of the first
    // message (9) also requests one, and so does the fourth packet after it (13). Packet 15 fills the congestion
    // window, so it requests an acknowledgement although packet 13 has requested one.
    assert_eq!(asking, [3, 7, 9, 13, 15]);
}

#[test]
fn packets_that_a_late_acknowledgement_covers_are_not_sent_again() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 4 * MTU);
    pair.transmit();
    let nak = pair.forge_ack(A, PSN_A, Syndrome::Nak(NakCode::PsnSequence));
    let ack = pair.forge_ack(A, PSN_A + 1, Syndrome::ACK);
    assert_eq!((pair.deliver(A, &nak), pair.deliver(A, &ack)), (None, None));
    pair.transmit();
    assert_eq!(pair.requests()[4..], [PSN_A + 2, PSN_A + 3]);
}

#[test]
fn a_retransmitted_packet_is_no_measure_of_the_round_trip() {
    let mut pair = Pair::new();
    pair.on("ACK", 1, Fault::Delay(Duration::from_millis(200)));
    pair.lose("WRITE_ONLY", 1);
    pair.lose("WRITE_ONLY", 2);
    pair.lose("WRITE_ONLY", 3);
    pair.write(1, MTU);
    assert_eq!(pair.finish(), ok([1]));
    pair.clear_rules();
    pair.sent.clear();
    pair.warm_up();
    let turns = into_silence(&mut pair, Duration::from_millis(1));
    assert_eq!(turns[1].0, 250, "the one measured round trip is that of the last SEND");
}
