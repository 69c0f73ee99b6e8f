//! Numbers and tables for people, and printing that survives a closed pipe.

use std::{
    io::{self, IsTerminal as _, Write},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use naa_measure::number;
pub(crate) use naa_measure::{bytes, line, rate};

/// Set by `--quiet`: only results and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line to standard error. Errors are ignored; `eprintln!` would panic if the disk is full.
pub(crate) fn error_line(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Prints a note to standard error, unless `--quiet` is given.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        error_line(text);
    }
}

/// Whether standard error is a terminal that shows progress.
pub(crate) fn shows_progress() -> bool {
    io::stderr().is_terminal() && !is_quiet()
}

/// The display of progress by a template, on standard error if it `is_shown`.
pub(crate) fn progress(len: Option<u64>, is_shown: bool, template: &str) -> ProgressBar {
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template).expect("a template");
    ProgressBar::with_draw_target(len, target).with_style(style)
}

/// The display of progress in steps.
pub(crate) fn steps(steps: usize) -> ProgressBar {
    progress(Some(steps as u64), !is_quiet(), "{bar:30} {pos}/{len} {elapsed} {wide_msg}")
}

/// How long a command waits for something before it says so.
const SOON: Duration = Duration::from_secs(1);

/// Prints what the command waits for, if the wait takes longer than a second. The wait ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(#[expect(dead_code, reason = "dropping it ends the wait")] mpsc::Sender<()>);

pub(crate) fn waiting(what: String) -> Waiting {
    let (end, ended) = mpsc::channel();
    // If no thread can be started, the wait is not reported, but everything else works.
    let _ = std::thread::Builder::new().name("naa-waiting".into()).spawn(move || {
        if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            note(&format!("naa: {what}..."));
        }
    });
    Waiting(end)
}

/// Returns a number with the name of its things, which has an s in the plural.
pub(crate) fn count(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A time with three digits.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", number(value))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Tells how many of the events that were written to files got a number because their name was taken.
pub(crate) fn numbered(events: u64) -> String {
    match events {
        0 => String::new(),
        n => format!(", {n} as NAME.2 and so on because their names were taken"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(Duration::from_nanos(12_345)), "12.3 us");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(hex(&[0, 0xaf]), "00af");
    }
}
