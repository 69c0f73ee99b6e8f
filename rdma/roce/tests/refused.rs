//! Packets that an endpoint refuses, one cause after the other, in the order of [`roce::RefusalCause`].

mod pair;

use pair::{A, B, HALF, MTU, PSN_A, PSN_B, Pair, failed, ok};
use roce::{
    RefusalCause, opcode,
    wire::{
        Aeth, Deth, Malformed, NakCode, Packet, Reth, Syndrome,
        mad::{CmMessage, CommIds, MAD_LEN, Mad},
    },
};
use verbs::{Access, RemoteAddr, SendOp, WcStatus};

/// Delivers one packet to B, and checks that B refuses the packet for `cause` and answers with `nak`. The function also
/// checks that B's queue pair is in the error state if `nak` is fatal, and connected otherwise.
#[track_caller]
fn refused(pair: &mut Pair, packet: &Packet<'_>, cause: RefusalCause, nak: Option<&str>) {
    let psn = packet.bth.psn.value();
    assert_eq!(pair.deliver(B, packet), Some(cause));
    pair.transmit();
    let answers: Vec<_> = pair.sent.iter().filter(|p| p.from == B).map(|p| (p.kind, p.psn())).collect();
    assert_eq!(answers.last().copied(), nak.map(|kind| (kind, psn)));
    let fatal = matches!(nak, Some("NAK_INVALID" | "NAK_ACCESS" | "NAK_OPERATION"));
    assert_eq!(pair.b.state(), if fatal { "in the error state" } else { "connected" });
}

/// Makes a packet of a WRITE of `length` bytes to B's region.
fn write_packet(pair: &Pair, opcode: u8, psn: u32, length: u32, payload: &'static [u8]) -> Packet<'static> {
    let to = pair.b.remote(HALF);
    let reth = Reth { addr: to.addr, rkey: to.rkey, length };
    let forged = pair.forge(B, opcode, psn);
    Packet { reth: forged.reth.map(|_| reth), payload, ..forged }
}

const FULL: &[u8] = &[7; MTU as usize];

#[test]
fn malformed_datagrams() {
    let mut pair = Pair::new();
    let cause = |malformed| Some(RefusalCause::Malformed(malformed));
    assert_eq!(pair.deliver_bytes(B, &[]), cause(Malformed::Truncated(0)));
    assert_eq!(pair.deliver_bytes(B, &[4; 15]), cause(Malformed::Truncated(15)));
    assert_eq!(pair.deliver_bytes(B, &[0xff; 64]), cause(Malformed::UnknownOpcode(0xff)));
    let ack = Packet { payload: &[1; 4], ..pair.forge_ack(B, PSN_B, Syndrome::ACK) };
    assert_eq!(pair.deliver(B, &ack), cause(Malformed::UnexpectedPayload(4)));
    let mut padded = Vec::new();
    let mut packet = pair.forge(B, opcode::SEND_ONLY, PSN_A);
    packet.bth.pad = 3;
    packet.encode(&mut padded);
    assert_eq!(pair.deliver_bytes(B, &padded), cause(Malformed::Pad));
    assert_eq!((pair.b.endpoint.counters().rx_malformed, pair.b.endpoint.counters().rcvd_pkts), (5, 0));
}

#[test]
fn version() {
    let mut pair = Pair::new();
    let mut packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]);
    packet.bth.tver = 1;
    refused(&mut pair, &packet, RefusalCause::Version, None);
    assert_eq!((pair.b.endpoint.counters().rx_malformed, pair.b.got(4)), (1, &[0; 4][..]));
}

#[test]
fn p_key() {
    let mut pair = Pair::new();
    let mut packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]);
    packet.bth.p_key = 0x8001;
    refused(&mut pair, &packet, RefusalCause::PKey, None);
    // The default P_Key of a limited member is accepted.
    packet.bth.p_key = 0x7fff;
    assert_eq!(pair.deliver(B, &packet), None);
}

#[test]
fn queue_pair_zero() {
    let mut pair = Pair::new();
    let mut packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]);
    packet.bth.dest_qp = 0;
    refused(&mut pair, &packet, RefusalCause::QueuePairZero, None);
}

#[test]
fn unknown_queue_pair() {
    let mut pair = Pair::new();
    let mut packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]);
    packet.bth.dest_qp ^= 1;
    refused(&mut pair, &packet, RefusalCause::UnknownQp, None);
    // A packet for a queue pair that is not connected is refused like a packet for an unknown queue pair.
    packet.bth.dest_qp = pair.b.another_qp().0;
    refused(&mut pair, &packet, RefusalCause::UnknownQp, None);
    assert_eq!(pair.b.endpoint.counters().rx_unknown_qp, 2);
}

