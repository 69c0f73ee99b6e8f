//! Acknowledgements that request packets carry: their bytes, which peers get them, and what happens if they are lost.

mod pair;

use pair::{A, B, DELAY, Fault, HALF, MTU, PSN_A, PSN_B, Pair, Setup, Side, ok};
use roce::{
    RefusalCause,
    opcode::{self, CARRIES_ACK, carrier, info},
    psn::Psn,
    wire::{Aeth, Bth, CarriedAck, Malformed, NakCode, Packet, Syndrome},
};
use verbs::{SendOp, WcStatus};

/// A WRITE of 4 bytes with an immediate, which carries an ACK of the packet 0x00abcd.
const GOLDEN: [u8; 48] = [
    0xcb, 0x40, 0xff, 0xff, // WRITE_ONLY_WITH_IMM that carries an ACK; MigReq, default P_Key
    0x00, 0x00, 0x12, 0x34, // queue pair 0x1234
    0x81, 0x00, 0x01, 0x02, // AckReq, the peer takes carried acknowledgements, PSN 0x102
    0, 0, 0, 1, 0, 0, 0, 2, // RETH: the address,
    0, 0, 0, 3, 0, 0, 0, 4, // the RKey and the length
    0, 0, 0, 96, // the immediate
    0, 0, 0xab, 0xcd, // the acknowledged PSN
    0x1f, 0, 0, 7, // AETH: ACK without credits, MSN 7
    b'n', b'a', b'a', b'!', // the payload
    0xde, 0xad, 0xbe, 0xef, // the ICRC, which this test does not check
];

#[test]
fn the_bytes_of_a_packet_that_carries_an_acknowledgement_are_fixed() {
    let packet = Packet::decode(&GOLDEN).unwrap();
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 7 };
    assert_eq!(packet.carried, Some(CarriedAck { reserved: 0, psn: Psn::new(0xabcd), aeth }));
    assert_eq!((packet.imm, packet.payload, packet.aeth), (Some(96), &b"naa!"[..], None));
    assert_eq!(packet.bth.reserved7, Bth::TAKES_CARRIED_ACKS);
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(again, GOLDEN);
}

#[test]
fn a_packet_without_room_for_the_acknowledgement_is_too_short() {
    for len in 0..44 {
        assert_eq!(Packet::decode(&GOLDEN[..len]), Err(Malformed::Truncated(len)));
    }
}

#[test]
fn exactly_the_requests_can_carry_an_acknowledgement() {
    for opcode in 0..=u8::MAX {
        let request = opcode.wrapping_sub(CARRIES_ACK) <= opcode::READ_REQUEST;
        assert_eq!(carrier(opcode), request.then_some(opcode & 0x3f), "opcode {opcode:#04x}");
        assert!(carrier(opcode).is_none() || info(opcode).is_none(), "opcode {opcode:#04x} has two meanings");
    }
}

/// Makes two ends that use the embedded provider and permit late acknowledgements. A tells from its first packet on
/// that it takes carried acknowledgements.
fn pair() -> Pair {
    Pair::with(agreed)
}

fn agreed(setup: &mut Setup) {
    (setup.cap.late_acks, setup.offers_carried_acks) = (true, true);
}

/// Makes A call B once: A writes with an immediate, and B answers in the same way before it acknowledges.
fn call(pair: &mut Pair) {
    pair.a.recv(1, 0);
    pair.b.recv(2, 0);
    pair.write_imm(3, 40, 96);
    pair.transmit();
    pair.step_without_sending();
    pair.b.post(4, SendOp::WriteWithImm(pair.a.remote(HALF), 0), 0, 24);
    pair.transmit();
    pair.step_without_sending();
}

/// The packets from `side` that carry an acknowledgement, with the PSNs that they acknowledge.
fn carried(pair: &Pair, side: Side) -> Vec<u32> {
    pair.sent.iter().filter(|p| p.from == side).filter_map(|p| p.carried.map(|ack| ack.psn.value())).collect()
}

#[test]
fn a_call_and_its_answer_are_one_packet_each() {
    let mut pair = pair();
    for _ in 0..3 {
        call(&mut pair);
    }
    assert_eq!(pair.kinds(A), ["WRITE_ONLY_WITH_IMM"; 3]);
    assert_eq!(pair.kinds(B), ["WRITE_ONLY_WITH_IMM"; 3]);
    assert_eq!(carried(&pair, B), [PSN_A, PSN_A + 1, PSN_A + 2]);
    assert_eq!(carried(&pair, A), [PSN_B, PSN_B + 1], "the first call has nothing to acknowledge");
    assert_eq!((pair.a.completed(), pair.a.received()), (ok([3; 3]), ok([1; 3])));
    assert_eq!((pair.b.received(), pair.b.got(40)), (ok([2; 3]), pair.a.own(40)));
    let (a, b) = (*pair.a.endpoint.counters(), *pair.b.endpoint.counters());
    assert_eq!((a.carried_acks, b.carried_acks, a.sent_pkts, b.sent_pkts), (2, 3, 3, 3));
    assert_eq!((pair.refused.len(), pair.b.completed()), (0, ok([4; 2])), "the last answer has no ACK yet");
}

#[test]
fn only_the_first_packet_of_a_message_carries_the_acknowledgement() {
    let mut pair = pair();
    pair.b.recv(2, 0);
    pair.write_imm(3, 40, 96);
    pair.transmit();
    pair.step_without_sending();
    pair.b.post(4, SendOp::Write(pair.a.remote(HALF)), 0, 3 * MTU);
    pair.transmit();
    assert_eq!(pair.kinds(B), ["WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST"]);
    assert_eq!(carried(&pair, B), [PSN_A]);
    assert_eq!((pair.finish(), pair.b.completed()), (ok([3]), ok([4])));
}

