//! Senders, and what is counted for each.

use std::{collections::HashMap, net::IpAddr};

use foldhash::quality::FixedState;

use super::{
    Cause, Name, Place,
    streams::{StreamStats, Streams},
};
use crate::Time;

/// What happened to segments and events. Events opened = complete + timed out + evicted + abandoned + open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams, and their bytes.
    pub segments: u64,
    pub bytes: u64,
    /// Payload of events.
    pub placed_bytes: u64,
    dropped: [u64; Cause::ALL.len()],
    pub opened: u64,
    pub complete: u64,
    /// No segment came for long.
    pub timed_out: u64,
    /// They made room.
    pub evicted: u64,
    /// The caller released them before they were complete.
    pub abandoned: u64,
}

impl Counters {
    pub fn dropped(&self, cause: Cause) -> u64 {
        self.dropped[cause as usize]
    }

    pub fn dropped_of_any_cause(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(super) fn add(&mut self, bytes: usize, placed: &Result<Place, Cause>) {
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
}

/// A sender's place in the table, and which one has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SourceId {
    pub(super) at: u32,
    era: u32,
}

/// One sender's.
#[derive(Clone, Debug)]
pub struct SourceStats {
    /// `None`: of senders not known, and of those that the table had no place for.
    pub address: Option<IpAddr>,
    pub last_heard: Time,
    pub open: u32,
    pub counters: Counters,
    streams: Streams,
    era: u32,
}

impl SourceStats {
    /// What is missing of each stream, with [`Numbering::Consecutive`](super::Numbering) only.
    pub fn streams(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.streams.stats()
    }
}

/// All of them; the first is that of unknown ones.
#[derive(Debug)]
pub(super) struct Sources {
    list: Vec<SourceStats>,
    index: HashMap<IpAddr, u32, FixedState>,
    most: u32,
    recent: u32,
    total: Counters,
}

impl Sources {
    pub(super) fn new(most: u32, seed: u64) -> Self {
        let mut list = Vec::with_capacity(most as usize + 1);
        list.push(Self::fresh(None));
        let hash = FixedState::with_seed(seed);
        let index = HashMap::with_capacity_and_hasher(2 * most as usize, hash);
        Self { list, index, most, recent: 0, total: Counters::default() }
    }

    fn fresh(address: Option<IpAddr>) -> SourceStats {
        let (last_heard, counters, streams) = (Time::default(), Counters::default(), Streams::default());
        SourceStats { address, last_heard, open: 0, counters, streams, era: 0 }
    }

    /// The number of a sender.
    pub(super) fn find(&mut self, now: Time, address: Option<IpAddr>) -> SourceId {
        if self.list[self.recent as usize].address != address {
            self.recent = address.map_or(0, |address| self.known_or_new(address));
        }
        let source = &mut self.list[self.recent as usize];
        source.last_heard = now;
        SourceId { at: self.recent, era: source.era }
    }

    fn known_or_new(&mut self, address: IpAddr) -> u32 {
        if let Some(&known) = self.index.get(&address) {
            return known;
        }
        let new = if self.list.len() <= self.most as usize {
            self.list.push(Self::fresh(Some(address)));
            self.list.len() - 1
        } else {
            // Anybody can send from made-up addresses; they displace each other only.
            let unused = |source: &SourceStats| {
                source.address.is_some() && source.open == 0 && source.counters.complete == 0
            };
            let Some(at) = self.list.iter().position(unused) else { return 0 };
            let counters = std::mem::take(&mut self.list[at].counters);
            self.list[0].counters.absorb(&counters);
            self.list[at].era += 1;
            self.list[at].streams = Streams::default();
            if let Some(old) = self.list[at].address.replace(address) {
                self.index.remove(&old);
            }
            at
        };
        self.index.insert(address, new as u32);
        new as u32
    }

    pub(super) fn count(&mut self, source: SourceId, count: impl Fn(&mut Counters)) {
        count(&mut self.list[source.at as usize].counters);
        count(&mut self.total);
    }

    pub(super) fn numbered(&mut self, source: SourceId, name: Name) {
        self.list[source.at as usize].streams.event(name.data_id, name.event);
    }

    pub(super) fn opened(&mut self, source: SourceId) {
        self.list[source.at as usize].open += 1;
    }

    pub(super) fn closed(&mut self, source: SourceId) {
        self.list[source.at as usize].open -= 1;
    }

    pub(super) fn open_events(&self, source: SourceId) -> u32 {
        self.list[source.at as usize].open
    }

    pub(super) fn with_most_open(&self) -> u32 {
        let open = self.list.iter().map(|source| source.open);
        open.enumerate().max_by_key(|&(_, open)| open).map_or(0, |(at, _)| at as u32)
    }

    pub(super) fn total(&self) -> &Counters {
        &self.total
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = SourceStats> + '_ {
        self.list.iter().cloned()
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
        self.evicted += other.evicted;
        self.abandoned += other.abandoned;
    }
}
