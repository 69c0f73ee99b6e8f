//! From results here to what NAAICE's functions return: 0, or -1 and text.

use std::{
    cell::RefCell,
    ffi::c_int,
    fmt::Display,
    io::{self, Write},
};

use super::{error::Error, host::HostContext, layout::CommContext, registry};
use crate::{boundary, ulog};

thread_local! {
    /// What was printed last, so that a loop around a failing call prints it once.
    static PRINTED: RefCell<String> = RefCell::default();
}

/// 0, or -1 with the reason as the thread's last error and, unless `ulog_output_level_set_all` says otherwise, on
/// standard error.
pub(crate) fn outcome<E: Display>(name: &'static str, f: impl FnOnce() -> Result<(), E>) -> c_int {
    let failed = |error: &String| {
        report(error);
        -1
    };
    boundary::guarded(failed, -1, || f().map(|()| 0).map_err(|error| format!("{name}: {error}")))
}

/// The same, for NAAICE's functions.
pub(crate) fn number(name: &'static str, f: impl FnOnce() -> Result<(), Error>) -> c_int {
    outcome(name, f)
}

/// The same, on the context of a host.
pub(crate) fn on_host(
    name: &'static str,
    context: *mut CommContext,
    f: impl FnOnce(&mut HostContext) -> Result<(), Error>,
) -> c_int {
    number(name, || registry::with(context, f))
}

/// On standard error, unless it was the last that this thread printed.
fn report(text: &str) {
    let is_new = PRINTED.try_with(|printed| printed.replace(text.to_owned()) != text);
    if is_new.unwrap_or(false) && ulog::is_on(ulog::ERROR) {
        // A program that closed its standard error does not get the line.
        let _ = writeln!(io::stderr(), "naa: {text}");
    }
}
