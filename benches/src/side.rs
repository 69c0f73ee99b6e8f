//! A process that is one end of a measurement. An order to it and its answer are a line of JSON each.

use std::{
    io::{self, BufRead, Write},
    net::SocketAddr,
};

use anyhow::Context as _;
use nix::sys::{prctl, signal::Signal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{cpu, placement, sides};

/// The options of the hidden command `naa bench side`, by which `naa bench` starts the ends of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// A `Role` in JSON
    role: String,
    /// CPUs to stay on; none: all
    cpus: Vec<usize>,
}

/// The end that a process is, and the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// The far end answers the near end.
    Far(sides::Far),
    /// The third process, to which the far end with this address passes on.
    Beside(sides::Beside, SocketAddr),
    /// The near end measures.
    Near(sides::Near, sides::Ends),
}

/// The amount of work in one repeat.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// The approximate duration of a measurement that moves bytes or counts calls.
    pub(crate) seconds: f64,
    /// The number of calls of a measurement that times single calls.
    pub(crate) calls: u32,
    /// The duration for which idle sessions are watched.
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

/// The first line that a process prints.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) address: Option<SocketAddr>,
}

/// The result of the near end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) work: Work,
    /// The CPU seconds of this end.
    pub(crate) cpu: f64,
    /// The value that [`Measure::cpu`] returns.
    pub(crate) measured: Option<[f64; 3]>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The figure, in the measurement's unit.
    pub(crate) value: f64,
    /// The work that was done, in GiB or calls.
    pub(crate) amount: f64,
}

/// The end that measures.
pub(crate) trait Measure {
    /// Finds the best settings, and describes them in words.
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        self.run(effort).map(|_| String::new())
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work>;

    /// Returns the CPU seconds per unit of work of the near end, of the far end, and of the process to which the far end passes on. If
    /// the result is `None`, the CPU seconds of the whole [`run`](Self::run) count.
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

/// Handles each order from standard input with `obey`. Standard input ends when the process that gives the orders ends, and
/// then this function returns.
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
