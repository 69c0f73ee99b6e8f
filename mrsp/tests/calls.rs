//! Tests of calls between the host's and the accelerator's state machines.

mod common;

use common::{IN, IN_OUT, NONE, ONCE, OUT, Pair, Random, code, user};
use mrsp::{
    CallPlan, ReturnCode, U24,
    accelerator::{LocalError, RequestError},
    builtin::{SHA256, StatusBlock},
    host::{CallError, PeerError},
    immediate::{CallRequest, CallResponse},
    plan::{Part, PartError},
};

#[test]
fn inputs_there_outputs_back() {
    let mut pair = Pair::new(&[(IN, 10), (NONE, 5), (OUT, 20), (IN_OUT, 30)], &[100]);
    pair.host_memory[0].fill(1);
    pair.host_memory[1].fill(2);
    pair.host_memory[3].fill(3);
    let request = pair.call(17, user(0x12_3456), &[]);
    assert_eq!(request, CallRequest { function: Some(code(17)), user: user(0x12_3456) });
    assert_eq!(pair.lengths(), [(0, 10), (3, 30)]);
    assert_eq!(pair.naa_memory, [vec![1; 10], vec![0; 5], vec![0; 20], vec![3; 30]]);

    pair.naa_memory[2].fill(4);
    pair.naa_memory[3].fill(5);
    let outcome = pair.respond(Ok(&[]));
    assert_eq!(pair.lengths(), [(2, 20), (3, 30)]);
    assert_eq!(
        (outcome.function, outcome.answer, outcome.last_write_bytes),
        (code(17), CallResponse::Success, 30)
    );
    assert_eq!(pair.host_memory, [vec![1; 10], vec![2; 5], vec![4; 20], vec![5; 30]]);
}

#[test]
fn parts_at_the_start_of_parameters() {
    let mut pair = Pair::new(&[(IN, 10), (IN_OUT, 20), (OUT, 30)], &[]);
    pair.call(1, U24::ZERO, &[Some(Part::prefix(3)), Some(Part::prefix(0))]);
    assert_eq!(pair.lengths(), [(0, 3), (1, 0)]);
    // Parameter 0 is not an output, so its part of 10 bytes has no effect on the response.
    pair.respond(Ok(&[Some(Part::prefix(10)), None, Some(Part::prefix(7))]));
    assert_eq!(pair.lengths(), [(1, 20), (2, 7)]);

    let too_long = PartError::TooLong { param: 1, bytes: 21, size: 20 };
    let too_many = PartError::TooMany { given: 4, params: 3 };
    let mut plan = CallPlan::default();
    let mut begin = |parts: &[_]| pair.host.begin_call(code(1), U24::ZERO, parts, &mut plan);
    assert_eq!(begin(&[None, Some(Part::prefix(21))]), Err(too_long.into()));
    assert_eq!(begin(&[None; 4]), Err(too_many.into()));
    pair.call(1, U24::ZERO, &[]);
    assert_eq!(pair.naa.respond(Ok(&[None, Some(Part::prefix(21))]), 0, &mut plan), Err(too_long.into()));
    assert_eq!(pair.naa.respond(Ok(&[None; 4]), 0, &mut plan), Err(too_many.into()));
    pair.respond(Ok(&[]));
}

#[test]
fn parts() {
    let mut pair = Pair::new(&[(IN, 10), (IN_OUT, 20)], &[]);
    pair.host_memory[0].copy_from_slice(b"0123456789");
    pair.call(1, U24::ZERO, &[Some(Part { offset: 3, bytes: 4 }), Some(Part { offset: 20, bytes: 0 })]);
    assert_eq!(pair.naa_memory[0], *b"\0\0\x003456\0\0\0");
    assert_eq!(pair.lengths(), [(0, 4), (1, 0)]);
    pair.naa_memory[1].copy_from_slice(b"abcdefghijklmnopqrst");
    pair.respond(Ok(&[None, Some(Part { offset: 17, bytes: 2 })]));
    assert_eq!(pair.lengths(), [(1, 2)]);
    assert_eq!(pair.host_memory[1][15..], *b"\0\0rs\0");
    let mut plan = CallPlan::default();
    for (offset, bytes) in [(7, 4), (11, 0), (u64::MAX, 2), (1, u64::MAX)] {
        let (parts, outside) =
            ([Some(Part { offset, bytes })], PartError::Outside { param: 0, offset, bytes, size: 10 });
        assert_eq!(pair.host.begin_call(code(1), U24::ZERO, &parts, &mut plan), Err(outside.into()));
        pair.call(1, U24::ZERO, &[]);
        assert_eq!(pair.naa.respond(Ok(&parts), 0, &mut plan), Err(outside.into()));
        pair.respond(Ok(&[]));
    }
}

