//! A sign of life on the terminal when a call takes long.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before.
const QUIET: Duration = Duration::from_millis(500);
/// How often something must happen for the sign to move.
pub(super) const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    phase: String,
    shown: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), phase: String::new(), shown: None }
    }

    pub(super) fn phase(&mut self, phase: String) {
        self.phase = phase;
        if let Some(bar) = &self.shown {
            bar.set_message(self.phase.clone());
        }
        self.tick();
    }

    pub(super) fn tick(&mut self) {
        match &self.shown {
            Some(bar) => bar.tick(),
            None if self.started.elapsed() >= QUIET && std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                // The template is a constant, so the default is never used.
                let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                bar.set_message(self.phase.clone());
                self.shown = Some(bar);
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
