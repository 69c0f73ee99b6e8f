//! The record of which bytes of an event have arrived.
//!
//! The record has two parts: a list of intervals, and a bitmap. Each byte that has arrived is recorded in
//! exactly one of the two parts.
//!
//! An interval is a range of bytes that have all arrived. A few intervals are enough for an event whose
//! segments arrive nearly in order, whatever the lengths of the segments are.
//!
//! The bitmap divides the event into cells, which are ranges of equal length. Only the last cell of an event may be
//! shorter. Each cell has one bit. If the bit is set, all bytes of the cell have arrived. The length of a cell is
//! called the stride of the event. The first segment that meets three conditions decides the stride, which is the
//! length of this segment. The segment must have at least [`LEAST_STRIDE`] bytes, begin at a multiple of its own
//! length, and not end at the end of the event.
//!
//! The bitmap is used from the time when a new interval does not fit into the full list. Intervals that begin and end
//! at the borders of such cells are then moved to the bitmap. If the bitmap needs another block and no block is free, the rest
//! of these intervals stays in the list. Once the bitmap is used, a segment that fills exactly one cell is recorded in
//! the bitmap. There are two exceptions. If the segment is adjacent to an interval, it becomes part of this interval.
//! If the bitmap needs another block and no block is free, the segment becomes a new interval in the list.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::{
    SegmentDropCause,
    chunks::{Cell, Chain, Chunks},
};

const INTERVALS: usize = 24;
/// The minimum of [`Cover::stride`]. The stride is the number of an event's bytes for which one bit of the event's
/// bitmap stands. If one bit could stand for fewer bytes, a bitmap could need more blocks, and a sender of short
/// segments could take all bitmap blocks. If a sender has an MTU of at least `SegmentSize::LEAST_MTU`, which is 576,
/// its segments are longer than this minimum. Only the last segment of an event may be shorter.
const LEAST_STRIDE: u32 = 256;

#[derive(Clone, Debug)]
pub(super) struct Cover {
    /// The ranges of bytes that have arrived and are not recorded in the bitmap, in ascending order. The ranges neither
    /// touch nor overlap each other.
    intervals: ArrayVec<(u32, u32), INTERVALS>,
    /// The number of bytes for which one bit of the event's bitmap stands, or 0 if no segment has decided
    /// this number yet.
    stride: u32,
    received: u32,
    cells: Chain,
}

/// The location in a [`Cover`] at which the arrival of a new segment is recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// The index of the first interval that ends after the first byte of the segment.
    interval: usize,
    /// The bit in the event's bitmap that stands for exactly the segment's bytes. The value is `None` if no bit does
    /// so, or if the event has no bitmap yet.
    cell: Option<Cell>,
}

impl Cover {
    pub(super) fn new(buffer: u32) -> Self {
        Self { intervals: ArrayVec::new(), stride: 0, received: 0, cells: Chain::new(buffer) }
    }

    #[inline]
    pub(super) fn received(&self) -> u32 {
        self.received
    }

    pub(super) fn has_cells(&self) -> bool {
        !self.cells.is_empty()
    }

    pub(super) fn into_cells(self) -> Chain {
        self.cells
    }

    /// Returns the [`Gap`] by which [`Cover::add`] records that the bytes `bytes` of a segment have arrived. `bytes`
    /// must not be empty and must lie inside the event, which has `length` bytes. Returns an error if any byte in
    /// `bytes` has arrived already.
    #[inline]
    pub(super) fn check(
        &mut self,
        bytes: &Range<u32>,
        length: u32,
        chunks: &Chunks,
    ) -> Result<Gap, SegmentDropCause> {
        let interval = self.ending_behind(bytes.start);
        if let Some(&(start, end)) = self.intervals.get(interval)
            && start < bytes.end
        {
            let inside = start <= bytes.start && bytes.end <= end;
            return Err(if inside { SegmentDropCause::Duplicate } else { SegmentDropCause::Overlap });
        }
        Ok(Gap { interval, cell: self.check_cells(bytes, length, chunks)? })
    }

    #[inline]
    fn ending_behind(&self, byte: u32) -> usize {
        // If segments arrive in order, no interval ends after `byte`, and the binary search is not necessary.
        let none = self.intervals.last().is_none_or(|&(_, end)| end <= byte);
        let first = || self.intervals.partition_point(|&(_, end)| end <= byte);
        if none { self.intervals.len() } else { first() }
    }

