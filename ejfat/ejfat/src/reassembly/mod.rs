//! Reassembles events from segments.
//!
//! ```text
//! datagram ─► handle() ─► CopyCommand: copy this range of the datagram to that offset of that event's memory
//!                               complete: the memory holds the event ─► release()
//! time     ─► poll_given_up() ─► the memory is free again
//! ```
//!
//! The key of an event consists of its event number, its data id and its sender. The segments of an event arrive in any
//! order and any number of times. Accepted segments never overlap, and lie inside the event. An event is therefore
//! complete when the number of accepted bytes is equal to the length of the event.
//!
//! The caller provides memory for [`Config::slots`] events of up to [`Config::max_event`] bytes each. The bytes of an
//! event do not always arrive. The caller should therefore reserve only address space for the events, and let the
//! operating system provide pages of memory when bytes are written. [`Config::max_claimed`] limits the address space
//! that events claim, and [`Config::memory`] limits the memory of the pages that segments touch. The reassembler
//! allocates its own tables when it is created. Only the counters of streams ([`StreamStats`]) are allocated later.
//!
//! Every segment is either accepted, or dropped and counted under one [`SegmentDropCause`]. Every event that was opened
//! ends as complete, timed out, evicted or abandoned.

mod buffers;
mod chunks;
mod config;
mod cover;
mod lists;
mod recent;
mod senders;
mod streams;

use std::{collections::VecDeque, net::IpAddr, ops::Range};

use arrayvec::ArrayVec;

pub use config::{Config, ConfigError, LimitsBy};
pub use senders::{Counters, SenderCounters};
pub use streams::{Numbering, StreamStats};

use crate::{
    Time,
    wire::{LbHeader, Malformed, ReHeader, Versions},
};
use buffers::{EventBuffer, EventBuffers};
use chunks::Chunks;
use cover::Gap;
use recent::RecentEvents;
use senders::{SenderId, SenderTable};

/// The id of an event that has an event buffer in the caller's memory. The id is valid until the event is released or
/// given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventBufferId {
    buffer: u32,
    generation: u32,
}

impl EventBufferId {
    /// Returns the index of the event buffer, which is below [`Config::slots`]. Only one event at a time has this event
    /// buffer.
    pub fn slot(self) -> usize {
        self.buffer as usize
    }
}

/// The event number and the data id of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey {
    /// The event number in the RE header.
    pub event: u64,
    /// The data id in the RE header, which is the number of the event's stream.
    pub data_id: u16,
}

/// A copy command: the caller must copy the segment's payload from the datagram into the event buffer. The caller must
/// make the copy before the next segment is handled. The next segment may complete the event, and the event buffer must
/// then contain all bytes of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyCommand {
    /// The id of the event, which selects the event buffer.
    pub id: EventBufferId,
    /// The event number and the data id of the event.
    pub name: EventKey,
    /// The length of the whole event in bytes.
    pub length: u32,
    /// The offset in the event to which the payload is copied, in bytes.
    pub offset: u32,
    /// The bytes that the caller must copy, as a range of offsets in the datagram.
    pub payload: Range<usize>,
    /// The LB header of the datagram; `None` if the datagram has no LB header.
    pub lb: Option<LbHeader>,
    /// True if this segment is the first accepted segment of the event.
    pub opened: bool,
    /// True if the event is complete with this segment. The caller must release a complete event after use.
    pub complete: bool,
}

named! {
    /// The limit that caused the eviction of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum Eviction {
        /// The sender had [`Config::max_open_per_source`] open events already.
        Sender = "sender",
        /// All senders together had [`Config::max_open`] open events already.
        Open = "open",
        /// The memory of [`Config::memory`] bytes was full.
        Memory = "memory",
        /// The sum of all events' lengths would have exceeded [`Config::max_claimed`].
        Claimed = "claimed",
    }

    /// All limits that can cause an eviction, in the order of their discriminants.
    ALL;
    /// Returns the name that counters use for this limit, such as `sender`.
    name;
}

/// The maximum number of open events that are evicted so that a new event can claim its length. This maximum bounds the
/// processing time of one segment.
const MOST_EVICTED: usize = 16;

/// An event that was given up before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The id that the event had until it was given up. The event buffer of this id is free or already used for another
    /// event.
    pub id: EventBufferId,
    /// The event number and the data id of the event.
    pub name: EventKey,
    /// The length of the whole event in bytes.
    pub length: u32,
    /// The number of accepted bytes of the event.
    pub received: u32,
}

