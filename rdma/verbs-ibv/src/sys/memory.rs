//! Protection domains and memory regions.

use std::{io, ptr::NonNull, sync::Arc};

use verbs::{Access, Error, Memory, MrKeys};

use super::{
    IbvDevice,
    bindings::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd},
    errno,
};

#[derive(Debug)]
pub(crate) struct RawPd {
    pub(super) pd: NonNull<ibv_pd>,
    pub(super) device: Arc<IbvDevice>,
}

// SAFETY: `pd` points to a protection domain that `ibv_alloc_pd` allocated and that only `Drop` frees. libibverbs
// allows calls from any thread.
unsafe impl Send for RawPd {}
// SAFETY: `pd` stays valid until `Drop`, and libibverbs allows concurrent calls from several threads.
unsafe impl Sync for RawPd {}

impl RawPd {
    pub(crate) fn new(device: &Arc<IbvDevice>) -> Result<Self, Error> {
        // SAFETY: `device.context` points to a context that stays open until `device` is dropped, and the new `RawPd`
        // keeps a reference to `device`.
        let pd = unsafe { device.library.ibv_alloc_pd(device.context.as_ptr()) };
        let pd =
            NonNull::new(pd).ok_or_else(|| Error::io("the device makes no protection domain", errno()))?;
        Ok(Self { pd, device: device.clone() })
    }
}

impl Drop for RawPd {
    fn drop(&mut self) {
        if !self.device.maker.is_this() {
            return;
        }
        // SAFETY: this `RawPd` owns the protection domain. All queue pairs and memory regions of the domain have been
        // destroyed, because each of them had a reference to this `RawPd`.
        unsafe { self.device.library.ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// A registered memory region.
#[derive(Debug)]
pub(crate) struct RawMr {
    mr: NonNull<ibv_mr>,
    pd: Arc<RawPd>,
}

// SAFETY: `mr` points to a memory region that `ibv_reg_mr` allocated and that only `Drop` frees. libibverbs allows
// calls from any thread.
unsafe impl Send for RawMr {}
// SAFETY: `mr` stays valid until `Drop`, and libibverbs allows concurrent calls from several threads.
unsafe impl Sync for RawMr {}

impl RawMr {
    /// Registers `memory` with the device, which pins the pages. The memory pages stay allocated until the region is
    /// dropped, even if the program unmaps the range.
    pub(crate) fn new(pd: &Arc<RawPd>, memory: &Memory, access: Access) -> io::Result<Self> {
        let flags = [
            (access.local_write || access.remote_write, IBV_ACCESS_LOCAL_WRITE),
            (access.remote_write, IBV_ACCESS_REMOTE_WRITE),
            (access.remote_read, IBV_ACCESS_REMOTE_READ),
        ];
        let flags = flags.iter().filter(|(wanted, _)| *wanted).fold(0, |sum, (_, flag)| sum | flag);
        // Devices do not register 0 bytes, so 1 byte is registered if `memory` has no bytes. If the crate `region` has
        // made `memory`, this byte exists, because the crate maps at least one page even for a memory of 0 bytes.
        let len = memory.len().max(1);
        // SAFETY: the contract of `Memory::from_raw_parts` guarantees that the range is mapped for reading and writing
        // until the owner in `memory` is dropped. The contract of `Memory::from_raw_parts` also guarantees that no Rust
        // reference to the range exists while the range is registered for remote access.
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
        // SAFETY: `self.mr` points to a region that `ibv_reg_mr` allocated and that only `Drop` frees. Nobody changes
        // the keys of the region.
        let mr = unsafe { self.mr.as_ref() };
        MrKeys { lkey: mr.lkey, rkey: mr.rkey }
    }
}

impl Drop for RawMr {
    fn drop(&mut self) {
        if !self.pd.device.maker.is_this() {
            return;
        }
        // SAFETY: this `RawMr` owns the memory region, and nobody uses it after `Drop`. Work requests that still refer
        // to the region complete with an error.
        unsafe { self.pd.device.library.ibv_dereg_mr(self.mr.as_ptr()) };
    }
}
