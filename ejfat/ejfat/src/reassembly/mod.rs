//! Reassembles events from segments.
//!
//! ```text
//! datagram ─► handle() ─► Place: copy this range of the datagram to that offset of that event's memory
//!                         complete: the memory holds the event ─► release()
//! time     ─► poll_given_up() ─► the memory is free again
//! ```
//!
//! An event is named by event number, data id and, if it is known, sender. Its segments arrive in any order, any number
//! of times. Accepted segments never overlap and lie inside the event, so an event is complete exactly when the number
//! of accepted bytes is its length: no duplicate and no overlap can complete an event with a gap.
//!
//! The caller has memory for [`Config::slots`] events, each of up to [`Config::max_event`] bytes, which should be
//! reserved only: a header that claims a length costs an event buffer and address space. [`Config::max_claimed`] bounds
//! the address space, and [`Config::memory`] the pages that segments touched. All tables are allocated when the
//! reassembler is made.
//!
//! Every segment is placed or counted under one [`Cause`]; every event that was opened ends as complete, timed out,
//! evicted or abandoned.

mod chunks;
mod config;
mod cover;
mod ended;
mod lists;
mod slots;
mod sources;
mod streams;

use std::{collections::VecDeque, net::IpAddr, ops::Range};

use arrayvec::ArrayVec;

pub use config::{Config, ConfigError, LimitsBy};
pub use sources::{Counters, SourceStats};
pub use streams::{Numbering, StreamStats};

use crate::{
    Time,
    wire::{LbHeader, Malformed, ReHeader, Versions},
};
use chunks::Chunks;
use ended::Ended;
use slots::Slots;
use sources::{SourceId, Sources};

/// An event buffer in the caller's memory, valid until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    slot: u32,
    generation: u32,
}

impl EventId {
    /// Returns the index of the buffer, below [`Config::slots`]. One event at a time has it.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The event number and the data id of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub event: u64,
    pub data_id: u16,
}

/// A copy command: copy this part of the datagram into the event buffer. Execute it before the next segment is handled,
/// because the next command may complete the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub id: EventId,
    pub name: Name,
    /// The length of the whole event in bytes.
    pub length: u32,
    /// The offset in the event, in bytes.
    pub offset: u32,
    /// The range of the datagram to copy.
    pub payload: Range<usize>,
    /// Whether this is the first segment of the event to arrive.
    pub opened: bool,
    /// Whether the event is complete with this segment. Then release it when it is consumed.
    pub complete: bool,
}

/// The limit for which an event was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Eviction {
    /// The sender had [`Config::max_open_per_source`] open events.
    Sender,
    /// All senders together had [`Config::max_open`] open events.
    Open,
    /// [`Config::memory`] was full.
    Memory,
    /// The lengths of all events were more than [`Config::max_claimed`].
    Claimed,
}

impl Eviction {
    pub const ALL: [Self; 4] = [Self::Sender, Self::Open, Self::Memory, Self::Claimed];

    /// The name of this cause in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Open => "open",
            Self::Memory => "memory",
            Self::Claimed => "claimed",
        }
    }
}

/// The most events that are evicted to make room for the length of a new one, so that a single segment costs little
/// time.
const MOST_EVICTED: usize = 16;

/// An event that was given up before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    pub id: EventId,
    pub name: Name,
    pub length: u32,
    pub received: u32,
}

/// The cause for which a segment was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Cause {
    /// The datagram is shorter than its headers.
    Short,
    /// The datagram begins with a header of another protocol or version.
    Version,
    /// The segment has no payload, or the event has no bytes.
    Empty,
    /// The event is longer than [`Config::max_event`].
    TooLong,
    /// The payload reaches beyond the event's end.
    BeyondEnd,
    /// Other segments of the event gave it another length or tick.
    Conflict,
    /// All bytes of the segment have arrived already, or the event is complete.
    Duplicate,
    /// Some bytes of the segment have arrived already.
    Overlap,
    /// The event was given up before.
    Late,
    /// The segment is neither aligned to the stride of the event's segments nor next to others.
    Scattered,
    /// [`Config::memory`] is full, or the event's length does not fit into [`Config::max_claimed`], or no block of
    /// [`Config::chunks`] is free.
    Memory,
    /// Every event buffer holds an event that is complete and not released.
    NoSlot,
}