named! {
    /// The cause for which a segment was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum SegmentDropCause {
        /// The datagram is shorter than its headers.
        Short = "short",
        /// The datagram begins with a header whose protocol or version is not accepted.
        Version = "version",
        /// The segment has no payload, or the event has no bytes.
        Empty = "empty",
        /// The event is longer than [`Config::max_event`].
        TooLong = "too_long",
        /// The payload reaches beyond the event's end.
        BeyondEnd = "beyond_end",
        /// The headers of the segment have another event length or another tick than the headers of the event's first
        /// segment.
        Conflict = "conflict",
        /// All bytes of the segment have arrived already, or the event is complete.
        Duplicate = "duplicate",
        /// Some bytes of the segment have arrived already.
        Overlap = "overlap",
        /// The event was given up before the segment arrived.
        Late = "late",
        /// The accepted bytes of the event form so many separate ranges that the bytes of this segment cannot be
        /// recorded.
        Scattered = "scattered",
        /// The segment would exceed [`Config::memory`] or [`Config::max_claimed`], and evictions cannot make enough
        /// room. The cause is the same if the segment needs a bitmap block and all [`Config::chunks`] bitmap blocks are
        /// in use.
        Memory = "memory",
        /// No event buffer is free, and no limit on open events is reached. Complete events that were not released have
        /// event buffers, too, so the caller must release complete events first.
        NoSlot = "no_slot",
    }

    /// All causes, in the order of their discriminants.
    ALL;
    /// Returns the name that counters use for this cause, such as `late`.
    name;
}

impl From<Malformed> for SegmentDropCause {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short(_) => Self::Short,
            // Decoding a segment never fails with `Malformed::Long`, which is only for sync datagrams.
            Malformed::Long(_) | Malformed::Magic(_) | Malformed::Version(_) => Self::Version,
        }
    }
}

/// The LB header (`None` without an LB header), the RE header, and the payload.
type Headers<'a> = (Option<LbHeader>, ReHeader, &'a [u8]);

#[inline(always)]
fn headers(datagram: &[u8], versions: Versions) -> Result<Headers<'_>, SegmentDropCause> {
    let (lb, segment) = if LbHeader::leads(datagram) {
        let (header, segment) = LbHeader::decode(datagram)?;
        (Some(header), segment)
    } else {
        (None, datagram)
    };
    let (header, payload) = ReHeader::decode(segment, versions)?;
    Ok((lb, header, payload))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: EventKey,
    sender: SenderId,
}

/// Reassembles events from their segments.
#[derive(Debug)]
pub struct Reassembler {
    config: Config,
    buffers: EventBuffers,
    chunks: Chunks,
    senders: SenderTable,
    recent_events: RecentEvents,
    /// The evicted events that the caller has not polled yet.
    evicted: VecDeque<Incomplete>,
    now: Time,
}

impl Reassembler {
    /// Creates a reassembler without open events, and allocates its tables, except the counters of streams.
    ///
    /// # Errors
    /// Fails with [`ConfigError::Zero`] if `memory` or a `u32` field of `config` is 0. Fails with
    /// [`ConfigError::Slots`] if `max_open` is above `slots`. Fails with [`ConfigError::Page`] if `page` is not a power
    /// of two.
    pub fn new(mut config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        // An event that is longer than `memory` could never be complete, so `max_event` is at most `memory`.
        config.max_event =
            u32::try_from(config.memory).map_or(config.max_event, |most| config.max_event.min(most));
        Ok(Self {
            buffers: EventBuffers::new(&config),
            chunks: Chunks::new(config.chunks, config.seed),
            senders: SenderTable::new(config.limits_by, config.max_sources, config.seed),
            recent_events: RecentEvents::new(config.remembered, config.timeout, config.seed),
            evicted: VecDeque::with_capacity(config.slots as usize),
            now: Time::default(),
            config,
        })
    }

