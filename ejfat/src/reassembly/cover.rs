//! Which bytes of an event have arrived.
//!
//! A few intervals serve events whose segments come about in order, and any way of cutting them. Shuffled segments are
//! bits once intervals run out: of cells as long as the first segment, the stride. Every byte accepted is in one
//! interval or one cell, so events are complete when their number is the length.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::{
    Cause,
    chunks::{Chain, Chunks},
};

const INTERVALS: usize = 24;
/// Shorter segments than any MTU makes get no cells: a few could take all blocks there are.
const LEAST_STRIDE: u32 = 256;

#[derive(Clone, Debug)]
pub(super) struct Cover {
    /// Sorted, neither touching nor overlapping.
    intervals: ArrayVec<(u32, u32), INTERVALS>,
    /// Bytes of a cell; 0 if no segment gave one.
    stride: u32,
    received: u32,
    cells: Chain,
}

impl Cover {
    pub(super) fn new(slot: u32) -> Self {
        Self { intervals: ArrayVec::new(), stride: 0, received: 0, cells: Chain::new(slot) }
    }

    pub(super) fn received(&self) -> u32 {
        self.received
    }

    pub(super) fn into_cells(self) -> Chain {
        self.cells
    }

    /// Whether none of these bytes is there, which are inside the event and not empty.
    pub(super) fn check(&mut self, bytes: &Range<u32>, chunks: &Chunks) -> Result<(), Cause> {
        if let Some(&(start, end)) = self.intervals.get(self.ending_behind(bytes.start))
            && start < bytes.end
        {
            let inside = start <= bytes.start && bytes.end <= end;
            return Err(if inside { Cause::Duplicate } else { Cause::Overlap });
        }
        self.not_in_cells(bytes, chunks)
    }

    /// The first interval that ends behind a byte.
    fn ending_behind(&self, byte: u32) -> usize {
        self.intervals.partition_point(|&(_, end)| end <= byte)
    }

    /// Accepts bytes of which none is there.
    pub(super) fn add(&mut self, bytes: Range<u32>, length: u32, chunks: &mut Chunks) -> Result<(), Cause> {
        let last = bytes.end == length;
        let len = bytes.end - bytes.start;
        if self.stride == 0 && !last && len >= LEAST_STRIDE && bytes.start.is_multiple_of(len) {
            self.stride = len;
        }
        let at = self.ending_behind(bytes.start);
        if !self.merge(at, &bytes) {
            let regular = self.stride != 0 && bytes.start.is_multiple_of(self.stride);
            let regular = regular && (len == self.stride || last && len < self.stride);
            if !self.intervals.is_full() {
                self.intervals.insert(at, (bytes.start, bytes.end));
            } else if !regular {
                return Err(Cause::Scattered);
            } else if !chunks.set(&mut self.cells, bytes.start / self.stride) {
                return Err(Cause::Memory);
            }
        }
        self.received += len;
        Ok(())
    }

    fn not_in_cells(&mut self, bytes: &Range<u32>, chunks: &Chunks) -> Result<(), Cause> {
        if self.cells.is_empty() {
            return Ok(());
        }
        let cells = bytes.start / self.stride..=(bytes.end - 1) / self.stride;
        match chunks.any_and_all(&mut self.cells, cells) {
            (false, _) => Ok(()),
            (true, true) => Err(Cause::Duplicate),
            (true, false) => Err(Cause::Overlap),
        }
    }

    /// Makes an interval longer that the bytes touch; `at` is the first that ends behind their beginning.
    fn merge(&mut self, at: usize, bytes: &Range<u32>) -> bool {
        let after = self.intervals.get(at).is_some_and(|&(start, _)| start == bytes.end);
        let before = at.checked_sub(1).filter(|&before| self.intervals[before].1 == bytes.start);
        match (before, after) {
            (Some(before), true) => {
                self.intervals[before].1 = self.intervals[at].1;
                self.intervals.remove(at);
            }
            (Some(before), false) => self.intervals[before].1 = bytes.end,
            (None, true) => self.intervals[at].0 = bytes.start,
            (None, false) => return false,
        }
        true
    }
}
