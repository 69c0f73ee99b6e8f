//! Regions, which belong either to the program or to a call.
//!
//! The one module of the crate with `unsafe`: it hands out a region's bytes as slices, of memory that nobody else can write
//! then. A region's memory never leaves this module but to the device, which touches it between `lend` and `take_back`
//! only, and `lend` needs the region exclusively, so no slice lives then. A stream's regions stay lent until
//! they are dropped; only their `Memory` is handed out, which makes no slices without `unsafe`.
//!
//! NICs take access back at the price of many calls or not at all (`DeviceAttr::revokes`). There the accelerator keeps its
//! access to outputs as long as the session lives, and a registration that the device keeps can be reached
//! by accelerators of later sessions. Such memory is in reach, and stays so: it is copied by [`Memory`], which needs no
//! slices, and slices are handed out only to programs that promise what makes them ones.
#![allow(unsafe_code)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mrsp::RegionFlags;
use verbs::{Access, Memory, Mr, Pd, Sge};

use crate::{Error, Session};

/// Memory for a parameter that outlives sessions, or is the program's own: [`Session::connect_with`](crate::Session::connect_with) takes it,
/// [`Session::into_buffers`](crate::Session::into_buffers) gives it back.
///
/// A device that keeps registrations, as the verbs provider does, finds a buffer registered the next time, which
/// spares large ones most of the time it takes to connect. Once a buffer is dropped its pages are given back when the
/// device next registers something, or goes.
///
/// Memory that was an output over a device that does not take access back, as those of the verbs provider do not, stays in
/// reach of accelerators: the session's could write it until the session ended, and those of later sessions can with
/// a key that they were not given. There are no slices of such a buffer; it is copied.
#[derive(Debug)]
pub struct Buffer {
    /// Nobody else's to refer to, but for a registration that the device may keep.
    memory: Memory,
    /// Accelerators may write it at any time.
    in_reach: bool,
}

impl Buffer {
    /// `len` zeroed bytes.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { memory: region::alloc(len).map_err(Error::Memory)?, in_reach: false })
    }

    /// Memory that is the program's own, so that nothing is copied. Clones and parts of one [`Memory`] have its owner,
    /// by which a device that keeps registrations knows it again.
    ///
    /// # Safety
    /// As long as a session has the buffer, or the buffer is borrowed as a slice, the program may hold no reference to
    /// its bytes but by raw pointers, and must touch none of them from the time a call is posted until its outcome was
    /// handed out. That goes for other buffers of the same memory too. While the buffer is borrowed as a slice no
    /// accelerator may write it: one can if the memory was an output of another buffer over a device that does not take
    /// access back.
    pub unsafe fn from_memory(memory: Memory) -> Self {
        Self { memory, in_reach: false }
    }

    pub fn len(&self) -> usize {
        self.memory.len()
    }

    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The bytes in place.
    ///
    /// # Errors
    /// [`Error::InReach`].
    pub fn as_slice(&self) -> Result<&[u8], Error> {
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: the memory is of this buffer alone (`new`, `into_buffer`, contract of `from_memory`), and no session has it, since those take
        // the buffer by value and end before they give it back: their queue pairs are gone. It was not registered for
        // peers where their access is not taken back.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// The bytes in place, to be changed.
    ///
    /// # Errors
    /// [`Error::InReach`].
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8], Error> {
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: as in `as_slice`; `&mut self` excludes other slices.
        Ok(unsafe { self.memory.as_mut_slice() })
    }

    /// Copies the bytes from `offset` on to `out`, as many as it has.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.memory.read(offset, out);
    }

    /// Copies `bytes` in, from `offset` on.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec(0, self.len())
    }
}

