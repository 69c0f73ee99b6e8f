//! How far a run is, on standard error: a bar on a terminal, lines elsewhere.

use std::time::Instant;

use super::{
    effort::{Remaining, about},
    point::Workload,
};
use crate::runner;

#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) shown: runner::Progress,
    remaining: Remaining,
    /// Workloads, those of an earlier run among them.
    done: usize,
    all: usize,
    begun: Instant,
}

impl Progress {
    /// `estimates` are of what is left to do, in seconds.
    pub(crate) fn new(estimates: &[f64], all: usize) -> Self {
        let shown = runner::Progress::new(1000, "{percent}%");
        let remaining = Remaining::of(estimates.iter().copied());
        Self { shown, remaining, done: all - estimates.len(), all, begun: Instant::now() }
    }

    pub(crate) fn begin(&mut self, workload: &Workload) {
        let place = self.done + 1;
        let left = about(self.remaining.left());
        self.shown.say(&format!("{place} of {}: {workload}; {left} left", self.all));
        self.begun = Instant::now();
    }

    pub(crate) fn end(&mut self, estimate: f64) {
        self.done += 1;
        self.remaining.done(estimate, self.begun.elapsed());
        self.shown.bar.set_position(self.remaining.permille());
    }
}
