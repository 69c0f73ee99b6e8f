//! Tests with bytes that were captured between programs of the C library.

mod common;

use common::{IN_OUT, ONCE, code, hex, user};
use mrsp::{
    AcceleratorSession, AnnouncedParam, CallPlan, ErrorCode, HostSession, Message, NaaAddress, ReturnCode,
    U24, Write,
    accelerator::{RegionAddress, SessionLimits},
    codec,
    host::HostConfig,
    immediate::{CallRequest, CallResponse, Dialect, RequestImmediate},
    plan::Part,
};

const SMALL_AAR: &str = "01 01 0000 0c 00000000000000 000055be67720810 00000269 00000040";
const SMALL_A: &str = "02 01 0000 00007f7f80000bf0 00000371 00000040";

const LARGE_AAR: &str = "01 04 0000
    0c 0012345678c000 0000556e61856810 000008f7 00000100
    0e 0012345678d000 0000556e61856920 0000095d 00001000
    01 00123456789000 0000000000000000 00000000 00001388
    01 0012345678b000 0000000000000000 00000000 00000040";

#[test]
fn one_region() {
    let param = AnnouncedParam { flags: IN_OUT, addr: 0x55be_6772_0810, rkey: 0x269, size: 64 };
    let mut host = HostSession::new(&HostConfig::default(), &[param], &[]).unwrap();
    assert_eq!(host.start().unwrap(), hex(SMALL_AAR));

    let mut naa = AcceleratorSession::new(SessionLimits::default());
    assert_eq!(naa.handle_message(&hex(SMALL_AAR)).unwrap(), host.requests());
    let advertisement = naa.allocated(&[RegionAddress { addr: 0x7f7f_8000_0bf0, rkey: 0x371 }]).unwrap();
    assert_eq!(advertisement, hex(SMALL_A));
    host.handle_message(&advertisement).unwrap();

    let mut plan = CallPlan::default();
    host.begin_call(code(3), U24::ZERO, &[Some(Part::prefix(2))], &mut plan).unwrap();
    let write = Write {
        param: 0,
        offset: 0,
        length: 2,
        remote_addr: 0x7f7f_8000_0bf0,
        rkey: 0x371,
        immediate: Some(0x83),
        pieces: Default::default(),
    };
    assert_eq!(plan.writes(), [write]);

    let request = naa.handle_request(0x83).unwrap();
    assert_eq!(request, CallRequest { function: Some(code(3)), user: U24::ZERO });
    naa.respond(Ok(&[]), 0, &mut plan).unwrap();
    let write = Write { length: 64, remote_addr: 0x55be_6772_0810, rkey: 0x269, immediate: Some(0), ..write };
    assert_eq!(plan.writes(), [write]);
    let outcome = host.handle_response(0, 64).unwrap();
    assert_eq!((outcome.answer, outcome.last_write_bytes), (CallResponse::Success, 64));
}

#[test]
fn internal_regions_and_single_send() {
    let config =
        HostConfig { address_start: NaaAddress::new(0x1234_5678_9000).unwrap(), ..HostConfig::default() };
    let params = [
        AnnouncedParam { flags: IN_OUT, addr: 0x556e_6185_6810, rkey: 0x8f7, size: 256 },
        AnnouncedParam { flags: IN_OUT | ONCE, addr: 0x556e_6185_6920, rkey: 0x95d, size: 4096 },
    ];
    let mut host = HostSession::new(&config, &params, &[5000, 64]).unwrap();
    let aar = host.start().unwrap();
    assert_eq!(aar, hex(LARGE_AAR));

    let mut naa = AcceleratorSession::new(SessionLimits::default());
    let advertisement = common::grant(&mut naa, &aar);
    assert_eq!(advertisement.len(), 4 + 2 * 16);
    host.handle_message(&advertisement).unwrap();

    let mut plan = CallPlan::default();
    let summary = |plan: &CallPlan| -> Vec<_> {
        plan.writes().iter().map(|write| (write.length, write.immediate)).collect()
    };
    let bits = U24::from_le_bytes([0xa1, 0xb2, 0xc3]);
    for sent in [vec![(256, None), (4096, Some(0xc3b2_a182))], vec![(256, Some(0xc3b2_a182))]] {
        host.begin_call(code(2), bits, &[], &mut plan).unwrap();
        assert_eq!(summary(&plan), sent);
        let request = naa.handle_request(0xc3b2_a182).unwrap();
        assert_eq!(request, CallRequest { function: Some(code(2)), user: user(0xc3_b2a1) });
        naa.respond(Ok(&[]), 0, &mut plan).unwrap();
        assert_eq!(summary(&plan), [(256, None), (4096, Some(0))]);
        host.handle_response(0, 4096).unwrap();
    }
}

#[test]
fn errors() {
    assert_eq!(codec::encode_error(ErrorCode::Memory), [0, 1, 0, 0]);
    // The C library does not clear its buffer, so the padding of its ERR may contain any bytes.
    assert_eq!(codec::decode(&[0, 3, 0xaa, 0x55]), Ok(Message::Error(ErrorCode::TooManyRegions)));
    assert_eq!(codec::decode(&[0, 9, 0, 0]), Ok(Message::Error(ErrorCode::Other(9))));
}

#[test]
fn immediates() {
    assert_eq!(RequestImmediate::call(code(127), U24::MAX), 0xffff_ffff);
    assert_eq!(RequestImmediate::decode(0), RequestImmediate::HostError);
    // A request immediate without the start bit is decoded as a call, too.
    let call = CallRequest { function: Some(code(5)), user: user(1) };
    assert_eq!(RequestImmediate::decode(0x105), RequestImmediate::Call(call));
    // If a program asks the C library for function 128, the host sends the immediate 0x80, which has the start bit and
    // function code 0.
    let call = CallRequest { function: None, user: U24::ZERO };
    assert_eq!(RequestImmediate::decode(0x80), RequestImmediate::Call(call));
    // A C host decoded the response immediate 0x1100 as return code 17.
    assert_eq!(CallResponse::Failure(ReturnCode::BAD_ARGUMENTS).encode(), 0x1100);
    assert_eq!(CallResponse::decode(0x11ff, Dialect::Main), CallResponse::Failure(ReturnCode::BAD_ARGUMENTS));
    // The immediate 0x11 is from an accelerator that did not shift its return code 17 by 8 bits to the left. A C host
    // and this crate both decode such a response immediate as success.
    assert_eq!(CallResponse::decode(0x11, Dialect::Main), CallResponse::Success);
    assert_eq!(CallResponse::decode(0xabcd_ef00, Dialect::Next), CallResponse::User(user(0xab_cdef)));
}

#[test]
fn buffer_sizes() {
    use mrsp::region::message_buffer_bytes;
    assert_eq!((message_buffer_bytes(31), message_buffer_bytes(32)), (748, 772));
    assert_eq!(message_buffer_bytes(255), 6124);
}
