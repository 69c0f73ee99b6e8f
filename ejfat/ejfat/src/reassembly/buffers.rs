//! The event buffers of a reassembler, and what is known of the event in each of them. An event has an event buffer
//! from its first segment until the event is given up or released.

use std::{cmp::Reverse, collections::HashMap, mem, ops::Range};

use arrayvec::ArrayVec;
use foldhash::quality::FixedState;

use super::{
    Config, EventBufferId, EventKey, Incomplete, Key, MOST_EVICTED, SegmentDropCause,
    chunks::{Chain, Chunks},
    cover::{Cover, Gap},
    lists::{Links, List, NONE},
    senders::SenderId,
};
use crate::Time;

#[derive(Clone, Debug)]
pub(super) struct EventBuffer {
    generation: u32,
    state: State,
    pub(super) key: Key,
    length: u32,
    /// The tick of the event's first segment, if this segment had an LB header.
    pub(super) tick: Option<u64>,
    pub(super) opened: Time,
    cover: Cover,
    /// The size in bytes of the pages that segments of the event touched. A page counts once for each segment that
    /// touched it, but the sum is at most the size of all pages of the event.
    pub(super) memory: u64,
    /// The time at which the event's newest segment was accepted.
    pub(super) touched: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Complete,
}

#[derive(Debug)]
pub(super) struct EventBuffers {
    buffers: Vec<EventBuffer>,
    free: Vec<u32>,
    index: HashMap<Key, u32, FixedState>,
    /// The open events. The first one is the event that has had no accepted segment for the longest time.
    stale: List,
    links: Links,
    /// The open events in the order in which they were opened.
    old: List,
    links_old: Links,
    /// One list for each sender: the sender's open events. The first event of a list is the one that has had no
    /// accepted segment for the longest time.
    stale_of: Vec<List>,
    links_of: Links,
    /// One number for each sender: the memory in bytes that the sender's open events take.
    memory_of: Vec<u64>,
    /// One number for each sender: the sum of the lengths of the sender's open events, in bytes.
    claimed_of: Vec<u64>,
    /// The sum of the lengths of all open and complete events, in bytes.
    claimed: u64,
    open: u32,
    memory: u64,
    most_memory: u64,
    page: u64,
    /// The event buffers that the last look-ups returned. A look-up checks them before `index`, because the next
    /// segment often belongs to the same event as a segment that has just arrived.
    recent: [u32; RECENT],
}

/// The number of entries of [`EventBuffers::recent`], a power of two.
const RECENT: usize = 16;

impl EventBuffers {
    pub(super) fn new(config: &Config) -> Self {
        let name = EventKey { event: 0, data_id: 0 };
        let buffer = |at| EventBuffer {
            generation: 0,
            state: State::Free,
            key: Key { name, sender: SenderId::default() },
            length: 0,
            tick: None,
            opened: Time::default(),
            cover: Cover::new(at),
            memory: 0,
            touched: Time::default(),
        };
        let hash = FixedState::with_seed(config.seed);
        Self {
            buffers: (0..config.slots).map(buffer).collect(),
            free: (0..config.slots).rev().collect(),
            // The hash table has twice the capacity that its entries need, so it is at most half full. Such a hash
            // table can use the places of removed entries again, and allocates no memory later.
            index: HashMap::with_capacity_and_hasher(2 * config.slots as usize, hash),
            stale: List::default(),
            links: Links::new(config.slots),
            old: List::default(),
            links_old: Links::new(config.slots),
            stale_of: vec![List::default(); config.max_sources as usize + 1],
            links_of: Links::new(config.slots),
            memory_of: vec![0; config.max_sources as usize + 1],
            claimed_of: vec![0; config.max_sources as usize + 1],
            claimed: 0,
            open: 0,
            memory: 0,
            most_memory: config.memory,
            page: config.page.into(),
            recent: [0; RECENT],
        }
    }

    #[inline]
    fn whole_pages(&self, bytes: u32) -> u64 {
        (u64::from(bytes) + (self.page - 1)) & !(self.page - 1)
    }

    /// Returns the size in bytes of all pages that a part of an event touches. Offsets in the event show where pages
    /// begin, because every event buffer begins at the start of a page.
    #[inline]
    fn touched_by(&self, part: &Range<u32>) -> u64 {
        self.whole_pages(part.end) - (u64::from(part.start) & !(self.page - 1))
    }

    #[inline]
    pub(super) fn at(&self, buffer: u32) -> &EventBuffer {
        &self.buffers[buffer as usize]
    }

