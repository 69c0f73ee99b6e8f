//! The share of the events that each worker got in each second.

use serde::Serialize;

use super::{fates::Judged, play::Played};

/// The events of a reservation in one second: how many each worker got or should have got, in the order of the workers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Second {
    pub(super) second: u64,
    pub(super) events: Vec<u64>,
}

impl Second {
    pub(super) fn total(&self) -> u64 {
        self.events.iter().sum()
    }
}

/// Counts the events of each second since the tick `first`.
pub(super) fn seconds(first: u64, team: &Played, judged: &[Judged]) -> Vec<Second> {
    let mut all = Vec::<Second>::new();
    for of in judged {
        let second = of.tick.saturating_sub(first) / 1_000_000;
        while all.len() as u64 <= second {
            all.push(Second { second: all.len() as u64, events: vec![0; team.workers.len()] });
        }
        if let Some(n) = of.worker {
            all[second as usize].events[n] += 1;
        }
    }
    all
}

/// The share, 0 to 1, of a worker in a range of seconds; 0 if there were no events.
pub(super) fn part(seconds: &[Second], range: std::ops::Range<u64>, worker: usize) -> f64 {
    let within = || seconds.iter().filter(|of| range.contains(&of.second));
    let (its, all) =
        (within().map(|of| of.events[worker]).sum::<u64>(), within().map(Second::total).sum::<u64>());
    its as f64 / all.max(1) as f64
}
