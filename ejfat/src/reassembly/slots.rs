//! Events that are open, or complete and not released.

use std::{collections::HashMap, mem, ops::Range};

use foldhash::quality::FixedState;

use super::{
    Cause, Config, EventId, Incomplete, Key, Name,
    chunks::{Chain, Chunks},
    cover::Cover,
    lists::{Links, List, NONE},
    sources::SourceId,
};
use crate::Time;

const PAGE: u64 = 4096;

#[derive(Clone, Debug)]
struct Slot {
    generation: u32,
    state: State,
    key: Key,
    length: u32,
    cover: Cover,
    /// Bytes of pages that its segments touched, at most its own.
    memory: u64,
    /// By the segment accepted last.
    touched: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Complete,
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashMap<Key, u32, FixedState>,
    /// Open events, the stalest first.
    stale: List,
    links: Links,
    /// The same for each source.
    stale_of: Vec<List>,
    links_of: Links,
    open: u32,
    memory: u64,
    most_memory: u64,
}

fn whole_pages(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(PAGE)
}

/// Bytes of the pages that a part of an event touches, wherever in memory pages begin.
fn touched_by(part: &Range<u32>, length: u32) -> u64 {
    let end = u64::from(part.end).next_multiple_of(PAGE);
    (end - u64::from(part.start) / PAGE * PAGE).min(whole_pages(length))
}

impl Slots {
    pub(super) fn new(config: &Config) -> Self {
        let name = Name { event: 0, data_id: 0 };
        let slot = |at| Slot {
            generation: 0,
            state: State::Free,
            key: Key { name, source: SourceId::default() },
            length: 0,
            cover: Cover::new(at),
            memory: 0,
            touched: Time::default(),
        };
        let hash = FixedState::with_seed(config.seed);
        Self {
            slots: (0..config.slots).map(slot).collect(),
            free: (0..config.slots).rev().collect(),
            // Twice the entries: removed ones are then cleaned up in place.
            index: HashMap::with_capacity_and_hasher(2 * config.slots as usize, hash),
            stale: List::default(),
            links: Links::new(config.slots),
            stale_of: vec![List::default(); config.max_sources as usize + 1],
            links_of: Links::new(config.slots),
            open: 0,
            memory: 0,
            most_memory: config.memory,
        }
    }

    fn at(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.index.get(key).copied()
    }

    pub(super) fn id(&self, slot: u32) -> EventId {
        EventId { slot, generation: self.at(slot).generation }
    }

    /// The slot of an event that is open or complete.
    pub(super) fn slot(&self, id: EventId) -> Option<u32> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && slot.state != State::Free).then_some(id.slot)
    }

    pub(super) fn key(&self, slot: u32) -> Key {
        self.at(slot).key
    }

    pub(super) fn touched(&self, slot: u32) -> Time {
        self.at(slot).touched
    }

    pub(super) fn is_complete(&self, slot: u32) -> bool {
        self.at(slot).state == State::Complete
    }

    pub(super) fn incomplete(&self, slot: u32) -> Incomplete {
        let Slot { key, length, cover, .. } = self.at(slot);
        Incomplete { id: self.id(slot), name: key.name, length: *length, received: cover.received() }
    }

    pub(super) fn stalest(&self) -> Option<u32> {
        Some(self.stale.first).filter(|&slot| slot != NONE)
    }

    pub(super) fn stalest_of(&self, source: u32) -> Option<u32> {
        Some(self.stale_of[source as usize].first).filter(|&slot| slot != NONE)
    }

    pub(super) fn open_events(&self) -> u32 {
        self.open
    }

    pub(super) fn touched_memory(&self) -> u64 {
        self.memory
    }

    pub(super) fn has_memory_for(&self, part: &Range<u32>, length: u32) -> bool {
        self.memory + touched_by(part, length) <= self.most_memory
    }

    /// A slot for an event that is not there, if one is free.
    pub(super) fn open(&mut self, key: Key, length: u32) -> Option<u32> {
        let at = self.free.pop()?;
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.state, slot.key, slot.length) = (State::Open, key, length);
        self.index.insert(key, at);
        self.links.push(&mut self.stale, at);
        self.links_of.push(&mut self.stale_of[key.source.at as usize], at);
        self.open += 1;
        Some(at)
    }

    /// Accepts a part of an event; true if it is complete with it.
    pub(super) fn add(
        &mut self,
        now: Time,
        at: u32,
        part: Range<u32>,
        length: u32,
        chunks: &mut Chunks,
    ) -> Result<bool, Cause> {
        let slot = &mut self.slots[at as usize];
        if slot.length != length {
            return Err(Cause::Length);
        }
        if slot.state == State::Complete {
            return Err(Cause::Duplicate);
        }
        let memory = (slot.memory + touched_by(&part, length)).min(whole_pages(length));
        if self.memory - slot.memory + memory > self.most_memory {
            return Err(Cause::Memory);
        }
        slot.cover.add(part, length, chunks)?;
        self.memory += memory - slot.memory;
        slot.memory = memory;
        slot.touched = now;
        let (complete, source) = (slot.cover.received() == length, slot.key.source.at);
        if complete {
            slot.state = State::Complete;
            self.unlist(at, source);
        } else {
            self.links.touch(&mut self.stale, at);
            self.links_of.touch(&mut self.stale_of[source as usize], at);
        }
        Ok(complete)
    }

    fn unlist(&mut self, at: u32, source: u32) {
        self.links.remove(&mut self.stale, at);
        self.links_of.remove(&mut self.stale_of[source as usize], at);
        self.open -= 1;
    }

    /// What is known of the bytes of an event, which is over.
    pub(super) fn take_cells(&mut self, at: u32) -> Chain {
        mem::replace(&mut self.slots[at as usize].cover, Cover::new(at)).into_cells()
    }

    /// The memory of an event is free.
    pub(super) fn close(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        let (state, key) = (mem::replace(&mut slot.state, State::Free), slot.key);
        self.memory -= mem::take(&mut slot.memory);
        if state == State::Open {
            self.unlist(at, key.source.at);
        }
        self.index.remove(&key);
        self.free.push(at);
    }
}
