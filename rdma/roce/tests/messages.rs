//! Tests how messages are divided into packets, and which completions the messages cause (IBTA vol. 1, 9.2, 9.4 and
//! 9.7.4).

mod pair;

use std::time::Duration;

use pair::{A, B, DELAY, HALF, MTU, PSN_A, Pair, Setup, ok};
use roce::{opcode, wire::Bth};
use verbs::{Payload, RecvWr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};

/// Transfers a message of `len` bytes from A to B, and returns the kinds of A's packets.
fn packets(op: impl Fn(&Pair) -> SendOp, len: u32) -> Vec<&'static str> {
    let mut pair = Pair::new();
    pair.b.recv(9, 4 * MTU);
    let op = op(&pair);
    pair.a.post(1, op, 0, len);
    assert_eq!((pair.finish(), pair.refused.len()), (ok([1]), 0));
    assert_eq!(pair.b.got(len), pair.a.own(len));
    pair.kinds(A)
}

#[test]
fn a_send_is_cut_into_packets_of_the_path_mtu() {
    let send = |_: &Pair| SendOp::Send;
    assert_eq!(packets(send, 0), ["SEND_ONLY"]);
    assert_eq!(packets(send, MTU), ["SEND_ONLY"]);
    assert_eq!(packets(send, MTU + 1), ["SEND_FIRST", "SEND_LAST"]);
    assert_eq!(packets(send, 3 * MTU), ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"]);
}

#[test]
fn the_immediate_of_a_send_is_in_its_last_packet() {
    let send = |_: &Pair| SendOp::SendWithImm(7);
    assert_eq!(packets(send, 5), ["SEND_ONLY_WITH_IMM"]);
    assert_eq!(packets(send, 3 * MTU), ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST_WITH_IMM"]);
}

#[test]
fn a_write_is_cut_into_packets_of_the_path_mtu() {
    let write = |pair: &Pair| SendOp::Write(pair.b.remote(HALF));
    assert_eq!(packets(write, 0), ["WRITE_ONLY"]);
    assert_eq!(packets(write, MTU), ["WRITE_ONLY"]);
    assert_eq!(packets(write, 3 * MTU), ["WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST"]);
}

#[test]
fn the_immediate_of_a_write_is_in_its_last_packet() {
    let write = |pair: &Pair| SendOp::WriteWithImm(pair.b.remote(HALF), 7);
    assert_eq!(packets(write, 5), ["WRITE_ONLY_WITH_IMM"]);
    assert_eq!(packets(write, 3 * MTU), ["WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_WITH_IMM"]);
}

#[test]
fn the_first_packet_of_a_write_tells_address_key_and_length() {
    let mut pair = Pair::new();
    pair.write(1, 3 * MTU);
    pair.finish();
    let (to, reths) = (pair.b.remote(HALF), pair.sent.iter().filter(|p| p.from == A).map(|p| p.reth));
    let expected = roce::wire::Reth { addr: to.addr, rkey: to.rkey, length: 3 * MTU };
    assert_eq!(reths.collect::<Vec<_>>(), [Some(expected), None, None]);
}

#[test]
fn all_packets_have_the_same_header_fields() {
    let mut pair = Pair::new();
    pair.write(1, 3 * MTU);
    pair.read(2, 3 * MTU);
    pair.finish();
    for p in &pair.sent {
        let dest_qp = if p.from == A { pair.b.qp.0 } else { pair.a.qp.0 };
        let Bth { opcode, ack_req, psn, .. } = p.bth;
        let expected = Bth { opcode, ack_req, psn, dest_qp, mig_req: true, p_key: 0xffff, ..Bth::default() };
        assert_eq!(p.bth, expected);
    }
}

#[test]
fn the_last_packet_is_padded_to_four_bytes() {
    for (len, pad) in [(1, 3), (2, 2), (3, 1), (4, 0), (MTU + 5, 3)] {
        let mut pair = Pair::new();
        pair.write(1, len);
        pair.read(2, len);
        assert_eq!((pair.finish(), pair.b.got(len)), (ok([1, 2]), pair.a.own(len)));
        assert_eq!((pair.b.got(len + 1)[len as usize], pair.a.got(len + 1)[len as usize]), (0, 0));
        let pads: Vec<_> = pair.sent.iter().filter(|p| p.len % 4 != 0).map(|p| p.bth.pad).collect();
        assert!(pads.iter().all(|&got| got == pad), "{pads:?}");
    }
}

#[test]
fn the_completion_of_a_receive_says_what_arrived() {
    let mut pair = Pair::new();
    (6..=9).for_each(|id| pair.b.recv(id, 2 * MTU));
    pair.send(1, MTU + 1);
    pair.a.post(2, SendOp::SendWithImm(77), 0, 5);
    pair.write_imm(3, 2 * MTU, 78);
    pair.a.post_with(4, SendOp::Send, 0, 0, SendFlags::SIGNALED_SOLICITED).unwrap();
    assert_eq!(pair.finish(), ok([1, 2, 3, 4]));
    let (qp, status, opcode) = (pair.b.qp, WcStatus::Success, WcOpcode::Recv);
    let wc = Wc { wr_id: 6, qp, status, opcode, byte_len: MTU + 1, imm: None, solicited: false };
    let expected = [
        wc,
        Wc { wr_id: 7, byte_len: 5, imm: Some(77), ..wc },
        Wc { wr_id: 8, opcode: WcOpcode::RecvWriteWithImm, byte_len: 2 * MTU, imm: Some(78), ..wc },
        Wc { wr_id: 9, byte_len: 0, solicited: true, ..wc },
    ];
    assert_eq!(pair.b.poll(pair.b.recv_cq), expected);
    assert_eq!((pair.a.endpoint.counters().rdma_sends, pair.b.endpoint.counters().rdma_recvs), (4, 4));
}

#[test]
fn the_completion_of_a_request_says_what_was_done() {
    let mut pair = Pair::new();
    pair.b.recv(9, MTU);
    pair.send(1, 5);
    pair.write(2, 6);
    pair.read(3, 7);
    pair.drive();
    let (qp, wcs) = (pair.a.qp, pair.a.poll(pair.a.send_cq));
    let done: Vec<_> = wcs.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len)).collect();
    assert_eq!(done, [(1, WcOpcode::Send, 5), (2, WcOpcode::Write, 6), (3, WcOpcode::Read, 7)]);
    assert!(wcs.iter().all(|wc| (wc.qp, wc.imm, wc.solicited) == (qp, None, false)));
}

