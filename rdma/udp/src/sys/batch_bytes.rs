//! The memory into which a send batch copies pieces of datagrams.

use std::ptr::{self, NonNull};

/// The memory into which a send batch copies pieces of datagrams. The memory never moves, because the batch stores
/// pointers to the pieces, and the Linux kernel later reads the pieces through these pointers.
pub(super) struct BatchBytes {
    start: NonNull<u8>,
    len: usize,
    /// The number of bytes at the start of the memory that are in use.
    pub(super) used: usize,
}

impl BatchBytes {
    pub(super) fn new(len: usize) -> Self {
        let start = Box::into_raw(vec![0u8; len].into_boxed_slice()).cast::<u8>();
        Self { start: NonNull::new(start).expect("a box is never null"), len, used: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.len - self.used
    }

    /// Returns the address of the byte at `offset` of the memory.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: the result is inside the allocation, or at its end.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub(super) fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(len <= self.len && offset <= self.len - len);
        // SAFETY: the range is inside the allocation, initialised, and borrowed exclusively together with the
        // `BatchBytes`.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }
}

impl Drop for BatchBytes {
    fn drop(&mut self) {
        // SAFETY: `new` took this memory out of a box, and nothing uses it any more.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)) });
    }
}
