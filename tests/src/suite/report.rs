//! What became of the cases.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use serde::Serialize;

use super::{case::Case, environment::Environment};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: &'static str,
    /// "ok", or why not.
    pub result: String,
    pub note: String,
    pub seconds: f64,
}

impl Row {
    pub fn passed(&self) -> bool {
        self.result == "ok"
    }
}

impl std::fmt::Display for Row {
    /// `CASE|ok or reason|SECONDS|NOTE`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plain = |text: &str| text.replace(['|', '\n'], " ");
        write!(f, "{}|{}|{:.1}|{}", self.case, plain(&self.result), self.seconds, plain(&self.note))
    }
}

pub(super) fn perform(env: &mut Environment, case: &Case) -> Row {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (case.run)(env)));
    let result = result.unwrap_or_else(|_| Err("the case panicked; standard error has more".into()));
    // What a failed case left behind must not spoil the next.
    let result = result.or_else(|why| {
        env.reset().map_err(|error| format!("{why}; then {error}"))?;
        Err(why)
    });
    let (result, note) = match result {
        Ok(note) => ("ok".to_owned(), note),
        Err(why) => (why, String::new()),
    };
    Row { case: case.name, result, note, seconds: start.elapsed().as_secs_f64() }
}
