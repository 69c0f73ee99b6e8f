//! Memory of events. A range of addresses is mapped for each event when it begins; pages back it where segments were
//! written.
#![allow(unsafe_code, reason = "maps memory")]

use std::{ffi::c_void, ptr, slice};

use ejfat::reassembly::{Config, CopyCommand, EventBufferId};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::Error;

/// Pages of a slot up to here may stay for the next event, however many there are.
const SMALL: usize = 256 << 10;
/// Ranges of addresses are multiples of it, so that the range of one small event fits the next one of the slot as well.
const GRAIN: usize = 64 << 10;

/// Slots of a [`Reassembler`](ejfat::reassembly::Reassembler)'s events.
///
/// Pages of events that are over stay for later events: at most half of [`Config::memory`], and what small events need.
/// The reassembler bounds the pages of open events by [`Config::memory`], so all pages take about one and a half times
/// that. A range of addresses is mapped when an event begins, as long as the event, and stays for the next event of the
/// slot. So nothing is mapped before the first segment, and never much more than two and a half times
/// [`Config::max_claimed`].
#[derive(Debug)]
pub struct EventMemory {
    slots: Vec<BufferMemory>,
    /// The longest event.
    max_event: usize,
    /// Bytes of all slots that pages may back.
    total: usize,
    /// The part of `total` in slots that no event has.
    idle: usize,
    /// [`Config::memory`].
    most: usize,
    /// Bytes of addresses that are mapped.
    mapped: usize,
    /// Up to this value of `mapped`, an event may have a range of any length that is long enough.
    ample: usize,
    copied: u64,
}

#[derive(Debug, Default)]
struct BufferMemory {
    mapping: Option<Mapping>,
    /// Bytes from the beginning of the mapping that pages may back.
    touched: usize,
    used_by: Option<EventBufferId>,
}

/// A range of addresses that nothing else has.
#[derive(Debug)]
struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: the range is its owner's alone, and is written through `&mut` only.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Self, Error> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free range.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let at = at.map_err(|error| Error::Addresses { bytes: len, source: error.into() })?;
        // SAFETY: the mapping made above. A huge page would be backed for one byte; kernels without them refuse.
        let _ = unsafe { madvise(at, len, Advice::LinuxNoHugepage) };
        Ok(Self { at: at.cast(), len })
    }

    /// Gives the pages of the first bytes back to the system; they read as zeros then.
    fn trim(&mut self, bytes: usize) {
        let len = bytes.next_multiple_of(page_size());
        assert!(len <= self.len, "inside the mapping");
        // SAFETY: inside the mapping, and nothing refers to its bytes while it is borrowed.
        let trimmed = unsafe { madvise(self.at.cast::<c_void>(), len, Advice::LinuxDontNeed) };
        debug_assert!(trimmed.is_ok(), "it cannot fail on a mapping of ours that is not locked");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nothing refers to any more.
        let unmapped = unsafe { munmap(self.at.cast(), self.len) };
        if unmapped.is_err() {
            // A hole would need one mapping more than a process may have. The addresses are lost then, but not the pages.
            self.trim(self.len);
        }
    }
}

