//! The memory for the copied pieces of a send batch.

use std::ptr::{self, NonNull};

/// Memory whose addresses never change: pointers into it wait for the kernel while more bytes are added.
pub(super) struct Arena {
    start: NonNull<u8>,
    len: usize,
    /// The number of bytes in use, from the start.
    pub(super) used: usize,
}

impl Arena {
    pub(super) fn new(len: usize) -> Self {
        let start = Box::into_raw(vec![0u8; len].into_boxed_slice()).cast::<u8>();
        Self { start: NonNull::new(start).expect("a box is never null"), len, used: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.len - self.used
    }

    /// The address of the byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: inside the allocation, or its end.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub(super) fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(len <= self.len && offset <= self.len - len);
        // SAFETY: inside the allocation, initialised, and borrowed exclusively like the arena.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: what `new` took out of its box.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)) });
    }
}