    #[inline]
    pub(super) fn find(&mut self, key: &Key) -> Option<u32> {
        let recent = recent_of(key);
        let at = self.recent[recent];
        let buffer = self.at(at);
        if buffer.key == *key && buffer.state != State::Free {
            return Some(at);
        }
        let at = *self.index.get(key)?;
        self.recent[recent] = at;
        Some(at)
    }

    #[inline]
    pub(super) fn id(&self, buffer: u32) -> EventBufferId {
        EventBufferId { buffer, generation: self.at(buffer).generation }
    }

    /// Returns the event buffer of an open or complete event.
    pub(super) fn buffer(&self, id: EventBufferId) -> Option<u32> {
        let buffer = self.buffers.get(id.buffer as usize)?;
        (buffer.generation == id.generation && buffer.state != State::Free).then_some(id.buffer)
    }

    pub(super) fn is_complete(&self, buffer: u32) -> bool {
        self.at(buffer).state == State::Complete
    }

    pub(super) fn incomplete(&self, buffer: u32) -> Incomplete {
        let EventBuffer { key, length, cover, .. } = self.at(buffer);
        Incomplete { id: self.id(buffer), name: key.name, length: *length, received: cover.received() }
    }

    /// Returns the open event that has had no accepted segment for the longest time.
    pub(super) fn stalest(&self) -> Option<u32> {
        Some(self.stale.first).filter(|&buffer| buffer != NONE)
    }

    /// Returns the event that has been open for the longest time.
    pub(super) fn oldest(&self) -> Option<u32> {
        Some(self.old.first).filter(|&buffer| buffer != NONE)
    }

    pub(super) fn stalest_of(&self, sender: u32) -> Option<u32> {
        Some(self.stale_of[sender as usize].first).filter(|&buffer| buffer != NONE)
    }

    pub(super) fn open_events(&self) -> u32 {
        self.open
    }

    pub(super) fn touched_memory(&self) -> u64 {
        self.memory
    }

    /// Returns the number of bytes of memory that must be freed before a part of an event can be accepted. `buffer` is
    /// the event buffer of an open event, or `None` for a new event.
    #[inline]
    pub(super) fn lacks_memory(&self, buffer: Option<u32>, part: &Range<u32>, length: u32) -> u64 {
        // In most cases, the free memory is enough for all pages that the part touches, so this check comes first.
        if self.memory + self.touched_by(part) <= self.most_memory {
            return 0;
        }
        let before = buffer.map_or(0, |buffer| self.at(buffer).memory);
        let after = (before + self.touched_by(part)).min(self.whole_pages(length)).max(before);
        (self.memory - before + after).saturating_sub(self.most_memory)
    }

    /// Returns one number for each sender: the memory in bytes that the sender's open events take.
    pub(super) fn memory_of(&self) -> &[u64] {
        &self.memory_of
    }

    /// Returns one number for each sender: the sum of the lengths of the sender's open events, in bytes.
    pub(super) fn claimed_of(&self) -> &[u64] {
        &self.claimed_of
    }

    /// Returns the sum of the lengths of all open and complete events, in bytes.
    pub(super) fn claimed(&self) -> u64 {
        self.claimed
    }

    /// Returns the open event that takes the largest part of a sender's memory. If several events take the same amount
    /// of memory, the function returns the one that has had no accepted segment for the longest time.
    pub(super) fn largest_of(&self, sender: u32) -> Option<u32> {
        self.open_of(sender).max_by_key(|&at| (self.at(at).memory, Reverse(self.at(at).touched)))
    }

    /// Returns as many of a sender's longest open events as are needed for a total length of `bytes` bytes, but at most
    /// [`MOST_EVICTED`] events. The second value is the total length of the returned events in bytes. If events have
    /// equal lengths, the function prefers the one that has had no accepted segment for the longest time.
    pub(super) fn longest_of(&self, sender: u32, bytes: u64) -> (ArrayVec<u32, MOST_EVICTED>, u64) {
        let rank = |at: u32| (self.at(at).length, Reverse(self.at(at).touched));
        let mut longest = ArrayVec::<u32, MOST_EVICTED>::new();
        for at in self.open_of(sender) {
            let place = longest.partition_point(|&other| rank(other) >= rank(at));
            if place < MOST_EVICTED {
                longest.truncate(MOST_EVICTED - 1);
                longest.insert(place, at);
            }
        }
        let mut sum = 0;
        longest.retain(|at| {
            let is_needed = sum < bytes;
            sum += if is_needed { u64::from(self.at(*at).length) } else { 0 };
            is_needed
        });
        (longest, sum)
    }

