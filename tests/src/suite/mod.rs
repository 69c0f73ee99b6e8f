//! One suite of sessions and of the seam beneath them, for every provider on either side.
//!
//! `suite serve` is the far side and does what it is asked over a TCP connection (`control`); `suite host` runs the
//! cases against it. Each side opens its device through the provider it was told to use.

mod calls;
mod calls_regions;
mod case;
mod control;
mod ends;
mod far;
mod functions;
mod layouts;
mod leaks;
mod patience;
mod report;
mod seam;
mod stage;
mod waits;

pub use case::{Case, Set};
pub use far::serve;
pub use report::Row;
pub use stage::Options;

use stage::Stage;

/// Cases in the order in which they run.
const CASES: [&[Case]; 6] =
    [calls::CASES, calls_regions::CASES, layouts::CASES, waits::CASES, ends::CASES, patience::CASES];

/// The cases a run with these options has.
pub fn list(options: &Options) -> Vec<Case> {
    let all = CASES.iter().copied().flatten().chain(seam::CASES.iter().copied().flatten());
    all.filter(|case| options.wants(case)).copied().collect()
}

/// Runs them; `told` hears each row as soon as it is known.
///
/// # Errors
/// If the far side cannot be reached.
pub fn run(options: &Options, told: &mut dyn FnMut(&Row)) -> Result<Vec<Row>, String> {
    let mut stage = Stage::new(options)?;
    let mut rows = Vec::new();
    for case in list(options) {
        let row = report::perform(&mut stage, &case);
        told(&row);
        rows.push(row);
    }
    Ok(rows)
}