    /// Returns the limits and settings of this reassembler. If `max_event` was above `memory`, [`Reassembler::new`] has
    /// set it to `memory`.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Handles a datagram with or without an LB header. `from` is the source address of the datagram, which is the
    /// address of the sender or of a load balancer.
    ///
    /// # Errors
    /// Fails with the [`SegmentDropCause`] for which the segment was dropped. [`Reassembler::counters`] and
    /// [`Reassembler::senders`] count dropped segments, too.
    pub fn handle(
        &mut self,
        now: Time,
        from: Option<IpAddr>,
        datagram: &[u8],
    ) -> Result<CopyCommand, SegmentDropCause> {
        self.now = self.now.max(now);
        let headers = headers(datagram, self.config.versions);
        let data_id = headers.as_ref().ok().map(|(_, header, _)| header.data_id);
        let sender = self.senders.find(self.now, from, data_id);
        let placed = headers.and_then(|headers| self.accept(sender, headers, datagram.len()));
        self.senders.count(sender, |counters| counters.add(datagram.len(), &placed));
        placed
    }

    #[inline(always)]
    fn accept(
        &mut self,
        sender: SenderId,
        (lb, header, payload): Headers<'_>,
        datagram: usize,
    ) -> Result<CopyCommand, SegmentDropCause> {
        let ReHeader { data_id, offset, length, event } = header;
        if payload.is_empty() || length == 0 {
            return Err(SegmentDropCause::Empty);
        }
        if length > self.config.max_event {
            return Err(SegmentDropCause::TooLong);
        }
        let end = u32::try_from(payload.len()).ok().and_then(|len| offset.checked_add(len));
        let part = offset..end.filter(|&end| end <= length).ok_or(SegmentDropCause::BeyondEnd)?;
        let key = Key { name: EventKey { event, data_id }, sender };
        let tick = lb.map(|header| header.tick);
        let (buffer, gap, victim) = match self.buffers.find(&key) {
            Some(buffer) => {
                let gap = self.buffers.check(buffer, &part, length, tick, &self.chunks)?;
                (buffer, Some(gap), self.memory_victim(Some(buffer), &part, length)?)
            }
            None => (self.open(key, &part, length, tick)?, None, None),
        };
        let opened = gap.is_none();
        // The record of an event says which of its bytes have arrived. A `Gap` is the location in the record at which a
        // segment is entered. The record of a new event is empty, so the first segment is entered at the default `Gap`.
        // Entering the first segment of an event cannot fail, so each open event has at least one segment.
        let part = (part, gap.unwrap_or_default());
        let complete = match victim {
            Some(victim) => self.add_and_evict(victim, buffer, part, length)?,
            None => self.buffers.add(self.now, buffer, part, length, &mut self.chunks)?,
        };
        if complete {
            self.senders.closed(sender, true);
            self.chunks.free(self.buffers.take_cells(buffer));
        }
        let payload = datagram - payload.len()..datagram;
        let id = self.buffers.id(buffer);
        Ok(CopyCommand { id, name: key.name, length, offset, payload, lb, opened, complete })
    }

    /// Records that a part of an event has arrived, and evicts the open event `victim` to free memory for the part.
    /// Returns true if the event is complete now. Recording can fail because no bitmap block is free. If `victim` has
    /// bitmap blocks in this case, the function evicts `victim`, which frees these blocks, and tries to record the part
    /// again. If recording fails in any other case, the function returns the error and evicts nothing.
    #[cold]
    fn add_and_evict(
        &mut self,
        victim: u32,
        buffer: u32,
        (part, gap): (Range<u32>, Gap),
        length: u32,
    ) -> Result<bool, SegmentDropCause> {
        let added = self.buffers.add(self.now, buffer, (part.clone(), gap), length, &mut self.chunks);
        if added.is_err() && (self.chunks.has_free() || !self.buffers.has_cells(victim)) {
            return added;
        }
        self.evict(victim, Eviction::Memory);
        added.or_else(|_| {
            // The first call of `add` may have changed the event's record before the call failed. The function
            // therefore determines again where in the record the part is entered (`gap`).
            let gap = self.buffers.check(buffer, &part, length, None, &self.chunks)?;
            self.buffers.add(self.now, buffer, (part, gap), length, &mut self.chunks)
        })
    }

