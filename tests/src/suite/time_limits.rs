//! Slow functions, time limits, and processes that stand still for a while.

use std::time::{Duration, Instant};

use mrsp::ReturnCode;
use naa_host::{CallResponse, Param, SessionConfig, U24};

use super::{
    calls::copy_once,
    case::{Case, doing, ensure},
    control::{Request, ServerConfig},
    environment::Environment,
    leaks,
};
use crate::slow::SLOW;

pub(super) const CASES: &[Case] = &[
    Case::rest("patience: a slow function is waited for, and probed meanwhile", slow),
    Case::rest("patience: a function that takes too long is given up", too_slow),
    Case::rest("patience: the server is stopped for a second", server_stopped),
    Case::rest("patience: the host is stopped for a second", host_stopped),
];

fn milliseconds(n: u32) -> Result<U24, String> {
    U24::new(n).ok_or_else(|| "24 bits".into())
}

fn slow(env: &mut Environment) -> Result<String, String> {
    let probe_interval = Some(Duration::from_millis(200));
    let config = SessionConfig { probe_interval, ..SessionConfig::default() };
    let mut session = env.session_with(&[Param::input(8), Param::output(8)], &config)?;
    let start = Instant::now();
    doing("invoke", session.invoke(SLOW, milliseconds(2500)?))?;
    ensure(doing("test", session.test())?.is_none(), || "ended at once".into())?;
    let early = doing("wait", session.wait_timeout(Duration::from_millis(300)))?;
    let took = start.elapsed();
    ensure(early.is_none(), || "ended early".into())?;
    ensure((250..2000).contains(&took.as_millis()), || format!("300 ms took {took:?}"))?;
    doing("outcome", doing("wait", session.wait())?.into_result()).map(drop)?;
    let took = start.elapsed();
    ensure(took >= Duration::from_millis(2400), || format!("2500 ms took {took:?}"))?;
    copy_once(&mut session, 1, [8, 8])?;
    Ok(String::new())
}

fn too_slow(env: &mut Environment) -> Result<String, String> {
    let settings = ServerConfig { call_ms: 300, ..ServerConfig::default() };
    let server = env.server_with(&settings)?;
    let params = [Param::in_out(8)];
    let mut session = doing("connect", env.connect(server, &params, &SessionConfig::default())?)?;
    doing("invoke", session.invoke(SLOW, milliseconds(1500)?))?;
    let start = Instant::now();
    let outcome = doing("wait", session.wait())?;
    let code = ReturnCode::KERNEL_TIMEOUT;
    ensure(outcome.answer == CallResponse::Failure(code), || format!("told {:?}", outcome.answer))?;
    // Until it returns the function keeps its regions, and with them the server's device.
    std::thread::sleep(Duration::from_millis(1800).saturating_sub(start.elapsed()));
    Ok(String::new())
}

/// Calls go on for longer than the second.
fn calls_for(env: &mut Environment, time: Duration) -> Result<String, String> {
    const LEN: usize = 300_000;
    let mut session = env.session(&[Param::input(LEN), Param::output(LEN)])?;
    let start = Instant::now();
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while start.elapsed() < time {
        let begin = Instant::now();
        copy_once(&mut session, calls, [LEN, LEN])?;
        longest = longest.max(begin.elapsed());
        calls += 1;
    }
    Ok(format!("{calls} calls, the longest took {:.2} s", longest.as_secs_f64()))
}

fn server_stopped(env: &mut Environment) -> Result<String, String> {
    env.server()?;
    env.control.ask::<()>(&Request::Pause(1000))?;
    calls_for(env, Duration::from_secs(3))
}

fn host_stopped(env: &mut Environment) -> Result<String, String> {
    env.server()?;
    leaks::pause(Duration::from_secs(1))?;
    calls_for(env, Duration::from_secs(3))
}
