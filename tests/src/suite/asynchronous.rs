//! Sessions and pools of programs on tokio.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use naa_host::{
    Param, SessionConfig, U24, WaitMode,
    asynchronous::{Accelerators, PoolConfig, Repeat, Session},
};
use tokio::runtime::{Builder, Runtime};

use super::{
    calls::{copied, pattern},
    case::{Case, doing, ensure, same},
    control::{Request, ServerConfig},
    environment::Environment,
    functions::COPY,
};
use crate::{cut_off::cut_off, front::LATER};

pub(super) const CASES: &[Case] = &[
    Case::bytes("async: 16 sessions on one runtime, each way of waiting", at_once),
    Case::rest("async: an async function of the server, 1 B to 5 MiB", functions),
    Case::rest("async: 200 sessions whose futures are dropped at any poll", cut),
    Case::rest("async: a pool of a server and of a port on which nobody listens", pool),
];

const MODES: [WaitMode; 3] = [WaitMode::Block, WaitMode::Adaptive, WaitMode::Spin];

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))
}

fn user(bits: u32) -> Result<U24, String> {
    U24::new(bits).ok_or_else(|| "the user bits are 24".into())
}

/// Runs the futures as tasks of the runtime, and returns the first failure.
async fn all<F>(futures: impl IntoIterator<Item = F>) -> Result<(), String>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let tasks: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn at_once(env: &mut Environment) -> Result<String, String> {
    let (device, server, config) = (env.device()?, env.server()?, env.config());
    let one = |number: u32| {
        let (device, config) =
            (device.clone(), SessionConfig { wait: MODES[number as usize % 3], ..config.clone() });
        async move {
            let len = 1000 * number as usize;
            let params = [Param::input(len), Param::output(len)];
            let session = Session::connect(&device, server, &params, &config).await;
            let mut session = doing("connect", session)?;
            for round in 0..5 {
                let (more, input) = (number + round, pattern(100 * number + round, len));
                doing("write", session.write(0, 0, &input))?;
                doing("call", session.call_with(COPY, user(more)?).await)?;
                let output = doing("bytes", session.bytes(1, ..))?;
                same("the output", &output, &copied(&[&input], more as u8, 0, len))?;
            }
            doing("finalize", session.finalize())
        }
    };
    runtime()?.block_on(all((0..16).map(one)))?;
    Ok(String::new())
}

fn functions(env: &mut Environment) -> Result<String, String> {
    let (device, server, config) = (env.device()?, env.server()?, env.config());
    runtime()?.block_on(async {
        for len in [1, 5000, 5 << 20] {
            let session = Session::connect(&device, server, &[Param::in_out(len)], &config).await;
            let mut session = doing("connect", session)?;
            for round in 0..3 {
                let input = pattern(round, len);
                doing("write", session.write(0, 0, &input))?;
                doing("call", session.call_with(LATER, user(round)?).await)?;
                let output = doing("bytes", session.bytes(0, ..))?;
                same("the parameter", &output, &copied(&[&input], 1, 0, len))?;
            }
        }
        Ok(String::new())
    })
}

fn cut(env: &mut Environment) -> Result<String, String> {
    const SEEDS: u64 = 200;
    // Over a bad network, sessions that were left stay at the server for some seconds.
    let settings = ServerConfig { max_sessions: 256, ..ServerConfig::default() };
    let (device, server, config) = (env.device()?, env.server_with(&settings)?, env.config());
    let one = |seed| {
        let (device, config) = (device.clone(), config.clone());
        async move {
            let life =
                async move { cut_off(seed, &device, server, &config, Duration::from_millis(20)).await };
            tokio::spawn(life).await.map_err(|error| format!("seed {seed}: {error}"))
        }
    };
    runtime()?.block_on(async {
        for first in (0..SEEDS).step_by(8) {
            all((first..first + 8).map(one)).await?;
        }
        Ok::<_, String>(())
    })?;
    let end = Instant::now() + Duration::from_secs(60);
    while env.control.ask::<u64>(&Request::Sessions)? > 0 {
        ensure(Instant::now() < end, || "the server still has a session after 60 s".into())?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(String::new())
}

fn pool(env: &mut Environment) -> Result<String, String> {
    let (device, server) = (env.device()?, env.server()?);
    let nobody = SocketAddr::new(server.ip(), server.port() ^ 1);
    let config = PoolConfig { session: env.config(), sessions_per_accelerator: 3, ..PoolConfig::default() };
    let members = vec![(device.clone(), nobody), (device, server)];
    let pool = doing("pool", Accelerators::new(members, config))?;
    let one = |number: u32| {
        let pool = pool.clone();
        async move {
            let input = pattern(number, 3000);
            let params = [Param::in_out(3000).holding(&input)];
            let work = pool.run(Repeat::Never, &params, |mut session| async move {
                session.call_with(LATER, U24::ZERO).await?;
                session.to_vec(0)
            });
            same("the parameter", &doing("call", work.await)?, &copied(&[&input], 1, 0, 3000))
        }
    };
    runtime()?.block_on(all((0..20).map(one)))?;
    let counters = pool.counters();
    let [nobody, server] = &counters.accelerators[..] else { return Err(format!("{counters:?}")) };
    ensure(nobody.failed > 0 && nobody.opened == 0, || format!("{nobody:?}"))?;
    ensure(server.acquired >= 20 && (1..=3).contains(&server.opened), || format!("{server:?}"))?;
    Ok(String::new())
}
