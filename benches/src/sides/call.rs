//! The side of naa: calls of a function through sessions.

use std::{
    net::SocketAddr,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mrsp::{
    FunctionCode, builtin,
    catalogue::{Direction, ParamInfo, ParamKind},
};
use naa_host::{Device, Param, Session, SessionConfig};
use naa_server::{
    Config, Server,
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
    functions::{self, naaice::increment},
};
use roce_udp::free_loopback;
use serde::{Deserialize, Serialize};

use super::{Running, Wait, fill::latency};
use crate::side::{Effort, Measure, Work};

/// The length of the one region of a call, which is sent and received.
pub(crate) const BYTES: usize = 64;
/// Functions of these measurements, besides those that every server has.
const POOLED: FunctionCode = FunctionCode::constant(100);
pub(super) const TOUCH: FunctionCode = FunctionCode::constant(101);
pub(super) const SLEEP: FunctionCode = FunctionCode::constant(102);

/// A function of these measurements on one region.
fn info(code: FunctionCode, name: &str, pooled: bool, description: &str) -> FunctionInfo {
    let parameter = ParamInfo {
        direction: Direction::InOut,
        kind: ParamKind::Bytes,
        name: "data".into(),
        description: "any bytes".into(),
    };
    let (name, description, parameters) = (name.into(), description.into(), vec![parameter]);
    FunctionInfo { code, name, description, pooled, parameters }
}

/// Changes the first bytes of the first output, which are its result.
#[derive(Debug)]
struct Own {
    info: FunctionInfo,
    bytes: usize,
}

impl Own {
    fn shared(code: FunctionCode, name: &str, pooled: bool, bytes: usize) -> Arc<dyn Function> {
        Arc::new(Self { info: info(code, name, pooled, "adds 1 to the first bytes"), bytes })
    }
}

impl Function for Own {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let too_small = CallFailure::OutputTooSmall { output: 0, needed: Some(self.bytes as u64) };
        let output = call
            .parts()
            .take_output(0)
            .and_then(|bytes| bytes.get_mut(..self.bytes).map(|part| increment(1, part)));
        output.ok_or(too_small)?;
        call.set_produced(0, self.bytes);
        Ok(())
    }
}

/// Takes as many microseconds as its first 8 bytes say, and changes nothing.
#[derive(Debug)]
struct Sleep(FunctionInfo);

impl Function for Sleep {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let bytes = call.parts().take_output(0).and_then(|bytes| bytes.first_chunk().copied());
        let too_small = CallFailure::OutputTooSmall { output: 0, needed: Some(size_of::<u64>() as u64) };
        thread::sleep(Duration::from_micros(u64::from_le_bytes(bytes.ok_or(too_small)?)));
        call.set_produced(0, size_of::<u64>());
        Ok(())
    }
}

/// The function that takes as many microseconds as its first 8 bytes say.
pub(super) fn sleep() -> Arc<dyn Function> {
    Arc::new(Sleep(info(SLEEP, "bench-sleep", true, "takes as many microseconds as are in it")))
}

/// An accelerator with as many sessions of one host as there may be at all.
pub(super) fn serve(wait: Wait) -> anyhow::Result<(SocketAddr, Running)> {
    let mut config = Config::new(SocketAddr::new(free_loopback()?, 0));
    config.wait = wait.into();
    config.max_sessions_per_peer = config.max_sessions;
    let own = [
        Own::shared(POOLED, "bench-pooled", true, BYTES),
        Own::shared(TOUCH, "bench-touch", false, 1),
        sleep(),
    ];
    let server = Server::start(config, functions::registry(own)?)?;
    Ok((server.address(), Box::new(server)))
}

/// A device on an address of its own.
pub(super) fn device() -> anyhow::Result<Device> {
    Ok(Device::open(free_loopback()?)?)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) wait: Wait,
    /// Whether calls run on pool threads; otherwise the server loop executes them.
    pub(crate) pooled: bool,
}

/// A session and how many calls it has made.
#[derive(Debug)]
pub(super) struct Caller {
    session: Session,
    function: FunctionCode,
    calls: u64,
}

impl Caller {
    pub(super) fn connect(calls: Calls, far: SocketAddr) -> anyhow::Result<Self> {
        let function = if calls.pooled { POOLED } else { builtin::INCREMENT };
        Self::new(&device()?, far, function, calls.wait)
    }

    fn new(device: &Device, far: SocketAddr, function: FunctionCode, wait: Wait) -> anyhow::Result<Self> {
        let config = SessionConfig { wait: wait.into(), ..SessionConfig::default() };
        let session = Session::connect(device, far, &[Param::in_out(BYTES)], &config)?;
        Ok(Self { session, function, calls: 0 })
    }

    fn call(&mut self) -> anyhow::Result<()> {
        self.calls += 1;
        Ok(self.session.call(self.function)?)
    }

    fn check(&self) -> anyhow::Result<()> {
        check(&self.session.bytes(0, ..)?, self.calls)
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let work = time_calls(effort.calls, || self.call())?;
        self.check()?;
        Ok(work)
    }
}

pub(super) fn time_calls(calls: u32, call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Work> {
    Ok(latency(&mut times(calls, call)?))
}

/// Nanoseconds of each call.
pub(super) fn times(calls: u32, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<u64>> {
    let mut times = Vec::with_capacity(calls as usize);
    for _ in 0..calls {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Each call has added 1 to each byte.
pub(super) fn check(data: &[u8], calls: u64) -> anyhow::Result<()> {
    ensure!(data == [(calls % 256) as u8; BYTES], "wrong result after {calls} calls");
    Ok(())
}

/// Sessions of one device, a thread each.
#[derive(Debug)]
pub(super) struct ManySessions(Vec<Caller>);

impl ManySessions {
    pub(super) fn connect(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        let device = device()?;
        let caller = |_| Caller::new(&device, far, builtin::INCREMENT, Wait::Adaptive);
        Ok(Self((0..count).map(caller).collect::<Result<_, _>>()?))
    }
}

impl Measure for ManySessions {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let time = Duration::from_secs_f64(effort.seconds);
        let start = Barrier::new(self.0.len());
        let (calls, seconds) = thread::scope(|scope| {
            let threads: Vec<_> =
                self.0.iter_mut().map(|caller| scope.spawn(|| call_for(caller, &start, time))).collect();
            let ended = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
            ended.collect::<anyhow::Result<Vec<_>>>()
        })?
        .into_iter()
        .fold((0, 0.0_f64), |(calls, most), (n, seconds)| (calls + n, most.max(seconds)));
        Ok(Work { value: calls as f64 / seconds, amount: calls as f64 })
    }
}

/// Calls made, and seconds it took.
fn call_for(caller: &mut Caller, start: &Barrier, time: Duration) -> anyhow::Result<(u64, f64)> {
    start.wait();
    let (start, before) = (Instant::now(), caller.calls);
    while start.elapsed() < time {
        caller.call()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    caller.check()?;
    Ok((caller.calls - before, seconds))
}
