//! Shows progress on the terminal when calls take long.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar};
use naa_batch::{Interrupted, Phase};

use super::stop;
use crate::show;

/// Progress is shown only after this time.
const QUIET: Duration = Duration::from_millis(500);
/// The time between two updates of the display of many calls.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The progress display of one call.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    phase: String,
    shown: Option<ProgressBar>,
    /// There is no terminal, so a wait is reported in a line of its own.
    silent: bool,
    waiting: Option<show::Waiting>,
}

impl Progress {
    pub(super) fn start() -> Self {
        let silent = !show::shows_progress();
        Self { started: Instant::now(), phase: String::new(), shown: None, silent, waiting: None }
    }

    fn show(&mut self) {
        match &self.shown {
            Some(bar) => bar.tick(),
            None if self.started.elapsed() >= QUIET && !self.silent => {
                let bar = show::progress(None, true, "{spinner} {elapsed} {wide_msg}");
                bar.set_message(self.phase.clone());
                self.shown = Some(bar);
            }
            None => {}
        }
    }
}

impl naa_batch::Progress for Progress {
    fn phase(&mut self, phase: Phase<'_>) {
        self.phase = match phase {
            Phase::Connecting(server) => format!("connecting to {server}"),
            Phase::Reading(path) => format!("reading {}", path.display()),
            Phase::Computing(bytes) => format!("sending {} and computing", show::bytes(bytes)),
            Phase::Writing(bytes) => format!("writing {}", show::bytes(bytes)),
        };
        let waits = self.silent && matches!(phase, Phase::Connecting(_));
        self.waiting = waits.then(|| show::waiting(self.phase.clone()));
        if let Some(bar) = &self.shown {
            bar.set_message(self.phase.clone());
        }
        self.show();
    }

    fn tick(&mut self) -> Result<(), Interrupted> {
        self.show();
        stop::check()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// The progress display of many calls: files and bytes done, rate, time left.
pub(super) struct FilesProgress {
    bar: ProgressBar,
    files: usize,
    ended: usize,
}

impl FilesProgress {
    pub(super) fn new(files: usize, bytes: u64) -> Self {
        // Everything is in the message, because only the message is cut to the terminal's width.
        let bar = show::progress(Some(bytes), show::shows_progress(), "{bar:10} {wide_msg}");
        Self { bar, files, ended: 0 }
    }

    /// Updates the display: `ended` files are done, and the last one had `bytes` bytes.
    pub(super) fn advance(&mut self, bytes: u64, ended: usize) {
        self.ended = ended;
        self.bar.inc(bytes);
        self.tick();
    }

    pub(super) fn tick(&self) {
        let bytes = [self.bar.position(), self.bar.length().unwrap_or_default()];
        let text = of_files([self.ended, self.files], bytes, self.bar.per_sec() as u64, self.bar.eta());
        self.bar.set_message(text);
    }

    /// Hides the bar while `print` runs.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The text of the progress. `files` and `bytes` are those that are done, and the totals; `rate` is in bytes per
/// second.
fn of_files(files: [usize; 2], bytes: [u64; 2], rate: u64, left: Duration) -> String {
    let ([done, all], [bytes, total, rate]) = (files, [bytes[0], bytes[1], rate].map(show::bytes));
    format!("{done} of {all} files, {bytes} of {total}, {rate}/s, {:#} left", HumanDuration(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_files_fits_a_terminal() {
        const GIB: u64 = 1 << 30;
        let text = of_files([99_998, 99_999], [1022 * GIB, 1023 * GIB], GIB / 3 * 2, Duration::from_secs(59));
        assert_eq!(text, "99998 of 99999 files, 1022 GiB of 1023 GiB, 683 MiB/s, 59s left");
        // The bar ("{bar:10} ") comes before the text.
        assert!(text.len() <= 80 - 11, "{text}");
    }
}
