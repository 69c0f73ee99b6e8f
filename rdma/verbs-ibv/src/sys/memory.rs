//! Protection domains and memory regions.

use std::{io, ptr::NonNull, sync::Arc};

use verbs::{Access, Error, Memory, MrKeys};

use super::{
    Device,
    bindings::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd},
    errno,
};

#[derive(Debug)]
pub(crate) struct Pd {
    pub(super) pd: NonNull<ibv_pd>,
    pub(super) device: Arc<Device>,
}

// SAFETY: a handle; libibverbs is thread-safe.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        // SAFETY: the context is open as long as `device` lives.
        let pd = unsafe { device.library.ibv_alloc_pd(device.context.as_ptr()) };
        let pd =
            NonNull::new(pd).ok_or_else(|| Error::io("the device makes no protection domain", errno()))?;
        Ok(Self { pd, device: device.clone() })
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if !self.device.maker.is_this() {
            return;
        }
        // SAFETY: ours, and all that was made in it held this and is gone.
        unsafe { self.device.library.ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// A registered memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    mr: NonNull<ibv_mr>,
    pd: Arc<Pd>,
}

// SAFETY: a handle; libibverbs is thread-safe.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Pins `memory` and lets the device access it. The pages stay until the region is dropped, even if the range is
    /// unmapped.
    pub(crate) fn new(pd: &Arc<Pd>, memory: &Memory, access: Access) -> io::Result<Self> {
        let flags = [
            (access.local_write || access.remote_write, IBV_ACCESS_LOCAL_WRITE),
            (access.remote_write, IBV_ACCESS_REMOTE_WRITE),
            (access.remote_read, IBV_ACCESS_REMOTE_READ),
        ];
        let flags = flags.iter().filter(|(wanted, _)| *wanted).fold(0, |sum, (_, flag)| sum | flag);
        // Devices do not register 0 bytes; memory has at least a page.
        let len = memory.len().max(1);
        // SAFETY: the range is mapped for reading and writing as long as `memory` lives (its contract), and no
        // reference to it exists while it is registered for remote access (likewise).
        let mr = unsafe {
            pd.device.library.ibv_reg_mr(
                pd.pd.as_ptr(),
                memory.as_ptr().cast(),
                len,
                flags as std::ffi::c_int,
            )
        };
        let mr = NonNull::new(mr).ok_or_else(errno)?;
        Ok(Self { mr, pd: pd.clone() })
    }

    pub(crate) fn keys(&self) -> MrKeys {
        // SAFETY: registered until dropped.
        let mr = unsafe { self.mr.as_ref() };
        MrKeys { lkey: mr.lkey, rkey: mr.rkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if !self.pd.device.maker.is_this() {
            return;
        }
        // SAFETY: ours; work requests that name it end in an error, as the caller is told.
        unsafe { self.pd.device.library.ibv_dereg_mr(self.mr.as_ptr()) };
    }
}
