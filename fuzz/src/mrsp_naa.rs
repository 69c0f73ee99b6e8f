//! The accelerator's session under any sequence of messages, calls and answers.

use mrsp::{
    CallPlan, ErrorCode, NaaSession, RemoteRegion, ReturnCode, U24, codec,
    naa::{Failure, Limits, LocalError, Placement},
};

use crate::{
    mrsp_common::{check_plan, prefixes, request, sizes},
    program::Program,
};

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let mut session = NaaSession::new(Limits {
        max_regions: program.pick(&[32, 255, 2]),
        max_region_bytes: program.pick(&[1 << 31, u64::MAX, 100]),
        max_session_bytes: program.pick(&[1 << 33, u64::MAX, 300]),
    });
    let mut plan = CallPlan::default();
    while !program.is_over() {
        let failed = session.is_failed();
        step(&mut program, &mut session, &mut plan);
        assert!(!failed || session.is_failed(), "a session is over for good");
    }
}

fn step(program: &mut Program<'_>, session: &mut NaaSession, plan: &mut CallPlan) {
    match program.byte() % 8 {
        0 => message(session, &request(program)),
        1 => {
            let mut bytes = request(program);
            program.mutate(&mut bytes);
            message(session, &bytes);
        }
        2 => {
            let mut params = session.regions().iter().filter(|r| !r.is_internal()).count();
            if program.rarely(8) {
                params = program.below(300);
            }
            let placements = vec![Placement { addr: program.u64(), rkey: program.u32() }; params];
            let _ = session.allocated(&placements);
        }
        3 if program.flag() => drop(session.allocation_failed(ErrorCode::from(program.byte()))),
        3 | 4 => drop(session.handle_request(program.u32())),
        5 | 6 => answer(program, session, plan),
        _ => {
            let len = program.below(64);
            message(session, program.bytes(len));
        }
    }
}

fn message(session: &mut NaaSession, bytes: &[u8]) {
    match session.handle_message(bytes) {
        Ok(regions) => assert!(regions.iter().any(|region| !region.is_internal())),
        Err(rejection) => {
            assert!(session.is_failed());
            if let Some(reply) = rejection.reply() {
                codec::decode(&reply).expect("own messages decode");
            }
        }
    }
}

fn answer(program: &mut Program<'_>, session: &mut NaaSession, plan: &mut CallPlan) {
    let prefixes = prefixes(program);
    let code = ReturnCode::new(U24::new(program.u32() >> 8).expect("24 bits"));
    let failure = code.map(|code| Failure { code, status_bytes: program.u16().into() });
    let before = plan.clone();
    match session.respond(failure.map_or(Ok(&prefixes), Err), plan) {
        Ok(()) => {
            let hosts: Vec<RemoteRegion> = session.regions().iter().map(|region| region.host).collect();
            check_plan(plan, &sizes(session.regions()), &hosts);
            assert!(session.is_ready());
        }
        Err(error) => {
            assert_eq!(*plan, before);
            assert!(!session.is_ready() || matches!(error, LocalError::State { .. }));
        }
    }
}
