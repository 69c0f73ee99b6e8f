//! What a server tells people, on standard error, as far as ulog.h's level allows.

use std::{
    fmt::Display,
    io::Write,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::ulog;

/// `ULOG_LEVEL_INFO` and `ULOG_LEVEL_WARN`.
const INFO: i32 = 2;
const WARN: i32 = 3;
/// Hosts that misbehave must not make a flood of lines.
const INTERVAL: Duration = Duration::from_millis(200);

fn line(level: i32, text: &dyn Display) {
    if ulog::is_on(level) {
        // Where nobody listens nothing is said.
        let _ = writeln!(std::io::stderr(), "naa: {text}");
    }
}

/// Something that happens once.
pub(crate) fn info(text: &dyn Display) {
    line(INFO, text);
}

/// What hosts cause. Some are left out if there are too many.
pub(crate) fn warn(text: &dyn Display) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= INTERVAL) {
        *last = Some(Instant::now());
        line(WARN, text);
    }
}
