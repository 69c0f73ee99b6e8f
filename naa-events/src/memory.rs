//! Bytes that a bridge writes.
//!
//! The one module of the crate with `unsafe`: it hands out the bytes of events as slices, and words of
//! files that a bridge maps too.
//! That is sound because a bridge writes no byte of an event from the time it tells of it until its credit came, and
//! [`Place::bytes`] is called for such events only. The embedded provider does not take a bridge's access to the ring
//! away, no more than a NIC does: a bridge that breaks the protocol can change an event while the program reads it, as
//! an accelerator can over devices that do not revoke (`naa_host::Session`). The bytes stay mapped whatever it does.
//! Subscribe to bridges that you trust.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use ejfat::ring::BLOCK;
use region::ReadOnly;
use verbs::Memory;

/// A file that two processes map. What the other one may change is seen in words only.
#[derive(Debug)]
pub(crate) enum Mapping {
    Readable(ReadOnly),
    Writable(Memory),
}

impl Mapping {
    /// Maps the first `len` bytes of a bridge's file, once it is seen that their pages stay.
    pub(crate) fn new(file: &OwnedFd, len: usize, writable: bool) -> io::Result<Self> {
        match writable {
            true => region::map_file(file, len).map(Self::Writable),
            false => region::map_file_read_only(file, len).map(Self::Readable),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Self::Readable(memory) => memory.as_ptr().cast_mut(),
            Self::Writable(memory) => memory.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Readable(memory) => memory.len(),
            Self::Writable(memory) => memory.len(),
        }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let len = self.len();
        assert!(at.is_multiple_of(4) && at < len && len - at >= 4, "a word at {at} of {len}");
        // SAFETY: inside the mapping, aligned since mappings begin on pages, and seen as an atomic by everybody. `store` does
        // not write where that is forbidden.
        unsafe { AtomicU32::from_ptr(self.start().add(at).cast()) }
    }

    pub(crate) fn load(&self, at: usize, order: Ordering) -> u32 {
        self.word(at).load(order)
    }

    /// # Panics
    /// If the mapping is for reading.
    pub(crate) fn store(&self, at: usize, value: u32, order: Ordering) {
        assert!(matches!(self, Self::Writable(_)), "the mapping is for reading");
        self.word(at).store(value, order);
    }

    /// A copy, word by word: one that changes meanwhile is torn, and no more.
    pub(crate) fn block(&self, at: usize) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        for (number, bytes) in block.chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&self.load(at + 4 * number, Ordering::Relaxed).to_ne_bytes());
        }
        block
    }
}

/// Where a ring lies.
#[derive(Debug)]
pub(crate) enum Place {
    Registered(Memory),
    /// From so many bytes on.
    Mapped(Arc<Mapping>, usize),
}

impl Place {
    fn range(&self) -> (*const u8, usize) {
        match self {
            Self::Registered(memory) => (memory.as_ptr(), memory.len()),
            Self::Mapped(mapping, at) => {
                (mapping.start().cast_const().wrapping_add(*at), mapping.len().saturating_sub(*at))
            }
        }
    }

    /// Bytes of an event that was told and not given back.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let (addr, all) = self.range();
        assert!(offset <= all && len <= all - offset, "{len} bytes at {offset} of {all}");
        // SAFETY: inside the ring, which is mapped as long as `self` lives; not written as long as the event is not given back (module docs).
        unsafe { std::slice::from_raw_parts(addr.add(offset), len) }
    }
}
