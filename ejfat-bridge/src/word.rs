//! Words of memory that another process or a device reads or writes at the same time.
#![allow(unsafe_code, reason = "words of shared memory as atomics")]

use std::sync::atomic::{AtomicU32, Ordering};

use verbs::Memory;

/// An aligned little-endian word of 32 bits in shared memory. The memory stays mapped as long as the `Word` exists.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    memory: Memory,
    at: usize,
}

impl Word {
    /// Returns the word that begins `at` bytes after the start of `memory`.
    ///
    /// # Panics
    /// Panics if the word does not lie inside the memory, or is not aligned.
    pub(crate) fn new(memory: &Memory, at: usize) -> Self {
        assert!(memory.len() >= 4 && at <= memory.len() - 4, "a word inside the memory");
        assert!((memory.addr() + at as u64).is_multiple_of(4), "an aligned word");
        Self { memory: memory.clone(), at }
    }

    fn atomic(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word lies inside the memory and is aligned. The memory is mapped for
        // reading and writing as long as `self.memory` exists. Another process or a device may write the word while
        // this process reads it. The read may then return a mix of old and new bytes, but such a mix is also a valid
        // `u32`.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(self.at).cast()) }
    }

    pub(crate) fn load(&self) -> u32 {
        u32::from_le(self.atomic().load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, value: u32) {
        self.atomic().store(value.to_le(), Ordering::Release);
    }
}