/// Slices over devices that do not take access back.
///
/// ```compile_fail,E0133
/// fn first(session: &naa_host::Session) -> u8 {
///     session.lease_trusting_the_accelerator(0).unwrap()[0]
/// }
/// ```
impl Session {
    /// As [`lease`](Self::lease), also of memory that an accelerator can still write.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// Until the slice is dropped nobody may write the parameter. Over a device that does not take access back the
    /// accelerator could, and so could whoever learns the parameter's RKey and can send packets in the accelerator's
    /// name. So you promise that this accelerator is a program that keeps to the protocol, and that nobody else on its
    /// machine or on the network between can act in its place.
    pub unsafe fn lease_trusting_the_accelerator(&self, index: usize) -> Result<&[u8], Error> {
        let region = self.region(index)?;
        region.check_not_lent()?;
        // SAFETY: as in `Region::bytes`, but that nobody writes is the caller's contract.
        Ok(unsafe { region.memory.as_slice() })
    }

    /// As [`lease_mut`](Self::lease_mut), also of memory that an accelerator can still write.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// As [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator).
    pub unsafe fn lease_mut_trusting_the_accelerator(&mut self, index: usize) -> Result<&mut [u8], Error> {
        let region = self.region_mut(index)?;
        region.check_not_lent()?;
        // SAFETY: as in `Region::bytes_mut`, but that nobody writes is the caller's contract.
        Ok(unsafe { region.memory.as_mut_slice() })
    }
}

/// A registration, of one region or of several that lie side by side.
#[derive(Debug)]
struct Registered {
    mr: Mr,
    /// The accelerator may write.
    is_open: AtomicBool,
}

impl Registered {
    /// Out of peers' reach.
    fn new(pd: &Pd, memory: &Memory, is_output: bool) -> Result<Arc<Self>, verbs::Error> {
        // Inputs are only read, so that constants will do.
        let mr = pd.reg_mr(memory, if is_output { Access::REMOTE_WRITE } else { Access::default() })?;
        let registered = Self { mr, is_open: AtomicBool::new(is_output) };
        registered.close()?;
        Ok(Arc::new(registered))
    }

    fn open(&self) -> Result<(), verbs::Error> {
        if !self.is_open.swap(true, Ordering::Relaxed) {
            self.mr.set_access(Access::REMOTE_WRITE)?;
        }
        Ok(())
    }

