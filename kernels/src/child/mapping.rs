//! A session's region, mapped between pages that nobody may touch.
#![allow(unsafe_code)]

use std::{ffi::c_void, io, os::fd::BorrowedFd, ptr};

use rustix::{
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap},
    param::page_size,
};

pub(super) struct ChildMapping {
    around: *mut c_void,
    around_len: usize,
    address: *mut c_void,
}

impl ChildMapping {
    /// Maps `size` bytes of `file` from `offset` on, in whole pages, at least one.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, size: u64) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let page = page_size();
        // Neither is larger than a region's file.
        let into_page = (offset % page as u64) as usize;
        let len = usize::try_from(size.max(1)).ok().and_then(|len| len.checked_add(into_page));
        let len = len.and_then(|len| len.checked_next_multiple_of(page)).ok_or_else(too_large)?;
        let around_len = len.checked_add(2 * page).ok_or_else(too_large)?;
        // SAFETY: the kernel chooses a free range.
        let around = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                around_len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // `ChildMapping` now owns the whole range and unmaps it when dropped.
        let first = around.wrapping_byte_add(page);
        let mapping = Self { around, around_len, address: first.wrapping_byte_add(into_page) };
        let (flags, from) = (MapFlags::SHARED | MapFlags::FIXED, offset - into_page as u64);
        // SAFETY: replaces pages of the range above that nothing refers to.
        unsafe { mmap(first, len, ProtFlags::READ | ProtFlags::WRITE, flags, file, from) }?;
        // A process that a kernel forks must not write to memory that the server has back when this one is dead.
        // SAFETY: the pages are those mapped above; what changes is only what a fork copies.
        unsafe { madvise(first, len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.address
    }
}

impl Drop for ChildMapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's alone; kernels keep no address beyond a call.
        let _ = unsafe { munmap(self.around, self.around_len) };
    }
}
