//! What a server counted. Read from any thread while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a server.
#[derive(Debug, Default)]
pub struct Stats {
    /// Sessions open now.
    pub sessions: Counter,
    pub sessions_accepted: Counter,
    pub sessions_rejected: Counter,
    /// Sessions that ended by an error rather than by the host's disconnect.
    pub sessions_failed: Counter,
    pub calls: Counter,
    /// Calls answered with another code than 0.
    pub calls_failed: Counter,
    pub calls_timed_out: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}
