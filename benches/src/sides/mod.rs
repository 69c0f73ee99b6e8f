//! The ends of all measurements.

mod awaited;
pub(crate) mod call;
pub(crate) mod capi;
mod connect;
pub(crate) mod control;
pub(crate) mod ejfat;
pub(crate) mod engine;
mod fill;
mod grpc;
mod idle;
pub(crate) mod layouts;
pub(crate) mod lb;
mod port_ping;
pub(crate) mod python;
mod rpc;
mod tcp_stream;
mod udp_ping;
pub(crate) mod udp_stream;
pub(crate) mod write;

use std::{fmt::Display, net::SocketAddr, thread};

use anyhow::{Context as _, bail};
use mrsp::builtin;
use roce_udp::free_loopback;
use serde::{Deserialize, Serialize};
use verbs::WaitMode;

use crate::side::Measure;

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wait {
    Spin,
    Block,
    /// What hosts and servers do unless told otherwise.
    Adaptive,
}

impl From<Wait> for WaitMode {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Adaptive => Self::Adaptive,
        }
    }
}

/// Where the other ends are, as far as there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) far: Option<SocketAddr>,
    pub(crate) beside: Option<SocketAddr>,
}

/// What is kept running while the process lives.
pub(crate) type Running = Box<dyn Send>;

/// Runs what an end does on a thread. `what` is its name where it tells why it ended.
fn spawn<E: Display>(
    name: &str,
    what: &'static str,
    run: impl FnOnce() -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = run() {
            eprintln!("naa: {what}: {error:#}");
        }
    })?;
    Ok(())
}

/// The end that is measured from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Far {
    Write(write::Device),
    UdpStream(udp_stream::Packets),
    TcpStream,
    /// A server of the inline and pooled functions.
    Call(Wait),
    /// A server for sessions of all layouts.
    Layouts(layouts::Ends),
    UdpPing(Wait),
    /// Answers a ping-pong that makes the same system calls as a call.
    PortPing(Wait),
    Rpc,
    /// This number of servers, each with one thread for calls.
    Servers(u32),
    /// Receives EJFAT's events.
    EventSink(ejfat::Load, ejfat::Sink),
    /// Passes their packets on.
    EventPasser(ejfat::Load, ejfat::By),
    /// A control plane of load balancers, or the bare gRPC server that it is compared with.
    Lb(lb::Server),
    /// Puts them into a worker's memory.
    Bridge(ejfat::BridgeDelivery),
    /// Pushes them by ZeroMQ.
    #[cfg(feature = "zeromq")]
    EventPusher,
}

impl Far {
    pub(crate) fn start(self) -> anyhow::Result<(SocketAddr, Running)> {
        match self {
            Self::Write(device) => write::serve(&device),
            Self::UdpStream(packets) => udp_stream::serve(packets),
            Self::TcpStream => tcp_stream::serve(),
            Self::Call(wait) => call::serve(wait),
            Self::Layouts(ends) => layouts::serve(ends),
            Self::UdpPing(wait) => udp_ping::serve(wait),
            Self::PortPing(wait) => port_ping::serve(wait),
            Self::Rpc => rpc::serve(),
            Self::Servers(count) => awaited::serve(count),
            Self::EventSink(load, sink) => ejfat::serve_sink(load, sink),
            Self::EventPasser(load, ejfat::By::Relay) => ejfat::serve_relay(load),
            Self::EventPasser(_, ejfat::By::Balancer) => ejfat::serve_balancer(None),
            Self::EventPasser(_, ejfat::By::Changing) => ejfat::serve_balancer(Some(ejfat::PERIOD)),
            Self::Lb(server) => lb::serve(server),
            Self::Bridge(delivery) => ejfat::serve_bridge(delivery),
            #[cfg(feature = "zeromq")]
            Self::EventPusher => ejfat::serve_push(),
        }
    }

    /// It takes a core also when nothing is asked of it.
    pub(crate) fn never_sleeps(&self) -> bool {
        matches!(self, Self::Call(Wait::Spin) | Self::UdpPing(Wait::Spin) | Self::PortPing(Wait::Spin))
    }
}

/// What the far end passes on to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Beside {
    Worker(ejfat::Load, ejfat::BridgeDelivery),
    #[cfg(feature = "zeromq")]
    Puller,
}

impl Beside {
    pub(crate) fn start(self, far: SocketAddr) -> anyhow::Result<(SocketAddr, Running)> {
        match self {
            Self::Worker(load, delivery) => ejfat::serve_worker(load, delivery, far),
            #[cfg(feature = "zeromq")]
            Self::Puller => ejfat::serve_pull(far),
        }
    }

    /// It shares memory with the far end, and so its cores; else it is another host, and cores are left of the near end.
    pub(crate) fn is_at_far(self) -> bool {
        matches!(self, Self::Worker(_, ejfat::BridgeDelivery::Shared))
    }
}

