//! The library's log: lines on standard error, as NAA_LOG and `ulog.h` allow.

use std::{io::IsTerminal, sync::Once};

use naa_host::LOG_VARIABLE;
use tracing::Level;
use tracing_subscriber::{EnvFilter, fmt::writer::MakeWriterExt};

use crate::ulog;

/// Warnings appear unless NAA_LOG says otherwise. From the first session, worker or server on; it does nothing in a
/// program that logs by itself, which only one in Rust can.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| "warn".into());
        let writer = std::io::stderr.with_filter(|line| ulog::is_on(level_of(*line.level())));
        let colour = std::io::stderr().is_terminal();
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(writer);
        // It would report a failed write to standard error there too, and panic when that fails.
        let log = log.log_internal_errors(false);
        // Another log is the program's own.
        let _ = log.try_init();
    });
}

/// The level of `ulog.h`.
fn level_of(level: Level) -> i32 {
    match level {
        Level::TRACE => 0,
        Level::DEBUG => 1,
        Level::INFO => 2,
        Level::WARN => 3,
        Level::ERROR => ulog::ERROR,
    }
}