impl Cause {
    pub const ALL: [Self; 12] = [
        Self::Short,
        Self::Version,
        Self::Empty,
        Self::TooLong,
        Self::BeyondEnd,
        Self::Conflict,
        Self::Duplicate,
        Self::Overlap,
        Self::Late,
        Self::Scattered,
        Self::Memory,
        Self::NoSlot,
    ];

    /// The name of this cause in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Version => "version",
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::BeyondEnd => "beyond_end",
            Self::Conflict => "conflict",
            Self::Duplicate => "duplicate",
            Self::Overlap => "overlap",
            Self::Late => "late",
            Self::Scattered => "scattered",
            Self::Memory => "memory",
            Self::NoSlot => "no_slot",
        }
    }
}

impl From<Malformed> for Cause {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short(_) => Self::Short,
            Malformed::Magic(_) | Malformed::Version(_) => Self::Version,
        }
    }
}

/// The tick of the LB header, if there is one, the RE header, and the payload.
type Headers<'a> = (Option<u64>, ReHeader, &'a [u8]);

#[inline(always)]
fn headers(datagram: &[u8], versions: Versions) -> Result<Headers<'_>, Cause> {
    let (tick, segment) = if LbHeader::leads(datagram) {
        let (header, segment) = LbHeader::decode(datagram)?;
        (Some(header.tick), segment)
    } else {
        (None, datagram)
    };
    let (header, payload) = ReHeader::decode(segment, versions)?;
    Ok((tick, header, payload))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    source: SourceId,
}

/// Reassembles events from their segments.
#[derive(Debug)]
pub struct Reassembler {
    config: Config,
    slots: Slots,
    chunks: Chunks,
    sources: Sources,
    ended: Ended,
    /// Evicted events that the caller has not polled yet.
    evicted: VecDeque<Incomplete>,
    now: Time,
}