#[test]
fn wrong_source() {
    let mut pair = Pair::new();
    let datagram = pair.encode(A, &write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]));
    let stranger = ([10, 0, 0, 3], 4791).into();
    assert_eq!(pair.deliver_from(stranger, B, &datagram), Some(RefusalCause::WrongSource));
    assert_eq!((pair.b.endpoint.counters().rx_wrong_source, pair.b.got(4)), (1, &[0; 4][..]));
}

#[test]
fn the_source_port_may_change() {
    let mut pair = Pair::new();
    pair.a.addr.set_port(50_000);
    assert_eq!(pair.deliver(B, &write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4])), None);
}

#[test]
fn icrc() {
    let mut pair = Pair::new();
    let datagram = pair.encode(A, &write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]));
    for byte in (0..datagram.len()).filter(|byte| ![0, 1, 2, 3, 4, 5, 6, 7].contains(byte)) {
        let mut damaged = datagram.clone();
        damaged[byte] ^= 1;
        assert_eq!(pair.deliver_bytes(B, &damaged), Some(RefusalCause::Icrc), "byte {byte}");
    }
    assert_eq!((pair.b.endpoint.counters().rcvd_pkts, pair.b.got(4)), (0, &[0; 4][..]));
    assert_eq!(pair.deliver_bytes(B, &datagram), None);
}

#[test]
fn icrc_with_an_identification_that_the_sender_does_not_use() {
    for (embedded, ip_id, expected) in
        [(true, 127, None), (true, 128, Some(RefusalCause::Icrc)), (false, 128, None)]
    {
        let mut pair = Pair::with(|setup| setup.embedded = embedded);
        pair.ip_id = ip_id;
        let packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A, 4, &[1; 4]);
        assert_eq!(pair.deliver(B, &packet), expected, "{embedded} {ip_id}");
    }
}

const Q_KEY: u32 = 0x8001_0000;

/// Makes a packet with the payload `payload` for queue pair 1 of B, to which CM messages are sent.
fn management<'a>(pair: &Pair, payload: &'a [u8]) -> Packet<'a> {
    let mut packet = pair.forge(B, opcode::UD_SEND_ONLY, 0);
    packet.bth.dest_qp = 1;
    Packet { deth: Some(Deth { q_key: Q_KEY, reserved: 0, src_qp: 1 }), payload, ..packet }
}

#[test]
fn not_management() {
    let mut pair = Pair::new();
    let short = management(&pair, &[0; MAD_LEN - 4]);
    refused(&mut pair, &short, RefusalCause::NotManagement, None);
    let mut other_qp = management(&pair, &[0; MAD_LEN]);
    other_qp.bth.dest_qp = 2;
    refused(&mut pair, &other_qp, RefusalCause::NotManagement, None);
    let mut other_key = management(&pair, &[0; MAD_LEN]);
    other_key.deth = Some(Deth { q_key: 0x1111_1111, reserved: 0, src_qp: 1 });
    refused(&mut pair, &other_key, RefusalCause::NotManagement, None);
    assert_eq!(pair.b.endpoint.counters().rx_malformed, 3);
}

#[test]
fn the_icrc_of_management_datagrams_is_checked() {
    let mut pair = Pair::new();
    let mut datagram = pair.encode(A, &management(&pair, &[0; MAD_LEN]));
    datagram[60] ^= 1;
    assert_eq!(pair.deliver_bytes(B, &datagram), Some(RefusalCause::Icrc));
    assert_eq!(pair.b.endpoint.cm_counters().rx_malformed, 0);
}

#[test]
fn cm_malformed() {
    let mut pair = Pair::new();
    let packet = management(&pair, &[0; MAD_LEN]);
    refused(&mut pair, &packet, RefusalCause::CmMalformed, None);
    assert_eq!(pair.b.endpoint.cm_counters().rx_malformed, 1);
    assert_eq!((pair.b.endpoint.counters().rx_malformed, pair.b.endpoint.counters().rcvd_pkts), (0, 1));
}

#[test]
fn cm_unknown_id() {
    let mut pair = Pair::new();
    let rtu = Mad::new(1, CmMessage::Rtu(CommIds { local: 2, remote: 3 })).encode();
    let packet = management(&pair, &rtu);
    refused(&mut pair, &packet, RefusalCause::CmUnknownId, None);
    assert_eq!(pair.b.endpoint.cm_counters().rx_unknown_id, 1);
}