#[test]
fn single_send_over_several_calls() {
    let mut pair = Pair::new(&[(IN, 10), (ONCE, 20)], &[]);
    pair.call(1, U24::ZERO, &[Some(Part::prefix(4)), Some(Part::prefix(15))]);
    assert_eq!(pair.lengths(), [(0, 4), (1, 15)]);
    pair.respond(Ok(&[]));
    for _ in 0..3 {
        pair.call(1, U24::ZERO, &[]);
        assert_eq!(pair.lengths(), [(0, 10)]);
        pair.respond(Ok(&[]));
    }
}

#[test]
fn single_send_survives_failures_but_not_of_posting() {
    let mut pair = Pair::new(&[(ONCE, 20), (IN, 10)], &[]);
    pair.host.begin_call(code(1), U24::ZERO, &[], &mut pair.plan).unwrap();
    pair.host.call_not_posted().unwrap();
    assert!(matches!(pair.host.call_not_posted(), Err(CallError::State { .. })));
    pair.call(1, U24::ZERO, &[]);
    assert_eq!(pair.lengths(), [(0, 20), (1, 10)]);
    pair.respond(Err(ReturnCode::BUSY));
    pair.call(1, U24::ZERO, &[]);
    assert_eq!(pair.lengths(), [(1, 10)]);
}

#[test]
fn nothing_to_send() {
    for flags in [ONCE, OUT, NONE] {
        let mut pair = Pair::new(&[(flags, 20), (flags, 8)], &[]);
        pair.call(9, U24::ZERO, &[]);
        pair.respond(Ok(&[]));
        let request = pair.call(9, user(7), &[]);
        assert_eq!(request, CallRequest { function: Some(code(9)), user: user(7) });
        assert_eq!(pair.lengths(), [(0, 0)]);
        let outcome = pair.respond(Ok(&[]));
        assert_eq!(outcome.answer, CallResponse::Success);
        assert_eq!(outcome.last_write_bytes, if flags == OUT { 8 } else { 0 });
    }
}

#[test]
fn failures() {
    let mut pair = Pair::new(&[(IN, 10), (OUT, 64), (OUT, 20)], &[]);
    pair.call(16, U24::ZERO, &[]);
    let outcome = pair.respond(Err(ReturnCode::UNKNOWN_FUNCTION));
    assert_eq!(pair.lengths(), [(0, 0)]);
    assert_eq!(outcome.answer, CallResponse::Failure(ReturnCode::UNKNOWN_FUNCTION));
    assert_eq!(outcome.last_write_bytes, 0);

    // The response to a failed call has two WRITEs: the status block, and a WRITE of no bytes with the immediate.
    let code = ReturnCode::OUTPUT_TOO_SMALL;
    let status =
        StatusBlock { function: SHA256, code: Some(code), detail: 32, produced: [64, 0, 0, 0, 0, 0] };
    pair.call(16, U24::ZERO, &[]);
    pair.naa_memory[1].copy_from_slice(&status.encode());
    let outcome = pair.respond_with(Err(code), 64);
    assert_eq!(pair.lengths(), [(1, 64), (0, 0)]);
    assert_eq!((outcome.answer, outcome.last_write_bytes), (CallResponse::Failure(code), 0));
    assert_eq!(StatusBlock::decode(&pair.host_memory[1]), Ok(status));

    pair.call(16, U24::ZERO, &[]);
    let error = pair.naa.respond(Err(code), 65, &mut pair.plan);
    assert_eq!(error, Err(PartError::TooLong { param: 1, bytes: 65, size: 64 }.into()));
}

#[test]
fn answers_nobody_asked_for() {
    let mut pair = Pair::new(&[(IN_OUT, 10)], &[]);
    pair.call(1, U24::ZERO, &[]);
    pair.respond(Ok(&[]));
    let error = pair.host.handle_response(0, 10).unwrap_err();
    assert_eq!(error, PeerError::UnsolicitedResponse { immediate: 0, state: "ready" });
    assert!(pair.host.is_failed());
    let error = pair.host.begin_call(code(1), U24::ZERO, &[], &mut pair.plan).unwrap_err();
    assert_eq!(error, CallError::State { state: "over", needed: "ready" });
}

