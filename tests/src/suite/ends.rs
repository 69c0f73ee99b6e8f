//! How sessions begin, are refused, and end.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use naa_host::{Error, Gone, Param, Session, SessionConfig, U24};
use verbs::RejectReason;

use super::{
    calls::copy_once,
    case::{Case, doing, ensure},
    control::{Request, ServerConfig},
    environment::Environment,
    functions::COPY,
    leaks::Usage,
};

pub(super) const CASES: &[Case] = &[
    Case::rest("ends: the host disconnects first", host_first),
    Case::rest("ends: the server disconnects first, and comes back", server_first),
    Case::rest("ends: the server waits for a call before it goes", during_a_call),
    Case::rest("ends: nobody listens on the port", nobody_listens),
    Case::rest("ends: the server is full and says so", full),
    Case::rest("ends: the server does not serve this address and says so", not_allowed),
    Case::rest("ends: 25 connections one after the other", reconnect),
    Case::long("ends: 1000 connects and disconnects leak nothing", leaks),
];

const PARAMS: [Param<'static>; 2] = [Param::input(50), Param::output(50)];

/// Waits until the server has as many sessions.
fn sessions(env: &mut Environment, wanted: u64) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let found: u64 = env.control.ask(&Request::Sessions)?;
        if found == wanted {
            return Ok(());
        }
        ensure(Instant::now() < end, || format!("the server has {found} sessions instead of {wanted}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn host_first(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&PARAMS)?;
    copy_once(&mut session, 1, [50, 50])?;
    sessions(env, 1)?;
    let start = Instant::now();
    doing("finalize", session.finalize())?;
    sessions(env, 0)?;
    Ok(format!("noticed after {:.0} ms", start.elapsed().as_secs_f64() * 1e3))
}

fn server_first(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&PARAMS)?;
    copy_once(&mut session, 1, [50, 50])?;
    env.stop_server()?;
    let error = doing("call", session.call(COPY).err().ok_or("the call went through"))?;
    let told = matches!(error, Error::PeerGone { why: Gone::Disconnected, .. });
    ensure(told, || format!("told {error}"))?;
    ensure(session.is_over(), || "the session is not over".into())?;
    doing("bytes", session.bytes(1, ..)).map(drop)?;
    drop(session);
    copy_once(&mut env.session(&PARAMS)?, 2, [50, 50])?;
    Ok(String::new())
}

fn during_a_call(env: &mut Environment) -> Result<String, String> {
    let mut session = env.session(&PARAMS)?;
    doing("invoke", session.invoke(crate::slow::SLOW, U24::new(700).ok_or("24 bits")?))?;
    // The server must have the call before it is told to end.
    std::thread::sleep(Duration::from_millis(200));
    env.stop_server()?;
    let outcome = doing("wait", session.wait())?;
    doing("outcome", outcome.into_result()).map(drop)?;
    Ok(String::new())
}

fn refused(result: Result<Session, Error>) -> Result<(RejectReason, String), String> {
    match result {
        Err(Error::ConnectionRefused { reason, said, .. }) => Ok((reason, said.unwrap_or_default())),
        Err(error) => Err(format!("told {error}")),
        Ok(_) => Err("a session began".into()),
    }
}

fn nobody_listens(env: &mut Environment) -> Result<String, String> {
    let server = env.server()?;
    let elsewhere = SocketAddr::new(server.ip(), server.port() ^ 1);
    let start = Instant::now();
    let (reason, _) = refused(env.connect(elsewhere, &PARAMS, &SessionConfig::default())?)?;
    ensure(reason == RejectReason::INVALID_SERVICE_ID, || format!("told {reason}"))?;
    let took = start.elapsed();
    ensure(took < Duration::from_secs(3), || format!("told after {took:?}"))?;
    Ok(String::new())
}

fn full(env: &mut Environment) -> Result<String, String> {
    let settings = ServerConfig { max_sessions: 1, ..ServerConfig::default() };
    let server = env.server_with(&settings)?;
    let mut first = doing("connect", env.connect(server, &PARAMS, &SessionConfig::default())?)?;
    let (reason, said) = refused(env.connect(server, &PARAMS, &SessionConfig::default())?)?;
    ensure(reason == RejectReason::CONSUMER_DEFINED, || format!("told {reason}"))?;
    ensure(said.contains("as many sessions as it may"), || format!("it said {said:?}"))?;
    copy_once(&mut first, 1, [50, 50])?;
    doing("finalize", first.finalize())?;
    sessions(env, 0)?;
    let mut next = doing("connect again", env.connect(server, &PARAMS, &SessionConfig::default())?)?;
    copy_once(&mut next, 2, [50, 50])?;
    Ok(said)
}

fn not_allowed(env: &mut Environment) -> Result<String, String> {
    let settings = ServerConfig { allow: vec!["192.0.2.0/24".into()], ..ServerConfig::default() };
    let server = env.server_with(&settings)?;
    let (reason, said) = refused(env.connect(server, &PARAMS, &SessionConfig::default())?)?;
    ensure(reason == RejectReason::CONSUMER_DEFINED, || format!("told {reason}"))?;
    ensure(said.contains("allow-list"), || format!("it said {said:?}"))?;
    Ok(said)
}

fn reconnect(env: &mut Environment) -> Result<String, String> {
    for round in 0..25 {
        let mut session = doing(&format!("round {round}"), env.session(&PARAMS))?;
        copy_once(&mut session, round, [50, 50])?;
        // Sessions are ended by `finalize` and by dropping in turn.
        if round.is_multiple_of(2) {
            doing("finalize", session.finalize())?;
        }
    }
    sessions(env, 0)?;
    Ok(String::new())
}

/// What both sides hold, once connections that ended are forgotten.
fn usage(env: &mut Environment) -> Result<[Usage; 2], String> {
    sessions(env, 0)?;
    Ok([Usage::now(), env.control.usage()?])
}

fn leaks(env: &mut Environment) -> Result<String, String> {
    const ROUNDS: u32 = 1000;
    /// Allocators keep pages, and tables of the embedded provider grow once, by about 2 MiB.
    const SLACK_KIB: u64 = 4096;
    let round = |env: &mut Environment, round: u32| {
        let mut session = doing(&format!("round {round}"), env.session(&PARAMS))?;
        if round.is_multiple_of(10) {
            copy_once(&mut session, round, [50, 50])?;
        }
        doing("finalize", session.finalize())
    };
    for warm in 0..100 {
        round(env, warm)?;
    }
    // Timewait.
    std::thread::sleep(Duration::from_secs(5));
    let before = usage(env)?;
    let start = Instant::now();
    for number in 0..ROUNDS {
        round(env, number)?;
    }
    let each = start.elapsed() / ROUNDS;
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let after = usage(env)?;
        let problem = ["host", "server"].iter().zip(before.iter().zip(&after)).find_map(|(side, (b, a))| {
            let grown = a.files > b.files || a.threads > b.threads || a.kernel != b.kernel;
            (grown || a.rss_kib > b.rss_kib + SLACK_KIB).then(|| format!("{side}: {b:?} became {a:?}"))
        });
        match problem {
            None => {
                let grown = |side: usize| after[side].rss_kib as i64 - before[side].rss_kib as i64;
                let kernel: Vec<_> = after[0].kernel.iter().map(|(what, n)| format!("{what} {n}")).collect();
                return Ok(format!(
                    "{each:?} each; host {:+} KiB, server {:+} KiB; kernel: {}",
                    grown(0),
                    grown(1),
                    if kernel.is_empty() { "no device".into() } else { kernel.join(" ") }
                ));
            }
            Some(problem) => ensure(Instant::now() < end, || problem)?,
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
