//! Tests a provider with a server and a host in this process. The results of the calls are compared.

use std::{
    net::{IpAddr, SocketAddr},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mrsp::builtin::INCREMENT;
use naa_host::{CallTimeout, Device, Param, ProviderChoice, Session, SessionConfig};
use naa_server::{Config, Server, functions};
use serde::Serialize;

/// The length of the one in-out region of the calls, and the number of calls.
const CALLS: [(usize, u32); 2] = [(64, 50), (1 << 20, 10)];
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The result of the self-test of a provider.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// Whether all results were right.
    pub ok: bool,
    /// The address of the server.
    pub address: IpAddr,
    /// The number of calls that were made; each result was compared.
    pub calls: u32,
    /// The time of the whole test: starting a server, connecting, calling, ending.
    pub microseconds: u64,
    /// The calls by the size of their region; empty if the test failed.
    pub sizes: Vec<Size>,
    /// The error, if the test failed.
    pub error: Option<String>,
}

/// The calls with regions of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// The length of the region.
    pub bytes: usize,
    /// The number of calls.
    pub calls: u32,
    /// The median of the times of the calls.
    pub median_microseconds: f64,
}

pub(crate) fn run(address: IpAddr, choice: ProviderChoice) -> SelfTest {
    let start = Instant::now();
    let (done, result) = mpsc::channel();
    // If the thread hangs, nobody waits for it, and it ends with the process.
    let tested = thread::Builder::new().name("self-test".into()).spawn(move || {
        // Sending fails if nobody waits any more.
        let _ = done.send(session(address, choice));
    });
    let sizes = match tested {
        Err(error) => Err(format!("no thread for it: {error}; raise `ulimit -u`")),
        Ok(_) => match result.recv_timeout(TIME_LIMIT) {
            Ok(result) => result.map_err(|error| verbs::error_text(error.as_ref())),
            Err(_) => Err(format!("it did not end within {TIME_LIMIT:?}")),
        },
    };
    let microseconds = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (sizes, error) = match sizes {
        Ok(sizes) => (sizes, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let calls = sizes.iter().map(|size| size.calls).sum();
    SelfTest { ok: error.is_none(), address, calls, microseconds, sizes, error }
}

fn session(address: IpAddr, choice: ProviderChoice) -> anyhow::Result<Vec<Size>> {
    let mut config = Config::new(SocketAddr::new(address, 0));
    config.provider = Some(choice);
    config.pool.pool_threads = 1;
    config.max_sessions = CALLS.len();
    let server = Server::start(config, functions::builtins()?)?;
    let device = Device::open_with(address, choice)?;
    let sizes = CALLS.iter().map(|&(bytes, calls)| size(&device, server.address(), bytes, calls));
    let sizes = sizes.collect::<anyhow::Result<Vec<_>>>()?;
    server.shutdown(Duration::from_secs(1));
    Ok(sizes)
}

fn size(device: &Device, server: SocketAddr, bytes: usize, calls: u32) -> anyhow::Result<Size> {
    let input: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    let params = [Param::in_out(bytes).holding(&input)];
    // NAA_TIMEOUT is for calls of programs; the self-test has its own limits.
    let (setup_timeout, call_timeout) = (Duration::from_secs(5), CallTimeout::Never);
    let config = SessionConfig { setup_timeout, call_timeout, ..SessionConfig::default() };
    let mut session = Session::connect(device, server, &params, &config)?;
    let mut times = Vec::new();
    // The region holds the result of the call before.
    for call in 1..=calls {
        let start = Instant::now();
        session.invoke(INCREMENT, mrsp::U24::ZERO)?;
        let outcome = session.wait_timeout(Duration::from_secs(5))?;
        times.push(start.elapsed());
        let outcome = outcome.context("a call was not answered within 5 s")?;
        let _ = outcome.into_result()?;
        let right =
            session.bytes(0, ..)?.iter().zip(&input).all(|(now, then)| *now == then.wrapping_add(call as u8));
        ensure!(right, "call {call} with {bytes} bytes had a wrong result");
    }
    session.finalize()?;
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    Ok(Size { bytes, calls, median_microseconds: (median * 10.0).round() / 10.0 })
}
