//! A sign of life on the terminal when calls take long.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::stop::{self, Interrupted};

/// Nothing is shown before.
const QUIET: Duration = Duration::from_millis(500);
/// How often something must happen for the sign to move.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Of one call.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    phase: String,
    shown: Option<ProgressBar>,
    /// Others show what happens.
    hidden: bool,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self::new(!std::io::stderr().is_terminal())
    }

    pub(super) fn hidden() -> Self {
        Self::new(true)
    }

    fn new(hidden: bool) -> Self {
        Self { started: Instant::now(), phase: String::new(), shown: None, hidden }
    }

    pub(super) fn phase(&mut self, phase: String) {
        self.phase = phase;
        if let Some(bar) = &self.shown {
            bar.set_message(self.phase.clone());
        }
        self.show();
    }

    /// # Errors
    /// If the user has had enough.
    pub(super) fn tick(&mut self) -> Result<(), Interrupted> {
        self.show();
        stop::check()
    }

    fn show(&mut self) {
        match &self.shown {
            Some(bar) => bar.tick(),
            None if self.started.elapsed() >= QUIET && !self.hidden => {
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

/// Of many calls: files and bytes done, rate, time left.
pub(super) fn of_files(files: usize, bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    // The template is a constant, so the default is never used.
    let style = ProgressStyle::with_template(
        "{bar:25} {msg}, {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("0 of {files} files"));
    bar
}
