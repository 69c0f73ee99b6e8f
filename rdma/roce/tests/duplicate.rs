//! Packets that arrive a second time: requests that were executed before, and responses that were handled before (IBTA
//! vol. 1, 9.7.5.1 and 9.7.1).

mod pair;

use pair::{A, B, DELAY, Fault, HALF, MTU, PSN_A, Pair, ok};
use roce::{
    RefusalCause, opcode,
    wire::{NakCode, Packet, Reth, Syndrome},
};
use verbs::Access;

#[test]
fn a_repeated_write_is_acknowledged_again_and_not_executed_again() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.finish();
    pair.b.memory.0[0][HALF as usize] = 77;
    let to = pair.b.remote(HALF);
    let reth = Some(Reth { addr: to.addr, rkey: to.rkey, length: 4 });
    let again = Packet { reth, payload: &[1, 2, 3, 4], ..pair.forge(B, opcode::WRITE_ONLY, PSN_A) };
    assert_eq!(pair.deliver(B, &again), Some(RefusalCause::Duplicate));
    pair.transmit();
    assert_eq!((pair.psns("ACK"), pair.b.got(1)), (vec![PSN_A; 2], &[77][..]));
    assert_eq!(pair.b.endpoint.counters().duplicate_request, 1);
}

#[test]
fn a_repeated_send_takes_no_receive() {
    let mut pair = Pair::new();
    pair.on("SEND_ONLY", 1, Fault::Repeat);
    pair.b.recv(8, 10);
    pair.b.recv(9, 10);
    pair.send(1, 10);
    assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([8])));
    assert_eq!((pair.count("ACK"), pair.causes(B)), (2, vec![RefusalCause::Duplicate]));
    pair.send(2, 10);
    assert_eq!((pair.finish(), pair.b.received()), (ok([2]), ok([9])));
}

#[test]
fn a_repeated_write_with_immediate_takes_no_receive() {
    let mut pair = Pair::new();
    pair.on("WRITE_ONLY_WITH_IMM", 1, Fault::Repeat);
    pair.b.recv(8, 0);
    pair.b.recv(9, 0);
    pair.write_imm(1, 10, 7);
    assert_eq!((pair.finish(), pair.b.received()), (ok([1]), ok([8])));
}

#[test]
fn every_packet_may_come_twice() {
    let mut pair = Pair::new();
    pair.rule(|_| Some(Fault::Repeat));
    pair.b.recv(9, 3 * MTU);
    pair.write(1, 5 * MTU);
    pair.read(2, 5 * MTU);
    pair.send(3, 3 * MTU);
    pair.write(4, MTU);
    assert_eq!((pair.finish(), pair.b.received()), (ok([1, 2, 3, 4]), ok([9])));
    assert_eq!(pair.a.got(5 * MTU), pair.b.own(5 * MTU));
}

#[test]
fn the_key_of_a_repeated_write_is_not_checked() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.finish();
    pair.b.endpoint.dereg_mr(pair.b.keys.lkey).unwrap();
    let reth = Some(Reth { addr: 1, rkey: 2, length: 3 });
    let again = Packet { reth, ..pair.forge(B, opcode::WRITE_ONLY, PSN_A) };
    assert_eq!(pair.deliver(B, &again), Some(RefusalCause::Duplicate));
    assert_eq!(pair.b.state(), "connected");
}

#[test]
fn a_repeated_write_before_a_read_is_acknowledged_without_the_read() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.read(2, 10);
    pair.write(3, 10);
    pair.finish();
    let (before, after) =
        (pair.forge(B, opcode::WRITE_ONLY, PSN_A), pair.forge(B, opcode::WRITE_ONLY, PSN_A + 2));
    pair.sent.clear();
    pair.deliver(B, &before);
    pair.transmit();
    pair.deliver(B, &after);
    pair.transmit();
    assert_eq!(pair.psns("ACK"), [PSN_A, PSN_A + 2]);
}

#[test]
fn a_repeated_read_is_executed_again() {
    let mut pair = Pair::new();
    pair.read(1, 3 * MTU);
    pair.finish();
    pair.sent.clear();
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A, 0, 3 * MTU)), None);
    pair.transmit();
    assert_eq!(pair.kinds(B), ["READ_RESPONSE_FIRST", "READ_RESPONSE_MIDDLE", "READ_RESPONSE_LAST"]);
    assert_eq!(pair.b.endpoint.counters().duplicate_request, 1);
    pair.drive();
    assert_eq!(pair.causes(A), [RefusalCause::StrayResponse; 3]);
}

#[test]
fn a_repeated_read_may_begin_in_the_middle() {
    let mut pair = Pair::new();
    pair.read(1, 4 * MTU);
    pair.finish();
    pair.sent.clear();
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A + 1, MTU, 2 * MTU)), None);
    pair.transmit();
    let responses: Vec<_> = pair.sent.iter().map(|p| (p.kind, p.psn() - PSN_A)).collect();
    assert_eq!(responses, [("READ_RESPONSE_FIRST", 1), ("READ_RESPONSE_LAST", 2)]);
}