#[test]
fn calls_at_the_wrong_time() {
    let mut pair = Pair::new(&[(IN_OUT, 10)], &[]);
    let error = pair.naa.respond(Ok(&[]), 0, &mut pair.plan).unwrap_err();
    assert_eq!(error, LocalError::State { state: "ready", needed: "calculating" });
    pair.call(1, U24::ZERO, &[]);
    let before = pair.plan.clone();
    let error = pair.host.begin_call(code(1), U24::ZERO, &[], &mut pair.plan).unwrap_err();
    assert_eq!(error, CallError::State { state: "in a call", needed: "ready" });
    assert_eq!(pair.plan, before);
    let error = pair.naa.handle_request(0x81).unwrap_err();
    assert_eq!(error, RequestError::Unexpected { immediate: 0x81, state: "calculating" });
    assert!(pair.naa.is_failed());
}

#[test]
fn host_gives_up() {
    for calling in [false, true] {
        let mut pair = Pair::new(&[(IN_OUT, 10)], &[]);
        if calling {
            pair.call(1, U24::ZERO, &[]);
        }
        pair.host.signal_error(&mut pair.plan).unwrap();
        assert_eq!(pair.lengths(), [(0, 0)]);
        assert_eq!(pair.plan.writes()[0].immediate, Some(0));
        assert!(pair.host.is_failed());
        assert_eq!(pair.naa.handle_request(0), Err(RequestError::HostError));
        assert!(pair.naa.is_failed());
        assert!(pair.host.signal_error(&mut pair.plan).is_err());
    }
}

#[test]
fn a_plan_keeps_its_memory() {
    let mut pair = Pair::new(&[(IN_OUT, 1); 31], &[]);
    let memory = pair.plan.writes().as_ptr();
    for _ in 0..10 {
        pair.call(1, U24::ZERO, &[]);
        pair.respond(Ok(&[]));
        pair.call(1, U24::ZERO, &[]);
        pair.respond_with(Err(ReturnCode::INTERNAL), 1);
    }
    assert_eq!(pair.plan.writes().as_ptr(), memory);
}

/// After calls and responses that transfer random parts of random parameters, the bytes on both sides are those that a
/// simple model predicts.
#[test]
fn random_sessions() {
    let mut random = Random::seeded(0x5eed_0002);
    for _ in 0..500 {
        let count = 1 + random.below(8);
        let params: Vec<_> = (0..count)
            .map(|_| ([NONE, IN, OUT, IN_OUT, ONCE, ONCE | OUT][random.below(6) as usize], random.below(50)))
            .collect();
        let internals: Vec<_> = (0..random.below(4)).map(|_| random.below(10_000)).collect();
        let mut pair = Pair::new(&params, &internals);
        for round in 0..random.below(6) {
            random_call(&mut random, &mut pair, &params, round);
        }
    }
}

fn random_parts(random: &mut Random, params: &[(mrsp::RegionFlags, u64)]) -> Vec<Option<Part>> {
    let mut part = |size| {
        let offset = random.below(size + 1);
        Part { offset, bytes: random.below(size - offset + 1) }
    };
    params.iter().map(|&(_, size)| (size % 3 != 0).then(|| part(size))).collect()
}

fn random_call(random: &mut Random, pair: &mut Pair, params: &[(mrsp::RegionFlags, u64)], round: u64) {
    let back = random_parts(random, params);
    let there = random_parts(random, params);
    for memory in &mut pair.host_memory {
        *memory = random.bytes(memory.len());
    }
    let mut expected = pair.naa_memory.clone();
    for (i, &(flags, size)) in params.iter().enumerate() {
        if flags.contains(IN) || flags.contains(ONCE) && round == 0 {
            let Part { offset, bytes } = there[i].unwrap_or(Part::prefix(size));
            let part = offset as usize..(offset + bytes) as usize;
            expected[i][part.clone()].copy_from_slice(&pair.host_memory[i][part]);
        }
    }
    let function = 1 + random.below(127) as u8;
    assert_eq!(pair.call(function, user(5), &there).function, Some(code(function)));
    assert_eq!(pair.naa_memory, expected);

    for memory in &mut pair.naa_memory {
        *memory = random.bytes(memory.len());
    }
    let mut expected = pair.host_memory.clone();
    if random.chance(4) {
        let failure = ReturnCode::new(user(1 + random.below(0xff_ffff) as u32)).unwrap();
        assert_eq!(pair.respond(Err(failure)).answer, CallResponse::Failure(failure));
    } else {
        for (i, &(flags, size)) in params.iter().enumerate() {
            if flags.contains(OUT) {
                let Part { offset, bytes } = back[i].unwrap_or(Part::prefix(size));
                let part = offset as usize..(offset + bytes) as usize;
                expected[i][part.clone()].copy_from_slice(&pair.naa_memory[i][part]);
            }
        }
        assert_eq!(pair.respond(Ok(&back)).answer, CallResponse::Success);
    }
    assert_eq!(pair.host_memory, expected);
}
