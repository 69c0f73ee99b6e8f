//! Events that ended, so that their late segments do not open them again.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::FixedState;

use super::{Cause, Key};

/// The newest complete ones and the newest others: a flood of events that never complete does not displace those that
/// did.
#[derive(Debug)]
pub(super) struct Ended {
    causes: HashMap<Key, Cause, FixedState>,
    complete: VecDeque<Key>,
    given_up: VecDeque<Key>,
    of_each: usize,
}

impl Ended {
    pub(super) fn new(of_each: u32, seed: u64) -> Self {
        let of_each = of_each as usize;
        Self {
            // Two kinds, and twice the entries: removed ones are then cleaned up in place.
            causes: HashMap::with_capacity_and_hasher(4 * of_each, FixedState::with_seed(seed)),
            complete: VecDeque::with_capacity(of_each),
            given_up: VecDeque::with_capacity(of_each),
            of_each,
        }
    }

    /// Why further segments of the event are refused: [`Cause::Duplicate`] if it was complete, else [`Cause::Late`].
    pub(super) fn insert(&mut self, key: Key, cause: Cause) {
        let list = if cause == Cause::Duplicate { &mut self.complete } else { &mut self.given_up };
        if list.len() == self.of_each
            && let Some(oldest) = list.pop_front()
        {
            self.causes.remove(&oldest);
        }
        list.push_back(key);
        self.causes.insert(key, cause);
    }

    pub(super) fn find(&self, key: &Key) -> Option<Cause> {
        self.causes.get(key).copied()
    }
}
