//! Both session machines against each other: what one plans the other takes, until somebody injects something.

use mrsp::{
    AcceleratorSession, CallPlan, FunctionCode, HostSession, RegionRequest, RemoteRegion, ReturnCode, U24,
    accelerator::{RegionAddress, SessionLimits},
    immediate::CallResponse,
};

use crate::{
    mrsp_common::{Host, check_immediates, check_plan, host, parts, sizes},
    mrsp_layout::check_naa_plan,
    program::Program,
};

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let Some(mut host) = host(&mut program) else { return };
    let limits = SessionLimits { max_regions: 255, max_session_bytes: u64::MAX, ..SessionLimits::default() };
    let mut naa = AcceleratorSession::new(limits);
    let mut plans = [host.plan(), CallPlan::default()];
    let Some(regions) = set_up(&mut program, &mut host, &mut naa) else { return };
    while !program.is_over() && !host.session.is_failed() && !naa.is_failed() {
        round(&mut program, &mut host, &mut naa, &regions, &mut plans);
    }
}

/// The regions granted; none when the injected message ended it.
fn set_up(
    program: &mut Program<'_>,
    host: &mut Host,
    naa: &mut AcceleratorSession,
) -> Option<Vec<RegionRequest>> {
    let mut request = host.session.start().expect("a fresh session");
    let hostile = program.rarely(16);
    if hostile {
        program.mutate(&mut request);
    }
    let Ok(regions) = naa.handle_message(&request) else {
        assert!(hostile, "what a host asks for is granted");
        return None;
    };
    let granted = regions.to_vec();
    let params = regions.iter().filter(|region| !region.is_internal()).count();
    let addresses: Vec<_> =
        (0..params).map(|i| RegionAddress { addr: 0x10_0000 * i as u64, rkey: i as u32 }).collect();
    let mut answer = naa.allocated(&addresses).expect("one address for each parameter");
    let hostile = hostile || program.rarely(16);
    if hostile {
        program.mutate(&mut answer);
    }
    let agreed = host.session.handle_message(&answer);
    assert!(hostile || agreed.is_ok(), "{agreed:?}");
    if hostile {
        return None;
    }
    let placed = host.arranged.as_ref().map(|arranged| arranged.placed.places.clone());
    assert_eq!(naa.places().map(Iterator::collect), placed);
    agreed.ok().map(|()| granted)
}

/// A call and its answer, or something injected.
fn round(
    program: &mut Program<'_>,
    host: &mut Host,
    naa: &mut AcceleratorSession,
    regions: &[RegionRequest],
    [plan, answer]: &mut [CallPlan; 2],
) {
    let function = FunctionCode::new(program.byte() % 127 + 1).expect("1 to 127");
    let user = U24::new(program.u16().into()).expect("24 bits");
    if host.session.begin_call(function, user, &parts(program), plan).is_err() {
        return;
    }
    host.check_plan(plan, host.session.peer_regions().expect("known in a call"));
    if inject(program, &mut host.session, naa) {
        return;
    }
    let call = naa.handle_request(immediate(plan)).expect("a call of a ready session");
    assert_eq!((call.function, call.user), (Some(function), user));
    let back = parts(program);
    let code = ReturnCode::new(U24::new(program.byte().into()).expect("24 bits"));
    let result = code.map_or(Ok(&back[..]), Err);
    if naa.respond(result, 0, answer).is_err() {
        naa.respond(Ok(&[]), 0, answer).expect("whole outputs always fit");
    }
    if host.arranged.is_some() {
        check_immediates(answer);
        check_naa_plan(answer, naa, regions);
    } else {
        let announced: Vec<RemoteRegion> = naa.regions().iter().map(|region| region.host).collect();
        check_plan(answer, &sizes(naa.regions()), &announced);
    }
    let bytes = answer.writes().last().map_or(0, |write| write.length);
    let outcome = host.session.handle_response(immediate(answer), bytes).expect("an answer to a call");
    assert_eq!((outcome.function, outcome.last_write_bytes), (function, bytes));
    assert!(!matches!(outcome.answer, CallResponse::Failure(failure) if Some(failure) != code));
    assert!(host.session.is_ready() && naa.is_ready());
}

fn immediate(plan: &CallPlan) -> u32 {
    plan.writes().last().and_then(|write| write.immediate).expect("the last write has it")
}

/// A message or immediate from nowhere; it ends the session it goes to.
fn inject(program: &mut Program<'_>, host: &mut HostSession, naa: &mut AcceleratorSession) -> bool {
    match program.byte() {
        253 => {
            let bytes = program.bytes(40);
            assert!(host.handle_message(bytes).is_err() && host.is_failed());
        }
        254 => {
            let bytes = program.bytes(40);
            assert!(naa.handle_message(bytes).is_err() && naa.is_failed());
        }
        255 => {
            naa.handle_request(program.u32()).ok();
            assert!(naa.handle_request(program.u32()).is_err() && naa.is_failed());
        }
        _ => return false,
    }
    true
}
