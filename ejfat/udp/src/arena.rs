//! Memory of events: a slot for each, reserved but not backed by pages until segments touch it.
#![allow(unsafe_code, reason = "maps memory")]

use std::{ffi::c_void, ptr, slice};

use ejfat::reassembly::{Config, EventId, Place};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::Error;

/// Pages of a slot up to here may stay for the next event, however many there are.
const SMALL: usize = 256 << 10;

/// Slots of a [`Reassembler`](ejfat::reassembly::Reassembler)'s events.
///
/// Pages of events that are over stay for the next ones: at most half of [`Config::memory`], and what small events need.
/// So with what the reassembler bounds, pages take about one and a half times that.
#[derive(Debug)]
pub struct Arena {
    at: *mut u8,
    /// Bytes from slot to slot.
    stride: usize,
    /// Bytes at the beginning of each slot that pages may back.
    touched: Vec<usize>,
    in_use: Vec<Option<EventId>>,
    /// Of all slots, and of those that are not in use.
    total: usize,
    idle: usize,
    most: usize,
    copied: u64,
}

// SAFETY: the mapping is the arena's alone, and is written through `&mut self`.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new(config: &Config) -> Result<Self, Error> {
        let (slots, bytes) = (config.slots, config.max_event);
        let stride = (bytes as usize).next_multiple_of(page_size());
        let too_large = Error::AddressSpace { slots, bytes };
        let len =
            stride.checked_mul(slots as usize).filter(|&len| len <= isize::MAX as usize).ok_or(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free range.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let at = at.map_err(|error| Error::io(format!("reserve {len} bytes for events"))(error.into()))?;
        let slots = slots as usize;
        let most = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let (touched, in_use) = (vec![0; slots], vec![None; slots]);
        let arena = Self { at: at.cast(), stride, touched, in_use, total: 0, idle: 0, most, copied: 0 };
        // SAFETY: the mapping made above. A huge page would be backed for one byte; kernels without them refuse.
        let _ = unsafe { madvise(at, len, Advice::LinuxNoHugepage) };
        Ok(arena)
    }

    /// Carries a command out: the one copy of a received byte.
    ///
    /// # Panics
    /// If the command is not of a reassembler with the same bounds, or `payload` is not the command's.
    pub fn place(&mut self, place: &Place, payload: &[u8]) {
        let (slot, offset) = (place.id.slot(), place.offset as usize);
        let end = offset.checked_add(payload.len()).filter(|&end| end <= self.stride);
        let end = end.expect("inside the slot");
        self.touch(place.id, end);
        self.copied += payload.len() as u64;
        // SAFETY: the slot is inside the mapping, which nothing else refers to while `self` is borrowed.
        unsafe {
            ptr::copy_nonoverlapping(
                payload.as_ptr(),
                self.at.add(slot * self.stride + offset),
                payload.len(),
            )
        }
    }

    /// The first `len` bytes of an event's slot, to be filled by other means. What they hold is some event's before.
    ///
    /// # Panics
    /// If the slot is not that long.
    pub fn bytes_mut(&mut self, id: EventId, len: usize) -> &mut [u8] {
        assert!(id.slot() < self.touched.len() && len <= self.stride, "inside a slot");
        self.touch(id, len);
        // SAFETY: inside the mapping, initialised, and nothing else refers to it while `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(self.at.add(id.slot() * self.stride), len) }
    }

    /// Pages may back the bytes up to `end` of an event's slot.
    fn touch(&mut self, id: EventId, end: usize) {
        let slot = id.slot();
        if self.in_use[slot] != Some(id) {
            self.begin(slot, id);
        }
        if end > self.touched[slot] {
            self.total += end - self.touched[slot];
            self.touched[slot] = end;
            if self.total > self.most && self.idle > 0 {
                self.trim_idle();
            }
        }
    }

    /// The first `len` bytes of a slot.
    ///
    /// # Panics
    /// If the slot is not that long.
    pub fn bytes(&self, slot: usize, len: usize) -> &[u8] {
        assert!(slot < self.touched.len() && len <= self.stride, "inside a slot");
        // SAFETY: inside the mapping, initialised with zeros, and written through `&mut self` only.
        unsafe { slice::from_raw_parts(self.at.add(slot * self.stride), len) }
    }

    /// An event is over. Its pages stay for the next one, as long as there are few enough.
    pub fn release(&mut self, id: EventId) {
        if self.in_use[id.slot()] == Some(id) {
            self.in_use[id.slot()] = None;
            self.idle += self.touched[id.slot()];
        }
    }

    /// Another event has the slot, and with it pages of the one before.
    fn begin(&mut self, slot: usize, id: EventId) {
        if self.in_use[slot].replace(id).is_none() {
            self.idle -= self.touched[slot];
        }
        if self.touched[slot] > SMALL && self.total > self.most / 2 {
            self.trim(slot);
        }
    }

    /// Gives the pages of unused slots back to the system.
    fn trim_idle(&mut self) {
        for slot in 0..self.touched.len() {
            if self.in_use[slot].is_none() && self.touched[slot] > 0 {
                self.idle -= self.touched[slot];
                self.trim(slot);
            }
        }
    }

    fn trim(&mut self, slot: usize) {
        let len = self.touched[slot].next_multiple_of(page_size());
        // SAFETY: inside the mapping, and nothing refers to the slot's bytes.
        let trimmed = unsafe { madvise(self.slot(slot), len, Advice::LinuxDontNeed) };
        debug_assert!(trimmed.is_ok(), "it cannot fail on a mapping of ours that is not locked");
        self.total -= std::mem::take(&mut self.touched[slot]);
    }

    fn slot(&self, slot: usize) -> *mut c_void {
        self.at.wrapping_add(slot * self.stride).cast()
    }

    /// Bytes that were copied to events: each byte of payload that was placed, once.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Bytes that pages may back.
    pub fn touched(&self) -> usize {
        self.total
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nothing refers to any more.
        let unmapped = unsafe { munmap(self.at.cast(), self.stride * self.touched.len()) };
        debug_assert!(unmapped.is_ok());
    }
}
