//! The queue of changes that wait for the store, in the order of the decisions that they come from.
//!
//! The store has one batch at a time. A batch holds all changes that waited when it was made. So the durable changes are always
//! those of the first decisions, and many requests share one sync of the disk. When a batch fails, all changes behind it fail as
//! well, because they may depend on it.

use std::collections::{BTreeMap, VecDeque};

use ejfat_control::record::Change;
use naa_store::{Batch, MAX_BATCH_BYTES, MAX_CHANGES, Term};

/// The changes of one decision, and those who wait until they are durable.
#[derive(Debug)]
struct Item<W> {
    changes: Vec<naa_store::Change>,
    waits: Vec<W>,
}

/// The queue of changes. A `W` is a caller that waits until changes are durable. It is returned when they are durable,
/// or when storing them failed.
#[derive(Debug)]
pub(crate) struct Storing<W> {
    waiting: VecDeque<Item<W>>,
    /// The callers that wait for the batch that the store has. `None` if the store has no batch.
    with_store: Option<Vec<W>>,
}

impl<W> Default for Storing<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), with_store: None }
    }
}

impl<W> Storing<W> {
    /// The number of decisions that wait. The batch that the store has counts as one.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.with_store.is_some())
    }

    /// Adds the changes of a decision behind all others. If `changes` is empty, `waits` wait for the changes that are already
    /// in the queue.
    pub(crate) fn push(&mut self, changes: &[Change], waits: impl IntoIterator<Item = W>) {
        let encoded = |change: &Change| {
            let (key, value) = change.encode();
            naa_store::Change { key, value }
        };
        self.waiting.push_back(Item {
            changes: changes.iter().map(encoded).collect(),
            waits: waits.into_iter().collect(),
        });
    }

    /// Takes the next batch for the store. Returns `None` if the store still has one or nothing waits, and `Some(None)` if
    /// those who are next wait without changes; they are returned by [`Storing::stored`].
    pub(crate) fn next(&mut self, term: Term) -> Option<Option<Batch>> {
        if self.with_store.is_some() || self.waiting.is_empty() {
            return None;
        }
        let (mut changes, mut waits, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        while let Some(item) = self.waiting.front() {
            let more: usize = item.changes.iter().map(size).sum();
            let is_full = changes.len() + item.changes.len() > MAX_CHANGES || bytes + more > MAX_BATCH_BYTES;
            if is_full && !changes.is_empty() {
                break;
            }
            let Some(item) = self.waiting.pop_front() else { break };
            bytes += more;
            // A later change of a key replaces an earlier one.
            changes.extend(item.changes.into_iter().map(|change| (change.key, change.value)));
            waits.extend(item.waits);
        }
        self.with_store = Some(waits);
        let changes: Vec<_> =
            changes.into_iter().map(|(key, value)| naa_store::Change { key, value }).collect();
        Some((!changes.is_empty()).then_some(Batch { term, changes }))
    }

    /// Takes those who waited for the batch that the store had. The batch is durable now.
    pub(crate) fn stored(&mut self) -> Vec<W> {
        self.with_store.take().unwrap_or_default()
    }

    /// Drops all changes that are not durable. Returns all who waited for them.
    pub(crate) fn failed(&mut self) -> Vec<W> {
        let with_store = self.stored();
        with_store.into_iter().chain(self.waiting.drain(..).flat_map(|item| item.waits)).collect()
    }
}

/// The bytes of a change.
fn size(change: &naa_store::Change) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use ejfat_control::record::{Counter, Record};

    use super::*;

    fn next(value: u64) -> Change {
        Change::Put(Record::Next(Counter::Session, value))
    }

    #[test]
    fn what_waits_is_one_batch_and_later_changes_of_a_key_win() {
        let mut storing = Storing::default();
        storing.push(&[next(1)], Some('a'));
        storing.push(&[next(2)], None);
        storing.push(&[], Some('b'));
        let batch = storing.next(Term(7)).flatten().expect("a batch");
        assert_eq!(batch.term, Term(7));
        assert_eq!(batch.changes, [naa_store::Change { key: next(2).encode().0, value: next(2).encode().1 }]);
        assert_eq!(storing.stored(), ['a', 'b']);
        assert_eq!(storing.len(), 0);
    }

    #[test]
    fn one_batch_is_with_the_store_at_a_time_and_all_behind_it_fail_with_it() {
        let mut storing = Storing::default();
        storing.push(&[next(1)], Some('a'));
        assert!(storing.next(Term(1)).is_some());
        storing.push(&[next(2)], Some('b'));
        assert_eq!(storing.next(Term(1)), None, "the first one is not durable yet");
        assert_eq!(storing.failed(), ['a', 'b']);
        assert_eq!(storing.next(Term(1)), None);
    }

    #[test]
    fn who_waits_for_others_only_is_told_without_a_batch() {
        let mut storing = Storing::default();
        storing.push(&[], Some('a'));
        assert_eq!(storing.next(Term(1)), Some(None));
        assert_eq!(storing.stored(), ['a']);
    }

    #[test]
    fn a_batch_keeps_to_the_limits_of_stores() {
        let mut storing = Storing::default();
        for number in 0..MAX_CHANGES as u64 + 1 {
            let entry = Change::Delete(ejfat_control::record::Key::Audit(number));
            storing.push(&[entry], Some(number));
        }
        let batch = storing.next(Term(1)).flatten().expect("a batch");
        assert_eq!((batch.changes.len(), batch.check().is_ok()), (MAX_CHANGES, true));
        assert_eq!(storing.stored().len(), MAX_CHANGES);
        assert_eq!(storing.next(Term(1)).flatten().expect("the rest").changes.len(), 1);
    }
}