    fn close(&self) -> Result<(), verbs::Error> {
        if self.is_open.load(Ordering::Relaxed) {
            self.mr.set_access(Access::LOCAL)?;
            self.is_open.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Memory of a parameter.
#[derive(Debug)]
pub(crate) struct Region {
    /// `None`: it is copied to and from a staging region instead.
    registered: Option<Arc<Registered>>,
    memory: Memory,
    flags: RegionFlags,
    /// A call has it.
    lent: bool,
    /// The accelerator may write it also between calls.
    in_reach: bool,
}

/// Whether a parameter of these flags stays in the accelerator's reach. That does not depend on whether it is copied, which a
/// layout decides, so that programs do not depend on layouts.
fn stays_in_reach(pd: &Pd, flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::OUTPUT) && !pd.context().attr().revokes
}

impl Region {
    /// `buffer`, registered, but out of peers' reach until lent.
    pub(crate) fn new(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Result<Self, Error> {
        let mut region = Self::copied(pd, flags, buffer);
        region.register(pd)?;
        Ok(region)
    }

    /// `buffer`, which no device sees.
    pub(crate) fn copied(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Self {
        let in_reach = buffer.in_reach || stays_in_reach(pd, flags);
        Self { registered: None, memory: buffer.memory, flags, lent: false, in_reach }
    }

    /// Outputs side by side in one registration: flags, where they start, and their sizes. They do not overlap.
    pub(crate) fn side_by_side(pd: &Pd, outputs: &[(RegionFlags, usize, usize)]) -> Result<Vec<Self>, Error> {
        let len = outputs.iter().map(|(_, start, len)| start + len).max().unwrap_or(0);
        let Buffer { memory, .. } = Buffer::new(len)?;
        let registered = Registered::new(pd, &memory, true)?;
        let region = |&(flags, start, len): &(RegionFlags, usize, usize)| Self {
            registered: Some(registered.clone()),
            memory: memory.slice(start, len),
            flags,
            lent: false,
            in_reach: stays_in_reach(pd, flags),
        };
        Ok(outputs.iter().map(region).collect())
    }

    /// Does nothing if it is registered.
    pub(crate) fn register(&mut self, pd: &Pd) -> Result<(), Error> {
        if self.registered.is_none() {
            let is_output = self.flags.contains(RegionFlags::OUTPUT);
            self.registered = Some(Registered::new(pd, &self.memory, is_output)?);
        }
        Ok(())
    }

    /// The memory, no longer registered. `None` if a call has it.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (!self.lent).then_some(Buffer { memory: self.memory, in_reach: self.in_reach })
    }

    /// Gives the region to a call: the device may read it and, if it is an output, the accelerator write it.
    pub(crate) fn lend(&mut self) -> Result<(), verbs::Error> {
        self.lent = true;
        match &self.registered {
            Some(registered) if self.flags.contains(RegionFlags::OUTPUT) => registered.open(),
            _ => Ok(()),
        }
    }

    /// Gives the region back to the program. No work request on it may be left: all have completed, or their
    /// queue pair is destroyed.
    pub(crate) fn take_back(&mut self) -> Result<(), verbs::Error> {
        if let Some(registered) = self.registered.as_ref().filter(|_| self.lent) {
            registered.close()?;
        }
        self.lent = false;
        Ok(())
    }

    fn check_not_lent(&self) -> Result<(), Error> {
        if self.is_lent() { Err(Error::InCall) } else { Ok(()) }
    }

    /// The bytes, unless a call has them or the accelerator keeps its access.
    pub(crate) fn bytes(&self) -> Result<&[u8], Error> {
        self.check_not_lent()?;
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: not lent and not in reach: peers have no access (`Registered::new`, `take_back`; regions of one registration
        // are lent and taken back with `&mut` to all of the session's), the device writes only what peers send, and
        // the program needs `&mut self` to write.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// As [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_not_lent()?;
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: as in `bytes`; besides, the device has no work request that reads them (`take_back`), and
        // `&mut self` excludes other slices.
        Ok(unsafe { self.memory.as_mut_slice() })
    }

    /// Copies bytes out, unless a call has them. They must lie inside.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.read(offset, out);
        Ok(())
    }

    /// Copies bytes in, unless a call has them. They must lie inside.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.write(offset, bytes);
        Ok(())
    }

    /// Another region of the same registration may be lent, or could not be taken back.
    pub(crate) fn is_lent(&self) -> bool {
        let is_open = |registered: &Arc<Registered>| registered.is_open.load(Ordering::Relaxed);
        self.lent || self.registered.as_ref().is_some_and(is_open)
    }

    /// Copies bytes of the region from `offset` on, also while lent.
    pub(crate) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        self.memory.read(offset as usize, out);
    }

    /// Copies all of it to where it lies in a staging region.
    pub(crate) fn stage(&self, staging: &Self, at: usize) {
        self.memory.copy_to(0, &staging.memory, at, self.len());
    }

    /// Copies all of it from a staging region, which no peer may write now.
    pub(crate) fn unstage(&mut self, staging: &Self, at: usize) {
        staging.memory.copy_to(at, &self.memory, 0, self.len());
    }

    /// While lent: for copies in and out.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.lent.then_some(&self.memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn flags(&self) -> RegionFlags {
        self.flags
    }

    /// `None` if it is copied.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Option<Sge> {
        let Registered { mr, .. } = &**self.registered.as_ref()?;
        // The memory is the registration's or lies in it.
        Some(mr.sge(self.memory.addr() - mr.addr() + offset, length))
    }

    /// As announced to the accelerator, without a key if it is copied.
    pub(crate) fn announced(&self) -> mrsp::Param {
        let rkey = self.registered.as_ref().map_or(0, |registered| registered.mr.rkey());
        mrsp::Param { flags: self.flags, addr: self.memory.addr(), rkey, size: self.len() as u64 }
    }

    /// Bytes of its registration, if another region has it too: of the first of them that has any.
    pub(crate) fn registered_bytes(&self) -> usize {
        match &self.registered {
            Some(registered) if self.len() > 0 && registered.mr.memory().addr() == self.memory.addr() => {
                registered.mr.memory().len()
            }
            _ => 0,
        }
    }
}
