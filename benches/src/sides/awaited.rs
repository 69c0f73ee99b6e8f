//! The side of naa: calls that are awaited on a runtime of tokio.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use mrsp::builtin;
use naa_host::{
    Device, Param, SessionConfig,
    asynchronous::{Accelerators, PoolConfig, Repeat, Session},
};
use naa_server::{Config, Server, functions};
use roce_udp::free_loopback;
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    Running, Wait,
    call::{BYTES, SLEEP, check, device, sleep},
    fill::latency,
    grpc::runtime,
};
use crate::side::{Effort, Measure, Work};

/// A session on a runtime of one thread.
pub(super) struct Caller {
    // The session is dropped before its runtime.
    session: Option<Session>,
    runtime: Runtime,
    calls: u64,
}

async fn open(device: &Device, far: SocketAddr, wait: Wait) -> Result<Session, naa_host::Error> {
    let config = SessionConfig { wait: wait.into(), ..SessionConfig::default() };
    Session::connect(device, far, &[Param::in_out(BYTES)], &config).await
}

impl Caller {
    pub(super) fn connect(wait: Wait, far: SocketAddr) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let session = runtime.block_on(open(&device()?, far, wait))?;
        Ok(Self { session: Some(session), runtime, calls: 0 })
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let Self { session, runtime, calls } = self;
        let session = session.as_mut().context("it was dropped")?;
        let mut times = Vec::with_capacity(effort.calls as usize);
        runtime.block_on(async {
            for _ in 0..effort.calls {
                let start = Instant::now();
                *calls += 1;
                session.call(builtin::INCREMENT).await?;
                times.push(start.elapsed().as_nanos() as u64);
            }
            anyhow::Ok(())
        })?;
        check(&session.bytes(0, ..)?, *calls)?;
        Ok(latency(&mut times))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.session.take());
    }
}

/// Sessions of one device, a task each, on a runtime of one thread.
pub(super) struct Tasks {
    sessions: Vec<(Session, u64)>,
    runtime: Runtime,
}

impl Tasks {
    pub(super) fn connect(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let sessions = runtime.block_on(async {
            let device = device()?;
            let mut sessions = Vec::new();
            for _ in 0..count {
                sessions.push((open(&device, far, Wait::Adaptive).await?, 0));
            }
            anyhow::Ok(sessions)
        })?;
        Ok(Self { sessions, runtime })
    }
}

impl Measure for Tasks {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let time = Duration::from_secs_f64(effort.seconds);
        let sessions = std::mem::take(&mut self.sessions);
        let before: u64 = sessions.iter().map(|(_, calls)| calls).sum();
        let start = Instant::now();
        self.sessions = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (mut session, mut calls) in sessions {
                tasks.spawn(async move {
                    while start.elapsed() < time {
                        calls += 1;
                        session.call(builtin::INCREMENT).await?;
                    }
                    check(&session.bytes(0, ..)?, calls)?;
                    anyhow::Ok((session, calls))
                });
            }
            tasks.join_all().await.into_iter().collect::<anyhow::Result<_>>()
        })?;
        let calls = self.sessions.iter().map(|(_, calls)| calls).sum::<u64>() - before;
        Ok(Work { value: calls as f64 / start.elapsed().as_secs_f64(), amount: calls as f64 })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        self.sessions.clear();
    }
}

/// The servers of a pool, each with one thread for calls. They are at addresses that follow each other.
pub(super) fn serve(count: u32) -> anyhow::Result<(SocketAddr, Running)> {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        let IpAddr::V4(first) = free_loopback()? else { bail!("loopback is IPv4") };
        let start = |at| -> anyhow::Result<Server> {
            let mut config = Config::new(SocketAddr::new(member(first, at), PORT));
            config.pool.pool_threads = 1;
            Ok(Server::start(config, functions::services([sleep()])?)?)
        };
        // Another process may have one of the addresses.
        if let Ok(servers) = (0..count).map(start).collect::<anyhow::Result<Vec<_>>>() {
            return Ok((SocketAddr::new(first.into(), PORT), Box::new(servers)));
        }
    }
    bail!("no {count} addresses that follow each other are free")
}

/// The port of each of the servers.
const PORT: u16 = 12345;

fn member(first: Ipv4Addr, at: u32) -> IpAddr {
    Ipv4Addr::from_bits(first.to_bits() + at).into()
}

/// Calls of a millisecond, by more tasks than the servers have threads.
pub(super) struct Pool {
    pool: Option<Accelerators>,
    runtime: Runtime,
}

impl Pool {
    const TASKS: usize = 12;
    const MICROSECONDS: u64 = 1000;

    pub(super) fn connect(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        let IpAddr::V4(first) = far.ip() else { bail!("loopback is IPv4") };
        let device = device()?;
        let members =
            (0..count).map(|at| (device.clone(), SocketAddr::new(member(first, at), far.port()))).collect();
        let pool = Accelerators::new(members, PoolConfig::default())?;
        Ok(Self { pool: Some(pool), runtime: runtime()? })
    }
}

impl Measure for Pool {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let time = Duration::from_secs_f64(effort.seconds);
        let pool = self.pool.as_ref().context("it was dropped")?;
        let start = Instant::now();
        let calls = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..Self::TASKS {
                let pool = pool.clone();
                tasks.spawn(async move {
                    let mut calls = 0_u64;
                    while start.elapsed() < time {
                        let content = Self::MICROSECONDS.to_le_bytes();
                        let params = [Param::in_out(size_of::<u64>()).holding(&content)];
                        let call = pool.run(Repeat::Never, &params, |mut session| async move {
                            session.call(SLEEP).await.map(drop)
                        });
                        call.await?;
                        calls += 1;
                    }
                    anyhow::Ok(calls)
                });
            }
            tasks.join_all().await.into_iter().sum::<anyhow::Result<u64>>()
        })?;
        Ok(Work { value: calls as f64 / start.elapsed().as_secs_f64(), amount: calls as f64 })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.pool.take());
    }
}
