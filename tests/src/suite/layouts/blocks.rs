//! Functions whose arguments and status are parameters too.

use mrsp::builtin::BLOCK_BYTES;
use naa_host::{
    Param, ReturnCode, Session, SessionConfig,
    builtin::{Arguments, BuiltinSession, Element},
};

use super::{ALL, RULE};
use crate::suite::{
    calls::{leased, pattern},
    case::{doing, ensure, same},
    environment::Environment,
};

pub(super) fn built_in(env: &mut Environment) -> Result<String, String> {
    for layout in ALL {
        let config = SessionConfig { layout, layout_rule: Some(RULE), ..env.config() };
        doing(&format!("{layout}, sums"), sums(env, &config))?;
        doing(&format!("{layout}, compression"), compressed(env, &config))?;
        doing(&format!("{layout}, failures"), failures(env, &config))?;
    }
    Ok(String::new())
}

fn job(
    env: &mut Environment,
    inputs: &[usize],
    outputs: &[usize],
    config: &SessionConfig,
) -> Result<BuiltinSession, String> {
    let server = env.server()?;
    doing("connect", BuiltinSession::connect(&env.device()?, server, inputs, outputs, config))
}

fn sums(env: &mut Environment, config: &SessionConfig) -> Result<(), String> {
    for n in [1, 7, 100, 3000] {
        let (a, b) = (pattern(1, n), pattern(2, n));
        let mut job = job(env, &[n, n], &[n], config)?;
        doing("input", job.input(0))?.copy_from_slice(&a);
        doing("input", job.input(1))?.copy_from_slice(&b);
        for _ in 0..2 {
            doing("run", job.run(&Arguments::VectorAdd { n: n as u64, element: Element::U8 }))?;
            let sum: Vec<_> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
            same(&format!("{n} sums"), &doing("output", job.output(0))?, &sum)?;
        }
    }
    Ok(())
}

/// There and back; the results are shorter than their regions.
fn compressed(env: &mut Environment, config: &SessionConfig) -> Result<(), String> {
    for len in [50, 1000, 60_000] {
        let data = pattern(3, 10).repeat(len / 10);
        let mut there = job(env, &[len + 77], &[len + 100], config)?;
        doing("input", there.input(0))?[..len].copy_from_slice(&data);
        doing("compress", there.run(&Arguments::ZstdCompress { bytes: len as u64, level: 3 }))?;
        let frame = doing("output", there.output(0))?.to_vec();
        let mut back = job(env, &[frame.len()], &[len + 1], config)?;
        doing("input", back.input(0))?.copy_from_slice(&frame);
        doing("decompress", back.run(&Arguments::ZstdDecompress { bytes: frame.len() as u64 }))?;
        same(&format!("{len} bytes"), &doing("output", back.output(0))?, &data)?;
    }
    Ok(())
}

/// The status comes, and all other outputs are as they were.
fn failures(env: &mut Environment, config: &SessionConfig) -> Result<(), String> {
    const DATA: usize = 500;
    let params = [
        Param::input(BLOCK_BYTES),
        Param::input(DATA),
        Param::output(BLOCK_BYTES),
        Param::output(40),
        Param::in_out(90),
    ];
    let mut session = env.session_with(&params, config)?;
    let (short, bytes) = (pattern(5, 40), DATA as u64);
    let garbage = Arguments::ZstdDecompress { bytes };
    let too_much = Arguments::ZstdCompress { bytes, level: 1 };
    let nothing = Arguments::VectorAdd { n: 1 << 40, element: Element::U64 };
    let fails = [
        (garbage, ReturnCode::MALFORMED_INPUT),
        (too_much, ReturnCode::OUTPUT_TOO_SMALL),
        (nothing, ReturnCode::BAD_ARGUMENTS),
    ];
    for (round, (arguments, code)) in fails.into_iter().enumerate() {
        let what = format!("failure {round}");
        doing("write", session.write(1, 0, &pattern(4, DATA)))?;
        doing("write", session.write(3, 0, &short))?;
        doing("write", session.write(4, 0, &short))?;
        doing(&what, fails_with(&mut session, arguments, code))?;
        same(&what, &leased(&session, 3)?, &short)?;
        same(&what, &leased(&session, 4)?[..40], &short)?;
    }
    Ok(())
}

fn fails_with(session: &mut Session, arguments: Arguments, code: ReturnCode) -> Result<(), String> {
    doing("write", session.write(0, 0, &arguments.encode()))?;
    doing("write", session.write(2, 0, &[0x55; BLOCK_BYTES]))?;
    let told = session.call(arguments.function()).err().and_then(|error| error.return_code());
    ensure(told == Some(code), || format!("told {told:?} instead of {code}"))?;
    let status = doing("status", session.status_block())?;
    ensure(status.code == Some(code), || format!("the status is {status:?}"))
}
