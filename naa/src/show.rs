//! Numbers and tables for people, and printing that survives a closed pipe.

use std::{
    io::{self, Write},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

/// Set by `--quiet`: only results and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line to standard output.
///
/// # Errors
/// If it cannot be written; `println!` would panic when a pipe's reader is gone.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    // The kind of the error stays, so that a closed pipe can be recognised, which is no failure.
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write standard output: {error}")))
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

/// A number of bytes in binary units. It is exact if it is a multiple of a unit.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "KiB", "MiB", "GiB"])
}

/// Bytes per second in binary units.
pub(crate) fn rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 {
        return "-".into();
    }
    scaled(bytes as f64 / seconds, &["B/s", "KiB/s", "MiB/s", "GiB/s"])
}

/// A time with three digits.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{value:.*} {unit}", decimals(value))
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value.fract() == 0.0 { 0 } else { decimals(value) };
    format!("{value:.decimals$} {}", units[unit])
}

/// The number of decimals with which three digits are shown.
fn decimals(value: f64) -> usize {
    match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    }
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

/// The rows as a table, whose columns are as wide as their widest cell; the first row is the header.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
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
    fn numbers_have_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1 << 10), "1 KiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(bytes(1_234_567), "1.18 MiB");
        assert_eq!(time(Duration::from_nanos(12_345)), "12.3 us");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(rate(1 << 30, Duration::from_secs(2)), "512 MiB/s");
        assert_eq!(hex(&[0, 0xaf]), "00af");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "b"], ["long", "x"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a     b\nlong  x");
    }
}
