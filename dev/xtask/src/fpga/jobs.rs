//! Long computations of one thread each, as many at a time as there are processors.

use super::Rows;
use crate::table;
use anyhow::Result;
use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

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
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            let begun = Instant::now();
            let made = (job.make)().unwrap_or_else(|error| {
                println!("{}: {error:#}", job.name);
                vec![[
                    job.name.clone(),
                    String::new(),
                    String::new(),
                    String::new(),
                    "FAILED: see above".into(),
                ]]
            });
            println!("{}: {} s", job.name, table::seconds(begun.elapsed()));
            done.push((index, made));
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let mut done = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic"));
        joined.collect::<Vec<_>>()
    });
    done.sort_by_key(|(index, _)| *index);
    rows.extend(done.into_iter().flat_map(|(_, made)| made));
}