#[test]
fn only_the_last_packet_of_a_message_has_the_solicited_bit() {
    let mut pair = Pair::new();
    pair.b.recv(9, 3 * MTU);
    pair.a.post_with(1, SendOp::Send, 0, 3 * MTU, SendFlags::SIGNALED_SOLICITED).unwrap();
    pair.finish();
    let bits: Vec<_> = pair.sent.iter().filter(|p| p.from == A).map(|p| p.bth.solicited).collect();
    assert_eq!(bits, [false, false, true]);
}

#[test]
fn an_unsignaled_request_that_succeeds_has_no_completion() {
    let mut pair = Pair::new();
    pair.a.post_with(1, SendOp::Write(pair.b.remote(HALF)), 0, 10, SendFlags::default()).unwrap();
    pair.write(2, 10);
    assert_eq!(pair.finish(), ok([2]));
}

#[test]
fn payload_is_gathered_from_all_elements_and_scattered_to_all_elements() {
    let mut pair = Pair::new();
    let to =
        [pair.b.sge(HALF + 900, 1), pair.b.sge(HALF, 0), pair.b.sge(HALF, 400), pair.b.sge(HALF + 500, 300)];
    pair.b.endpoint.post_recv(pair.b.qp, &RecvWr { wr_id: 9, sges: &to }).unwrap();
    let from = [pair.a.sge(100, 300), pair.a.sge(0, 0), pair.a.sge(0, 100), pair.a.sge(700, 200)];
    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
    let wr = SendWr { wr_id: 1, op, payload: Payload::Sges(&from), flags };
    pair.a.endpoint.post_send(pair.a.qp, &wr).unwrap();
    assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([9])));
    let own = pair.a.own(900);
    let sent = [&own[100..400], &own[..100], &own[700..]].concat();
    let got = pair.b.got(901);
    assert_eq!([&got[900..], &got[..400], &got[500..699]].concat(), sent);
    assert_eq!((&got[400..500], &got[699..900]), (&[0; 100][..], &[0; 201][..]));
}

