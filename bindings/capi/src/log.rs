//! The library's log: lines on standard error, as NAA_LOG and `ulog.h` allow.

use std::{io::IsTerminal, sync::Once};

use tracing::Level;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::writer::MakeWriterExt as _,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::ulog;

/// Warnings appear unless NAA_LOG says otherwise. From the first session, worker or server on; it does nothing in a
/// program that logs by itself, which only one in Rust can.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // A library does not end the program: a wrong filter is reported only.
        let (filter, wrong) = match naa_host::log_filter() {
            Ok(filter) => (filter, None),
            Err(error) => (None, Some(error)),
        };
        let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
        let writer = std::io::stderr.with_filter(|line| ulog::is_on(level_of(*line.level())));
        let colour = std::io::stderr().is_terminal();
        let log = tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(writer);
        // It would report a failed write to standard error there too, and panic when that fails.
        let log = log.log_internal_errors(false);
        let log = tracing_subscriber::registry().with(filter).with(log);
        // This fails if the program has set up a log of its own, which is used then.
        let started = log.try_init();
        if let (Ok(()), Some(error)) = (started, wrong) {
            tracing::warn!("{error}; until then the level is warn");
        }
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