/// Makes a pair in which B has responded to A's REQ with a REP. Returns the pair and the communication IDs that A's
/// later CM messages contain: A's ID is the local one, and B's ID is the remote one.
fn requested_ids() -> (Pair, CommIds) {
    let (mut pair, _, id) = Pair::requested();
    pair.accept(id);
    pair.transmit();
    let rep = pair.mads.pop();
    let Some(CmMessage::Rep(rep)) = rep else { panic!("{rep:?}") };
    (pair, CommIds { local: rep.ids.remote, remote: rep.ids.local })
}

#[test]
fn cm_wrong_source() {
    let (mut pair, ids) = requested_ids();
    let rtu = Mad::new(1, CmMessage::Rtu(ids)).encode();
    let packet = management(&pair, &rtu);
    pair.a.addr.set_ip([10, 0, 0, 3].into());
    assert_eq!(pair.deliver(B, &packet), Some(RefusalCause::CmWrongSource));
    assert_eq!((pair.b.endpoint.cm_counters().rx_wrong_source, pair.b.event()), (1, None));
}

#[test]
fn cm_unexpected() {
    let (mut pair, ids) = requested_ids();
    let drep = Mad::new(1, CmMessage::Drep(ids)).encode();
    assert_eq!(pair.deliver(B, &management(&pair, &drep)), Some(RefusalCause::CmUnexpected));
    assert_eq!(pair.b.endpoint.cm_counters().rx_unexpected, 1);
}

#[test]
fn out_of_sequence() {
    let mut pair = Pair::new();
    let packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A + 1, 4, &[1; 4]);
    assert_eq!(pair.deliver(B, &packet), Some(RefusalCause::OutOfSequence));
    pair.transmit();
    assert_eq!((pair.psns("NAK_SEQUENCE"), pair.b.state()), (vec![PSN_A], "connected"));
    assert_eq!((pair.b.endpoint.counters().out_of_seq_request, pair.b.got(4)), (1, &[0; 4][..]));
}

#[test]
fn duplicate() {
    let mut pair = Pair::new();
    let packet = write_packet(&pair, opcode::WRITE_ONLY, PSN_A - 1, 4, &[1; 4]);
    assert_eq!(pair.deliver(B, &packet), Some(RefusalCause::Duplicate));
    assert_eq!((pair.b.endpoint.counters().duplicate_request, pair.b.got(4)), (1, &[0; 4][..]));
}

#[test]
fn opcode_sequence() {
    let continued = [opcode::WRITE_MIDDLE, opcode::WRITE_LAST, opcode::SEND_MIDDLE, opcode::SEND_LAST];
    for opcode in continued {
        let mut pair = Pair::new();
        let packet = write_packet(&pair, opcode, PSN_A, 0, FULL);
        refused(&mut pair, &packet, RefusalCause::OpcodeSequence, Some("NAK_INVALID"));
    }
    let begun = [opcode::WRITE_ONLY, opcode::WRITE_FIRST, opcode::SEND_ONLY, opcode::READ_REQUEST];
    for opcode in begun.into_iter().chain([opcode::SEND_MIDDLE, opcode::SEND_LAST]) {
        let mut pair = Pair::new();
        assert_eq!(pair.deliver(B, &write_packet(&pair, opcode::WRITE_FIRST, PSN_A, 3 * MTU, FULL)), None);
        let payload = if opcode == opcode::READ_REQUEST { &[] } else { FULL };
        let packet = write_packet(&pair, opcode, PSN_A + 1, 3 * MTU, payload);
        refused(&mut pair, &packet, RefusalCause::OpcodeSequence, Some("NAK_INVALID"));
    }
    for opcode in begun.into_iter().chain([opcode::WRITE_MIDDLE, opcode::WRITE_LAST]) {
        let mut pair = Pair::new();
        pair.b.recv(9, 3 * MTU);
        let first = Packet { payload: FULL, ..pair.forge(B, opcode::SEND_FIRST, PSN_A) };
        assert_eq!(pair.deliver(B, &first), None);
        let payload = if opcode == opcode::READ_REQUEST { &[] } else { FULL };
        let packet = write_packet(&pair, opcode, PSN_A + 1, 3 * MTU, payload);
        refused(&mut pair, &packet, RefusalCause::OpcodeSequence, Some("NAK_INVALID"));
        // The receive that was taken for the SEND completes with an error.
        assert_eq!(pair.b.received(), [(9, WcStatus::LocalProtectionError)]);
    }
}

