//! One suite of sessions and of the driver interface beneath them, for every provider on either side.
//!
//! `suite serve` is the far side and does what it is asked over a TCP connection (`control`); `suite host` runs the
//! cases against it. Each side opens its device through the provider it was told to use.

mod asynchronous;
mod calls;
mod calls_regions;
mod case;
mod control;
mod driver;
mod ends;
mod environment;
mod far;
mod functions;
mod layouts;
mod leaks;
mod report;
mod time_limits;
mod waits;

pub use case::{Case, Set};
pub use environment::RunConfig;
pub use far::serve;
pub use report::Row;

use environment::Environment;

/// Cases in the order in which they run.
const CASES: [&[Case]; 7] = [
    calls::CASES,
    calls_regions::CASES,
    layouts::CASES,
    waits::CASES,
    asynchronous::CASES,
    ends::CASES,
    time_limits::CASES,
];

/// The cases a run with these options has.
pub fn list(options: &RunConfig) -> Vec<Case> {
    let all = CASES.iter().copied().flatten().chain(driver::CASES.iter().copied().flatten());
    all.filter(|case| options.wants(case)).copied().collect()
}

/// Runs them; `on_row` gets each row as soon as it is known.
///
/// # Errors
/// If the far side cannot be reached.
pub fn run(options: &RunConfig, on_row: &mut dyn FnMut(&Row)) -> Result<Vec<Row>, String> {
    let mut env = Environment::new(options)?;
    let mut rows = Vec::new();
    for case in list(options) {
        let row = report::perform(&mut env, &case);
        on_row(&row);
        rows.push(row);
    }
    Ok(rows)
}
