//! `ulog.h`: which log lines of a program and of this library, and which failures of NAAICE's functions, appear on
//! standard error.
//!
//! The lines themselves are written by the header: a function with a variable number of arguments is C's.

use std::{
    ffi::{CStr, c_char, c_int},
    sync::atomic::{AtomicI32, Ordering},
};

/// `ULOG_LEVEL_ERROR`.
pub(crate) const ERROR: c_int = 4;

const NAMES: [&CStr; 6] = [c"TRACE", c"DEBUG", c"INFO", c"WARN", c"ERROR", c"FATAL"];

const OK: c_int = 0;
const INVALID_ARGUMENT: c_int = -2;
const NOT_FOUND: c_int = -3;

static LEVEL: AtomicI32 = AtomicI32::new(0);

/// Whether lines of this level are written.
pub(crate) fn is_on(level: c_int) -> bool {
    level >= LEVEL.load(Ordering::Relaxed)
}

/// Whether lines of this level are written; the macros of the header ask this before they format a line.
#[unsafe(no_mangle)]
pub extern "C" fn naa_ulog_is_on(level: c_int) -> c_int {
    is_on(level).into()
}

/// Sets the lowest level whose lines are written.
#[unsafe(no_mangle)]
pub extern "C" fn ulog_output_level_set_all(level: c_int) -> c_int {
    if !(0..NAMES.len() as c_int).contains(&level) {
        return INVALID_ARGUMENT;
    }
    LEVEL.store(level, Ordering::Relaxed);
    OK
}

/// The same for the one output there is, number 0.
#[unsafe(no_mangle)]
pub extern "C" fn ulog_output_level_set(output: c_int, level: c_int) -> c_int {
    const ALL: c_int = c_int::MAX;
    if matches!(output, 0 | ALL) { ulog_output_level_set_all(level) } else { NOT_FOUND }
}

/// The name of a level.
#[unsafe(no_mangle)]
pub extern "C" fn ulog_level_to_string(level: c_int) -> *const c_char {
    usize::try_from(level).ok().and_then(|level| NAMES.get(level)).map_or(c"?", |name| name).as_ptr()
}

/// There is nothing to be cleaned up.
#[unsafe(no_mangle)]
pub extern "C" fn ulog_cleanup() -> c_int {
    OK
}
