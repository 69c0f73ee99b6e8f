//! The senders and their counters.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use foldhash::quality::FixedState;

use super::{
    Cause, Eviction, LimitsBy, Name, Place,
    streams::{StreamStats, Streams},
};
use crate::Time;

/// The time for which a sender that completed an event keeps its entry after its last datagram.
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
    dropped: [u64; Cause::ALL.len()],
    /// The number of events of which at least one segment was accepted.
    pub opened: u64,
    /// The number of events of which all bytes arrived, without abandoned events.
    pub complete: u64,
    /// The number of events that were given up after a time-out.
    pub timed_out: u64,
    evicted: [u64; Eviction::ALL.len()],
    /// The number of events that the caller abandoned, plus the number of incomplete events that the caller released.
    pub abandoned: u64,
}

impl Counters {
    /// Returns the number of segments that were dropped for one cause.
    pub fn dropped(&self, cause: Cause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Returns the number of all dropped segments.
    pub fn dropped_of_any_cause(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the number of events that were evicted because of the limit `eviction`.
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
    pub(super) fn add(&mut self, bytes: usize, placed: &Result<Place, Cause>) {
        self.segments += 1;
        self.bytes += bytes as u64;
        match placed {
            Ok(place) => {
                self.placed_bytes += place.payload.len() as u64;
                if place.opened {
                    self.opened += 1;
                }
                if place.complete {
                    self.complete += 1;
                }
            }
            Err(cause) => self.dropped[*cause as usize] += 1,
        }
    }
}

/// The index of a sender's entry, and a generation that changes when the entry is given to another sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SourceId {
    pub(super) at: u32,
    era: u32,
}

/// The identity of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Party {
    address: IpAddr,
    /// The data id with [`LimitsBy::Stream`], or `None` with [`LimitsBy::Address`].
    data_id: Option<u16>,
}

/// The counters of one sender.
#[derive(Clone, Debug)]
pub struct SourceStats {
    /// The address of the sender, or `None` in the entry of unknown senders. The unknown senders are all senders
    /// without an entry of their own.
    pub address: Option<IpAddr>,
    /// The data id of the stream with [`LimitsBy::Stream`], or `None` with [`LimitsBy::Address`] and in the entry of
    /// unknown senders.
    pub data_id: Option<u16>,
    /// The time at which the last datagram of the sender arrived.
    pub last_heard: Time,
    /// The number of open events of the sender.
    pub open: u32,
    /// The counters of the sender's segments and events.
    pub counters: Counters,
    streams: Streams,
}

impl SourceStats {
    /// Returns the counters of each stream. Streams are counted only with [`Numbering::Consecutive`](super::Numbering).
    pub fn streams(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.streams.stats()
    }
}

/// The entry of a sender in [`Sources`]. An entry is small, because a datagram of an unknown sender may cause a search
/// of all entries.
#[derive(Clone, Debug, Default)]
struct Seat {
    party: Option<Party>,
    last_heard: Time,
    open: u32,
    /// True if an event of this sender was completed.
    proven: bool,
    era: u32,
}

impl Seat {
    /// Returns the time from which another sender may take this entry, if the current sender has no open event. A
    /// sender that completed an event keeps its entry for [`KEPT`], so that datagrams from forged addresses do not
    /// displace this sender.
    fn free_from(&self) -> Time {
        if self.proven { self.last_heard + KEPT } else { Time::default() }
    }
}

/// The entries of all senders. The first entry is for all unknown senders together.
#[derive(Debug)]
pub(super) struct Sources {
    seats: Vec<Seat>,
    tallies: Vec<(Counters, Streams)>,
    index: HashMap<Party, u32, FixedState>,
    limits_by: LimitsBy,
    most: u32,
    recent: u32,
    total: Counters,
    /// No entry can be free for a new sender before this time. [`Sources::closed`] lowers this time if an entry becomes
    /// free earlier because its sender has no open event any more.
    none_free_until: Time,
}

impl Sources {
    pub(super) fn new(limits_by: LimitsBy, most: u32, seed: u64) -> Self {
        let mut seats = Vec::with_capacity(most as usize + 1);
        let mut tallies = Vec::with_capacity(most as usize + 1);
        seats.push(Seat::default());
        tallies.push(Default::default());
        let hash = FixedState::with_seed(seed);
        let index = HashMap::with_capacity_and_hasher(2 * most as usize, hash);
        Self {
            seats,
            tallies,
            index,
            limits_by,
            most,
            recent: 0,
            total: Counters::default(),
            none_free_until: Time::default(),
        }
    }

    /// Finds the sender of a datagram. Returns the id of the unknown senders if `address` is `None`, or if the sender
    /// has no entry and no entry is free. With [`LimitsBy::Stream`], the id of the unknown senders is returned if
    /// `data_id` is `None`.
    #[inline]
    pub(super) fn find(&mut self, now: Time, address: Option<IpAddr>, data_id: Option<u16>) -> SourceId {
        let party = match (self.limits_by, address, data_id) {
            (LimitsBy::Address, Some(address), _) => Some(Party { address, data_id: None }),
            (LimitsBy::Stream, Some(address), Some(_)) => Some(Party { address, data_id }),
            (LimitsBy::Address | LimitsBy::Stream, ..) => None,
        };
        let recent = &mut self.seats[self.recent as usize];
        if recent.party == party {
            recent.last_heard = now;
            return SourceId { at: self.recent, era: recent.era };
        }
        self.recent = party.map_or(0, |party| self.known_or_new(now, party));
        let seat = &mut self.seats[self.recent as usize];
        seat.last_heard = now;
        SourceId { at: self.recent, era: seat.era }
    }

