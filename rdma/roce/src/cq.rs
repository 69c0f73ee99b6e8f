//! The completion queues of a device.

use std::collections::VecDeque;

use verbs::Wc;

/// A bounded queue of completions. If the queue is full, a new completion is lost, and the queue pair of the lost
/// completion fails.
#[derive(Debug)]
pub(crate) struct CqEntry {
    depth: usize,
    entries: VecDeque<Wc>,
}

impl CqEntry {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: depth as usize, entries: VecDeque::with_capacity(depth.min(1024) as usize) }
    }

    #[must_use]
    pub(crate) fn push(&mut self, wc: Wc) -> bool {
        let fits = self.entries.len() < self.depth;
        if fits {
            self.entries.push_back(wc);
        }
        fits
    }

    pub(crate) fn poll(&mut self, out: &mut [Wc]) -> usize {
        let n = out.len().min(self.entries.len());
        for (slot, wc) in out.iter_mut().zip(self.entries.drain(..n)) {
            *slot = wc;
        }
        n
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
