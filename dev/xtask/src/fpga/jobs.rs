//! Long computations of one thread each, as many at a time as there are processors.

use super::Rows;
use crate::{parallel::side_by_side, table};
use anyhow::Result;
use std::time::Instant;

/// A computation that makes rows of the table.
pub(super) struct Job<'a> {
    /// What it computes, in a few words, for the progress.
    pub(super) name: String,
    pub(super) make: Box<dyn Fn() -> Result<Rows> + Send + Sync + 'a>,
}

impl<'a> Job<'a> {
    pub(super) fn new(name: String, make: impl Fn() -> Result<Rows> + Send + Sync + 'a) -> Self {
        Self { name, make: Box::new(make) }
    }
}

/// Begins the jobs in their order, so the longest should come first, and adds their rows in the same order. An error of a job becomes a row.
pub(super) fn run(jobs: &[Job<'_>], rows: &mut Rows) {
    let done = side_by_side(jobs, |job| {
        let begun = Instant::now();
        let made = (job.make)().unwrap_or_else(|error| {
            println!("{}: {error:#}", job.name);
            vec![[job.name.as_str(), "", "", "", "FAILED: see above"].map(str::to_owned)]
        });
        println!("{}: {} s", job.name, table::seconds(begun.elapsed()));
        Ok(made)
    });
    rows.extend(done.expect("a worker does not panic").into_iter().flatten());
}