    fn known_or_new(&mut self, now: Time, party: Party) -> u32 {
        if let Some(&known) = self.index.get(&party) {
            return known;
        }
        let new = if self.seats.len() <= self.most as usize {
            self.seats.push(Seat { party: Some(party), ..Seat::default() });
            self.tallies.push(Default::default());
            self.seats.len() - 1
        } else {
            let Some(at) = self.free_seat(now) else { return 0 };
            let (counters, _) = std::mem::take(&mut self.tallies[at]);
            self.tallies[0].0.absorb(&counters);
            let era = self.seats[at].era.wrapping_add(1);
            let old =
                std::mem::replace(&mut self.seats[at], Seat { party: Some(party), era, ..Seat::default() });
            if let Some(old) = old.party {
                self.index.remove(&old);
            }
            at
        };
        self.index.insert(party, new as u32);
        new as u32
    }

    /// Finds an entry that a new sender may take. The current sender of the entry has no open event, and the time
    /// [`Seat::free_from`] has passed. This function is called for each datagram of a sender without an entry. To save
    /// time, the function searches the entries only if an entry may be free.
    fn free_seat(&mut self, now: Time) -> Option<usize> {
        if now < self.none_free_until {
            return None;
        }
        let seats = || self.seats.iter().enumerate().skip(1).filter(|(_, seat)| seat.open == 0);
        let free = seats().filter(|(_, seat)| seat.free_from() <= now);
        let found = free.min_by_key(|(_, seat)| (seat.proven, seat.last_heard)).map(|(at, _)| at);
        if found.is_none() {
            self.none_free_until = seats().map(|(_, seat)| seat.free_from()).min().unwrap_or(Time(u64::MAX));
        }
        found
    }

    #[inline(always)]
    pub(super) fn count(&mut self, source: SourceId, count: impl Fn(&mut Counters)) {
        count(&mut self.tallies[source.at as usize].0);
        count(&mut self.total);
    }

    /// Returns `source` if the sender still has its entry. If the entry was given to another sender, returns the id of
    /// the unknown senders. The counters of a sender that lost its entry were added to the counters of the unknown
    /// senders.
    pub(super) fn present(&self, source: SourceId) -> SourceId {
        let [unknown, its] = [0, source.at].map(|at| SourceId { at, era: self.seats[at as usize].era });
        if its == source { source } else { unknown }
    }

    pub(super) fn numbered(&mut self, source: SourceId, name: Name) {
        self.tallies[source.at as usize].1.event(name.data_id, name.event);
    }

    pub(super) fn opened(&mut self, source: SourceId) {
        self.seats[source.at as usize].open += 1;
    }

    pub(super) fn closed(&mut self, source: SourceId, complete: bool) {
        let seat = &mut self.seats[source.at as usize];
        seat.open -= 1;
        // Entry 0 is for all unknown senders together, so it is never marked as a sender that completed an event.
        seat.proven |= complete && source.at != 0;
        if seat.open == 0 && source.at != 0 {
            self.none_free_until = self.none_free_until.min(seat.free_from());
        }
    }

    pub(super) fn open_events(&self, source: SourceId) -> u32 {
        self.seats[source.at as usize].open
    }

    /// Returns the index of the sender with the most open events, by the rule of [`Sources::with_most`]. The chosen
    /// sender loses an open event, so that another event can be opened.
    pub(super) fn with_most_open(&self) -> u32 {
        self.with_most(self.seats.iter().map(|seat| u64::from(seat.open)))
    }

    /// Returns the index of the sender with the most bytes among the senders that are not in `asked`, by the rule of
    /// [`Sources::with_most`]. The chosen sender loses events, so that there is room for another event.
    pub(super) fn with_most_bytes(&self, bytes_of: &[u64], asked: &[u32]) -> u32 {
        let of = |(at, bytes): (u32, &u64)| if asked.contains(&at) { 0 } else { *bytes };
        self.with_most((0..).zip(bytes_of).map(of))
    }

    /// Returns the index of the sender with the largest number in `shares`, which has one number for each sender. If
    /// senders that never completed an event have more than half of the sum of all numbers, only these senders can be
    /// chosen.
    fn with_most(&self, shares: impl Iterator<Item = u64> + Clone) -> u32 {
        let shares = || self.seats.iter().zip(shares.clone());
        let all: u64 = shares().map(|(_, share)| share).sum();
        let unproven: u64 = shares().filter(|(seat, _)| !seat.proven).map(|(_, share)| share).sum();
        let unproven_only = unproven > all / 2;
        let asked = shares().enumerate().filter(|(_, (seat, _))| !(unproven_only && seat.proven));
        asked.max_by_key(|(_, (_, share))| *share).map_or(0, |(at, _)| at as u32)
    }

    pub(super) fn total(&self) -> &Counters {
        &self.total
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = SourceStats> + '_ {
        self.seats.iter().zip(&self.tallies).map(|(seat, (counters, streams))| SourceStats {
            address: seat.party.map(|party| party.address),
            data_id: seat.party.and_then(|party| party.data_id),
            last_heard: seat.last_heard,
            open: seat.open,
            counters: counters.clone(),
            streams: streams.clone(),
        })
    }
}

impl Counters {
    fn absorb(&mut self, other: &Self) {
        self.segments += other.segments;
        self.bytes += other.bytes;
        self.placed_bytes += other.placed_bytes;
        for (mine, other) in self.dropped.iter_mut().zip(other.dropped) {
            *mine += other;
        }
        self.opened += other.opened;
        self.complete += other.complete;
        self.timed_out += other.timed_out;
        for (mine, other) in self.evicted.iter_mut().zip(other.evicted) {
            *mine += other;
        }
        self.abandoned += other.abandoned;
    }
}
