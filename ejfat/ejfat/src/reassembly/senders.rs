//! The senders and their counters.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use foldhash::quality::FixedState;

use super::{
    CopyCommand, EventKey, Eviction, LimitsBy, SegmentDropCause,
    streams::{StreamStats, Streams},
};
use crate::Time;

/// The time for which a sender that completed an event keeps its entry in the [`SenderTable`] after its last
/// datagram.
const KEPT: Duration = Duration::from_secs(60);

/// The counters of segments and events. The number of opened events is the sum of complete, timed out, evicted,
/// abandoned and open events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of received datagrams.
    pub segments: u64,
    /// The number of bytes in the received datagrams.
    pub bytes: u64,
    /// The number of payload bytes in accepted segments.
    pub placed_bytes: u64,
    dropped: [u64; SegmentDropCause::ALL.len()],
    /// The number of events of which at least one segment was accepted.
    pub opened: u64,
    /// The number of events of which all bytes arrived and which the caller did not abandon.
    pub complete: u64,
    /// The number of events that were given up after a time-out.
    pub timed_out: u64,
    evicted: [u64; Eviction::ALL.len()],
    /// The number of events that the caller abandoned, plus the number of incomplete events that the caller released.
    pub abandoned: u64,
}

impl Counters {
    /// Returns the number of segments that were dropped for one cause.
    pub fn dropped(&self, cause: SegmentDropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Returns the number of all dropped segments.
    pub fn dropped_of_any_cause(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the number of events whose eviction was caused by one limit, which `eviction` names.
    pub fn evicted(&self, eviction: Eviction) -> u64 {
        self.evicted[eviction as usize]
    }

    /// Returns the number of all evicted events.
    pub fn evicted_for_any_reason(&self) -> u64 {
        self.evicted.iter().sum()
    }

    pub(super) fn evict(&mut self, eviction: Eviction) {
        self.evicted[eviction as usize] += 1;
    }

    #[inline(always)]
    pub(super) fn add(&mut self, bytes: usize, placed: &Result<CopyCommand, SegmentDropCause>) {
        self.segments += 1;
        self.bytes += bytes as u64;
        match placed {
            Ok(place) => {
                self.placed_bytes += place.payload.len() as u64;
                self.opened += u64::from(place.opened);
                self.complete += u64::from(place.complete);
            }
            Err(cause) => self.dropped[*cause as usize] += 1,
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.segments += other.segments;
        self.bytes += other.bytes;
        self.placed_bytes += other.placed_bytes;
        self.dropped.iter_mut().zip(other.dropped).for_each(|(mine, other)| *mine += other);
        self.opened += other.opened;
        self.complete += other.complete;
        self.timed_out += other.timed_out;
        self.evicted.iter_mut().zip(other.evicted).for_each(|(mine, other)| *mine += other);
        self.abandoned += other.abandoned;
    }
}

/// The index of a sender's entry in the [`SenderTable`], and a generation that changes when the entry is
/// given to another sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SenderId {
    pub(super) at: u32,
    generation: u32,
}

/// The address by which senders are told apart, together with the data id if limits are by stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SenderIdentity {
    address: IpAddr,
    /// The data id of the stream if limits are by stream ([`LimitsBy::Stream`]), or `None` if limits are by address
    /// ([`LimitsBy::Address`]).
    data_id: Option<u16>,
}

/// The counters of one sender.
#[derive(Clone, Debug)]
pub struct SenderCounters {
    /// The address of the sender, or `None` if these are the common counters of all unknown senders. An
    /// unknown sender is a sender without counters of its own.
    pub address: Option<IpAddr>,
    /// The data id of the stream if limits are by stream ([`LimitsBy::Stream`]). If limits are by address
    /// ([`LimitsBy::Address`]), and in the common counters of all unknown senders, the data id is `None`.
    pub data_id: Option<u16>,
    /// The time at which the last datagram of the sender arrived.
    pub last_received: Time,
    /// The number of open events of the sender.
    pub open: u32,
    /// The counters of the sender's segments and events.
    pub counters: Counters,
    streams: Streams,
}

impl SenderCounters {
    /// Returns the counters of each stream. Counters of streams are kept only with
    /// [`Numbering::Consecutive`](super::Numbering).
    pub fn streams(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.streams.stats()
    }
}

/// The entry of a sender in [`SenderTable`], without the sender's counters. A datagram of an unknown sender can cause a
/// search of all entries. Entries are small, so that this search takes little time.
#[derive(Clone, Debug, Default)]
struct SenderState {
    identity: Option<SenderIdentity>,
    last_received: Time,
    open: u32,
    /// True if an event of this sender was completed.
    proven: bool,
    generation: u32,
}

impl SenderState {
    /// Returns the time from which another sender may take this entry. The entry can be taken only if the current
    /// sender has no open event. A sender that completed an event keeps its entry for [`KEPT`], so that datagrams from
    /// forged addresses do not displace this sender.
    fn free_from(&self) -> Time {
        if self.proven { self.last_received + KEPT } else { Time::default() }
    }
}

/// The entries of all senders. The first entry is for all unknown senders together.
#[derive(Debug)]
pub(super) struct SenderTable {
    entries: Vec<SenderState>,
    counters: Vec<(Counters, Streams)>,
    index: HashMap<SenderIdentity, u32, FixedState>,
    limits_by: LimitsBy,
    most: u32,
    recent: u32,
    total: Counters,
    /// No entry can be free for a new sender before this time. [`SenderTable::closed`] lowers this time if an entry
    /// becomes free earlier because its sender has no open event any more.
    none_free_until: Time,
}

impl SenderTable {
    pub(super) fn new(limits_by: LimitsBy, most: u32, seed: u64) -> Self {
        let mut entries = Vec::with_capacity(most as usize + 1);
        let mut counters = Vec::with_capacity(most as usize + 1);
        entries.push(SenderState::default());
        counters.push(Default::default());
        let hash = FixedState::with_seed(seed);
        let index = HashMap::with_capacity_and_hasher(2 * most as usize, hash);
        Self {
            entries,
            counters,
            index,
            limits_by,
            most,
            recent: 0,
            total: Counters::default(),
            none_free_until: Time::default(),
        }
    }