impl Reassembler {
    pub fn new(mut config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        // An event that is longer than the memory could never be complete.
        config.max_event =
            u32::try_from(config.memory).map_or(config.max_event, |most| config.max_event.min(most));
        Ok(Self {
            slots: Slots::new(&config),
            chunks: Chunks::new(config.chunks, config.seed),
            sources: Sources::new(config.limits_by, config.max_sources, config.seed),
            ended: Ended::new(config.remembered, config.timeout, config.seed),
            evicted: VecDeque::with_capacity(config.slots as usize),
            now: Time::default(),
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Handles a datagram with or without the LB header. `from` is the sender's address, or that of a load balancer,
    /// which replaces the sender's.
    pub fn handle(&mut self, now: Time, from: Option<IpAddr>, datagram: &[u8]) -> Result<Place, Cause> {
        self.now = now;
        let headers = headers(datagram, self.config.versions);
        let data_id = headers.as_ref().ok().map(|(_, header, _)| header.data_id);
        let source = self.sources.find(now, from, data_id);
        let placed = headers.and_then(|headers| self.place(source, headers, datagram.len()));
        self.sources.count(source, |counters| counters.add(datagram.len(), &placed));
        placed
    }

    #[inline(always)]
    fn place(
        &mut self,
        source: SourceId,
        (tick, header, payload): Headers<'_>,
        datagram: usize,
    ) -> Result<Place, Cause> {
        let ReHeader { data_id, offset, length, event } = header;
        if payload.is_empty() || length == 0 {
            return Err(Cause::Empty);
        }
        if length > self.config.max_event {
            return Err(Cause::TooLong);
        }
        let end = u32::try_from(payload.len()).ok().and_then(|len| offset.checked_add(len));
        let part = offset..end.filter(|&end| end <= length).ok_or(Cause::BeyondEnd)?;
        let key = Key { name: Name { event, data_id }, source };
        let (slot, gap) = match self.slots.find(&key) {
            Some(slot) => {
                let gap = self.slots.check(slot, &part, length, tick, &self.chunks)?;
                self.make_room(Some(slot), &part, length)?;
                (slot, Some(gap))
            }
            None => (self.open(key, &part, length, tick)?, None),
        };
        let opened = gap.is_none();
        // The first segment of an event always fits, so that no event is open without a segment.
        let part = (part, gap.unwrap_or_default());
        let complete = self.slots.add(self.now, slot, part, length, &mut self.chunks)?;
        if complete {
            self.sources.closed(source, true);
            self.chunks.free(self.slots.take_cells(slot));
        }
        let payload = datagram - payload.len()..datagram;
        Ok(Place { id: self.slots.id(slot), name: key.name, length, offset, payload, opened, complete })
    }

    /// Opens an event and finds a buffer for it.
    fn open(&mut self, key: Key, first: &Range<u32>, length: u32, tick: Option<u64>) -> Result<u32, Cause> {
        if let Some(cause) = self.ended.find(&key, tick, self.now) {
            return Err(cause);
        }
        let has_most = self.sources.open_events(key.source) >= self.config.max_open_per_source;
        let is_full = self.slots.open_events() >= self.config.max_open;
        if !has_most && !is_full && !self.slots.has_free() {
            return Err(Cause::NoSlot);
        }
        let lacks = self.lacks_addresses(length);
        if lacks > 0 {
            // This check comes first, so that nothing is evicted for an event that cannot be opened.
            self.claim_victims(lacks)?;
        }
        self.make_room(None, first, length)?;
        self.make_addresses(length)?;
        // The evictions for memory or addresses may have been enough for these limits, too.
        if self.sources.open_events(key.source) >= self.config.max_open_per_source {
            self.evict_stalest(key.source.at, Eviction::Sender);
        } else if self.slots.open_events() >= self.config.max_open {
            self.evict_stalest(self.sources.with_most_open(), Eviction::Open);
        }
        let slot = self.slots.open(self.now, key, length, tick).ok_or(Cause::NoSlot)?;
        self.sources.opened(key.source);
        if self.config.numbering == Numbering::Consecutive {
            self.sources.numbered(key.source, key.name);
        }
        Ok(slot)
    }

    /// Makes room for the length of a new event. The longest open events of the sender with most bytes are evicted, if
    /// they are enough.
    #[inline(always)]
    fn make_addresses(&mut self, length: u32) -> Result<(), Cause> {
        let lacks = self.lacks_addresses(length);
        if lacks == 0 { Ok(()) } else { self.evict_claims(lacks) }
    }

    /// Returns the number of bytes by which the sum of all lengths would exceed its limit with a new event of this
    /// length.
    #[inline(always)]
    fn lacks_addresses(&self, length: u32) -> u64 {
        (self.slots.claimed() + u64::from(length)).saturating_sub(self.config.max_claimed())
    }

    #[cold]
    fn evict_claims(&mut self, lacks: u64) -> Result<(), Cause> {
        let victims = self.claim_victims(lacks)?;
        victims.into_iter().for_each(|victim| self.evict(victim, Eviction::Claimed));
        Ok(())
    }

    /// Returns open events whose lengths are together at least `lacks` bytes: the longest ones of the sender with most
    /// bytes, then those of the sender with the second most, and so on.
    #[cold]
    fn claim_victims(&self, lacks: u64) -> Result<ArrayVec<u32, MOST_EVICTED>, Cause> {
        let (mut victims, mut asked) = (ArrayVec::new(), ArrayVec::<u32, MOST_EVICTED>::new());
        let mut freed = 0;
        while freed < lacks {
            let source = self.sources.with_most_bytes(self.slots.claimed_of(), &asked);
            let (longest, bytes) = self.slots.longest_of(source, lacks - freed);
            if longest.is_empty() || longest.len() > victims.remaining_capacity() {
                return Err(Cause::Memory);
            }
            victims.extend(longest);
            asked.push(source);
            freed += bytes;
        }
        Ok(victims)
    }

    /// Makes room for a part of an event. The largest open event of the sender with most memory is evicted, unless it
    /// is the event itself or frees too little.
    #[inline(always)]
    fn make_room(&mut self, slot: Option<u32>, part: &Range<u32>, length: u32) -> Result<(), Cause> {
        let lacks = self.slots.lacks_memory(slot, part, length);
        if lacks == 0 { Ok(()) } else { self.evict_for(slot, lacks) }
    }

    #[cold]
    fn evict_for(&mut self, slot: Option<u32>, lacks: u64) -> Result<(), Cause> {
        let source = self.sources.with_most_bytes(self.slots.memory_of(), &[]);
        let largest = self.slots.largest_of(source).filter(|&largest| slot != Some(largest));
        let victim = largest.filter(|&largest| self.slots.memory(largest) >= lacks);
        self.evict(victim.ok_or(Cause::Memory)?, Eviction::Memory);
        Ok(())
    }

    fn evict_stalest(&mut self, source: u32, eviction: Eviction) {
        if let Some(stalest) = self.slots.stalest_of(source) {
            self.evict(stalest, eviction);
        }
    }

    fn evict(&mut self, slot: u32, eviction: Eviction) {
        if self.evicted.len() == self.config.slots as usize {
            // The list is bounded, for a caller that does not poll it.
            self.evicted.pop_front();
        }
        let evicted = self.give_up(slot, |counters| counters.evict(eviction));
        self.evicted.push_back(evicted);
    }

    /// Returns the next event that was given up: it was evicted, or got no segment for [`Config::timeout`], or was open
    /// for [`Config::lifetime`]. Its memory is free or already used for another event. Call this until it returns
    /// `None`.
    pub fn poll_given_up(&mut self, now: Time) -> Option<Incomplete> {
        // A caller may handle old segments later, with an earlier time. Events that ended before have the later time.
        self.now = self.now.max(now);
        if let Some(evicted) = self.evicted.pop_front() {
            return Some(evicted);
        }
        let (due, slot) = self.due()?;
        (due <= now).then(|| self.give_up(slot, |counters| counters.timed_out += 1))
    }

    /// Returns the next evicted event. Unlike [`Reassembler::poll_given_up`], this does not check for timeouts.
    pub fn poll_evicted(&mut self) -> Option<Incomplete> {
        self.evicted.pop_front()
    }

    /// Returns the time at which to call [`Reassembler::poll_given_up`].
    pub fn next_timeout(&self) -> Option<Time> {
        if self.evicted.is_empty() { self.due().map(|(due, _)| due) } else { Some(self.now) }
    }

    fn due(&self) -> Option<(Time, u32)> {
        let stale = self.slots.stalest().map(|slot| (self.slots.touched(slot) + self.config.timeout, slot));
        let old = self.slots.oldest().map(|slot| (self.slots.opened(slot) + self.config.lifetime, slot));
        stale.into_iter().chain(old).min()
    }

    /// Releases an event: the caller has consumed a complete one, or has no use for an incomplete one, which is then
    /// given up. Returns false if the event does not exist any more.
    pub fn release(&mut self, id: EventId) -> bool {
        let Some(slot) = self.slots.slot(id) else { return false };
        if self.slots.is_complete(slot) {
            self.ended.insert(self.slots.key(slot), self.slots.tick(slot), Cause::Duplicate, self.now);
            self.slots.close(slot);
        } else {
            self.give_up(slot, |counters| counters.abandoned += 1);
        }
        true
    }

    /// Releases an event that the caller has no use for, complete or not. A complete one counts as abandoned and not as
    /// complete. Returns false if the event does not exist any more.
    pub fn abandon(&mut self, id: EventId) -> bool {
        if let Some(slot) = self.slots.slot(id).filter(|&slot| self.slots.is_complete(slot)) {
            let source = self.sources.present(self.slots.key(slot).source);
            self.sources.count(source, |counters| {
                counters.complete -= 1;
                counters.abandoned += 1;
            });
        }
        self.release(id)
    }

    fn give_up(&mut self, slot: u32, count: impl Fn(&mut Counters)) -> Incomplete {
        let incomplete = self.slots.incomplete(slot);
        let key = self.slots.key(slot);
        self.ended.insert(key, self.slots.tick(slot), Cause::Late, self.now);
        self.chunks.free(self.slots.take_cells(slot));
        self.slots.close(slot);
        self.sources.closed(key.source, false);
        self.sources.count(key.source, count);
        incomplete
    }

    /// Returns the number of events that are open; complete events do not count.
    pub fn open_events(&self) -> u32 {
        self.slots.open_events()
    }

    /// Returns the bytes of memory that segments of events have touched, in whole pages: at most [`Config::memory`].
    pub fn touched_memory(&self) -> u64 {
        self.slots.touched_memory()
    }

    /// Returns the counters of all senders together.
    pub fn counters(&self) -> &Counters {
        self.sources.total()
    }

    /// Returns the counters of each sender; the entry of unknown senders comes first.
    pub fn sources(&self) -> impl Iterator<Item = SourceStats> + '_ {
        self.sources.stats()
    }
}