#[test]
fn inline_data_may_change_after_the_request_is_posted() {
    let mut pair = Pair::new();
    let bytes: Vec<u8> = (1..=200).chain(1..=200).collect();
    let (op, flags) = (SendOp::Write(pair.b.remote(HALF)), SendFlags::SIGNALED);
    pair.lose("WRITE_FIRST", 1);
    let wr = SendWr { wr_id: 1, op, payload: Payload::Inline(&bytes), flags };
    pair.a.endpoint.post_send(pair.a.qp, &wr).unwrap();
    assert_eq!((pair.finish(), pair.b.got(400)), (ok([1]), &bytes[..]));
}

#[test]
fn acknowledgements_have_the_number_of_completed_messages_and_unlimited_credits() {
    let mut pair = Pair::new();
    pair.write(1, 3 * MTU);
    pair.write(2, 10);
    pair.finish();
    let aeths: Vec<_> =
        pair.sent.iter().filter_map(|p| p.aeth).map(|a| (a.msn, a.syndrome.encode())).collect();
    assert_eq!(aeths, [(1, 0x1f), (2, 0x1f)]);
}

#[test]
fn acknowledgements_that_wait_become_one() {
    let mut pair = Pair::new();
    pair.batches = true;
    (1..=5).for_each(|id| pair.write(id, 10));
    assert_eq!((pair.finish(), pair.psns("ACK")), (ok([1, 2, 3, 4, 5]), vec![PSN_A + 4]));
}

#[test]
fn a_request_that_asks_for_no_acknowledgement_gets_none() {
    let mut pair = Pair::new();
    assert_eq!(pair.deliver(B, &pair.forge(B, opcode::WRITE_ONLY, PSN_A)), None);
    pair.transmit();
    assert_eq!(pair.count("ACK"), 0);
}

#[test]
fn a_queue_pair_sends_a_burst_before_the_next_one_sends() {
    let mut pair = Pair::with(|setup| setup.config.burst = 3);
    let other = pair.a.another_qp();
    let peer = Setup::default().attr(pair.b.addr, 0x99, [0, 0]);
    pair.a.endpoint.connect_qp(other, &peer).unwrap();
    pair.write(1, 5 * MTU);
    let first = std::mem::replace(&mut pair.a.qp, other);
    pair.write(2, 4 * MTU);
    pair.a.qp = first;
    pair.transmit();
    let to_other: Vec<_> = pair.sent.iter().map(|p| u8::from(p.bth.dest_qp == 0x99)).collect();
    assert_eq!(to_other, [0, 0, 0, 1, 1, 1, 0, 0, 1]);
}

/// Makes two connected ends A and B, with `change` applied to their default settings. B has received a SEND of A and
/// has not acknowledged the SEND yet.
fn unacknowledged(change: impl FnOnce(&mut Setup)) -> Pair {
    let mut pair = Pair::with(change);
    pair.b.recv(9, 10);
    pair.send(1, 10);
    pair.transmit();
    pair.step_without_sending();
    pair
}

