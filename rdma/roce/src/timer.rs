//! The deadlines of an endpoint: which timers a queue pair has, and which queue pair or connection is due next.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

use crate::{id_map::IdHash, time::Time};

/// The timers of one queue pair. The timers of the connection manager are in the module `cm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The retransmission timer. When it expires, the requester resends all unacknowledged packets, or only the last
    /// packet as a tail probe. The timer runs while any packet is unacknowledged, except during the pause after an RNR
    /// NAK.
    Retransmit,
    /// The timer of the pause that an RNR NAK demands. No request packet is sent until this timer ends.
    RnrPause,
}

/// The deadlines of the timers of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerTable([Option<Time>; 2]);

impl TimerTable {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    /// Stops the timer if it has expired. Returns true if the timer had expired.
    pub(crate) fn expired(&mut self, timer: Timer, now: Time) -> bool {
        self.0[timer as usize].take_if(|at| *at <= now).is_some()
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().flatten().min().copied()
    }
}

/// The next deadline of each key. An endpoint has one `Deadlines` for its queue pairs, and another one for its
/// connections.
///
/// The field `of` maps each key to its deadline. The heap has an entry for each key, and the time of the entry is never
/// later than the key's deadline. When a deadline becomes later, only the field `of` is changed, because changing the
/// heap costs more. The time of a heap entry can therefore come before the key's deadline. [`Self::pop`] then replaces
/// the entry by an entry with the time of the deadline. [`Self::next`] returns the earliest time in the heap, which may
/// be earlier than the next deadline.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<K> {
    heap: BinaryHeap<Reverse<(Time, K)>>,
    of: HashMap<K, Deadline, IdHash>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Time,
    /// The time of the key's entry in the heap, which is never later than the deadline `at`.
    entry: Time,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), of: HashMap::default() }
    }
}

impl<K: Copy + Ord + Hash> Deadlines<K> {
    /// Sets or replaces the deadline of `key`.
    pub(crate) fn set(&mut self, key: K, at: Time) {
        if let Some(deadline) = self.of.get_mut(&key)
            && deadline.entry <= at
        {
            deadline.at = at;
            return;
        }
        self.of.insert(key, Deadline { at, entry: at });
        self.heap.push(Reverse((at, key)));
        self.drop_stale();
    }

    pub(crate) fn clear(&mut self, key: K) {
        self.of.remove(&key);
        self.drop_stale();
    }

    /// Returns a time at or before the next deadline; `None` if there is no deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns a key whose deadline has come, and clears the deadline.
    pub(crate) fn pop(&mut self, now: Time) -> Option<K> {
        while let Some(&Reverse((entry, key))) = self.heap.peek()
            && entry <= now
        {
            self.heap.pop();
            let Some(deadline) = self.of.get_mut(&key).filter(|deadline| deadline.entry == entry) else {
                continue;
            };
            if deadline.at <= now {
                self.of.remove(&key);
                return Some(key);
            }
            deadline.entry = deadline.at;
            self.heap.push(Reverse((deadline.at, key)));
        }
        None
    }

    /// Removes stale entries of the heap, which belong to deadlines that were cleared or became earlier. The stale
    /// entries at the top of the heap are always removed. All stale entries are removed if the heap has many more
    /// entries than there are deadlines. If stale entries were never removed, a peer could make the heap grow without
    /// limit.
    fn drop_stale(&mut self) {
        if self.heap.len() > 2 * self.of.len() + 64 {
            self.heap.retain(|Reverse((entry, key))| self.of.get(key).is_some_and(|d| d.entry == *entry));
        }
        while let Some(Reverse((entry, key))) = self.heap.peek()
            && self.of.get(key).is_none_or(|deadline| deadline.entry != *entry)
        {
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines(of: &[(u32, u64)]) -> Deadlines<u32> {
        let mut deadlines = Deadlines::default();
        of.iter().for_each(|&(key, at)| deadlines.set(key, Time(at)));
        deadlines
    }

    #[test]
    fn keys_are_due_in_the_order_of_their_deadlines() {
        let mut deadlines = deadlines(&[(1, 30), (2, 10), (3, 20)]);
        assert_eq!((deadlines.next(), deadlines.pop(Time(9))), (Some(Time(10)), None));
        let due: Vec<_> = std::iter::from_fn(|| deadlines.pop(Time(25))).collect();
        assert_eq!((due, deadlines.next()), (vec![2, 3], Some(Time(30))));
    }

    #[test]
    fn a_later_deadline_replaces_an_earlier_one_and_the_reverse() {
        let mut deadlines = deadlines(&[(1, 10), (1, 50), (2, 50), (2, 10)]);
        assert_eq!(deadlines.pop(Time(49)), Some(2));
        assert_eq!((deadlines.pop(Time(49)), deadlines.next()), (None, Some(Time(50))));
        assert_eq!(
            (deadlines.pop(Time(50)), deadlines.pop(Time(50)), deadlines.next()),
            (Some(1), None, None)
        );
    }

    #[test]
    fn a_cleared_deadline_is_never_due() {
        let mut deadlines = deadlines(&[(1, 10), (2, 20)]);
        deadlines.clear(1);
        assert_eq!(
            (deadlines.next(), deadlines.pop(Time(99)), deadlines.pop(Time(99))),
            (Some(Time(20)), Some(2), None)
        );
    }

    #[test]
    fn deadlines_that_change_all_the_time_take_no_memory() {
        let mut deadlines = deadlines(&[(1, 1_000_000)]);
        for at in (0..100_000).rev() {
            deadlines.set(2, Time(at + 10));
            deadlines.clear(if at % 7 == 0 { 2 } else { 3 });
        }
        assert!(deadlines.heap.len() <= 2 * 2 + 64, "{}", deadlines.heap.len());
    }
}
