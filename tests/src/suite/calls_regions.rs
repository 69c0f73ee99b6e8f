//! Regions of every kind, several at a time, and parts of them.

use naa_host::{Error, Param, Session};

use super::{
    calls::{call, copied, leased, pattern},
    case::{Case, doing, ensure, same},
    environment::Environment,
    functions::{COPY, COUNT, PRODUCE},
};

pub(super) const CASES: &[Case] = &[
    Case::bytes("regions: 1, 2, 5 and 31", several),
    Case::rest("regions: inputs and outputs mixed", mixed),
    Case::rest("regions: sent once only", single_send),
    Case::rest("regions: internal ones keep their content between calls", internal),
    Case::bytes("regions: only the first bytes are sent", bytes_to_send),
    Case::bytes("regions: only the first bytes come back", bytes_returned),
    Case::rest("regions: neither inputs nor outputs", one_sided),
    Case::rest("regions: no byte beyond the end of one, and no call on one in use", bounds),
];

fn several(env: &mut Environment) -> Result<String, String> {
    for count in [1_usize, 2, 5, 31] {
        let params: Vec<_> = (0..count).map(|i| Param::in_out(1 + 700 * i)).collect();
        let mut session = env.session(&params)?;
        for round in 0..3 {
            let inputs: Vec<_> = (0..count).map(|i| pattern((round * 100 + i) as u32, 1 + 700 * i)).collect();
            for (index, input) in inputs.iter().enumerate() {
                doing("write", session.write(index, 0, input))?;
            }
            call(&mut session, COPY, 3)?;
            let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
            for (index, input) in inputs.iter().enumerate() {
                let expected = copied(&inputs, 3, index, input.len());
                same(&format!("region {index} of {count}"), &leased(&session, index)?, &expected)?;
            }
        }
    }
    Ok(String::new())
}

fn mixed(env: &mut Environment) -> Result<String, String> {
    let params =
        [Param::input(10), Param::output(5000), Param::internal(64), Param::input(3), Param::in_out(9)];
    let mut session = env.session(&params)?;
    let inputs = [pattern(1, 10), pattern(2, 3), pattern(3, 9)];
    for (index, input) in [0, 2, 3].into_iter().zip(&inputs) {
        doing("write", session.write(index, 0, input))?;
    }
    call(&mut session, COPY, 0)?;
    let all: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
    same("the output", &leased(&session, 1)?, &copied(&all, 0, 0, 5000))?;
    same("the one that is both", &leased(&session, 3)?, &copied(&all, 0, 1, 9))?;
    Ok(String::new())
}

fn single_send(env: &mut Environment) -> Result<String, String> {
    let first = pattern(4, 5000);
    let params = [Param::input(5000).single_send(), Param::input(2), Param::output(5002)];
    let mut session = env.session(&params)?;
    doing("write", session.write(0, 0, &first))?;
    for round in 0..3_u8 {
        doing("write", session.write(1, 0, &[round, 9]))?;
        call(&mut session, COPY, 0)?;
        // Changed here, and not sent any more.
        doing("write", session.write(0, 0, &[round; 5000]))?;
        let expected = copied(&[&first, &[round, 9]], 0, 0, 5002);
        same(&format!("call {round}"), &leased(&session, 2)?, &expected)?;
    }
    Ok(String::new())
}

fn internal(env: &mut Environment) -> Result<String, String> {
    let params = [Param::internal(100_000), Param::output(2), Param::internal(1)];
    let mut one = env.session(&params)?;
    let mut other = env.session(&params)?;
    for round in 1..=3 {
        call(&mut one, COUNT, 0)?;
        same("the counts", &leased(&one, 0)?, &[round; 2])?;
    }
    call(&mut other, COUNT, 0)?;
    same("the counts of another session", &leased(&other, 0)?, &[1; 2])?;
    Ok(String::new())
}

fn bytes_to_send(env: &mut Environment) -> Result<String, String> {
    const LEN: usize = 9000;
    let mut session = env.session(&[Param::input(LEN), Param::output(LEN)])?;
    let mut there = vec![0; LEN];
    for (round, bytes) in [Some(0), Some(1), Some(4097), Some(8999), None, Some(12)].into_iter().enumerate() {
        let input = pattern(round as u32 + 20, LEN);
        doing("write", session.write(0, 0, &input))?;
        doing("bytes to send", session.set_bytes_to_send(0, bytes))?;
        call(&mut session, COPY, 0)?;
        let sent = bytes.map_or(LEN, |bytes| bytes as usize);
        there[..sent].copy_from_slice(&input[..sent]);
        same(&format!("with {bytes:?} bytes sent"), &leased(&session, 1)?, &there)?;
    }
    Ok(String::new())
}

fn bytes_returned(env: &mut Environment) -> Result<String, String> {
    const LEN: usize = 9000;
    let mut session = env.session(&[Param::output(LEN)])?;
    for bytes in [0, 1, 4096, 8999, 9000] {
        doing("write", session.write(0, 0, &[1; LEN]))?;
        let told = call(&mut session, PRODUCE, bytes)?;
        ensure(told == bytes, || format!("{told} bytes were told instead of {bytes}"))?;
        let mut expected = vec![1; LEN];
        expected[..bytes as usize].fill(7);
        same(&format!("with {bytes} bytes returned"), &leased(&session, 0)?, &expected)?;
    }
    Ok(String::new())
}

fn one_sided(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::data(b"in")])?;
    call(&mut session, COPY, 0)?;
    same("the input", &leased(&session, 0)?, b"in")?;
    let mut session = env.session(&[Param::output(9), Param::output(0)])?;
    call(&mut session, COPY, 5)?;
    call(&mut session, COPY, 6)?;
    same("the output", &leased(&session, 0)?, &[6; 9])?;
    Ok(String::new())
}

fn bounds(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&[Param::input(100), Param::output(100)])?;
    let refused = |what: &str, result: Result<(), Error>| match result {
        Err(Error::OutOfBounds { .. } | Error::NotInput { .. } | Error::NoSuchParam { .. }) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    };
    refused("one byte too many", session.write(0, 1, &[0; 100]))?;
    refused("far beyond", session.write(0, usize::MAX, &[1]))?;
    refused("read beyond", session.read(1, 99, &mut [0; 2]))?;
    refused("send more than there is", session.set_bytes_to_send(0, Some(101)))?;
    refused("send an output", session.set_bytes_to_send(1, Some(1)))?;
    refused("no such parameter", session.write(2, 0, &[]))?;
    in_call(&mut session)?;
    super::calls::copy_once(&mut session, 1, [100, 100])?;
    Ok(String::new())
}

fn in_call(session: &mut Session) -> Result<(), String> {
    doing("invoke", session.invoke(crate::slow::SLOW, naa_host::U24::new(200).ok_or("24 bits")?))?;
    let wrote = session.write(0, 0, &[1]);
    ensure(matches!(wrote, Err(Error::InCall)), || format!("written during a call: {wrote:?}"))?;
    let again = session.invoke(COPY, naa_host::U24::ZERO);
    ensure(matches!(again, Err(Error::InCall)), || format!("called during a call: {again:?}"))?;
    doing("wait", session.wait()).map(drop)
}
