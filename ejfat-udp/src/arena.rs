//! Memory of events: a slot for each, reserved but not backed by pages until segments touch it.
#![allow(unsafe_code, reason = "maps memory")]

use std::{ffi::c_void, ptr, slice};

use ejfat::reassembly::{Config, Place};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Error;

const PAGE: usize = 4096;

/// Slots of a [`Reassembler`](ejfat::reassembly::Reassembler)'s events.
#[derive(Debug)]
pub struct Arena {
    at: *mut u8,
    /// Bytes from slot to slot.
    stride: usize,
    /// Bytes at the beginning of each slot that pages may back.
    touched: Vec<usize>,
    in_use: Vec<bool>,
    /// Of all slots, and the most.
    total: usize,
    most: usize,
}

// SAFETY: the mapping is the arena's alone, and is written through `&mut self`.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new(config: &Config) -> Result<Self, Error> {
        let (slots, bytes) = (config.slots, config.max_event);
        let stride = (bytes as usize).next_multiple_of(PAGE);
        let too_large = Error::AddressSpace { slots, bytes };
        let len =
            stride.checked_mul(slots as usize).filter(|&len| len <= isize::MAX as usize).ok_or(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free range.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let at = at.map_err(|error| Error::io(format!("reserve {len} bytes for events"))(error.into()))?;
        let slots = slots as usize;
        let most = usize::try_from(config.memory).unwrap_or(usize::MAX);
        Ok(Self {
            at: at.cast(),
            stride,
            touched: vec![0; slots],
            in_use: vec![false; slots],
            total: 0,
            most,
        })
    }

    /// Carries a command out: the one copy of a received byte.
    ///
    /// # Panics
    /// If the command is not of a reassembler with the same bounds, or `payload` is not the command's.
    pub fn place(&mut self, place: &Place, payload: &[u8]) {
        let (slot, offset) = (place.id.slot(), place.offset as usize);
        let end = offset.checked_add(payload.len()).filter(|&end| end <= self.stride);
        let end = end.expect("inside the slot");
        self.in_use[slot] = true;
        if end > self.touched[slot] {
            self.total += end - self.touched[slot];
            self.touched[slot] = end;
            if self.total > self.most {
                self.give_back();
            }
        }
        // SAFETY: the slot is inside the mapping, which nothing else refers to while `self` is borrowed.
        unsafe {
            ptr::copy_nonoverlapping(
                payload.as_ptr(),
                self.at.add(slot * self.stride + offset),
                payload.len(),
            )
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

    /// The event in a slot is over. Its pages stay for the next one, as long as there are few enough.
    pub fn release(&mut self, slot: usize) {
        self.in_use[slot] = false;
    }

    /// Gives the pages of unused slots back to the system.
    fn give_back(&mut self) {
        for slot in 0..self.touched.len() {
            let len = self.touched[slot];
            if !self.in_use[slot] && len > 0 {
                // SAFETY: inside the mapping, and nothing refers to the slot.
                let given =
                    unsafe { madvise(self.slot(slot), len.next_multiple_of(PAGE), Advice::LinuxDontNeed) };
                // It cannot fail on a mapping of ours; if it does, the pages stay.
                if given.is_ok() {
                    self.touched[slot] = 0;
                    self.total -= len;
                }
            }
        }
    }

    fn slot(&self, slot: usize) -> *mut c_void {
        self.at.wrapping_add(slot * self.stride).cast()
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
