//! A ring as its worker has it: what was given, and what is given back.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use ejfat::ring::{BLOCK, Geometry, Given, Reader, ReaderError};

use crate::{credits::Credits, memory::RingMemory};

#[derive(Debug)]
pub(crate) struct WorkerRing {
    memory: RingMemory,
    state: Mutex<State>,
    /// Events that the program has, of this ring and those before.
    held: Arc<AtomicU64>,
}

#[derive(Debug)]
struct State {
    reader: Reader,
    credits: Credits,
    /// The worker waits, so that nobody sends credit later.
    waits: bool,
}

impl WorkerRing {
    /// `again`: whether the bridge may mark events as delivered again.
    pub(crate) fn new(
        (geometry, again): (Geometry, bool),
        memory: RingMemory,
        credits: Credits,
        held: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let state = State { reader: Reader::new(geometry, again), credits, waits: false };
        Arc::new(Self { memory, state: Mutex::new(state), held })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event, which has that sequence number; `None`: the one that is due. `descriptor` reads it.
    pub(crate) fn take(
        &self,
        sequence: Option<u32>,
        descriptor: impl FnOnce(usize) -> [u8; BLOCK],
    ) -> Result<Given, ReaderError> {
        let mut state = self.state();
        let reader = &mut state.reader;
        let sequence = sequence.unwrap_or(reader.next_sequence());
        let given = reader.handle(sequence, &descriptor(reader.descriptor_at()))?;
        state.waits = false;
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(given)
    }

    pub(crate) fn give_back(&self, given: Given) {
        let mut state = self.state();
        let (word, generation) = state.reader.credit(given);
        let soon = state.waits;
        state.credits.give(word, generation, given.descriptor().slots, soon);
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends credit that waits for more of it: the worker has nothing to do. From now on credit is sent at once, until
    /// the next event.
    pub(crate) fn set_idle(&self) {
        let mut state = self.state();
        state.waits = true;
        state.credits.flush();
    }

    /// The bridge is gone.
    pub(crate) fn end(&self) {
        self.state().credits = Credits::Nowhere;
    }

    /// Copies bytes of an event from `offset` on.
    pub(crate) fn read(&self, given: &Given, offset: usize, out: &mut [u8]) {
        let (start, len) = range(given);
        assert!(
            offset <= len && out.len() <= len - offset,
            "{} bytes at {offset} do not lie inside an event of {len}",
            out.len()
        );
        self.memory.read(start + offset, out);
    }

    /// Copies an event piece by piece.
    pub(crate) fn try_pieces<const N: usize, E>(
        &self,
        given: &Given,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (start, len) = range(given);
        self.memory.try_pieces::<N, E>(start, len, take)
    }

    pub(crate) fn start(&self, given: &Given) -> *const u8 {
        let (start, len) = range(given);
        self.memory.at(start, len)
    }
}

/// Where an event lies in the ring, and how many bytes it has. The reader saw that it lies inside.
fn range(given: &Given) -> (usize, usize) {
    let descriptor = given.descriptor();
    (descriptor.offset as usize, descriptor.length as usize)
}
