//! How far a run is, on standard error: a bar on a terminal, lines elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    effort::{Remaining, about},
    point::Workload,
};

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    remaining: Remaining,
    /// Workloads, those of an earlier run among them.
    done: usize,
    all: usize,
    begun: Instant,
}

impl Progress {
    /// `estimates` are of what is left to do, in seconds.
    pub(crate) fn new(estimates: &[f64], all: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
        // The template is a constant, so the default is never used.
        let style = ProgressStyle::with_template("{bar:30} {percent}% {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let is_terminal = std::io::stderr().is_terminal();
        if is_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let remaining = Remaining::of(estimates.iter().copied());
        Self { bar, is_terminal, remaining, done: all - estimates.len(), all, begun: Instant::now() }
    }

    pub(crate) fn begin(&mut self, workload: &Workload) {
        let place = self.done + 1;
        let text = format!("{place} of {}: {workload}; {} left", self.all, about(self.remaining.left()));
        if !self.is_terminal {
            eprintln!("measuring {text}");
        }
        self.bar.set_message(text);
        self.begun = Instant::now();
    }

    pub(crate) fn end(&mut self, estimate: f64) {
        self.done += 1;
        self.remaining.done(estimate, self.begun.elapsed());
        self.bar.set_position(self.remaining.permille());
    }

    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
