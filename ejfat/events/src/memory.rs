//! Bytes that a bridge writes.
//!
//! The one module of the crate with `unsafe`. A bridge can write a ring as long as it has it: the embedded provider does not
//! take its access to the ring away, no more than a NIC does, and on one machine it maps the same pages. So the bytes are
//! copied out by [`Memory`], words of files that a bridge maps are atomics, and a slice of an event is handed out only to
//! programs that promise what makes it one. The bytes stay mapped whatever the bridge does.
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

use crate::Event;

/// A file that two processes map. What the other one may change is seen in words only.
#[derive(Debug)]
pub(crate) enum SharedFile {
    Readable(ReadOnly),
    Writable(Memory),
}

impl SharedFile {
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

    /// Copies bytes out.
    fn read(&self, at: usize, out: &mut [u8]) {
        match self {
            Self::Readable(memory) => memory.read(at, out),
            Self::Writable(memory) => memory.read(at, out),
        }
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
pub(crate) enum RingMemory {
    Registered(Memory),
    /// A ring in shared memory, which begins at this offset in bytes.
    Shared(Arc<SharedFile>, usize),
}

impl RingMemory {
    fn range(&self) -> (*const u8, usize) {
        match self {
            Self::Registered(memory) => (memory.as_ptr(), memory.len()),
            Self::Shared(file, at) => {
                (file.start().cast_const().wrapping_add(*at), file.len().saturating_sub(*at))
            }
        }
    }

    /// The address of `len` bytes at `offset`, which are readable as long as `self` lives.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *const u8 {
        let (addr, all) = self.range();
        assert!(offset <= all && len <= all - offset, "{len} bytes at {offset} of {all}");
        addr.wrapping_add(offset)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        match self {
            Self::Registered(memory) => memory.read(offset, out),
            Self::Shared(file, at) => file.read(at + offset, out),
        }
    }

    /// Copies bytes out piece by piece.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn try_pieces<const N: usize, E>(
        &self,
        offset: usize,
        len: usize,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Registered(memory) => memory.try_pieces::<N, E>(offset, len, take),
            Self::Shared(file, at) => match &**file {
                SharedFile::Readable(memory) => memory.try_pieces::<N, E>(at + offset, len, take),
                SharedFile::Writable(memory) => memory.try_pieces::<N, E>(at + offset, len, take),
            },
        }
    }
}

impl Event {
    /// Returns the bytes in place, without a copy.
    ///
    /// # Safety
    /// Nobody may write the event's bytes until the slice is dropped. The bridge could, since it maps the ring or has
    /// its RKey. So could anyone who learns that RKey and can send packets in the bridge's name, or who can open the
    /// bridge's file in /proc. So you promise that this bridge is a program that keeps to the protocol, as `naa bridge`
    /// does, and that nobody else on its machine or on the network between can act in its place.
    pub unsafe fn bytes_trusting_the_bridge(&self) -> &[u8] {
        // SAFETY: readable as long as `self` keeps the ring; not written, by the caller's contract.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }
}
