//! Hosts that hold what they have: sessions that do nothing, sessions without end, connections without sessions.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use naa_host::{Device, FunctionCode, Param, Session, SessionConfig};
use naa_server::{Config, Server, functions};

use super::{
    case::{Case, Observation},
    environment::Environment,
    mrsp_talk::{Until, listen},
    raw::Offer,
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const SESSIONS: usize = 1000;
const PER_PEER: usize = 300;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "connected and silent",
        "no request for regions within the server's 300 ms",
        "DREQ",
        &[],
        silent,
    ),
    Case::new(
        "1000 idle sessions and one more",
        "301 from one address, 1001 in all, each called once",
        "your address has as many sessions as one may; the server has as many sessions as it may; fine",
        &[],
        many_sessions,
    )
    // The bystander shares two cores with 1000 sessions being set up.
    .p99(Duration::from_millis(100)),
];

fn server(env: &mut Environment, set: impl FnOnce(&mut Config)) -> Result<Server, String> {
    let mut config = Config::new((env.address(), 0).into());
    set(&mut config);
    let registry = functions::builtins().map_err(|e| e.to_string())?;
    Server::start(config, registry).map_err(|e| e.to_string())
}

fn silent(env: &mut Environment) -> Result<Observation, String> {
    let server = server(env, |config| config.setup_time = Duration::from_millis(300))?;
    let mut peer = env.attacker()?;
    let start = Instant::now();
    let mut wire = peer.connect(server.address(), &Offer::default())?;
    let answer = listen(&mut peer, &mut wire, Until::Disconnected)?;
    let took = start.elapsed();
    if took < Duration::from_millis(250) || server.stats().sessions_failed.get() != 1 {
        return Err(format!("it ended after {took:?}, {:?}", server.stats()));
    }
    Ok(Observation::noted(answer, format!("after {took:.1?}, sessions_failed 1")))
}

fn connect(server: &Server, local: IpAddr) -> Result<Session, String> {
    let device = Device::open(local).map_err(|e| e.to_string())?;
    let config = SessionConfig::default();
    Session::connect(&device, server.address(), &[Param::in_out(64)], &config).map_err(|e| e.to_string())
}

/// What a host is told that may not connect.
fn refusal(server: &Server, local: IpAddr) -> Result<String, String> {
    match connect(server, local) {
        Ok(_) => Err("one session more than permitted was taken".into()),
        Err(told) => {
            let said = told.split('"').nth(1);
            let said = said.and_then(|said| said.split(';').next());
            Ok(said.ok_or_else(|| format!("no words of the server in {told:?}"))?.to_owned())
        }
    }
}

fn many_sessions(env: &mut Environment) -> Result<Observation, String> {
    let server = server(env, |config| {
        config.max_sessions = SESSIONS;
        config.max_sessions_per_peer = PER_PEER;
    })?;
    let mut sessions = Vec::new();
    let mut said = Vec::new();
    while sessions.len() < SESSIONS {
        let local = env.address();
        for _ in 0..PER_PEER.min(SESSIONS - sessions.len()) {
            sessions.push(connect(&server, local)?);
        }
        if said.is_empty() {
            said.push(refusal(&server, local)?);
        }
    }
    said.push(refusal(&server, env.address())?);
    for session in &mut sessions {
        session.call(INCREMENT).map_err(|e| format!("one of {SESSIONS} sessions: {e}"))?;
    }
    sessions.pop();
    until(|| server.stats().sessions.get() == SESSIONS as u64 - 1)?;
    sessions.push(connect(&server, env.address())?);
    drop(sessions);
    until(|| server.stats().sessions.get() == 0 && server.memory_used() == 0)?;
    said.push("fine".into());
    let rejected = server.stats().sessions_rejected.get();
    Ok(Observation::noted(said.join("; "), format!("sessions_rejected {rejected}")))
}

/// Waits for what the server does after it was asked.
pub(super) fn until(mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > Duration::from_secs(10) {
            return Err("sessions or memory are left 10 s after their hosts went".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