/// The end that measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Near {
    /// GiB/s.
    Write(write::Device),
    UdpStream(udp_stream::Packets),
    TcpStream,
    /// Microseconds of the median call.
    Call(call::Calls),
    C(capi::Calls),
    Python,
    UdpPing(Wait),
    PortPing(Wait),
    /// The time in milliseconds of this number of ping-pongs in a row, which wait asleep.
    UdpPings(u32),
    Rpc,
    /// Calls per second of so many sessions, each in a thread.
    Sessions(u32),
    /// Microseconds of the median call that is awaited.
    Awaited(Wait),
    /// Calls per second of so many sessions, each awaited by a task of one thread.
    Tasks(u32),
    /// Calls per second by gRPC, of so many tasks of one thread.
    RpcTasks(u32),
    /// Calls per second through a pool of so many servers.
    Pool(u32),
    /// Milliseconds from nothing to the end of the first call, with regions of so many bytes.
    Connect(u64),
    /// Does nothing, with so many sessions.
    Idle(u32),
    /// Per cent of a core while `naa_wait` waits.
    Blocked,
    /// The highest rate of EJFAT's events without loss.
    Events(ejfat::Load, ejfat::Figure),
    /// The same through what passes them on.
    EventsThrough(ejfat::Load, ejfat::Figure, ejfat::By),
    /// The same through a bridge, counted by its worker.
    EventsBridged(ejfat::Load, ejfat::Figure),
    /// Microseconds until an event is delivered.
    EventLatency(ejfat::Load, ejfat::Timed, ejfat::Part),
    /// Per cent of a core that the far end takes while it waits for events.
    EventWatch,
    /// MiB that a flood adds to the far end.
    EventFlood,
    /// Nanoseconds.
    Engine(engine::What),
    Control(control::What),
    /// States of workers that are answered per second.
    States {
        server: lb::Server,
        clients: u32,
    },
    /// A time in the life of a worker.
    Worker(lb::What),
    /// Has orders of its own.
    Layouts(layouts::Ends),
}

impl Near {
    /// What the process finds in its environment besides what all have: where C libraries look for what they use.
    pub(crate) fn environment(self, far: Option<SocketAddr>) -> anyhow::Result<Vec<(&'static str, String)>> {
        let function = match self {
            Self::C(_) | Self::Python => builtin::INCREMENT,
            Self::Blocked => call::SLEEP,
            _ => return Ok(Vec::new()),
        };
        let far = far.context("this measurement needs another end")?;
        Ok(vec![
            (naa_host::SPEC_VARIABLE, format!("{far}:{}:1", function.get())),
            (naa_host::LOCAL_IP_VARIABLE, free_loopback()?.to_string()),
        ])
    }

    pub(crate) fn start(self, ends: Ends) -> anyhow::Result<Box<dyn Measure>> {
        let needed = "this measurement needs another end";
        let (towards, beside) = (|| ends.far.context(needed), || ends.beside.context(needed));
        Ok(match self {
            Self::Write(device) => Box::new(write::Source::connect(&device, towards()?)?),
            Self::UdpStream(packets) => Box::new(udp_stream::Source::connect(packets, towards()?)?),
            Self::TcpStream => Box::new(tcp_stream::Source::connect(towards()?)?),
            Self::Call(calls) => Box::new(call::Caller::connect(calls, towards()?)?),
            Self::C(calls) => Box::new(capi::Caller::connect(calls, towards()?)?),
            Self::Blocked => Box::new(capi::Blocked::connect()?),
            Self::Python => Box::new(python::Caller::connect(towards()?)?),
            Self::UdpPing(wait) => Box::new(udp_ping::Caller::connect(wait, towards()?)?),
            Self::PortPing(wait) => Box::new(port_ping::Caller::bind(wait, towards()?)?),
            Self::UdpPings(count) => Box::new(udp_ping::Sequence::connect(count, towards()?)?),
            Self::Rpc => Box::new(rpc::Caller::connect(towards()?)?),
            Self::Sessions(count) => Box::new(call::ManySessions::connect(count, towards()?)?),
            Self::Awaited(wait) => Box::new(awaited::Caller::connect(wait, towards()?)?),
            Self::Tasks(count) => Box::new(awaited::Tasks::connect(count, towards()?)?),
            Self::RpcTasks(count) => Box::new(rpc::Tasks::connect(count, towards()?)?),
            Self::Pool(count) => Box::new(awaited::Pool::connect(count, towards()?)?),
            Self::Connect(bytes) => Box::new(connect::Connecting::new(bytes, towards()?)?),
            Self::Idle(count) => Box::new(idle::Idle::new(count, towards()?)?),
            Self::Events(load, figure) => Box::new(ejfat::Source::connect(load, figure, towards()?)?),
            Self::EventsThrough(load, figure, by) => {
                Box::new(ejfat::Source::through(load, figure, by, towards()?)?)
            }
            Self::EventsBridged(load, figure) => {
                Box::new(ejfat::Source::bridged(load, figure, towards()?, beside()?)?)
            }
            Self::EventLatency(load, timed, part) => {
                Box::new(ejfat::Latency::connect(load, timed, part, towards()?, beside()?)?)
            }
            Self::EventWatch => Box::new(ejfat::Watch::connect(towards()?)?),
            Self::EventFlood => Box::new(ejfat::Flood::connect(towards()?)?),
            Self::Engine(what) => Box::new(engine::Engine::new(what)?),
            Self::Control(what) => Box::new(control::Control::new(what)?),
            Self::States { server, clients } => Box::new(lb::Clients::connect(server, clients, towards()?)?),
            Self::Worker(what) => Box::new(lb::Times::connect(what, towards()?)?),
            Self::Layouts(_) => bail!("sessions of different layouts have orders of their own"),
        })
    }
}