#[test]
fn a_late_acknowledgement_may_wait_for_the_next_request() {
    let mut pair = unacknowledged(|setup| setup.cap.late_acks = true);
    assert!(pair.b.endpoint.owes_only_late_acks());
    pair.b.post(2, SendOp::Write(pair.a.remote(HALF)), 0, 10);
    assert!(!pair.b.endpoint.owes_only_late_acks());
    pair.transmit();
    assert_eq!(pair.kinds(B), ["WRITE_ONLY", "ACK"]);
    assert_eq!((pair.finish(), pair.b.completed()), (ok([1]), ok([2])));
}

#[test]
fn only_one_request_packet_overtakes_a_late_acknowledgement() {
    let mut pair = unacknowledged(|setup| setup.cap.late_acks = true);
    pair.b.post(2, SendOp::Write(pair.a.remote(HALF)), 0, 3 * MTU);
    pair.transmit();
    assert_eq!(pair.kinds(B), ["WRITE_FIRST", "ACK", "WRITE_MIDDLE", "WRITE_LAST"]);
}

#[test]
fn nothing_overtakes_the_acknowledgement_to_a_peer_of_another_stack() {
    let mut pair = unacknowledged(|setup| (setup.cap.late_acks, setup.embedded) = (true, false));
    pair.b.post(2, SendOp::Write(pair.a.remote(HALF)), 0, 10);
    pair.transmit();
    assert_eq!(pair.kinds(B), ["ACK", "WRITE_ONLY"]);
}

#[test]
fn acknowledgements_do_not_wait_unless_the_program_permits_it() {
    assert!(Pair::new().b.endpoint.owes_only_late_acks(), "nothing is to be sent");
    assert!(!unacknowledged(|_| {}).b.endpoint.owes_only_late_acks());
}

#[test]
fn naks_and_read_responses_do_not_wait() {
    let mut pair = Pair::with(|setup| setup.cap.late_acks = true);
    pair.read(1, 10);
    pair.transmit();
    pair.step_without_sending();
    assert!(!pair.b.endpoint.owes_only_late_acks());
    pair.send(2, 10);
    assert_eq!(pair.kinds(B).len(), 0);
    pair.drive_for(3 * DELAY);
    assert_eq!(pair.count("RNR_NAK"), 1);
}

#[test]
fn an_idle_pair_has_no_timer() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.read(2, 10);
    assert_eq!(pair.finish(), ok([1, 2]));
    assert_eq!((pair.a.endpoint.poll_timeout(), pair.b.endpoint.poll_timeout()), (None, None));
    assert_eq!(pair.a.endpoint.counters().local_ack_timeout_err, 0);
    pair.drive_for(Duration::from_secs(1));
}

#[test]
fn every_packet_is_counted_at_both_ends() {
    let mut pair = Pair::new();
    pair.write(1, 3 * MTU);
    pair.read(2, 3 * MTU);
    pair.finish();
    let (a, b) = (*pair.a.endpoint.counters(), *pair.b.endpoint.counters());
    assert_eq!((a.sent_pkts, b.rcvd_pkts, b.sent_pkts, a.rcvd_pkts), (4, 4, 4, 4));
    let listed = a.list();
    assert_eq!((listed[0], listed[1]), (("sent_pkts", 4), ("rcvd_pkts", 4)));
}

#[test]
fn a_receive_may_be_longer_than_its_message() {
    let mut pair = Pair::new();
    pair.b.recv(9, HALF);
    pair.send(1, 10);
    assert_eq!((pair.finish(), pair.b.received(), pair.b.got(11)[10]), (ok([1]), ok([9]), 0));
}

#[test]
fn a_send_of_no_bytes_fits_a_receive_without_memory() {
    let mut pair = Pair::new();
    let sges: [Sge; 0] = [];
    pair.b.endpoint.post_recv(pair.b.qp, &RecvWr { wr_id: 9, sges: &sges }).unwrap();
    pair.send(1, 0);
    assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([9])));
}
