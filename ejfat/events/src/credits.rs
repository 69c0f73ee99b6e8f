//! Credit on its way to a bridge.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ejfat::ring::{CREDIT, Geometry, call::Parameter, shared};
use naa_host::Writer;

use crate::memory::SharedFile;

/// Credit that few others join goes out after this.
const LATEST: Duration = Duration::from_millis(1);
/// Words that are sent again to save a WRITE: a packet's headers are as long.
const GAP: usize = 16;
/// WRITEs posted at once.
const TOGETHER: usize = 16;

#[derive(Debug)]
pub(crate) enum Credits {
    Rdma(Box<RdmaCredits>),
    Shared(SharedCredits),
    /// The bridge is gone.
    Nowhere,
}

impl Credits {
    /// Gives back the slots of an event. Soon, if `soon`, and else with others.
    pub(crate) fn give(&mut self, word: u32, generation: u32, slots: u32, soon: bool) {
        match self {
            Self::Rdma(rdma) => rdma.give(word, generation, slots, soon),
            Self::Shared(shared) => shared.give(word, generation),
            Self::Nowhere => {}
        }
    }

    /// Sends what waits, as far as there is room. Whether the bridge is there, its completions tell.
    pub(crate) fn flush(&mut self) {
        if let Self::Rdma(rdma) = self {
            rdma.flush();
        }
    }
}

/// Credits in memory that bridge and worker map.
#[derive(Debug)]
pub(crate) struct SharedCredits {
    geometry: Geometry,
    file: Arc<SharedFile>,
    count: u32,
}

impl SharedCredits {
    pub(crate) fn new(geometry: Geometry, file: Arc<SharedFile>) -> Self {
        Self { geometry, file, count: 0 }
    }

    fn give(&mut self, word: u32, generation: u32) {
        self.count = self.count.wrapping_add(1);
        // Everything that was read of the event, before; the word before the count.
        self.file.store(self.geometry.credit_at(word), generation.to_le(), Ordering::Release);
        self.file.store(shared::COUNT_AT, self.count.to_le(), Ordering::Release);
    }
}

/// In the bridge's region, by WRITEs.
#[derive(Debug)]
pub(crate) struct RdmaCredits {
    geometry: Geometry,
    writer: Writer,
    /// As the bridge has them, or will.
    words: Vec<u8>,
    /// A bit for each word that the bridge has not.
    dirty: Vec<u64>,
    /// Slots that wait to be given back.
    pending: u32,
    count: u32,
    /// Words went out and the count did not.
    uncounted: bool,
    flushed: Instant,
}

impl RdmaCredits {
    pub(crate) fn new(geometry: Geometry, writer: Writer) -> Self {
        let slots = geometry.slots() as usize;
        Self {
            geometry,
            writer,
            words: vec![0; slots * CREDIT],
            dirty: vec![0; slots.div_ceil(64)],
            pending: 0,
            count: 0,
            uncounted: false,
            flushed: Instant::now(),
        }
    }

    fn give(&mut self, word: u32, generation: u32, slots: u32, soon: bool) {
        let at = word as usize;
        self.words[at * CREDIT..][..CREDIT].copy_from_slice(&generation.to_le_bytes());
        self.dirty[at / 64] |= 1 << (at % 64);
        self.pending += slots;
        let many = (self.geometry.slots() / 8).max(1);
        if soon || self.pending >= many || self.flushed.elapsed() >= LATEST {
            self.flush();
        }
    }

    fn flush(&mut self) {
        while self.pending > 0 {
            // One is for the count.
            let room = self.writer.room().saturating_sub(1).min(TOGETHER);
            if room == 0 || !self.write(room) {
                break;
            }
        }
        if self.uncounted && self.writer.room() > 0 {
            let count = self.count.wrapping_add(1);
            if let Ok(1) =
                self.writer.write(Parameter::Credits.number(), &[(shared::COUNT_AT, &count.to_le_bytes())])
            {
                (self.count, self.uncounted) = (count, false);
                self.flushed = Instant::now();
            }
        }
    }

    /// Writes at most so many runs of words. False if there is nobody to write to.
    fn write(&mut self, room: usize) -> bool {
        let most = (self.writer.max_bytes() / CREDIT).max(1);
        let mut runs = [(0, 0); TOGETHER];
        let (mut count, mut from) = (0, 0);
        while count < room
            && let Some((first, end)) = run(&self.dirty, from, most)
        {
            runs[count] = (first, end);
            (count, from) = (count + 1, end);
        }
        let mut parts: [(usize, &[u8]); TOGETHER] = [(0, &[]); TOGETHER];
        for (part, &(first, end)) in parts.iter_mut().zip(&runs[..count]) {
            *part = (self.geometry.credit_at(first as u32), &self.words[first * CREDIT..end * CREDIT]);
        }
        if !matches!(self.writer.write(Parameter::Credits.number(), &parts[..count]), Ok(posted) if posted == count)
        {
            return false;
        }
        for &(first, end) in &runs[..count] {
            for at in first..end {
                self.dirty[at / 64] &= !(1 << (at % 64));
            }
        }
        if self.dirty.iter().all(|&word| word == 0) {
            self.pending = 0;
        }
        self.uncounted = true;
        true
    }
}

/// The first dirty word from `from` on, and the end of the run of at most `most` that is written with it. Words between
/// two dirty ones are as the bridge has them.
fn run(dirty: &[u64], from: usize, most: usize) -> Option<(usize, usize)> {
    let first = next(dirty, from)?;
    let mut end = first + 1;
    while let Some(at) = next(dirty, end).filter(|at| at - end <= GAP && at + 1 - first <= most) {
        end = at + 1;
    }
    Some((first, end))
}

fn next(dirty: &[u64], from: usize) -> Option<usize> {
    let mut at = from / 64;
    let mut word = dirty.get(at)? >> (from % 64) << (from % 64);
    while word == 0 {
        at += 1;
        word = *dirty.get(at)?;
    }
    Some(at * 64 + word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_bridge_small_gaps_and_no_large_ones() {
        let mut dirty = [0_u64; 3];
        for at in [0, 1, 17, 35, 63, 64, 190] {
            dirty[at / 64] |= 1 << (at % 64);
        }
        let all = |most| {
            let (mut runs, mut from) = (Vec::new(), 0);
            while let Some(found) = run(&dirty, from, most) {
                runs.push(found);
                from = found.1;
            }
            runs
        };
        assert_eq!(all(128), [(0, 18), (35, 36), (63, 65), (190, 191)]);
        assert_eq!(all(2), [(0, 2), (17, 18), (35, 36), (63, 65), (190, 191)]);
        assert_eq!(all(1).len(), 7);
        assert_eq!(run(&[0; 2], 0, 9), None);
    }
}
