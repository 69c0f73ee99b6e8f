//! A process that is one end of a measurement: what it is told, and what it answers. One line of JSON each.

use std::{
    io::{self, BufRead, Write},
    net::SocketAddr,
};

use anyhow::Context as _;
use nix::sys::{prctl, signal::Signal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{cpu, placement, sides};

/// `naa bench side`, of which nobody needs to know.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// A `Role` in JSON
    role: String,
    /// CPUs to stay on; none: all
    cpus: Vec<usize>,
}

/// Which end of which measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Does nothing but what the near end makes it do.
    Far(sides::Far),
    /// What the far end at that address passes on to.
    Beside(sides::Beside, SocketAddr),
    /// Measures.
    Near(sides::Near, sides::Ends),
}

/// How much to do in one repeat.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// About how long a measurement that moves bytes or counts calls takes.
    pub(crate) seconds: f64,
    /// The number of calls of a measurement that times single calls.
    pub(crate) calls: u32,
    /// How long idle sessions are watched.
    pub(crate) idle_seconds: f64,
}

impl Effort {
    pub(crate) const USUAL: Self = Self { seconds: 0.3, calls: 5000, idle_seconds: 5.0 };
    pub(crate) const QUICK: Self = Self { seconds: 0.05, calls: 500, idle_seconds: 1.0 };
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Tells the near end to do its work once, and to find the best settings. The answer is a description of the
    /// settings.
    WarmUp(Effort),
    /// Tells the near end to do its work. The answer is [`Done`].
    Run(Effort),
    /// Tells the other ends that a repeat begins. The answer is empty.
    Begin,
    /// Tells the other ends that the repeat is over. The answer is the CPU seconds since its beginning.
    End,
}

/// The first line a side prints.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) address: Option<SocketAddr>,
}

/// What the near end found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) work: Work,
    /// CPU seconds of this end.
    pub(crate) cpu: f64,
    /// What [`Measure::cpu`] returns.
    pub(crate) measured: Option<[f64; 3]>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The figure, in the measurement's unit.
    pub(crate) value: f64,
    /// How much was done: GiB, or calls.
    pub(crate) amount: f64,
}

/// The end that measures.
pub(crate) trait Measure {
    /// Settings that were found best, in words.
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        self.run(effort).map(|_| String::new())
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work>;

    /// CPU seconds per unit of work of the near end, the far end, and what the far end passes on to. `None`: those of the
    /// whole [`run`](Self::run).
    fn cpu(&self) -> Option<[f64; 3]> {
        None
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // A stopped process would not notice that its standard input has ended.
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot arrange to end with the parent")?;
    placement::stay_on(&args.cpus)?;
    let role = serde_json::from_str(&args.role).context("`naa bench` starts this by itself")?;
    match role {
        Role::Far(far) => serve(far.start()?),
        Role::Beside(beside, far) => serve(beside.start(far)?),
        Role::Near(near, ends) => measure(near, ends),
    }
}

fn serve((address, _running): (SocketAddr, sides::Running)) -> anyhow::Result<()> {
    answer(&Ready { address: Some(address) })?;
    let mut begin = cpu::time()?;
    orders(|order| match order {
        Order::End => answer(&(cpu::time()? - begin)),
        _ => {
            begin = cpu::time()?;
            answer(&())
        }
    })
}

fn measure(near: sides::Near, to: sides::Ends) -> anyhow::Result<()> {
    if let sides::Near::Layouts(ends) = near {
        return sides::layouts::measure(ends, to.far);
    }
    let mut near = near.start(to)?;
    answer(&Ready { address: None })?;
    orders(|order| match order {
        Order::WarmUp(effort) => answer(&near.warm_up(&effort)?),
        Order::Run(effort) => {
            let begin = cpu::time()?;
            let work = near.run(&effort)?;
            answer(&Done { work, cpu: cpu::time()? - begin, measured: near.cpu() })
        }
        Order::Begin | Order::End => answer(&()),
    })
}

/// Obeys until standard input ends, as it does with the process that gives the orders.
pub(crate) fn orders<T: DeserializeOwned>(
    mut obey: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for line in io::stdin().lock().lines() {
        obey(parse(&line?)?)?;
    }
    Ok(())
}

pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    serde_json::from_str(line).with_context(|| format!("not understood: {line:?}"))
}

pub(crate) fn answer<T: Serialize>(answer: &T) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}