    /// Finds the sender of a datagram. Returns the common id of all unknown senders if `address` is `None`, or if the
    /// sender has no entry and no entry is free. If limits are by stream ([`LimitsBy::Stream`]), this id is also
    /// returned if `data_id` is `None`.
    #[inline]
    pub(super) fn find(&mut self, now: Time, address: Option<IpAddr>, data_id: Option<u16>) -> SenderId {
        let identity = match (self.limits_by, address, data_id) {
            (LimitsBy::Address, Some(address), _) => Some(SenderIdentity { address, data_id: None }),
            (LimitsBy::Stream, Some(address), Some(_)) => Some(SenderIdentity { address, data_id }),
            (LimitsBy::Address | LimitsBy::Stream, ..) => None,
        };
        let recent = &mut self.entries[self.recent as usize];
        if recent.identity == identity {
            recent.last_received = now;
            return SenderId { at: self.recent, generation: recent.generation };
        }
        self.recent = identity.map_or(0, |identity| self.known_or_new(now, identity));
        let entry = &mut self.entries[self.recent as usize];
        entry.last_received = now;
        SenderId { at: self.recent, generation: entry.generation }
    }

    fn known_or_new(&mut self, now: Time, identity: SenderIdentity) -> u32 {
        if let Some(&known) = self.index.get(&identity) {
            return known;
        }
        let new = if self.entries.len() <= self.most as usize {
            self.entries.push(SenderState { identity: Some(identity), ..SenderState::default() });
            self.counters.push(Default::default());
            self.entries.len() - 1
        } else {
            let Some(at) = self.free_entry(now) else { return 0 };
            let (counters, _) = std::mem::take(&mut self.counters[at]);
            self.counters[0].0.absorb(&counters);
            let generation = self.entries[at].generation.wrapping_add(1);
            let fresh = SenderState { identity: Some(identity), generation, ..SenderState::default() };
            let old = std::mem::replace(&mut self.entries[at], fresh);
            if let Some(old) = old.identity {
                self.index.remove(&old);
            }
            at
        };
        self.index.insert(identity, new as u32);
        new as u32
    }

    /// Finds an entry that a new sender may take: its current sender has no open event, and the time
    /// [`SenderState::free_from`] has come. While no entry is free, each datagram of a sender without an entry causes a
    /// call of this function. To save time, the function searches the entries only from the time `none_free_until` on.
    fn free_entry(&mut self, now: Time) -> Option<usize> {
        if now < self.none_free_until {
            return None;
        }
        let entries = || self.entries.iter().enumerate().skip(1).filter(|(_, entry)| entry.open == 0);
        let free = entries().filter(|(_, entry)| entry.free_from() <= now);
        let found = free.min_by_key(|(_, entry)| (entry.proven, entry.last_received)).map(|(at, _)| at);
        if found.is_none() {
            self.none_free_until =
                entries().map(|(_, entry)| entry.free_from()).min().unwrap_or(Time(u64::MAX));
        }
        found
    }