    /// Records bytes that have not arrived before.
    #[inline]
    pub(super) fn add(
        &mut self,
        bytes: Range<u32>,
        gap: Gap,
        length: u32,
        chunks: &mut Chunks,
    ) -> Result<(), SegmentDropCause> {
        let len = bytes.end - bytes.start;
        if self.stride == 0 && len >= LEAST_STRIDE && bytes.end != length && bytes.start.is_multiple_of(len) {
            self.stride = len;
        }
        if !self.merge(gap.interval, &bytes) {
            self.put(&bytes, gap, length, chunks)?;
        }
        self.received += len;
        Ok(())
    }

    /// Returns the bit in the event's bitmap that stands for exactly `bytes`. The caller has checked that no interval
    /// in the list overlaps `bytes`. Returns `None` if the event has no bitmap yet, or if no bit stands for exactly
    /// `bytes`. Returns an error if the bitmap shows that some of `bytes` have arrived already.
    #[inline]
    fn check_cells(
        &mut self,
        bytes: &Range<u32>,
        length: u32,
        chunks: &Chunks,
    ) -> Result<Option<Cell>, SegmentDropCause> {
        if self.cells.is_empty() {
            return Ok(None);
        }
        let first = bytes.start / self.stride;
        let begin = first * self.stride;
        if bytes.end - begin <= self.stride {
            let cell = chunks.cell(&mut self.cells, first);
            let there = chunks.is_set(cell);
            let whole = bytes.end - bytes.start == self.stride || bytes.end == length;
            let fills = bytes.start == begin && whole;
            return if there { Err(SegmentDropCause::Duplicate) } else { Ok(fills.then_some(cell)) };
        }
        match chunks.any_and_all(&mut self.cells, first..=(bytes.end - 1) / self.stride) {
            (false, _) => Ok(None),
            (true, true) => Err(SegmentDropCause::Duplicate),
            (true, false) => Err(SegmentDropCause::Overlap),
        }
    }

    /// Extends an adjacent interval by `bytes`. If two intervals are adjacent to `bytes`, they become one interval.
    /// `at` is the index of the first interval that ends after the first byte of `bytes`. Returns false if no interval
    /// is adjacent to `bytes`.
    #[inline]
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

    /// Records bytes that touch no existing interval. The bytes are recorded as a bit in the event's bitmap or as a new
    /// interval.
    #[inline]
    fn put(
        &mut self,
        bytes: &Range<u32>,
        gap: Gap,
        length: u32,
        chunks: &mut Chunks,
    ) -> Result<(), SegmentDropCause> {
        if gap.cell.is_some_and(|cell| chunks.set(&mut self.cells, cell)) {
            return Ok(());
        }
        let new = (bytes.start, bytes.end);
        if self.intervals.try_insert(gap.interval, new).is_ok() {
            return Ok(());
        }
        self.spill(length, chunks);
        let one = bytes.end - bytes.start <= self.stride && self.is_regular(bytes, length);
        if one && chunks.set_segment(&mut self.cells, bytes.start / self.stride) {
            return Ok(());
        }
        let at = self.ending_behind(bytes.start);
        let full = if one { SegmentDropCause::Memory } else { SegmentDropCause::Scattered };
        self.intervals.try_insert(at, new).map_err(|_| full)
    }

    /// Returns true if `bytes` are one or more whole cells, which are the ranges of bytes for which the single bits of
    /// the event's bitmap stand. Such bytes begin at a multiple of [`Cover::stride`], and end at a multiple of `stride`
    /// or at the end of the event.
    fn is_regular(&self, bytes: &Range<u32>, length: u32) -> bool {
        let on_stride = |byte: u32| byte.is_multiple_of(self.stride);
        self.stride != 0 && on_stride(bytes.start) && (bytes.end == length || on_stride(bytes.end))
    }

    /// Moves intervals from `intervals` to the event's bitmap. An interval can be moved if it consists of
    /// whole cells, which are the ranges of bytes for which the single bits of the bitmap stand. If the
    /// bitmap needs another block and no block is free, the rest of the interval stays in `intervals`.
    fn spill(&mut self, length: u32, chunks: &mut Chunks) {
        let mut intervals = std::mem::take(&mut self.intervals);
        intervals.retain(|(start, end)| {
            let regular = self.is_regular(&(*start..*end), length);
            while regular && start < end && chunks.set_segment(&mut self.cells, *start / self.stride) {
                *start = (*end).min(start.saturating_add(self.stride));
            }
            start < end
        });
        self.intervals = intervals;
    }
}