    fn open_of(&self, sender: u32) -> impl Iterator<Item = u32> {
        self.links_of.of(&self.stale_of[sender as usize])
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Opens an event, which must not be open already. Returns the event buffer of the event, or `None` if no buffer is
    /// free.
    pub(super) fn open(&mut self, now: Time, key: Key, length: u32, tick: Option<u64>) -> Option<u32> {
        let at = self.free.pop()?;
        let buffer = &mut self.buffers[at as usize];
        buffer.generation = buffer.generation.wrapping_add(1);
        (buffer.state, buffer.key, buffer.length, buffer.tick) = (State::Open, key, length, tick);
        (buffer.opened, buffer.touched) = (now, now);
        self.index.insert(key, at);
        self.recent[recent_of(&key)] = at;
        self.links.push(&mut self.stale, at);
        self.links_old.push(&mut self.old, at);
        self.links_of.push(&mut self.stale_of[key.sender.at as usize], at);
        self.open += 1;
        self.claimed += u64::from(length);
        self.claimed_of[key.sender.at as usize] += u64::from(length);
        Some(at)
    }

    /// Records that a part of an event has arrived. The caller must make sure that there is memory for the part.
    /// Returns true if the event is complete now.
    #[inline]
    pub(super) fn add(
        &mut self,
        now: Time,
        at: u32,
        (part, gap): (Range<u32>, Gap),
        length: u32,
        chunks: &mut Chunks,
    ) -> Result<bool, SegmentDropCause> {
        let before = self.at(at).memory;
        let memory = (before + self.touched_by(&part)).min(self.whole_pages(length));
        let buffer = &mut self.buffers[at as usize];
        buffer.cover.add(part, gap, length, chunks)?;
        self.memory += memory - before;
        self.memory_of[buffer.key.sender.at as usize] += memory - before;
        buffer.memory = memory;
        buffer.touched = now;
        let (complete, sender) = (buffer.cover.received() == length, buffer.key.sender.at);
        if complete {
            buffer.state = State::Complete;
            self.unlist(at, sender);
        } else {
            self.links.touch(&mut self.stale, at);
            self.links_of.touch(&mut self.stale_of[sender as usize], at);
        }
        Ok(complete)
    }

    /// Checks the segment with the bytes `part` of an event. Returns the location in the event's [`Cover`] at which the
    /// arrival of these bytes must be recorded; the `Cover` says which bytes have arrived. `length` and `tick` are the
    /// event's length and tick in the headers of this segment.
    #[inline]
    pub(super) fn check(
        &mut self,
        at: u32,
        part: &Range<u32>,
        length: u32,
        tick: Option<u64>,
        chunks: &Chunks,
    ) -> Result<Gap, SegmentDropCause> {
        let buffer = &mut self.buffers[at as usize];
        if buffer.length != length || buffer.tick.zip(tick).is_some_and(|(its, tick)| its != tick) {
            return Err(SegmentDropCause::Conflict);
        }
        match buffer.state {
            State::Complete => Err(SegmentDropCause::Duplicate),
            _ => buffer.cover.check(part, length, chunks),
        }
    }

    fn unlist(&mut self, at: u32, sender: u32) {
        self.memory_of[sender as usize] -= self.at(at).memory;
        self.claimed_of[sender as usize] -= u64::from(self.at(at).length);
        self.links.remove(&mut self.stale, at);
        self.links_old.remove(&mut self.old, at);
        self.links_of.remove(&mut self.stale_of[sender as usize], at);
        self.open -= 1;
    }

    /// Returns true if an event has bitmap blocks, which record arrived segments.
    pub(super) fn has_cells(&self, at: u32) -> bool {
        self.at(at).cover.has_cells()
    }

    /// Takes the bitmap blocks, which record arrived segments, from an event that ended. The caller must free the
    /// blocks.
    pub(super) fn take_cells(&mut self, at: u32) -> Chain {
        mem::replace(&mut self.buffers[at as usize].cover, Cover::new(at)).into_cells()
    }

    /// Frees the buffer of an event.
    pub(super) fn close(&mut self, at: u32) {
        let buffer = &mut self.buffers[at as usize];
        let (state, key) = (mem::replace(&mut buffer.state, State::Free), buffer.key);
        if state == State::Open {
            self.unlist(at, key.sender.at);
        }
        self.memory -= mem::take(&mut self.buffers[at as usize].memory);
        self.claimed -= u64::from(self.at(at).length);
        self.index.remove(&key);
        self.free.push(at);
    }
}

#[inline]
fn recent_of(key: &Key) -> usize {
    (key.name.event as usize ^ usize::from(key.name.data_id) ^ key.sender.at as usize) % RECENT
}
