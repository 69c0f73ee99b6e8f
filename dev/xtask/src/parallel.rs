//! Work on all processors.

use anyhow::{Result, anyhow};
use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// How many of these items are worked on at a time.
pub(crate) fn workers<I>(items: &[I]) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(items.len())
}

/// Calls `run` for each item, some at a time, and returns what it returned in the order of the items. A thread whose item
/// fails begins no other.
pub(crate) fn side_by_side<'a, I: Sync, R: Send>(
    items: &'a [I],
    run: impl Fn(&'a I) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return anyhow::Ok(results) };
            results.push((at, run(item)?));
        }
    };
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers(items)).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        anyhow::Ok(all)
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}
