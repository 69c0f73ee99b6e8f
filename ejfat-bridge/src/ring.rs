//! A worker's ring, wherever it is.

use ejfat::ring::{CREDIT, Geometry};
use verbs::Memory;

use crate::{local::Shared, remote::Remote, word::Word};

/// What the worker writes.
#[derive(Debug)]
pub(crate) struct Credits {
    memory: Memory,
    geometry: Geometry,
    count: Word,
    seen: u32,
    words: Vec<u32>,
}

impl Credits {
    pub(crate) fn new(memory: &Memory, geometry: Geometry) -> Self {
        Self {
            memory: memory.clone(),
            geometry,
            count: Word::new(memory, 0),
            seen: 0,
            words: vec![0; geometry.slots() as usize],
        }
    }

    /// The words, if the worker says that some changed, or in any case.
    pub(crate) fn look(&mut self, in_any_case: bool) -> Option<&[u32]> {
        let count = self.count.load();
        if count == self.seen && !in_any_case {
            return None;
        }
        self.seen = count;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        debug_assert_eq!(bytes.len(), self.geometry.slots() as usize * CREDIT);
        self.memory.read(self.geometry.credit_at(0), bytes);
        self.words.iter_mut().for_each(|word| *word = u32::from_le(*word));
        Some(&self.words)
    }
}

/// How a worker is reached.
#[derive(Debug)]
pub(crate) enum Way {
    Remote(Remote),
    Shared(Shared),
}

#[derive(Debug)]
pub(crate) struct Ring {
    /// The ring, or its twin here.
    pub(crate) memory: Memory,
    pub(crate) credits: Credits,
    pub(crate) way: Way,
}
