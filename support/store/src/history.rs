//! The newest batches, for those who follow a store.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Committed, Error, Revision, Watch};

/// Batches that are kept for watches at most.
pub const MAX_HISTORY_BATCHES: usize = 4096;

/// Bytes of keys, values and [`Change`](crate::Change)s of those batches at most.
pub const MAX_HISTORY_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct History {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug)]
struct Kept {
    batches: VecDeque<Arc<Committed>>,
    bytes: usize,
    /// The revision before the first kept batch.
    oldest: Revision,
    /// The revision of the newest batch, kept or not.
    newest: Revision,
    closed: bool,
}

impl History {
    /// Nothing is kept yet, and `newest` is the revision of the store.
    pub(crate) fn new(newest: Revision) -> Self {
        let kept = Kept { batches: VecDeque::new(), bytes: 0, oldest: newest, newest, closed: false };
        Self { kept: kept.into(), changed: Condvar::new() }
    }

    pub(crate) fn add(&self, committed: Vec<Committed>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for batch in committed {
            kept.newest = batch.revision;
            kept.bytes += batch.batch.memory();
            kept.batches.push_back(Arc::new(batch));
        }
        while kept.batches.len() > MAX_HISTORY_BATCHES || kept.bytes > MAX_HISTORY_BYTES {
            let Some(batch) = kept.batches.pop_front() else { break };
            kept.bytes -= batch.batch.memory();
            kept.oldest = batch.revision;
        }
        drop(kept);
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn watch(self: &Arc<Self>, from: Revision) -> Result<HistoryWatch, Error> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).check(from)?;
        Ok(HistoryWatch { history: self.clone(), seen: from })
    }
}

impl Kept {
    fn check(&self, from: Revision) -> Result<(), Error> {
        if self.oldest <= from && from <= self.newest {
            Ok(())
        } else {
            Err(Error::CannotFollow { from, oldest: self.oldest, newest: self.newest })
        }
    }

    fn after(&self, seen: Revision) -> Option<&Arc<Committed>> {
        self.batches.get(self.batches.partition_point(|batch| batch.revision <= seen))
    }
}

/// A place in the history of a store. It keeps nothing by itself.
#[derive(Debug)]
pub(crate) struct HistoryWatch {
    history: Arc<History>,
    seen: Revision,
}

impl Watch for HistoryWatch {
    fn next(&mut self, timeout: Duration) -> Result<Option<Arc<Committed>>, Error> {
        // Without a moment that the clock can name, the wait has no end.
        let until = Instant::now().checked_add(timeout);
        let mut kept = self.history.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            kept.check(self.seen)?;
            if let Some(batch) = kept.after(self.seen) {
                self.seen = batch.revision;
                return Ok(Some(batch.clone()));
            }
            if kept.closed {
                return Err(Error::Closed);
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.history.changed.wait_timeout(kept, left);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Change, Term};

    fn committed(revision: u64, bytes: usize) -> Committed {
        let changes = vec![Change { key: vec![1], value: Some(vec![0; bytes - 1]) }];
        Committed { revision: Revision(revision), batch: Batch { term: Term(1), changes } }
    }

    #[test]
    fn a_watch_that_is_too_far_behind_is_told_so() {
        let history = Arc::new(History::new(Revision(10)));
        let mut watch = history.watch(Revision(10)).unwrap();
        for n in 0..MAX_HISTORY_BATCHES as u64 {
            history.add(vec![committed(11 + n, 1)]);
        }
        assert_eq!(watch.next(Duration::ZERO).unwrap().unwrap().revision, Revision(11));
        let largest = MAX_HISTORY_BYTES - size_of::<Change>();
        history.add(vec![committed(11 + MAX_HISTORY_BATCHES as u64, largest)]);
        let newest = Revision(11 + MAX_HISTORY_BATCHES as u64);
        let oldest = Revision(newest.0 - 1);
        assert_eq!(
            watch.next(Duration::ZERO),
            Err(Error::CannotFollow { from: Revision(11), oldest, newest })
        );
        assert!(history.watch(oldest).is_ok());
        assert!(history.watch(Revision(newest.0 + 1)).is_err(), "yet to come");
    }
}