    /// Opens an event and returns its event buffer.
    fn open(
        &mut self,
        key: Key,
        first: &Range<u32>,
        length: u32,
        tick: Option<u64>,
    ) -> Result<u32, SegmentDropCause> {
        if let Some(cause) = self.recent_events.find(&key, tick, self.now) {
            return Err(cause);
        }
        let has_most = self.senders.open_events(key.sender) >= self.config.max_open_per_source;
        let is_full = self.buffers.open_events() >= self.config.max_open;
        if !has_most && !is_full && !self.buffers.has_free() {
            return Err(SegmentDropCause::NoSlot);
        }
        // `claim_victims` and `memory_victim` fail if evictions cannot make enough room. Both functions are called
        // before the first eviction, so that no event is evicted for a new event that cannot be opened.
        let lacks = self.lacks_addresses(length);
        let claims = if lacks > 0 { self.claim_victims(lacks)? } else { ArrayVec::new() };
        let victim = self.memory_victim(None, first, length)?;
        victim.into_iter().for_each(|victim| self.evict(victim, Eviction::Memory));
        for claim in claims {
            if Some(claim) != victim && self.lacks_addresses(length) > 0 {
                self.evict(claim, Eviction::Claimed);
            }
        }
        // The number of open events is read again, because events may have been evicted for memory or address space.
        if self.senders.open_events(key.sender) >= self.config.max_open_per_source {
            self.evict_stalest(key.sender.at, Eviction::Sender);
        } else if self.buffers.open_events() >= self.config.max_open {
            self.evict_stalest(self.senders.with_most_open(), Eviction::Open);
        }
        let buffer = self.buffers.open(self.now, key, length, tick).ok_or(SegmentDropCause::NoSlot)?;
        self.senders.opened(key.sender);
        if self.config.numbering == Numbering::Consecutive {
            self.senders.numbered(key.sender, key.name);
        }
        Ok(buffer)
    }

    /// Returns the number of bytes by which a new event of `length` bytes would make the sum of all events' lengths
    /// exceed [`Config::max_claimed`].
    #[inline(always)]
    fn lacks_addresses(&self, length: u32) -> u64 {
        (self.buffers.claimed() + u64::from(length)).saturating_sub(self.config.max_claimed())
    }

    /// Returns open events to evict, whose lengths are together at least `lacks` bytes.
    /// [`SenderTable::with_most_bytes`] chooses a sender, and the function takes the longest events of this sender. If
    /// these events are not enough, the next sender is chosen from the remaining senders in the same way. Fails with
    /// [`SegmentDropCause::Memory`] if more than [`MOST_EVICTED`] events would be needed.
    #[cold]
    fn claim_victims(&self, lacks: u64) -> Result<ArrayVec<u32, MOST_EVICTED>, SegmentDropCause> {
        let (mut victims, mut asked) = (ArrayVec::new(), ArrayVec::<u32, MOST_EVICTED>::new());
        let mut freed = 0;
        while freed < lacks {
            let sender = self.senders.with_most_bytes(self.buffers.claimed_of(), &asked);
            let (longest, bytes) = self.buffers.longest_of(sender, lacks - freed);
            if longest.is_empty() || longest.len() > victims.remaining_capacity() {
                return Err(SegmentDropCause::Memory);
            }
            victims.extend(longest);
            asked.push(sender);
            freed += bytes;
        }
        Ok(victims)
    }

    /// Returns the open event that must be evicted so that there is memory for a part of an event, or `None` if there
    /// is enough memory. The open event is the largest one of the sender with the most memory. Returns an error if the
    /// part belongs to the largest event, or if evicting the largest event would free too little memory for the part.
    #[inline(always)]
    fn memory_victim(
        &self,
        buffer: Option<u32>,
        part: &Range<u32>,
        length: u32,
    ) -> Result<Option<u32>, SegmentDropCause> {
        let lacks = self.buffers.lacks_memory(buffer, part, length);
        if lacks == 0 { Ok(None) } else { self.largest_but(buffer, lacks).map(Some) }
    }

    #[cold]
    fn largest_but(&self, buffer: Option<u32>, lacks: u64) -> Result<u32, SegmentDropCause> {
        let sender = self.senders.with_most_bytes(self.buffers.memory_of(), &[]);
        let largest = self.buffers.largest_of(sender).filter(|&largest| buffer != Some(largest));
        let victim = largest.filter(|&largest| self.buffers.at(largest).memory >= lacks);
        victim.ok_or(SegmentDropCause::Memory)
    }

    fn evict_stalest(&mut self, sender: u32, eviction: Eviction) {
        if let Some(stalest) = self.buffers.stalest_of(sender) {
            self.evict(stalest, eviction);
        }
    }