#[test]
fn a_peer_of_before_gets_the_packets_that_it_knows() {
    let mut pair = Pair::with(|setup| setup.cap.late_acks = true);
    pair.batches = true;
    call(&mut pair);
    call(&mut pair);
    assert_eq!(pair.kinds(B), ["WRITE_ONLY_WITH_IMM", "ACK", "WRITE_ONLY_WITH_IMM", "ACK"]);
    assert!(pair.sent.iter().all(|p| p.bth.reserved7 == 0 && p.carried.is_none()));
}

#[test]
fn an_offer_that_is_not_answered_is_not_taken_for_an_agreement() {
    let mut pair = pair();
    pair.batches = true;
    // B is a peer of before, which ignores the bit.
    pair.rule(|p| (p.from == A).then_some(Fault::Change(|packet| packet.bth.reserved7 = 0)));
    call(&mut pair);
    call(&mut pair);
    assert_eq!((carried(&pair, A), carried(&pair, B)), (vec![], vec![]));
    assert!(pair.sent.iter().all(|p| p.bth.reserved7 == u8::from(p.from == A)));
}

#[test]
fn peers_of_other_stacks_get_no_offer() {
    let mut pair = Pair::with(|setup| {
        agreed(setup);
        setup.embedded = false;
    });
    // The bit is reserved, so another stack may set it.
    pair.rule(|p| (p.from == A).then_some(Fault::Change(|packet| packet.bth.reserved7 = 1)));
    call(&mut pair);
    call(&mut pair);
    assert!(pair.sent.iter().all(|p| p.bth.reserved7 == 0 && p.carried.is_none()));
}

#[test]
fn the_connection_manager_makes_the_active_end_offer() {
    let (mut pair, ..) = Pair::by_cm();
    pair.sent.clear();
    pair.write(1, 10);
    pair.finish();
    assert_eq!(pair.sent[0].bth.reserved7, Bth::TAKES_CARRIED_ACKS);
    assert_eq!(pair.sent[1].bth.reserved7, Bth::TAKES_CARRIED_ACKS, "B has heard the offer");
}

/// Makes a WRITE of no bytes from the peer of `to`, which carries an acknowledgement of the packet `acked`.
fn forge(pair: &Pair, to: Side, psn: u32, acked: u32, syndrome: Syndrome) -> Packet<'static> {
    let aeth = Aeth { syndrome, msn: 0 };
    let carried = Some(CarriedAck { reserved: 0, psn: Psn::new(acked), aeth });
    Packet { carried, ..pair.forge(to, opcode::WRITE_ONLY | CARRIES_ACK, psn) }
}

#[test]
fn a_carried_acknowledgement_that_was_not_offered_is_an_unknown_opcode() {
    let mut pair = Pair::new();
    let packet = forge(&pair, B, PSN_A, PSN_B, Syndrome::ACK);
    let cause = RefusalCause::Malformed(Malformed::UnknownOpcode(opcode::WRITE_ONLY | CARRIES_ACK));
    assert_eq!(pair.deliver(B, &packet), Some(cause));
    assert_eq!(pair.b.endpoint.counters().rx_malformed, 1);
    pair.write(1, 10);
    assert_eq!(pair.finish(), ok([1]), "the packet has changed nothing");
}

#[test]
fn a_stray_carried_acknowledgement_is_refused_and_its_request_is_executed() {
    let mut pair = pair();
    let packet = forge(&pair, A, PSN_B, PSN_A + 5, Syndrome::ACK);
    assert_eq!(pair.deliver(A, &packet), Some(RefusalCause::StrayResponse));
    let next = forge(&pair, A, PSN_B + 1, PSN_A - 1, Syndrome::ACK);
    assert_eq!(pair.deliver(A, &next), None, "a repeated acknowledgement is no error");
}

#[test]
fn a_carried_nak_means_what_a_nak_means() {
    let mut pair = pair();
    pair.write(1, 10);
    pair.transmit();
    let nak = Syndrome::Nak(NakCode::RemoteAccess);
    let packet = forge(&pair, A, PSN_B, PSN_A, nak);
    // The queue pair has failed when the request is handled.
    assert_eq!(pair.deliver(A, &packet), Some(RefusalCause::UnknownQp));
    assert_eq!(pair.a.completed(), [(1, WcStatus::RemoteAccessError)]);
}

#[test]
fn calls_survive_the_loss_and_the_repetition_of_any_packet() {
    for fault in [Fault::Lose, Fault::Repeat, Fault::Delay(DELAY * 3)] {
        for nth in 1..=4 {
            for side in [A, B] {
                let mut pair = pair();
                pair.rule(move |p| (p.from == side && p.nth == nth).then_some(fault));
                for id in 0..4 {
                    pair.a.recv(id, 0);
                    pair.b.recv(id, 0);
                    pair.write_imm(id, 40, id as u32);
                    while pair.b.received().is_empty() {
                        assert!(pair.step(), "{side:?} {fault:?} {nth}: call {id} did not arrive");
                    }
                    pair.b.post(id, SendOp::WriteWithImm(pair.a.remote(HALF), 0), 0, 24);
                    while pair.a.received().is_empty() {
                        assert!(pair.step(), "{side:?} {fault:?} {nth}: answer {id} did not arrive");
                    }
                }
                assert_eq!((pair.finish(), pair.b.completed()), (ok([0, 1, 2, 3]), ok([0, 1, 2, 3])));
            }
        }
    }
}
