//! Sessions of different layouts for the same parameters, which take turns.
//!
//! | for | see |
//! |---|---|
//! | orders, and what is answered | [`Order`] |
//! | one session | `caller` |
//! | whether all bytes arrive | `check` |

mod caller;
mod check;

use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use naa_host::{Device, LayoutChoice, LayoutRule, ProviderChoice};
use naa_server::{Config, Server, default_memory, functions};
use roce_udp::free_loopback;
use serde::{Deserialize, Serialize};

use self::caller::Caller;
use super::{Running, Wait};
use crate::{cpu, layouts::point::Workload, side};

/// How both ends are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) wait: Wait,
    /// The address of the RDMA device that both ends use. `None` is the embedded provider; then each end has a loopback
    /// address of its own.
    pub(crate) address: Option<IpAddr>,
}

impl Ends {
    fn provider(self) -> ProviderChoice {
        if self.address.is_some() { ProviderChoice::Verbs } else { ProviderChoice::Embedded }
    }

    fn address(self) -> anyhow::Result<IpAddr> {
        self.address.map_or_else(|| Ok(free_loopback()?), Ok)
    }
}

/// An accelerator for as many parameters as the protocol has.
pub(super) fn serve(ends: Ends) -> anyhow::Result<(SocketAddr, Running)> {
    let mut config = Config::new(SocketAddr::new(ends.address()?, 0));
    config.wait = ends.wait.into();
    config.provider = Some(ends.provider());
    config.limits.max_regions = u8::MAX;
    config.limits.max_session_bytes = default_memory();
    let server = Server::start(config, functions::registry([check::function()])?)?;
    Ok((server.address(), Box::new(server)))
}

/// Orders to the end that measures. Each is answered with a `Result<_, String>`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Connects a session of each layout, after ending those there are. Answer: [`Opened`] of each.
    Open(Task),
    /// Calls by the session in this place until they take so many seconds. Answer: how many calls do.
    Fill { place: usize, seconds: f64 },
    /// Makes so many calls. Answer: [`Ran`].
    Run { place: usize, calls: u32 },
    /// Sees whether bytes still arrive, and ends the sessions. Answer: nothing.
    Close,
}

/// What the sessions have in common, and the layouts in which they differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) workload: Workload,
    /// The layouts as [`LayoutChoice`] prints them, in the order in which they connect.
    pub(crate) layouts: Vec<String>,
    /// The rule of `auto` as [`LayoutRule`] prints it; `None` is the provider's rule.
    pub(crate) rule: Option<String>,
}

/// A session after its first call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) setup_us: f64,
    pub(crate) first_us: f64,
    /// The layout that is used.
    pub(crate) used: String,
    pub(crate) host_registered: u64,
    pub(crate) server_registered: u64,
}

/// Calls of one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) nanoseconds: Vec<u64>,
    /// CPU seconds of this end.
    pub(crate) cpu: f64,
}

/// Obeys until standard input ends. What goes wrong is answered, so that the next workload has its turn.
pub(crate) fn measure(ends: Ends, far: Option<SocketAddr>) -> anyhow::Result<()> {
    let far = far.context("this measurement needs another end")?;
    let device = Device::open_with(ends.address()?, ends.provider())?;
    side::answer(&side::Ready { address: None })?;
    let mut host = Host { ends, far, device, callers: Vec::new() };
    side::orders(|order: Order| {
        let words = |error: anyhow::Error| format!("{error:#}");
        match order {
            Order::Open(task) => side::answer(&host.open(&task).map_err(words)),
            Order::Fill { place, seconds } => side::answer(&host.fill(place, seconds).map_err(words)),
            Order::Run { place, calls } => side::answer(&host.run(place, calls).map_err(words)),
            Order::Close => side::answer(&host.close().map_err(words)),
        }
    })
}

/// The end that measures.
#[derive(Debug)]
struct Host {
    ends: Ends,
    far: SocketAddr,
    callers: Vec<Caller>,
    // Last: the sessions are of this device.
    device: Device,
}

impl Host {
    fn open(&mut self, task: &Task) -> anyhow::Result<Vec<Opened>> {
        self.callers.clear();
        let rule = task.rule.as_deref().map(str::parse::<LayoutRule>).transpose()?;
        let mut opened = Vec::new();
        for layout in &task.layouts {
            let choice: LayoutChoice = layout.parse()?;
            let connected =
                Caller::connect(&self.device, self.far, &task.workload, choice, rule, self.ends.wait);
            let (caller, figures) = connected.with_context(|| format!("a session with layout {layout}"))?;
            self.callers.push(caller);
            opened.push(figures);
        }
        Ok(opened)
    }

    fn caller(&mut self, place: usize) -> anyhow::Result<&mut Caller> {
        self.callers.get_mut(place).context("an order about a session that is not there")
    }

    fn fill(&mut self, place: usize, seconds: f64) -> anyhow::Result<u32> {
        self.caller(place)?.fill(seconds)
    }

    fn run(&mut self, place: usize, calls: u32) -> anyhow::Result<Ran> {
        let begin = cpu::time()?;
        let nanoseconds = self.caller(place)?.run(calls)?;
        Ok(Ran { nanoseconds, cpu: cpu::time()? - begin })
    }

    fn close(&mut self) -> anyhow::Result<()> {
        // All of them, also after one that fails.
        let ended: Vec<_> = self.callers.drain(..).map(Caller::close).collect();
        ended.into_iter().collect()
    }
}
