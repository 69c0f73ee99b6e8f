//! Hosts that come and go, thousands of times: nothing may grow.

use std::net::IpAddr;

use naa_host::{Device, FunctionCode, Param, Session, SessionConfig};
use naa_server::{Config, Server, functions};

use super::{
    case::{Case, Observation},
    environment::Environment,
    resources_process::Held,
    resources_sessions::until,
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
/// Rounds before the first look: buffers and tables have their size then.
const WARM_UP: u32 = 300;
/// KiB that each side may grow by, whatever the number of rounds: 10 000 forgotten connections would be ten times that.
const SLACK_KIB: i64 = 768;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "sessions",
        "connects, a call, disconnects; then as many that vanish without a goodbye to the program",
        "no growth",
        &[],
        sessions,
    ),
    Case::new(
        "sessions on a device of few objects",
        "connects and disconnects with 8 queue pairs, 40 regions, 4 completion queues at the server",
        "no growth",
        &[],
        few_objects,
    ),
    Case::new("devices", "opens and closes of a host's device, with a call", "no growth", &[], devices),
];

fn round(device: &Device, env: &Environment, n: u32) -> Result<(), String> {
    let params = [Param::in_out(4096), Param::input(64), Param::internal(5000)];
    let connected = Session::connect(device, env.server(), &params, &SessionConfig::default());
    let mut session = connected.map_err(|e| format!("round {n}: {e}"))?;
    session.call(INCREMENT).map_err(|e| format!("round {n}: {e}"))?;
    if session.slice(0).map_err(|e| e.to_string())?.iter().any(|byte| *byte != 1) {
        return Err(format!("round {n} gave a wrong result"));
    }
    // Half of them leave in the midst of a call.
    if n.is_multiple_of(2) { session.finalize().map_err(|e| e.to_string()) } else { leave(session) }
}

fn leave(mut session: Session) -> Result<(), String> {
    session.invoke(INCREMENT, naa_host::U24::ZERO).map_err(|e| e.to_string())
}

fn sessions(env: &mut Environment) -> Result<Observation, String> {
    let device = Device::open(env.address()).map_err(|e| e.to_string())?;
    (0..WARM_UP).try_for_each(|n| round(&device, env, n))?;
    env.settle();
    let look = |env: &mut Environment| -> Result<_, String> {
        let sessions = env.victim.report()?.counters.get("sessions").copied();
        Ok((sessions, Held::by(env.victim.pid())?, Held::by(std::process::id())?))
    };
    let before = look(env)?;
    let rounds = env.times(500, 10_000);
    (0..rounds).try_for_each(|n| round(&device, env, n))?;
    let mut open = None;
    until(|| {
        open = env.victim.report().ok().and_then(|report| report.counters.get("sessions").copied());
        open == before.0
    })?;
    let after = look(env)?;
    after.1.check(before.1, "the server", SLACK_KIB)?;
    after.2.check(before.2, "the host", SLACK_KIB)?;
    let [server, host] = [after.1.rss_kib - before.1.rss_kib, after.2.rss_kib - before.2.rss_kib];
    Ok(Observation::noted("no growth", format!("{rounds} times, server {server:+} KiB, host {host:+} KiB")))
}

fn few_objects(env: &mut Environment) -> Result<Observation, String> {
    let mut config = Config::new((env.address(), 0).into());
    config.device.limits.max_qp = 8;
    config.device.limits.max_mr = 40;
    config.device.limits.max_cq = 4;
    let registry = functions::builtins().map_err(|e| e.to_string())?;
    let server = Server::start(config, registry).map_err(|e| e.to_string())?;
    let device = Device::open(env.address()).map_err(|e| e.to_string())?;
    let rounds = env.times(300, 3000);
    for n in 0..rounds {
        let params = [Param::in_out(64), Param::input(64)];
        let session = Session::connect(&device, server.address(), &params, &SessionConfig::default());
        let mut session = session.map_err(|e| format!("round {n}: {e}"))?;
        session.call(INCREMENT).map_err(|e| format!("round {n}: {e}"))?;
        drop(session);
        until(|| server.stats().sessions.get() == 0 && server.memory_used() == 0)?;
    }
    Ok(Observation::noted("no growth", format!("{rounds} times")))
}

fn devices(env: &mut Environment) -> Result<Observation, String> {
    let local = env.address();
    let rounds = env.times(100, 1000);
    let open = |local: IpAddr, n| -> Result<(), String> {
        let device = Device::open(local).map_err(|e| format!("round {n}: {e}"))?;
        if device.describe().contains("another holds") {
            return Err(format!("round {n}: the address is not free again: {}", device.describe()));
        }
        round(&device, env, 0)
    };
    (0..20).try_for_each(|n| open(local, n))?;
    let before = Held::by(std::process::id())?;
    (0..rounds).try_for_each(|n| open(local, n))?;
    Held::by(std::process::id())?.check(before, "the host", 4 * SLACK_KIB)?;
    Ok(Observation::noted("no growth", format!("{rounds} times")))
}
