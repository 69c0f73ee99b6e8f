//! A case of the suite.

use super::environment::Environment;

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Bytes both ways, up to 1 MiB. Over a good network nothing is sent twice, nor refused.
    Bytes,
    /// Refusals, ends, time limits.
    Rest,
    /// 256 MiB, and 1000 connects.
    Long,
}

/// `Ok` has a note for people, empty mostly.
pub(super) type Run = fn(&mut Environment) -> Result<String, String>;

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub set: Set,
    pub(super) run: Run,
}

impl Case {
    pub(super) const fn bytes(name: &'static str, run: Run) -> Self {
        Self { name, set: Set::Bytes, run }
    }

    pub(super) const fn rest(name: &'static str, run: Run) -> Self {
        Self { name, set: Set::Rest, run }
    }

    pub(super) const fn long(name: &'static str, run: Run) -> Self {
        Self { name, set: Set::Long, run }
    }
}

/// `Err` with the words unless `holds`.
pub(super) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

/// The error in words, with what was being done.
pub(super) fn doing<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// That both are the same, or where they begin to differ.
pub(super) fn same(what: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    if found.len() != expected.len() {
        return Err(format!("{what}: {} bytes instead of {}", found.len(), expected.len()));
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
    let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    Err(format!("{what}: {wrong} of {} bytes are wrong, from byte {at} on", expected.len()))
}
