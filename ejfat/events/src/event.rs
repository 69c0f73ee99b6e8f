//! An event that a program has not released.

use std::{fmt, io, sync::Arc};

use ejfat::ring::{Descriptor, Given};

use crate::ring::WorkerRing;

/// An event in the worker's ring. When the event is dropped, it is released, and the bridge uses its slots again.
///
/// An event keeps its ring mapped, also when the bridge is gone and the worker has another ring.
///
/// # The bytes may change
///
/// The bridge can write the ring as long as it has it: by its mapping on the same machine, by its RKey from another one. A
/// bridge that keeps to the protocol does not write an event before it was given back, but nothing stops one that does
/// not. So a `&[u8]` of the ring could change while it is borrowed, which Rust does not allow, and the safe methods
/// copy:
///
/// | for | use |
/// |---|---|
/// | a buffer that is used again for the next event | [`copy_to`](Self::copy_to) |
/// | a vector of its own | [`to_vec`](Self::to_vec) |
/// | a part | [`read_at`](Self::read_at) |
/// | a file, a pipe, a socket | [`write_to`](Self::write_to) |
/// | a sum, a digest, a count, without memory for the whole event | [`try_pieces`](Self::try_pieces) |
///
/// A copy does not change. Check and use the same copy: a second one may have other bytes.
/// [`bytes_trusting_the_bridge`](Self::bytes_trusting_the_bridge) is the slice in place, for programs that can promise that
/// the bridge does not write.
///
/// There is no safe way to a slice of the ring:
///
/// ```compile_fail,E0599
/// fn sum(event: &naa_events::Event) -> u64 {
///     event.bytes().iter().map(|&byte| u64::from(byte)).sum()
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn sum(event: &impl AsRef<[u8]>) -> u64 {
///     event.as_ref().iter().map(|&byte| u64::from(byte)).sum()
/// }
/// fn of(event: &naa_events::Event) -> u64 {
///     sum(event)
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn sum(event: &naa_events::Event) -> u64 {
///     event.bytes_trusting_the_bridge().iter().map(|&byte| u64::from(byte)).sum()
/// }
/// ```
#[must_use = "an event that is dropped is given back"]
pub struct Event {
    ring: Arc<WorkerRing>,
    given: Given,
}

impl Event {
    /// The number of bytes that [`try_pieces`](Self::try_pieces) copies at a time.
    pub const PIECE: usize = 32 << 10;

    pub(crate) fn new(ring: Arc<WorkerRing>, given: Given) -> Self {
        Self { ring, given }
    }

    /// Returns the length of the event in bytes.
    pub fn len(&self) -> usize {
        self.given.descriptor().length as usize
    }

    /// Returns true if the event has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the event's bytes from `offset` on to `out`. The length of `out` is the number of copied bytes.
    ///
    /// # Panics
    /// Panics if the event ends before `offset + out.len()`.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) {
        self.ring.read(&self.given, offset, out);
    }

    /// Replaces the content of `buffer` by a copy of the event's bytes. If `buffer` is used again for the next event, its
    /// memory is allocated again only for an event that is longer than all events before.
    pub fn copy_to(&self, buffer: &mut Vec<u8>) {
        buffer.resize(self.len(), 0);
        self.read_at(0, buffer);
    }

    /// Returns a copy of the event's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies the event in pieces of [`PIECE`](Self::PIECE) bytes, of which the last may be shorter, and hands each to `take`
    /// until one fails. Nothing is allocated.
    ///
    /// # Errors
    /// Fails with the first error that `take` returns.
    pub fn try_pieces<E>(&self, take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.ring.try_pieces::<{ Self::PIECE }, E>(&self.given, take)
    }

    /// Writes a copy of the event's bytes to `writer`, in pieces of [`PIECE`](Self::PIECE) bytes.
    ///
    /// # Errors
    /// Fails with the first error of the writer.
    pub fn write_to(&self, writer: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
        self.try_pieces(|piece| writer.write_all(piece))
    }

    /// Where the event lies, for code in other languages. It is readable as long as the event lives, and the bridge may
    /// write there meanwhile: read it as memory that another thread writes, by volatile accesses for example.
    pub fn as_ptr(&self) -> *const u8 {
        self.ring.start(&self.given)
    }

    /// Whether another worker had the event when that worker ended, and so may have used all of it or a part. This is always
    /// false unless [`Config::again`](crate::Config::again) asks for events of workers that ended.
    pub fn delivered_again(&self) -> bool {
        self.descriptor().delivered_again
    }

    /// Returns the event's descriptor, which has its numbers, its tick and the arrival time of its first segment.
    pub fn descriptor(&self) -> &Descriptor {
        self.given.descriptor()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(self.descriptor()).finish()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.ring.give_back(self.given);
    }
}
