//! One workload: its contenders take turns.

use anyhow::{Context as _, anyhow};
use mrsp::layout::{LayoutChoice, LayoutRule};
use naa_measure::energy::Counters;
use serde::de::DeserializeOwned;

use super::{
    effort::Effort,
    point::{Point, Workload},
    samples::{Repeat, Samples},
};
use crate::{
    child::{Pair, Side},
    side,
    sides::layouts::{Opened, Order, Ran, Task},
};

/// What is the same for all workloads, and the processes that measure.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) pair: &'a mut Pair,
    pub(crate) counters: Option<&'a Counters>,
    /// The layout rule of `auto`.
    pub(crate) rule: LayoutRule,
}

/// A contender while it is measured.
struct Turn {
    choice: LayoutChoice,
    samples: Samples,
    /// Calls in a repeat.
    calls: u32,
}

impl Bench<'_> {
    /// Points of all contenders.
    ///
    /// # Errors
    /// If a session cannot be had, or loses bytes, or the processes fail: see [`Unmeasured`].
    pub(crate) fn measure(
        &mut self,
        workload: &Workload,
        contenders: &[LayoutChoice],
        effort: &Effort,
    ) -> anyhow::Result<Vec<Point>> {
        let turn = |&choice| Turn { choice, samples: Samples::default(), calls: 1 };
        let mut turns: Vec<_> = contenders.iter().map(turn).collect();
        for round in 0..effort.rounds {
            // Drift hits all alike: those that were first are last the next time.
            turns.reverse();
            self.open(workload, &mut turns)?;
            if round == 0 {
                self.find_calls(&mut turns, effort)?;
            }
            for repeat in 0..effort.repeats_in(round) {
                let mut places: Vec<_> = (0..turns.len()).collect();
                if repeat % 2 == 1 {
                    places.reverse();
                }
                for place in places {
                    let turn = &mut turns[place];
                    turn.samples.repeats.push(self.repeat(place, turn.calls)?);
                }
            }
            ask::<()>(&mut self.pair.near, Order::Close)?;
        }
        // As they were given.
        turns.sort_by_key(|turn| contenders.iter().position(|&choice| choice == turn.choice));
        let point = |turn: Turn| turn.samples.point(workload, turn.choice).context("nothing was measured");
        turns.into_iter().map(point).collect()
    }

    fn open(&mut self, workload: &Workload, turns: &mut [Turn]) -> anyhow::Result<()> {
        let layouts = turns.iter().map(|turn| turn.choice.to_string()).collect();
        let task = Task { workload: workload.clone(), layouts, rule: Some(self.rule.to_string()) };
        let opened: Vec<Opened> = ask(&mut self.pair.near, Order::Open(task))?;
        for (turn, opened) in turns.iter_mut().zip(opened) {
            turn.samples.opened.push(opened);
        }
        Ok(())
    }

    fn find_calls(&mut self, turns: &mut [Turn], effort: &Effort) -> anyhow::Result<()> {
        for (place, turn) in turns.iter_mut().enumerate() {
            let fill = Order::Fill { place, seconds: effort.seconds };
            turn.calls = ask::<u32>(&mut self.pair.near, fill)?.max(effort.least_calls);
        }
        Ok(())
    }

    fn repeat(&mut self, place: usize, calls: u32) -> anyhow::Result<Repeat> {
        let before = self.counters.and_then(Counters::read);
        if let Some(far) = &mut self.pair.far {
            far.order::<()>(side::Order::Begin)?;
        }
        let Ran { nanoseconds, cpu } = ask(&mut self.pair.near, Order::Run { place, calls })?;
        let server_cpu = match &mut self.pair.far {
            Some(far) => far.order(side::Order::End)?,
            None => 0.0,
        };
        let after = self.counters.and_then(Counters::read);
        let joules = before.zip(after).map(|(before, after)| after.joules_since(&before));
        Ok(Repeat { nanoseconds, host_cpu: cpu, server_cpu, joules })
    }
}

/// What the end that measures could not do, it says.
fn ask<T: DeserializeOwned>(near: &mut Side, order: Order) -> anyhow::Result<T> {
    near.order::<Result<T, String>>(order)?.map_err(|why| anyhow!(Unmeasured(why)))
}

/// A workload that cannot be measured, though others may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmeasured(String);

impl std::fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unmeasured {}