#[test]
fn operations_that_this_stack_does_not_have_are_invalid_requests() {
    for opcode in [0x12, 0x13, 0x14, 0x16, 0x17] {
        let mut pair = Pair::new();
        let packet = pair.forge(B, opcode, PSN_A);
        refused(&mut pair, &packet, RefusalCause::OpcodeSequence, Some("NAK_INVALID"));
    }
}

#[test]
fn payload_length() {
    let (short, long) = (&FULL[..MTU as usize - 4], &[7; MTU as usize + 4]);
    for (opcode, payload) in [
        (opcode::WRITE_FIRST, short),
        (opcode::WRITE_FIRST, &long[..]),
        (opcode::WRITE_ONLY, long),
        (opcode::SEND_FIRST, short),
        (opcode::SEND_ONLY, long),
    ] {
        let mut pair = Pair::new();
        pair.b.recv(9, 3 * MTU);
        let packet = write_packet(&pair, opcode, PSN_A, 3 * MTU, payload);
        refused(&mut pair, &packet, RefusalCause::PayloadLength, Some("NAK_INVALID"));
    }
    for (opcode, payload) in [
        (opcode::WRITE_MIDDLE, short),
        (opcode::WRITE_MIDDLE, &long[..]),
        (opcode::WRITE_LAST, long),
        (opcode::WRITE_LAST, &[]),
    ] {
        let mut pair = Pair::new();
        assert_eq!(pair.deliver(B, &write_packet(&pair, opcode::WRITE_FIRST, PSN_A, 3 * MTU, FULL)), None);
        let packet = write_packet(&pair, opcode, PSN_A + 1, 0, payload);
        refused(&mut pair, &packet, RefusalCause::PayloadLength, Some("NAK_INVALID"));
    }
}

#[test]
fn message_length() {
    for (opcode, length, payload) in [
        // The message is longer than 2^31 bytes.
        (opcode::WRITE_FIRST, (1 << 31) + 1, FULL),
        // A message that fits into one packet must not begin with a FIRST packet.
        (opcode::WRITE_FIRST, MTU, FULL),
        // The payload is shorter or longer than the length in the RETH.
        (opcode::WRITE_ONLY, 5, &FULL[..4]),
        (opcode::WRITE_ONLY, 3, &FULL[..4]),
        (opcode::READ_REQUEST, (1 << 31) + 1, &[]),
        // The path MTU is 256 bytes, so the responses to this READ would take 2^23 PSNs. A request may take at most
        // 2^23 - 1 PSNs.
        (opcode::READ_REQUEST, 1 << 31, &[]),
    ] {
        let mut pair = Pair::new();
        let packet = write_packet(&pair, opcode, PSN_A, length, payload);
        refused(&mut pair, &packet, RefusalCause::MessageLength, Some("NAK_INVALID"));
    }
    for (opcode, payload) in [
        (opcode::WRITE_LAST, &FULL[..4]),
        (opcode::WRITE_LAST, &FULL[..12]),
        // With the MIDDLE packet, the payload becomes longer than the length in the RETH of the FIRST packet.
        (opcode::WRITE_MIDDLE, FULL),
    ] {
        let mut pair = Pair::new();
        assert_eq!(pair.deliver(B, &write_packet(&pair, opcode::WRITE_FIRST, PSN_A, MTU + 8, FULL)), None);
        let packet = write_packet(&pair, opcode, PSN_A + 1, 0, payload);
        refused(&mut pair, &packet, RefusalCause::MessageLength, Some("NAK_INVALID"));
    }
}

#[test]
fn receive_too_short() {
    let mut pair = Pair::new();
    pair.b.recv(8, MTU + 9);
    pair.b.recv(9, 10);
    pair.send(1, MTU + 10);
    pair.send(2, 10);
    assert_eq!(pair.finish(), failed(WcStatus::RemoteInvalidRequest, [1, 2]));
    assert_eq!(pair.causes(B)[0], RefusalCause::ReceiveTooShort);
    let expected = [(8, WcStatus::LocalLengthError), (9, WcStatus::WrFlushError)];
    assert_eq!((pair.b.received(), pair.psns("NAK_INVALID")), (expected.to_vec(), vec![PSN_A + 1]));
}

