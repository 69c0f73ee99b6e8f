//! Calls: sizes around packets, many in a row, large ones, failures.

use std::borrow::Cow;

use mrsp::ReturnCode;
use naa_host::{Error, Param, Session, U24};

use super::{
    case::{Case, doing, ensure, same},
    control::ServerConfig,
    environment::Environment,
    functions::{COPY, FAIL, FAIL_ARGUMENTS, FAIL_INPUT},
};

pub(super) const CASES: &[Case] = &[
    Case::bytes("calls: 0 B, 1 B, around the MTU, 1 MiB, both ways", sizes),
    Case::bytes("calls: one input larger than the output, and the other way round", lopsided),
    Case::bytes("calls: 200 in a row on one session", in_a_row),
    Case::rest("calls: a function fails with its code, and the session goes on", failures),
    Case::rest("calls: an unknown function", unknown),
    Case::rest("calls: more than one session at once", at_once),
    Case::long("calls: 256 MiB both ways", large),
];

/// Bytes unlike their neighbours and unlike those of another `seed`.
pub(super) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut bytes = Vec::with_capacity(len + 3);
    while bytes.len() < len {
        // xorshift32.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// What COPY makes of `inputs` in output `index` of `len` bytes.
pub(super) fn copied(inputs: &[&[u8]], more: u8, index: usize, len: usize) -> Vec<u8> {
    let all = inputs.concat();
    let at = |i: usize| if all.is_empty() { 0 } else { all[(i + index) % all.len()] };
    (0..len).map(|i| at(i).wrapping_add(more)).collect()
}

/// One call; its outcome must be success.
pub(super) fn call(
    session: &mut Session,
    function: naa_host::FunctionCode,
    user: u32,
) -> Result<u32, String> {
    let user = U24::new(user).ok_or("the user bits are 24")?;
    doing("invoke", session.invoke(function, user))?;
    let outcome = doing("wait", session.wait())?;
    let outcome = doing("outcome", outcome.into_result())?;
    Ok(outcome.last_write_bytes)
}

/// In place, or a copy over a device that leaves the accelerator its access.
pub(super) fn leased(session: &Session, index: usize) -> Result<Cow<'_, [u8]>, String> {
    doing("bytes", session.bytes(index, ..))
}

/// COPY of new bytes from parameter 0 to parameter 1, compared.
pub(super) fn copy_once(
    session: &mut Session,
    seed: u32,
    [sent, returned]: [usize; 2],
) -> Result<(), String> {
    let input = pattern(seed, sent);
    doing("write", session.write(0, 0, &input))?;
    call(session, COPY, seed % 251)?;
    let expected = copied(&[&input], (seed % 251) as u8, 0, returned);
    same("the output", &leased(session, 1)?, &expected)?;
    same("the input afterwards", &leased(session, 0)?, &input)
}

fn sizes(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(1), Param::output(1)])?;
    copy_once(&mut session, 1, [1, 1])?;
    let mtu = session.path_mtu();
    let expected = env.options.path_mtu.unwrap_or(mtu);
    ensure(mtu == expected, || format!("a path MTU of {mtu} instead of {expected}"))?;
    let mtu = mtu as usize;
    for len in [0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 2, 1 << 20] {
        let mut session = env.session(&[Param::input(len), Param::output(len)])?;
        for round in 0..3 {
            doing(&format!("{len} bytes"), copy_once(&mut session, len as u32 + round, [len, len]))?;
        }
        doing("finalize", session.finalize())?;
    }
    Ok(format!("path MTU {mtu}"))
}

fn lopsided(env: &mut Environment) -> Result<String, String> {
    for lens in [[200_001, 1], [1, 200_001], [70_000, 0], [0, 70_000]] {
        let mut session = env.session(&[Param::input(lens[0]), Param::output(lens[1])])?;
        doing(&format!("{lens:?} bytes"), copy_once(&mut session, 5, lens))?;
    }
    Ok(String::new())
}

fn in_a_row(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(3000), Param::output(3000)])?;
    for round in 0..200 {
        doing(&format!("call {round}"), copy_once(&mut session, round, [3000, 3000]))?;
    }
    Ok(String::new())
}

fn failures(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(100), Param::output(100)])?;
    for (user, code) in [
        (FAIL_ARGUMENTS, ReturnCode::BAD_ARGUMENTS),
        (FAIL_INPUT, ReturnCode::MALFORMED_INPUT),
        (3, ReturnCode::OUTPUT_TOO_SMALL),
    ] {
        let found = fail(&mut session, user)?;
        ensure(found == Some(code), || format!("told {found:?} instead of {code}"))?;
        copy_once(&mut session, user, [100, 100])?;
    }
    Ok(String::new())
}

fn fail(session: &mut Session, user: u32) -> Result<Option<ReturnCode>, String> {
    doing("invoke", session.invoke(FAIL, U24::new(user).ok_or("24 bits")?))?;
    let outcome = doing("wait", session.wait())?;
    Ok(outcome.into_result().err().as_ref().and_then(Error::return_code))
}

fn unknown(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::in_out(10)])?;
    let error = session.call(naa_host::FunctionCode::constant(99)).err();
    let code = error.as_ref().and_then(Error::return_code);
    ensure(code == Some(ReturnCode::UNKNOWN_FUNCTION), || format!("told {error:?}"))?;
    call(&mut session, COPY, 1)?;
    same("the parameter", &leased(&session, 0)?, &[1; 10])?;
    Ok(String::new())
}

fn at_once(env: &mut Environment) -> Result<String, String> {
    const SESSIONS: u32 = 6;
    const LEN: usize = 20_000;
    let settings = ServerConfig::default();
    let server = env.server_with(&settings)?;
    let device = env.device()?;
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let one = |number: u32| {
            let params = [Param::input(LEN), Param::output(LEN)];
            let session = Session::connect(&device, server, &params, &naa_host::SessionConfig::default());
            let mut session = doing("connect", session)?;
            for round in 0..15 {
                copy_once(&mut session, number * 1000 + round, [LEN, LEN])?;
            }
            doing("finalize", session.finalize())
        };
        let threads: Vec<_> = (0..SESSIONS).map(|number| scope.spawn(move || one(number))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{SESSIONS} sessions"))
}

fn large(env: &mut Environment) -> Result<String, String> {
    const LEN: usize = 256 << 20;
    let mut session = env.session(&[Param::in_out(LEN)])?;
    // A pattern that is no multiple of anything, so that no shifted part passes.
    let part = pattern(9, 1_000_003);
    for at in (0..LEN).step_by(part.len()) {
        doing("write", session.write(0, at, &part[..part.len().min(LEN - at)]))?;
    }
    call(&mut session, naa_host::FunctionCode::constant(1), 0)?;
    let expected: Vec<u8> = part.iter().map(|byte| byte.wrapping_add(1)).collect();
    for (number, chunk) in leased(&session, 0)?.chunks(part.len()).enumerate() {
        doing(&format!("chunk {number}"), same("the region", chunk, &expected[..chunk.len()]))?;
    }
    Ok(String::new())
}
