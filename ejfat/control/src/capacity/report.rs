//! What a worker reports, and what two reports tell together.

use super::QUEUE;

/// A worker's report of its state (`SendState`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The part of the worker's memory for events that is in use, from 0 to 1.
    pub fill: f64,
    /// The change of the worker's weight in each second, where 1000 is the mean weight of all workers. If a worker has
    /// reported only the value 0 in the last 10 s, the controller decides the worker's share. The value is finite.
    pub control_signal: f64,
    /// True if the worker takes events.
    pub is_ready: bool,
    /// What the worker has counted since it began.
    pub counters: Counters,
}

/// What a worker has counted since it began. A worker may leave counters at 0, and begin again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of events of which at least one segment arrived.
    pub received: u64,
    /// The number of complete events, including those that were lost because the queue was full, as E2SAR counts them.
    pub reassembled: u64,
    /// The number of events that were given up before they were complete.
    pub reassembly_errors: u64,
    /// The number of complete events that were lost because the queue was full.
    pub enqueue_errors: u64,
    /// The number of events that the worker's program took from the queue.
    pub dequeued: u64,
}

impl Counters {
    /// Whether the worker counts events at all. A worker that got none yet counts nothing either.
    pub(super) fn count(&self) -> bool {
        self.dequeued > 0 || self.arrived() > 0
    }

    /// Whether none is lower than in an earlier report of the same run of the worker.
    pub(super) fn follow(&self, before: &Self) -> bool {
        self.received >= before.received
            && self.reassembled >= before.reassembled
            && self.reassembly_errors >= before.reassembly_errors
            && self.enqueue_errors >= before.enqueue_errors
            && self.dequeued >= before.dequeued
    }

    /// The events that came to the worker, complete or not; those that its program took if it does not count them.
    pub(super) fn arrived(&self) -> u64 {
        match self.came() {
            0 => self.dequeued,
            came => came,
        }
    }

    /// Whether the worker counts events that came, and not only those that its program took.
    pub(super) fn count_arrivals(&self) -> bool {
        self.came() > 0
    }

    fn came(&self) -> u64 {
        self.received.max(self.reassembled.saturating_add(self.reassembly_errors))
    }
}

/// The events that a worker's program took between two reports, of which `before` is the earlier one of the same run.
/// The size of its queue matters only where the worker does not count what its program took.
pub(super) fn dequeued(before: &Report, report: &Report) -> f64 {
    let (was, now) = (&before.counters, &report.counters);
    if now.dequeued > 0 {
        return (now.dequeued - was.dequeued) as f64;
    }
    if now.reassembled == 0 {
        return 0.0;
    }
    let queued =
        (now.reassembled - was.reassembled) as f64 - (now.enqueue_errors - was.enqueue_errors) as f64;
    queued - QUEUE * (report.fill - before.fill)
}