#[test]
fn a_repeated_read_beyond_the_expected_psn_is_not_executed() {
    let mut pair = Pair::new();
    pair.read(1, 2 * MTU);
    pair.finish();
    pair.sent.clear();
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A, 0, 3 * MTU)), Some(RefusalCause::Duplicate));
    pair.transmit();
    assert_eq!((pair.kinds(B).len(), pair.b.state()), (0, "connected"));
}

#[test]
fn a_repeated_read_of_a_region_that_is_gone_is_not_answered() {
    let mut pair = Pair::new();
    let keys = pair.b.register(1 << 40, 64, Access::ALL);
    let from = verbs::RemoteAddr { addr: 1 << 40, rkey: keys.rkey };
    pair.a.post(1, verbs::SendOp::Read(from), HALF, 64);
    assert_eq!(pair.finish(), ok([1]));
    pair.b.endpoint.dereg_mr(keys.lkey).unwrap();
    pair.sent.clear();
    let reth = Some(Reth { addr: from.addr, rkey: from.rkey, length: 64 });
    let again = Packet { reth, ..pair.forge(B, opcode::READ_REQUEST, PSN_A) };
    assert_eq!(pair.deliver(B, &again), Some(RefusalCause::Duplicate));
    pair.transmit();
    assert_eq!((pair.kinds(B).len(), pair.b.state()), (0, "connected"));
}

#[test]
fn a_repeated_read_replaces_its_waiting_responses_and_those_behind_it_stay() {
    let mut pair = Pair::with(|setup| setup.responder_resources = 2);
    let (first, second) = (pair.read_request(PSN_A, 0, 3 * MTU), pair.read_request(PSN_A + 3, 0, MTU));
    pair.deliver(B, &first);
    pair.deliver(B, &second);
    assert_eq!(pair.deliver(B, &first), None);
    pair.transmit();
    assert_eq!(pair.psns("READ_RESPONSE_ONLY"), [PSN_A + 3]);
    assert_eq!(pair.psns("READ_RESPONSE_FIRST"), [PSN_A]);
}

#[test]
fn a_repeated_read_takes_no_responder_resource() {
    let mut pair = Pair::with(|setup| setup.responder_resources = 1);
    let first = pair.read_request(PSN_A, 0, MTU);
    assert_eq!((pair.deliver(B, &first), pair.deliver(B, &first)), (None, None));
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A + 1, 0, MTU)), None);
    assert_eq!(pair.deliver(B, &pair.read_request(PSN_A + 2, 0, MTU)), Some(RefusalCause::TooManyReads));
}

#[test]
fn a_repeated_acknowledgement_is_harmless() {
    let mut pair = Pair::new();
    pair.rule(|p| (p.kind == "ACK").then_some(Fault::Repeat));
    pair.write(1, 10);
    pair.write(2, 10);
    assert_eq!((pair.finish(), pair.causes(A).len()), (ok([1, 2]), 0));
    assert_eq!(pair.a.endpoint.counters().rx_stray_ack, 0);
}

#[test]
fn an_acknowledgement_of_packets_that_were_not_sent_is_counted_and_completes_nothing() {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 2 * MTU);
    pair.transmit();
    let stray = pair.forge_ack(A, PSN_A + 2, Syndrome::ACK);
    assert_eq!(pair.deliver(A, &stray), Some(RefusalCause::StrayResponse));
    assert_eq!((pair.a.completed(), pair.a.endpoint.counters().rx_stray_ack), (vec![], 1));
}

#[test]
fn a_nak_of_packets_that_are_acknowledged_does_not_fail_the_connection() {
    let mut pair = Pair::new();
    pair.write(1, 10);
    pair.finish();
    let late = pair.forge_ack(A, PSN_A, Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(pair.deliver(A, &late), Some(RefusalCause::StrayResponse));
    let late = pair.forge_ack(A, PSN_A, Syndrome::RnrNak(1));
    assert_eq!(pair.deliver(A, &late), Some(RefusalCause::StrayResponse));
    assert_eq!(pair.a.state(), "connected");
}

#[test]
fn a_response_to_a_read_that_comes_again_is_placed_once() {
    let mut pair = Pair::new();
    pair.on("READ_RESPONSE_FIRST", 1, Fault::Repeat);
    pair.read(1, 3 * MTU);
    assert_eq!((pair.finish(), pair.causes(A)), (ok([1]), vec![RefusalCause::StrayResponse]));
    assert_eq!((pair.count("READ_REQUEST"), pair.a.got(3 * MTU)), (1, pair.b.own(3 * MTU)));
}

#[test]
fn a_lost_acknowledgement_is_repeated_with_the_number_of_completed_messages() {
    let mut pair = Pair::new();
    pair.lose("ACK", 2);
    pair.write(1, 10);
    pair.write(2, 10);
    assert_eq!(pair.finish(), ok([1, 2]));
    let msns: Vec<_> = pair.sent.iter().filter_map(|p| p.aeth).map(|aeth| aeth.msn).collect();
    assert_eq!(msns, [1, 2, 2]);
    pair.drive_for(DELAY);
}
