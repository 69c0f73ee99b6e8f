//! Tests with hostile peers, whose messages must not cause a panic or an inconsistent state.

mod common;

use common::{IN, IN_OUT, ONCE, OUT, Pair, Random, code, param, region_address};
use mrsp::{
    AcceleratorSession, CallPlan, ErrorCode, HostSession, ReturnCode, U24,
    accelerator::SessionLimits,
    builtin::{ArgumentBlock, Arguments, StatusBlock},
    catalogue::{Catalogue, Direction, FunctionInfo, Header, ParamInfo, ParamKind},
    codec,
    host::HostConfig,
    immediate::RequestImmediate,
    plan::Part,
};

/// Returns a valid message of each type, and an AAR and an advertisement without regions.
fn messages() -> Vec<Vec<u8>> {
    let params: Vec<_> = (0..5).map(|i| param(i, IN_OUT, 100)).collect();
    let mut host = HostSession::new(&HostConfig::default(), &params, &[5000]).unwrap();
    let aar = host.start().unwrap();
    let advertisement = common::grant(&mut AcceleratorSession::new(SessionLimits::default()), &aar);
    let error = codec::encode_error(ErrorCode::Address).to_vec();
    vec![aar, advertisement, error, vec![1, 0, 0, 0], vec![2, 0, 0, 0]]
}

fn catalogue() -> Vec<u8> {
    let parameter = ParamInfo {
        direction: Direction::InOut,
        kind: ParamKind::F64,
        name: "données".into(),
        description: "some".into(),
    };
    let function = |number| FunctionInfo {
        code: code(number),
        name: "name".into(),
        description: "a line of text".into(),
        pooled: true,
        parameters: vec![parameter.clone(); 3],
    };
    Catalogue { functions: vec![function(1), function(16), function(127)] }.encode().unwrap()
}

/// Calls every function that decodes bytes, and checks that decoded values can be encoded again.
fn decode_everything(bytes: &[u8]) {
    let _ = codec::decode(bytes);
    let _ = ArgumentBlock::decode(bytes);
    let _ = StatusBlock::decode(bytes);
    let _ = Header::decode(bytes);
    if let Ok(arguments) = Arguments::decode(bytes) {
        assert_eq!(bytes[..64], arguments.encode());
    }
    if let Ok(catalogue) = Catalogue::decode(bytes) {
        let encoded = catalogue.encode().expect("what can be decoded can be encoded");
        assert_eq!(bytes[..encoded.len()], encoded);
    }
    let mut naa = AcceleratorSession::new(SessionLimits::default());
    if let Ok(regions) = naa.handle_message(bytes) {
        assert!(4 + regions.len() * 24 == bytes.len());
    }
    let mut host =
        HostSession::new(&HostConfig::default(), &[param(0, IN, 4), param(1, OUT, 9)], &[]).unwrap();
    host.start().unwrap();
    assert_eq!(host.handle_message(bytes).is_ok(), host.is_ready());
}

#[test]
fn every_prefix_of_every_message() {
    for message in messages() {
        for len in 0..message.len() {
            assert!(codec::decode(&message[..len]).is_err());
            decode_everything(&message[..len]);
        }
        let longer = [&message[..], &[0]].concat();
        assert!(codec::decode(&longer).is_err());
    }
    let catalogue = catalogue();
    for len in 0..catalogue.len() {
        assert!(Catalogue::decode(&catalogue[..len]).is_err());
    }
    let block = Arguments::Sha256 { bytes: 1 }.encode();
    for len in 0..block.len() {
        assert!(Arguments::decode(&block[..len]).is_err() && StatusBlock::decode(&block[..len]).is_err());
    }
}

#[test]
fn mutated_bytes() {
    let mut random = Random::seeded(0x5eed_0006);
    let mut corpus = messages();
    let status = StatusBlock { function: code(16), code: None, detail: 0, produced: [64; 6] };
    corpus.extend([
        catalogue(),
        Arguments::Dgemm { m: 1, n: 2, k: 3 }.encode().to_vec(),
        status.encode().to_vec(),
    ]);
    for _ in 0..100_000 {
        let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
        random.mutate(&mut bytes);
        decode_everything(&bytes);
    }
}

#[test]
fn random_bytes() {
    let mut random = Random::seeded(0x5eed_0007);
    for _ in 0..50_000 {
        let len = random.below(200) as usize;
        let mut bytes = random.bytes(len);
        if let Some(kind) = bytes.first_mut() {
            *kind %= 4;
        }
        decode_everything(&bytes);
    }
}

fn check_plan(plan: &CallPlan, sizes: &[u32]) {
    let (last, before) = plan.writes().split_last().unwrap();
    assert!(last.immediate.is_some() && before.iter().all(|write| write.immediate.is_none()));
    for write in plan.writes() {
        assert!(write.offset + u64::from(write.length) <= sizes[write.param].into());
    }
}

/// Returns the number of the operation that `host_under_any_sequence` executes next. About one operation in eight is
/// random. The other operations are to advance the session, so that the test reaches later states.
fn host_step(random: &mut Random, host: &HostSession) -> u64 {
    match host.peer_regions() {
        _ if random.chance(8) => random.below(12),
        None => 3,
        Some(_) if host.is_ready() => 7,
        Some(_) => 9,
    }
}

