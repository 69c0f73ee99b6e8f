//! The accelerator's session under any sequence of messages, calls and answers.

use mrsp::{
    AcceleratorSession, CallPlan, ErrorCode, RegionRequest, RemoteRegion, ReturnCode, U24,
    accelerator::{LocalError, RegionAddress, SessionLimits},
    codec,
};

use crate::{
    mrsp_common::{SHORT, check_immediates, check_plan, parts, request, sizes},
    mrsp_layout::check_naa_plan,
    program::Program,
};

struct Naa {
    session: AcceleratorSession,
    /// As asked for, once granted.
    regions: Vec<RegionRequest>,
    max_slots: usize,
    /// WRITE, unless regions are large: they would go in millions.
    longest: u64,
    plan: CallPlan,
}

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let limits = SessionLimits {
        max_regions: program.pick(&[32, 255, 2]),
        max_region_bytes: program.pick(&[1 << 31, u64::MAX, 100]),
        max_session_bytes: program.pick(&[1 << 33, u64::MAX, 300]),
        max_slots: program.pick(&[255, 254, 253, 3, 0]),
    };
    let longest = program.pick(&[1 << 31, 1 << 31, 100]);
    let (session, plan) = (AcceleratorSession::new(limits), CallPlan::default());
    let mut naa = Naa { session, regions: Vec::new(), max_slots: limits.max_slots.into(), longest, plan };
    while !program.is_over() {
        let failed = naa.session.is_failed();
        step(&mut program, &mut naa);
        assert!(!failed || naa.session.is_failed(), "a session is over for good");
    }
}

fn step(program: &mut Program<'_>, naa: &mut Naa) {
    let session = &mut naa.session;
    match program.byte() % 8 {
        0 => message(naa, &request(program)),
        1 => {
            let mut bytes = request(program);
            program.mutate(&mut bytes);
            message(naa, &bytes);
        }
        2 => {
            let mut params = session.regions().iter().filter(|r| !r.is_internal()).count();
            if program.rarely(8) {
                params = program.below(300);
            }
            let addresses = vec![RegionAddress { addr: program.u64(), rkey: program.u32() }; params];
            if session.allocated(&addresses).is_ok() {
                assert!(session.places().is_none_or(|places| places.len() <= naa.max_slots));
            }
        }
        3 if program.flag() => drop(session.allocation_failed(ErrorCode::from(program.byte()))),
        3 | 4 => drop(session.handle_request(program.u32())),
        5 | 6 => answer(program, naa),
        _ => {
            let len = program.below(64);
            message(naa, program.bytes(len));
        }
    }
}

fn message(naa: &mut Naa, bytes: &[u8]) {
    match naa.session.handle_message(bytes) {
        Ok(regions) => {
            assert!(regions.iter().any(|region| !region.is_internal()));
            naa.regions = regions.to_vec();
            if naa.regions.iter().all(|region| u64::from(region.host.size) <= SHORT) {
                naa.plan = CallPlan::default().with_longest_write(naa.longest);
            }
        }
        Err(rejection) => {
            assert!(naa.session.is_failed());
            if let Some(reply) = rejection.reply() {
                codec::decode(&reply).expect("own messages decode");
            }
        }
    }
}

fn answer(program: &mut Program<'_>, naa: &mut Naa) {
    let Naa { session, regions, plan, .. } = naa;
    let parts = parts(program);
    let code = ReturnCode::new(U24::new(program.u32() >> 8).expect("24 bits"));
    let status_bytes = code.map_or(0, |_| program.u16().into());
    let before = plan.clone();
    match session.respond(code.map_or(Ok(&parts), Err), status_bytes, plan) {
        Ok(()) => {
            assert!(session.is_ready());
            if session.places().is_some() {
                check_immediates(plan);
                return check_naa_plan(plan, session, regions);
            }
            let hosts: Vec<RemoteRegion> = session.regions().iter().map(|region| region.host).collect();
            check_plan(plan, &sizes(session.regions()), &hosts);
        }
        Err(error) => {
            assert_eq!(*plan, before);
            assert!(!session.is_ready() || matches!(error, LocalError::State { .. }));
        }
    }
}
