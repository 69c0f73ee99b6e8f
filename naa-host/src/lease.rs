//! Regions, which belong either to the program or to a call.
//!
//! The one module of the crate with `unsafe`: it hands out a region's bytes as slices. That is sound because a
//! region's memory never leaves this module but to the device, which touches it between `lend` and `take_back`
//! only, and because `lend` needs the region exclusively, so no slice lives then.
#![allow(unsafe_code)]

use mrsp::RegionFlags;
use verbs::{Access, Memory, Mr, Pd, Sge};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Region {
    mr: Mr,
    flags: RegionFlags,
    /// A call has it.
    lent: bool,
}

impl Region {
    /// `len` zeroed bytes, registered, but out of peers' reach until lent.
    pub(crate) fn new(pd: &Pd, flags: RegionFlags, len: usize) -> Result<Self, Error> {
        let memory = region::alloc(len).map_err(Error::Memory)?;
        let mr = pd.reg_mr(&memory, Access::LOCAL)?;
        Ok(Self { mr, flags, lent: false })
    }

    /// Gives the region to a call: the device may read it and, if it is an output, the accelerator write it.
    pub(crate) fn lend(&mut self) -> Result<(), verbs::Error> {
        self.lent = true;
        if self.flags.contains(RegionFlags::OUTPUT) {
            self.mr.set_access(Access::REMOTE_WRITE)?;
        }
        Ok(())
    }

    /// Gives the region back to the program. No work request on it may be left: all have completed, or their
    /// queue pair is destroyed.
    pub(crate) fn take_back(&mut self) -> Result<(), verbs::Error> {
        if self.lent && self.flags.contains(RegionFlags::OUTPUT) {
            self.mr.set_access(Access::LOCAL)?;
        }
        self.lent = false;
        Ok(())
    }

    /// The bytes, unless a call has them.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: not lent: peers have no access (`new`, `take_back`), the device writes only what peers send, and
        // the program needs `&mut self` to write.
        (!self.lent).then(|| unsafe { self.memory().as_slice() })
    }

    /// The bytes, unless a call has them.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `bytes`; besides, the device has no work request that reads them (`take_back`), and
        // `&mut self` excludes other slices.
        (!self.lent).then(|| unsafe { self.memory().as_mut_slice() })
    }

    /// Copies the start of the region, also while lent.
    pub(crate) fn copy_to(&self, out: &mut [u8]) {
        self.memory().read(0, out);
    }

    fn memory(&self) -> &Memory {
        self.mr.memory()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory().len()
    }

    pub(crate) fn flags(&self) -> RegionFlags {
        self.flags
    }

    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        self.mr.sge(offset, length)
    }

    /// As announced to the accelerator.
    pub(crate) fn announced(&self) -> mrsp::Param {
        mrsp::Param { flags: self.flags, addr: self.mr.addr(), rkey: self.mr.rkey(), size: self.len() as u64 }
    }
}