fn naa_step(random: &mut Random, naa: &AcceleratorSession) -> u64 {
    match naa.regions().len() {
        _ if random.chance(8) => random.below(12),
        0 => 0,
        6 => 4,
        _ if naa.is_ready() => 7,
        _ => 9,
    }
}

/// After any sequence of valid and invalid operations, a host session that has failed stays failed, and no WRITE is
/// planned beyond the end of a region.
#[test]
fn host_under_any_sequence() {
    let mut random = Random::seeded(0x5eed_0008);
    let corpus = messages();
    let (flags, sizes) = ([IN, ONCE, OUT, IN_OUT, IN], [100; 5]);
    let mut calls = 0;
    for _ in 0..5000 {
        let params: Vec<_> = (0..5).map(|i| param(i, flags[i], 100)).collect();
        let mut host = HostSession::new(&HostConfig::default(), &params, &[64]).unwrap();
        let mut plan = CallPlan::default();
        for _ in 0..20 {
            let failed = host.is_failed();
            match host_step(&mut random, &host) {
                0..3 => drop(host.start()),
                3..6 => {
                    let _ = host.start();
                    let _ = host.handle_message(&corpus[1]);
                }
                6 => {
                    let mut bytes = corpus[random.below(3) as usize].clone();
                    random.mutate(&mut bytes);
                    let _ = host.handle_message(&bytes);
                }
                7..9 => {
                    let first = Part { offset: random.any() % 150, bytes: random.any() % 150 };
                    let parts = [Some(first), None, Some(Part::prefix(random.below(101)))];
                    if host.begin_call(code(5), U24::ZERO, &parts, &mut plan).is_ok() {
                        check_plan(&plan, &sizes);
                        calls += 1;
                    }
                }
                9 => drop(host.handle_response(random.next() as u32, random.next() as u32)),
                10 => drop(host.call_not_posted()),
                _ if random.chance(8) => drop(host.signal_error(&mut plan)),
                _ => {}
            }
            assert!(!failed || host.is_failed());
            assert!(!host.is_ready() || host.peer_regions().unwrap().len() == 5);
        }
    }
    assert!(calls > 5000, "only {calls} calls: the sequences end too early to show anything");
}

/// After any sequence of valid and invalid operations, an accelerator's session that has failed stays failed, and no
/// WRITE is planned beyond the end of a region.
#[test]
fn naa_under_any_sequence() {
    let mut random = Random::seeded(0x5eed_0009);
    let corpus = messages();
    let addresses: Vec<_> = (0..5).map(region_address).collect();
    let mut answers = 0;
    for _ in 0..5000 {
        let mut naa = AcceleratorSession::new(SessionLimits::default());
        let mut plan = CallPlan::default();
        for _ in 0..20 {
            let failed = naa.is_failed();
            match naa_step(&mut random, &naa) {
                0..3 if naa.regions().is_empty() => drop(naa.handle_message(&corpus[0]).map(drop)),
                3 => {
                    let mut bytes = corpus[random.below(3) as usize].clone();
                    random.mutate(&mut bytes);
                    let _ = naa.handle_message(&bytes);
                }
                4..6 => drop(naa.allocated(&addresses[..5 - random.below(5) as usize / 4])),
                6 if random.chance(4) => drop(naa.allocation_failed(ErrorCode::Memory)),
                7..9 => drop(naa.handle_request(random.any() as u32)),
                9..12 => answers += u32::from(answer(&mut random, &mut naa, &mut plan)),
                _ => {}
            }
            assert!(!failed || naa.is_failed());
        }
    }
    assert!(answers > 5000, "only {answers} answers: the sequences end too early to show anything");
}

fn answer(random: &mut Random, naa: &mut AcceleratorSession, plan: &mut CallPlan) -> bool {
    let parts = [Some(Part::prefix(random.below(110))), None, Some(Part::prefix(random.any()))];
    let status_bytes = random.below(200) as u32;
    let result =
        if random.chance(2) { Ok(&parts[..random.below(4) as usize]) } else { Err(ReturnCode::BUSY) };
    let answered = naa.respond(result, status_bytes, plan).is_ok();
    if answered {
        let sizes: Vec<_> = naa.regions().iter().map(|region| region.host.size).collect();
        check_plan(plan, &sizes);
    }
    answered
}

#[test]
fn every_immediate_bit() {
    for bit in 0..32 {
        let mut pair = Pair::new(&[(IN_OUT, 8)], &[]);
        let request = pair.naa.handle_request(1 << bit).unwrap();
        assert_eq!(request.function, (bit < 7).then(|| code(1 << bit)));
        assert_eq!(request.user.get(), if bit < 8 { 0 } else { 1 << (bit - 8) });
    }
    let mut random = Random::seeded(0x5eed_000a);
    for _ in 0..10_000 {
        let (function, user) = (code(1 + random.below(127) as u8), common::user(random.any() as u32 >> 8));
        let immediate = RequestImmediate::call(function, user);
        let RequestImmediate::Call(call) = RequestImmediate::decode(immediate) else { panic!() };
        assert_eq!((call.function, call.user), (Some(function), user));
    }
}