impl EventMemory {
    /// Makes the memory for the events of a reassembler with the bounds of `config`. The memory of an event is mapped when
    /// its first byte is copied.
    pub fn new(config: &Config) -> Self {
        let in_memory = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            slots: (0..config.slots).map(|_| BufferMemory::default()).collect(),
            max_event: config.max_event as usize,
            total: 0,
            idle: 0,
            most: in_memory(config.memory),
            mapped: 0,
            ample: in_memory(config.max_claimed() / 2),
            copied: 0,
        }
    }

    /// Copies payload to its event. No other copy is made of it.
    ///
    /// # Errors
    /// Fails with [`Error::Addresses`] if the address space has no room for the event. After this error, the caller
    /// must abandon the event.
    ///
    /// # Panics
    /// Panics if the copy command comes from a reassembler with other bounds, or if `payload` is not the payload of the
    /// copy command.
    pub fn place(&mut self, place: &CopyCommand, payload: &[u8]) -> Result<(), Error> {
        let (length, offset) = (place.length as usize, place.offset as usize);
        let end = offset.checked_add(payload.len()).filter(|&end| end <= length);
        let end = end.expect("inside the event");
        let at = self.touch(place.id, length, end)?;
        self.copied += payload.len() as u64;
        // SAFETY: `touch` says that the mapping has so many bytes, and nothing else refers to them while `self` is borrowed.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), at.add(offset), payload.len()) }
        Ok(())
    }

    /// Returns all bytes of an event, for a caller that fills them itself. They may hold bytes of an earlier event.
    ///
    /// # Errors
    /// Fails with [`Error::Addresses`] if the address space has no room for the event.
    ///
    /// # Panics
    /// Panics if `length` is greater than the most bytes of an event.
    pub fn bytes_mut(&mut self, id: EventBufferId, length: usize) -> Result<&mut [u8], Error> {
        let at = self.touch(id, length, length)?;
        // SAFETY: inside the mapping, initialised, and nothing else refers to it while `self` is borrowed.
        Ok(unsafe { slice::from_raw_parts_mut(at, length) })
    }

    /// Prepares the bytes up to `end` of an event of `length` bytes to be written. Returns the address of the event's first
    /// byte; all `length` bytes are mapped.
    fn touch(&mut self, id: EventBufferId, length: usize, end: usize) -> Result<*mut u8, Error> {
        assert!(end <= length && length <= self.max_event, "inside the bounds");
        let slot = id.slot();
        if self.slots[slot].used_by != Some(id) {
            self.begin(id, length)?;
        }
        let its = &mut self.slots[slot];
        if end > its.touched {
            self.total += end - its.touched;
            its.touched = end;
            if self.total > self.most && self.idle > 0 {
                self.trim_idle();
            }
        }
        let mapping = self.slots[slot].mapping.as_ref().filter(|mapping| mapping.len >= length);
        Ok(mapping.expect("an event keeps its length").at)
    }

    /// The first `len` bytes of an event that is in a slot.
    ///
    /// # Panics
    /// Panics if the event in the slot is shorter than `len` bytes.
    pub fn bytes(&self, slot: usize, len: usize) -> &[u8] {
        let mapping = self.slots[slot].mapping.as_ref().filter(|mapping| len <= mapping.len);
        let at = mapping.expect("inside an event").at;
        // SAFETY: inside the mapping, initialised with zeros, and written through `&mut self` only.
        unsafe { slice::from_raw_parts(at, len) }
    }

    /// Frees the slot of an event that is over. The slot keeps its pages until there are too many.
    pub fn release(&mut self, id: EventBufferId) {
        let slot = &mut self.slots[id.slot()];
        if slot.used_by == Some(id) {
            slot.used_by = None;
            self.idle += slot.touched;
        }
    }

    /// Gives a slot to an event. It keeps the slot's range of addresses if that is long enough and not far too long.
    fn begin(&mut self, id: EventBufferId, length: usize) -> Result<(), Error> {
        let needed = length.next_multiple_of(GRAIN.max(page_size()));
        let slot = &mut self.slots[id.slot()];
        if slot.used_by.take().is_none() {
            self.idle -= slot.touched;
        }
        let is_ample = self.mapped <= self.ample;
        let fits = |len: usize| len >= needed && (is_ample || len <= 2 * needed);
        if !slot.mapping.as_ref().is_some_and(|mapping| fits(mapping.len)) {
            self.unmap(id.slot());
            if self.mapped + needed > self.ample {
                self.unmap_idle();
            }
            let mapping = Mapping::new(needed).or_else(|_| {
                self.unmap_idle();
                Mapping::new(needed)
            });
            self.slots[id.slot()].mapping = Some(mapping?);
            self.mapped += needed;
        }
        self.slots[id.slot()].used_by = Some(id);
        if self.slots[id.slot()].touched > SMALL && self.total > self.most / 2 {
            self.trim(id.slot());
        }
        Ok(())
    }

    /// Unmaps the addresses of a slot that no event has.
    fn unmap(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        self.mapped -= slot.mapping.take().map_or(0, |mapping| mapping.len);
        self.total -= std::mem::take(&mut slot.touched);
    }

    /// Unmaps the addresses of all slots that no event has.
    fn unmap_idle(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].used_by.is_none() && self.slots[at].mapping.is_some() {
                self.idle -= self.slots[at].touched;
                self.unmap(at);
            }
        }
    }

    /// Gives the pages of unused slots back to the system.
    fn trim_idle(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].used_by.is_none() && self.slots[at].touched > 0 {
                self.idle -= self.slots[at].touched;
                self.trim(at);
            }
        }
    }

    fn trim(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        let touched = std::mem::take(&mut slot.touched);
        self.total -= touched;
        if let Some(mapping) = &mut slot.mapping {
            mapping.trim(touched);
        }
    }

    /// Bytes that were copied to events: each byte of payload that was placed, once.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Bytes that pages may back.
    pub fn touched(&self) -> usize {
        self.total
    }

    /// Bytes of addresses that are mapped.
    pub fn mapped(&self) -> usize {
        self.mapped
    }
}
