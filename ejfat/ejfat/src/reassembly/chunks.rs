//! Bitmaps that record which segments of an event have arrived. A bitmap consists of blocks of 512 bits, and a bitmap
//! gets a block when the first segment with a bit in this block arrives.

use std::{collections::HashMap, ops::RangeInclusive};

use foldhash::quality::FixedState;

use super::lists::NONE;

/// The number of segments for which one bitmap block has bits.
pub(super) const SEGMENTS: u32 = 512;
/// The number of bitmap blocks that `Chain::recent` remembers. A remembered block is found without a look-up
/// in `Chunks::index`. If segments arrive out of order, successive segments may have bits in different
/// blocks, so several blocks are remembered.
const RECENT: usize = 4;

/// The bitmap of one event, as a linked list of blocks. A set bit records that a segment has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    buffer: u32,
    first: u32,
    /// Recently used blocks of this list. Element i is for the blocks whose number in the event has the remainder i
    /// when it is divided by [`RECENT`]. Each pair has the number of a block in the event, and the index of the block
    /// in `Chunks::chunks`.
    recent: [(u32, u32); RECENT],
}

impl Chain {
    pub(super) fn new(buffer: u32) -> Self {
        Self { buffer, first: NONE, recent: [(NONE, NONE); RECENT] }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// The position of a segment's bit in the bitmap of an event. If the bit is set, the segment has arrived. `chunk` is
/// the index in `Chunks::chunks` of the bitmap block with this bit, or `None` if the event does not have this bitmap
/// block yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    chunk: Option<u32>,
    segment: u32,
}

#[derive(Clone, Debug)]
struct Chunk {
    bits: [u64; SEGMENTS as usize / 64],
    number: u32,
    next: u32,
}

/// All used and free bitmap blocks of a reassembler.
#[derive(Debug)]
pub(super) struct Chunks {
    chunks: Vec<Chunk>,
    free: u32,
    /// The index in `chunks` of each used bitmap block. The key consists of an event buffer and the number of the block
    /// in the event.
    index: HashMap<(u32, u32), u32, FixedState>,
}

impl Chunks {
    pub(super) fn new(count: u32, seed: u64) -> Self {
        let chunk = |at| Chunk {
            bits: Default::default(),
            number: 0,
            next: if at + 1 == count { NONE } else { at + 1 },
        };
        // The hash table has twice the capacity that its entries need, so it is at most half full. Such a hash table
        // can use the places of removed entries again, and allocates no memory later.
        let index = HashMap::with_capacity_and_hasher(2 * count as usize, FixedState::with_seed(seed));
        Self { chunks: (0..count).map(chunk).collect(), free: 0, index }
    }

    /// Returns true if any bitmap block is free.
    pub(super) fn has_free(&self) -> bool {
        self.free != NONE
    }

    #[inline]
    fn find(&self, chain: &mut Chain, number: u32) -> Option<u32> {
        if chain.is_empty() {
            return None;
        }
        let recent = &mut chain.recent[number as usize % RECENT];
        if recent.0 != number {
            *recent = (number, *self.index.get(&(chain.buffer, number))?);
        }
        Some(recent.1)
    }

    /// Returns the position of the bit of segment `segment` in the bitmap `chain`.
    #[inline]
    pub(super) fn cell(&self, chain: &mut Chain, segment: u32) -> Cell {
        Cell { chunk: self.find(chain, segment / SEGMENTS), segment }
    }

    #[inline]
    pub(super) fn is_set(&self, Cell { chunk, segment }: Cell) -> bool {
        let bits = |at: u32| self.chunks[at as usize].bits[(segment % SEGMENTS / 64) as usize];
        chunk.is_some_and(|at| bits(at) >> (segment % 64) & 1 == 1)
    }

    /// Returns two values: whether the bitmap records that any segment in `segments` has arrived, and whether it
    /// records that all of them have arrived.
    pub(super) fn any_and_all(&self, chain: &mut Chain, segments: RangeInclusive<u32>) -> (bool, bool) {
        let (mut any, mut all) = (false, true);
        if chain.is_empty() {
            return (false, false);
        }
        let (first, last) = segments.into_inner();
        for word in first / 64..=last / 64 {
            let low = if word == first / 64 { first % 64 } else { 0 };
            let high = if word == last / 64 { last % 64 } else { 63 };
            let mask = (u64::MAX >> (63 - high)) & (u64::MAX << low);
            let chunk = self.find(chain, word * 64 / SEGMENTS);
            let bits = chunk.map_or(0, |at| self.chunks[at as usize].bits[(word % (SEGMENTS / 64)) as usize]);
            any |= bits & mask != 0;
            all &= bits & mask == mask;
        }
        (any, all)
    }

    pub(super) fn set_segment(&mut self, chain: &mut Chain, segment: u32) -> bool {
        let cell = self.cell(chain, segment);
        self.set(chain, cell)
    }

    /// Sets the bit of a segment, which records that the segment has arrived. Returns false if the bitmap needs another
    /// block and no block is free.
    #[inline]
    pub(super) fn set(&mut self, chain: &mut Chain, Cell { chunk, segment }: Cell) -> bool {
        let Some(at) = chunk.or_else(|| self.take(chain, segment / SEGMENTS)) else { return false };
        self.chunks[at as usize].bits[(segment % SEGMENTS / 64) as usize] |= 1 << (segment % 64);
        true
    }

    fn take(&mut self, chain: &mut Chain, number: u32) -> Option<u32> {
        let at = self.free;
        let chunk = self.chunks.get_mut(at as usize)?;
        self.free = chunk.next;
        *chunk = Chunk { bits: Default::default(), number, next: chain.first };
        chain.first = at;
        chain.recent[number as usize % RECENT] = (number, at);
        self.index.insert((chain.buffer, number), at);
        Some(at)
    }

    pub(super) fn free(&mut self, chain: Chain) {
        let mut at = chain.first;
        while let Some(chunk) = self.chunks.get_mut(at as usize) {
            let next = chunk.next;
            self.index.remove(&(chain.buffer, chunk.number));
            chunk.next = self.free;
            self.free = at;
            at = next;
        }
    }
}
