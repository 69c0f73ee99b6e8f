//! The host's session under any sequence of calls, messages and responses.

use mrsp::{CallPlan, ErrorCode, FunctionCode, HostSession, RemoteRegion, U24, codec, host::CallError};

use crate::{
    mrsp_common::{Host, advertisement, host, parts, sizes},
    program::Program,
};

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let Some(mut host) = host(&mut program) else { return };
    let mut plan = host.plan();
    while !program.is_over() {
        let failed = host.session.is_failed();
        step(&mut program, &mut host, &mut plan);
        assert!(!failed || host.session.is_failed(), "a session is over for good");
        assert!(!host.session.is_ready() || fits(&host.session));
    }
}

/// The accelerator's regions are large enough and end inside the address space.
fn fits(session: &HostSession) -> bool {
    let peers = session.peer_regions().expect("known when ready");
    let asked = sizes(session.requests());
    let fits = |(peer, asked): (&RemoteRegion, &u32)| {
        peer.size >= *asked && peer.addr.checked_add(u64::from(peer.size).saturating_sub(1)).is_some()
    };
    peers.len() == asked.len() && peers.iter().zip(&asked).all(fits)
}

fn step(program: &mut Program<'_>, host: &mut Host, plan: &mut CallPlan) {
    let session = &mut host.session;
    match program.byte() % 10 {
        0 => drop(session.start()),
        1 => {
            let message = advertisement(program, session.requests());
            let _ = session.handle_message(&message);
        }
        2 => {
            let mut message = advertisement(program, session.requests());
            program.mutate(&mut message);
            let _ = session.handle_message(&message);
        }
        3 => {
            let message = codec::encode_error(ErrorCode::from(program.byte()));
            session.handle_message(&message).expect_err("an error ends the session");
        }
        4 | 5 => call(program, host, plan),
        6 => drop(session.handle_response(program.u32(), program.u32())),
        7 => drop(session.call_not_posted()),
        8 => signal_error(host, plan),
        _ => {
            let len = program.below(64);
            let _ = session.handle_message(program.bytes(len));
        }
    }
}

fn call(program: &mut Program<'_>, host: &mut Host, plan: &mut CallPlan) {
    let session = &mut host.session;
    let function = FunctionCode::new(program.byte() % 127 + 1).expect("1 to 127");
    let user = U24::new(program.u32() >> 8).expect("24 bits");
    let (before, ready) = (plan.clone(), session.is_ready());
    match session.begin_call(function, user, &parts(program), plan) {
        Ok(()) => {
            host.check_plan(plan, host.session.peer_regions().expect("known in a call"));
        }
        Err(error) => {
            assert_eq!(*plan, before);
            assert_eq!(matches!(error, CallError::State { .. }), !ready);
            assert_eq!(session.is_ready(), ready);
        }
    }
}

fn signal_error(host: &mut Host, plan: &mut CallPlan) {
    let peers = host.session.peer_regions().map(<[_]>::to_vec);
    if host.session.signal_error(plan).is_ok() {
        host.check_plan(plan, &peers.expect("needed to signal"));
        assert!(host.session.is_failed());
    }
}