#[test]
fn receive_memory() {
    let mut pair = Pair::new();
    pair.b.recv(9, 10);
    pair.b.endpoint.dereg_mr(pair.b.keys.lkey).unwrap();
    pair.send(1, 10);
    assert_eq!(pair.finish(), failed(WcStatus::RemoteOperationError, [1]));
    assert_eq!(pair.causes(B), [RefusalCause::ReceiveMemory]);
    assert_eq!(
        (pair.b.received(), pair.psns("NAK_OPERATION")),
        (failed(WcStatus::LocalProtectionError, [9]), vec![PSN_A])
    );
}

/// Posts the request `op` at A, for `len` bytes of a region of B. The region of B has 64 bytes, which peers may write
/// but not read. `change` changes the address or RKey of the request. Returns the status with which the request
/// completes.
fn access(op: impl Fn(RemoteAddr) -> SendOp, change: impl Fn(&mut RemoteAddr), len: u32) -> WcStatus {
    let mut pair = Pair::new();
    let keys = pair.b.register(1 << 40, 64, Access::REMOTE_WRITE);
    let mut at = RemoteAddr { addr: 1 << 40, rkey: keys.rkey };
    change(&mut at);
    pair.a.post(1, op(at), HALF, len);
    let status = pair.finish()[0].1;
    let expected: &[_] = if status.is_success() { &[] } else { &[RefusalCause::RemoteAccess] };
    assert_eq!((pair.causes(B), pair.count("NAK_ACCESS")), (expected.to_vec(), expected.len()));
    assert_eq!(pair.b.endpoint.counters().send_access_err, expected.len() as u64);
    status
}

#[test]
fn remote_access_by_key_bounds_and_right() {
    let (good, bad) = (WcStatus::Success, WcStatus::RemoteAccessError);
    assert_eq!(access(SendOp::Write, |_| {}, 64), good);
    assert_eq!(access(SendOp::Write, |at| at.rkey ^= 1, 64), bad);
    assert_eq!(access(SendOp::Write, |_| {}, 65), bad);
    assert_eq!(access(SendOp::Write, |at| at.addr += 1, 64), bad);
    assert_eq!(access(SendOp::Write, |at| at.addr += 60, 4), good);
    assert_eq!(access(SendOp::Write, |at| at.addr -= 1, 4), bad);
    assert_eq!(access(SendOp::Write, |at| at.addr = u64::MAX, 4), bad);
    assert_eq!(access(SendOp::Read, |_| {}, 4), bad);
    // The RKey of a request for no bytes is not checked (IBTA vol. 1, 9.7.4.1.5).
    assert_eq!(access(SendOp::Write, |at| at.rkey ^= 1, 0), good);
    assert_eq!(access(SendOp::Read, |at| at.rkey ^= 1, 0), good);
}

#[test]
fn remote_access_of_another_protection_domain() {
    let mut pair = Pair::new();
    pair.b.pd = pair.b.endpoint.alloc_pd();
    let keys = pair.b.register(1 << 40, 64, Access::ALL);
    pair.a.post(1, SendOp::Write(RemoteAddr { addr: 1 << 40, rkey: keys.rkey }), 0, 4);
    assert_eq!(pair.finish(), failed(WcStatus::RemoteAccessError, [1]));
    assert_eq!(pair.causes(B), [RefusalCause::RemoteAccess]);
}

#[test]
fn remote_access_that_is_withdrawn_in_the_middle_of_a_message() {
    let mut pair = Pair::new();
    assert_eq!(pair.deliver(B, &write_packet(&pair, opcode::WRITE_FIRST, PSN_A, 2 * MTU, FULL)), None);
    pair.b.endpoint.set_mr_access(pair.b.keys.lkey, Access::LOCAL).unwrap();
    let last = write_packet(&pair, opcode::WRITE_LAST, PSN_A + 1, 0, FULL);
    refused(&mut pair, &last, RefusalCause::RemoteAccess, Some("NAK_ACCESS"));
    assert_eq!((pair.b.got(MTU), pair.b.got(2 * MTU)[MTU as usize]), (FULL, 0));
}

/// Makes A send a WRITE packet, and delivers an acknowledgement with the syndrome `syndrome` for this packet to A.
/// Returns the cause for which A refuses the acknowledgement, and A's completions. The cause is `None` if A does not
/// refuse the acknowledgement.
fn answered(syndrome: Syndrome) -> (Option<RefusalCause>, Vec<(u64, WcStatus)>) {
    let mut pair = Pair::new();
    pair.silence(A);
    pair.write(1, 10);
    pair.transmit();
    (pair.deliver(A, &pair.forge_ack(A, PSN_A, syndrome)), pair.a.completed())
}