    #[inline(always)]
    pub(super) fn count(&mut self, sender: SenderId, count: impl Fn(&mut Counters)) {
        count(&mut self.counters[sender.at as usize].0);
        count(&mut self.total);
    }

    /// Returns `sender` if the sender still has its entry. If the entry was given to another sender, the counters of
    /// `sender` were added to the common counters of all unknown senders. The function then returns the common id of
    /// the unknown senders.
    pub(super) fn present(&self, sender: SenderId) -> SenderId {
        let id = |at: u32| SenderId { at, generation: self.entries[at as usize].generation };
        let [unknown, its] = [0, sender.at].map(id);
        if its == sender { sender } else { unknown }
    }

    pub(super) fn numbered(&mut self, sender: SenderId, name: EventKey) {
        self.counters[sender.at as usize].1.event(name.data_id, name.event);
    }

    pub(super) fn opened(&mut self, sender: SenderId) {
        self.entries[sender.at as usize].open += 1;
    }

    pub(super) fn closed(&mut self, sender: SenderId, complete: bool) {
        let entry = &mut self.entries[sender.at as usize];
        entry.open -= 1;
        // Entry 0 is for all unknown senders together, so it is never marked as a sender that completed an event.
        entry.proven |= complete && sender.at != 0;
        if entry.open == 0 && sender.at != 0 {
            self.none_free_until = self.none_free_until.min(entry.free_from());
        }
    }

    pub(super) fn open_events(&self, sender: SenderId) -> u32 {
        self.entries[sender.at as usize].open
    }

    /// Returns the index of the sender with the most open events, which [`SenderTable::with_most`] chooses among all
    /// senders or only among those that never completed an event. The chosen sender loses an open event, so that
    /// another event can be opened.
    pub(super) fn with_most_open(&self) -> u32 {
        self.with_most(self.entries.iter().map(|entry| u64::from(entry.open)))
    }

    /// Returns the index of the sender with the most bytes, which [`SenderTable::with_most`] chooses among all senders
    /// or only among those that never completed an event. `bytes_of` has one number for each sender: the bytes that the
    /// sender's events take up. The chosen sender loses events, so that there is room for another event. The list
    /// `asked` contains the senders that were already chosen to lose events. They count as senders without bytes, so
    /// that another sender is chosen.
    pub(super) fn with_most_bytes(&self, bytes_of: &[u64], asked: &[u32]) -> u32 {
        let of = |(at, bytes): (u32, &u64)| if asked.contains(&at) { 0 } else { *bytes };
        self.with_most((0..).zip(bytes_of).map(of))
    }

    /// Returns the index of the sender with the largest number in `shares`, which has one number for each sender. The
    /// function adds up the numbers of the senders that never completed an event. If this sum is more than half of the
    /// sum of all numbers, the function chooses only among these senders.
    fn with_most(&self, shares: impl Iterator<Item = u64> + Clone) -> u32 {
        let shares = || self.entries.iter().zip(shares.clone());
        let all: u64 = shares().map(|(_, share)| share).sum();
        let unproven: u64 = shares().filter(|(entry, _)| !entry.proven).map(|(_, share)| share).sum();
        let unproven_only = unproven > all / 2;
        let asked = shares().enumerate().filter(|(_, (entry, _))| !(unproven_only && entry.proven));
        asked.max_by_key(|(_, (_, share))| *share).map_or(0, |(at, _)| at as u32)
    }

    pub(super) fn total(&self) -> &Counters {
        &self.total
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = SenderCounters> + '_ {
        self.entries.iter().zip(&self.counters).map(|(entry, (counters, streams))| SenderCounters {
            address: entry.identity.map(|identity| identity.address),
            data_id: entry.identity.and_then(|identity| identity.data_id),
            last_received: entry.last_received,
            open: entry.open,
            counters: counters.clone(),
            streams: streams.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up() {
        let mut dropped = Counters::default().dropped;
        dropped.fill(3);
        let one = Counters { segments: 2, bytes: 30, opened: 4, complete: 5, dropped, ..Counters::default() };
        let mut all = one.clone();
        all.absorb(&one);
        assert_eq!((all.segments, all.bytes, all.opened, all.complete), (4, 60, 8, 10));
        assert_eq!(all.dropped_of_any_cause(), 6 * dropped.len() as u64);
    }
}
