//! Events that ended a short time ago. An ended event is remembered so that a late segment does not open the event
//! again.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

use foldhash::quality::FixedState;

use super::{Key, SegmentDropCause};
use crate::Time;

#[derive(Clone, Copy, Debug)]
struct EventEnd {
    cause: SegmentDropCause,
    at: Time,
    tick: Option<u64>,
    /// The number of this event among all ended events, counted from 1. The lists `complete` and `given_up` contain it,
    /// too. When the oldest event is removed from a full list, its entry in `ends` is removed as well if this entry has
    /// the same number. An entry with another number belongs to a newer event with the same key, and stays.
    number: u64,
}

/// The newest complete events and the newest events that were given up. Complete events and given-up events have
/// separate lists, so that many incomplete events do not displace complete events.
#[derive(Debug)]
pub(super) struct RecentEvents {
    ends: HashMap<Key, EventEnd, FixedState>,
    complete: VecDeque<(Key, u64)>,
    given_up: VecDeque<(Key, u64)>,
    of_each: usize,
    /// The time after the end of an event during which a segment with the event's key is refused. The field `lateness`
    /// is used only if the segment or the ended event has no tick. After this time, such a segment is taken for a
    /// segment of a new event with the same key, because a restarted sender uses its event numbers again.
    lateness: Duration,
    next: u64,
}

impl RecentEvents {
    pub(super) fn new(of_each: u32, lateness: Duration, seed: u64) -> Self {
        let of_each = of_each as usize;
        Self {
            // A hash table that is at most half full can use the places of removed entries again without an allocation.
            // The capacity is therefore twice the maximum number of events in both lists together.
            ends: HashMap::with_capacity_and_hasher(4 * of_each, FixedState::with_seed(seed)),
            complete: VecDeque::with_capacity(of_each),
            given_up: VecDeque::with_capacity(of_each),
            of_each,
            lateness,
            next: 0,
        }
    }

    /// Remembers an ended event, and the cause for which later segments of this event are refused. `cause` is
    /// [`SegmentDropCause::Duplicate`] if the event was complete, and [`SegmentDropCause::Late`] if the event was given
    /// up.
    pub(super) fn insert(&mut self, key: Key, tick: Option<u64>, cause: SegmentDropCause, now: Time) {
        let list = if cause == SegmentDropCause::Duplicate { &mut self.complete } else { &mut self.given_up };
        if list.len() == self.of_each
            && let Some((oldest, number)) = list.pop_front()
            && let Entry::Occupied(end) = self.ends.entry(oldest)
            && end.get().number == number
        {
            end.remove();
        }
        self.next += 1;
        list.push_back((key, self.next));
        self.ends.insert(key, EventEnd { cause, at: now, tick, number: self.next });
    }

    /// Returns the cause for which a segment of an ended event is refused. A sender that was restarted uses its event
    /// numbers again. A segment therefore belongs to another event if its tick differs from the tick of the ended
    /// event.
    pub(super) fn find(&self, key: &Key, tick: Option<u64>, now: Time) -> Option<SegmentDropCause> {
        let end = self.ends.get(key)?;
        let same = match tick.zip(end.tick) {
            Some((tick, ended)) => tick == ended,
            None => now <= end.at + self.lateness,
        };
        same.then_some(end.cause)
    }
}
