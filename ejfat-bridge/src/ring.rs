//! The bridge's side of the event ring of a local or remote worker.

use std::time::{Duration, Instant};

use ejfat::ring::{CREDIT, Geometry};
use verbs::Memory;

use crate::{local::SharedRing, remote::RdmaRing, word::Word};

/// The number of credit words above which the bridge reads the credit words of a ring less often. The worker of a ring
/// counts the credits that it has written, and the bridge reads the credit words when this count has changed. If a ring
/// has more than `MANY` credit words, reading all of them takes long. Changes of the count then cause at most one read
/// in each period of length `REST`.
const MANY: usize = 4096;
/// The least time between two reads of the credit words of a ring with more than `MANY` credit words. If `in_any_case`
/// is true, [`Credits::look`] reads the credit words even if less than `REST` has passed since the last read.
const REST: Duration = Duration::from_millis(1);

/// The credit words of a ring, and the count of the credits. The worker writes both, and the bridge reads both.
#[derive(Debug)]
pub(crate) struct Credits {
    memory: Memory,
    geometry: Geometry,
    count: Word,
    seen: u32,
    /// The earliest time of the next read of the credit words. A ring with at most `MANY` credit words does not use
    /// this time.
    next: Instant,
    words: Vec<u32>,
}

impl Credits {
    pub(crate) fn new(memory: &Memory, geometry: Geometry) -> Self {
        Self {
            memory: memory.clone(),
            geometry,
            count: Word::new(memory, 0),
            seen: 0,
            next: Instant::now(),
            words: vec![0; geometry.slots() as usize],
        }
    }

    /// Reads and returns the credit words. If `in_any_case` is false, the function returns `None` in two cases. In the
    /// first case, the worker's count of written credits is the same as at the last read. In the second case, the ring
    /// has more than `MANY` credit words, and less than `REST` has passed since the last read.
    pub(crate) fn look(&mut self, in_any_case: bool) -> Option<&[u32]> {
        let count = self.count.load();
        if count == self.seen && !in_any_case {
            return None;
        }
        if self.words.len() > MANY {
            let now = Instant::now();
            if now < self.next && !in_any_case {
                return None;
            }
            self.next = now + REST;
        }
        self.seen = count;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        debug_assert_eq!(bytes.len(), self.geometry.slots() as usize * CREDIT);
        self.memory.read(self.geometry.credit_at(0), bytes);
        self.words.iter_mut().for_each(|word| *word = u32::from_le(*word));
        Some(&self.words)
    }
}

/// The means by which events get to a worker: WRITEs or shared memory.
#[derive(Debug)]
pub(crate) enum RingTransport {
    Rdma(RdmaRing),
    Shared(SharedRing),
}

#[derive(Debug)]
pub(crate) struct BridgeRing {
    /// The ring of a local worker, or the staging ring of a remote worker.
    pub(crate) memory: Memory,
    pub(crate) credits: Credits,
    pub(crate) transport: RingTransport,
}