    fn evict(&mut self, buffer: u32, eviction: Eviction) {
        if self.evicted.len() == self.config.slots as usize {
            // The list of evicted events must not grow without limit if the caller does not poll it, so the oldest
            // event is removed.
            self.evicted.pop_front();
        }
        let evicted = self.give_up(buffer, |counters| counters.evict(eviction));
        self.evicted.push_back(evicted);
    }

    /// Returns the next event that was given up. The event was evicted, got no segment for [`Config::timeout`], or was
    /// open for [`Config::lifetime`]. The event buffer of the returned event is free or already used for another event.
    /// The caller must call this function until it returns `None`.
    pub fn poll_given_up(&mut self, now: Time) -> Option<Incomplete> {
        // It is possible that `now` is earlier than the time of the last handled segment. If an event times out in this
        // function, the later of these two times is remembered as the end time of the event.
        self.now = self.now.max(now);
        if let Some(evicted) = self.evicted.pop_front() {
            return Some(evicted);
        }
        let (due, buffer) = self.due()?;
        (due <= now).then(|| self.give_up(buffer, |counters| counters.timed_out += 1))
    }

    /// Returns the next evicted event. Unlike [`Reassembler::poll_given_up`], this function does not check for
    /// time-outs.
    pub fn poll_evicted(&mut self) -> Option<Incomplete> {
        self.evicted.pop_front()
    }

    /// Returns the next time at which [`Reassembler::poll_given_up`] must be called.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.evicted.is_empty() { self.due().map(|(due, _)| due) } else { Some(self.now) }
    }

    fn due(&self) -> Option<(Time, u32)> {
        let Self { buffers, config, .. } = self;
        let stale = buffers.stalest().map(|buffer| (buffers.at(buffer).touched + config.timeout, buffer));
        let old = buffers.oldest().map(|buffer| (buffers.at(buffer).opened + config.lifetime, buffer));
        stale.into_iter().chain(old).min()
    }

    /// Releases an event that the caller does not need any more. If the released event is incomplete, the event is
    /// given up and counts as abandoned. Returns false if the event does not exist any more.
    pub fn release(&mut self, id: EventBufferId) -> bool {
        let Some(buffer) = self.buffers.buffer(id) else { return false };
        if self.buffers.is_complete(buffer) {
            let EventBuffer { key, tick, .. } = *self.buffers.at(buffer);
            self.recent_events.insert(key, tick, SegmentDropCause::Duplicate, self.now);
            self.buffers.close(buffer);
        } else {
            self.give_up(buffer, |counters| counters.abandoned += 1);
        }
        true
    }

    /// Releases an event that the caller could not use. If the abandoned event was complete, the event no longer counts
    /// as complete, but counts as abandoned. Returns false if the event does not exist any more.
    pub fn abandon(&mut self, id: EventBufferId) -> bool {
        if let Some(buffer) = self.buffers.buffer(id).filter(|&buffer| self.buffers.is_complete(buffer)) {
            let sender = self.senders.present(self.buffers.at(buffer).key.sender);
            self.senders.count(sender, |counters| {
                counters.complete -= 1;
                counters.abandoned += 1;
            });
        }
        self.release(id)
    }

    fn give_up(&mut self, buffer: u32, count: impl Fn(&mut Counters)) -> Incomplete {
        let incomplete = self.buffers.incomplete(buffer);
        let EventBuffer { key, tick, .. } = *self.buffers.at(buffer);
        self.recent_events.insert(key, tick, SegmentDropCause::Late, self.now);
        self.chunks.free(self.buffers.take_cells(buffer));
        self.buffers.close(buffer);
        self.senders.closed(key.sender, false);
        self.senders.count(key.sender, count);
        incomplete
    }

    /// Returns the number of open events, without complete events.
    pub fn open_events(&self) -> u32 {
        self.buffers.open_events()
    }

    /// Returns the memory in bytes that open and complete events take, counted as in [`Config::memory`]. The result is
    /// at most [`Config::memory`].
    pub fn touched_memory(&self) -> u64 {
        self.buffers.touched_memory()
    }

    /// Returns the counters of all senders together.
    pub fn counters(&self) -> &Counters {
        self.senders.total()
    }

    /// Returns the counters of each sender. The first element has the common counters of all senders that
    /// have no counters of their own.
    pub fn senders(&self) -> impl Iterator<Item = SenderCounters> + '_ {
        self.senders.stats()
    }
}
