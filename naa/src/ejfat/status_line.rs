//! A line of statistics each second on a terminal.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::show;

/// A line on standard error that is updated while the program runs. It shows nothing if standard error is no terminal.
pub(crate) struct StatusLine {
    bar: Option<ProgressBar>,
    next: Instant,
}

impl StatusLine {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && show::shows_progress()).then(|| show::progress(None, true, "{msg}"));
        Self { bar, next: Instant::now() }
    }

    pub(crate) fn update(&mut self, text: impl FnOnce() -> String) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        if now >= self.next {
            bar.set_message(text());
            bar.tick();
            self.next = now + Duration::from_secs(1);
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