#[test]
fn reserved_syndrome() {
    for raw in [0x40, 0x5f, 0x80, 0xff] {
        let refused = answered(Syndrome::Reserved(raw));
        assert_eq!(refused, (Some(RefusalCause::ReservedSyndrome), vec![]), "{raw:#x}");
    }
}

#[test]
fn each_nak_code_fails_the_request_with_its_status() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemoteInvalidRequest),
        (NakCode::InvalidRdRequest, WcStatus::RemoteInvalidRequest),
        (NakCode::RemoteAccess, WcStatus::RemoteAccessError),
        (NakCode::RemoteOperation, WcStatus::RemoteOperationError),
        (NakCode::Reserved(9), WcStatus::BadResponse),
    ] {
        assert_eq!(answered(Syndrome::Nak(code)), (None, failed(status, [1])), "{code:?}");
    }
}

#[test]
fn credits_in_an_acknowledgement_are_ignored() {
    assert_eq!(answered(Syndrome::Ack(0)), (None, ok([1])));
}

#[test]
fn stray_response() {
    let mut pair = Pair::new();
    let response = Packet {
        aeth: Some(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
        ..pair.forge(A, opcode::READ_RESPONSE_ONLY, PSN_A)
    };
    assert_eq!(pair.deliver(A, &response), Some(RefusalCause::StrayResponse));
    assert_eq!((pair.a.endpoint.counters().rx_stray_ack, pair.a.state()), (1, "connected"));
}

#[test]
fn a_failed_queue_pair_refuses_all_packets() {
    let mut pair = Pair::new();
    pair.b.endpoint.fail_qp(pair.b.qp);
    for opcode in [opcode::WRITE_ONLY, opcode::ACKNOWLEDGE, opcode::READ_RESPONSE_ONLY, opcode::CNP] {
        assert_eq!(pair.deliver(B, &pair.forge(B, opcode, PSN_A)), Some(RefusalCause::UnknownQp));
    }
    pair.transmit();
    assert_eq!(pair.kinds(B).len(), 0);
}

#[test]
fn the_texts_for_refused_memory_are_true_of_revoked_access_rights() {
    let read_only = Access { local_write: false, remote_write: false, remote_read: true };
    let mut pair = Pair::new();
    pair.b.recv(9, 10);
    pair.b.endpoint.set_mr_access(pair.b.keys.lkey, read_only).unwrap();
    pair.send(1, 10);
    pair.drive();
    let receive = pair.causes(B)[0];
    let mut pair = Pair::new();
    pair.read(1, 10);
    pair.a.endpoint.set_mr_access(pair.a.keys.lkey, read_only).unwrap();
    pair.drive();
    let response = pair.causes(A)[0];
    assert_eq!((receive, response), (RefusalCause::ReceiveMemory, RefusalCause::ResponseMemory));
    for cause in [receive, response] {
        assert!(
            cause.to_string().ends_with("was deregistered, or its access rights were revoked"),
            "{cause}"
        );
    }
}

#[test]
fn each_cause_has_a_name_and_a_text_of_its_own() {
    use RefusalCause as C;
    let causes = [
        C::Malformed(Malformed::Pad),
        C::Version,
        C::PKey,
        C::QueuePairZero,
        C::UnknownQp,
        C::WrongSource,
        C::Icrc,
        C::NotManagement,
        C::CmMalformed,
        C::CmUnknownId,
        C::CmWrongSource,
        C::CmUnexpected,
        C::OutOfSequence,
        C::Duplicate,
        C::OpcodeSequence,
        C::PayloadLength,
        C::MessageLength,
        C::TooManyReads,
        C::ReceiverNotReady,
        C::ReceiveTooShort,
        C::ReceiveMemory,
        C::RemoteAccess,
        C::StrayResponse,
        C::ReservedSyndrome,
        C::ResponseGap,
        C::BadResponse,
        C::ResponseMemory,
    ];
    let names: std::collections::BTreeSet<_> = causes.iter().map(|cause| cause.name()).collect();
    let texts: std::collections::BTreeSet<_> = causes.iter().map(ToString::to_string).collect();
    assert_eq!((names.len(), texts.len()), (causes.len(), causes.len()));
    assert!(names.iter().all(|name| name.chars().all(|c| c == '-' || c.is_ascii_lowercase())), "{names:?}");
}
