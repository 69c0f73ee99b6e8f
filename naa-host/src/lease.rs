//! Regions, which belong either to the program or to a call.
//!
//! This is the only module of the crate with `unsafe`: it hands out a region's bytes as slices while nobody else can write that memory. A
//! region's memory leaves this module only for the device, which touches it only between `lend` and `take_back`. `lend` needs exclusive access
//! to the region, so no slice exists then. The regions of a stream stay lent until they are dropped; only their `Memory` is handed out, which
//! makes no slices without `unsafe`.
//!
//! A NIC takes access rights back at the price of many calls, or not at all (`DeviceAttr::revokes`). Then the accelerator can write outputs as
//! long as the session lives, and accelerators of later sessions can reach a registration that the device keeps. Such memory is in reach and
//! stays so. It is copied by [`Memory`], which needs no slices. Slices of it are handed out only to programs that promise that nobody else
//! writes meanwhile.
#![allow(unsafe_code)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mrsp::RegionFlags;
use verbs::{Access, Memory, Mr, Pd, Sge};

use crate::{Error, Session};

/// Memory for a parameter that outlives sessions, or is the program's own. [`Session::connect_with`](crate::Session::connect_with) takes it,
/// and [`Session::into_buffers`](crate::Session::into_buffers) gives it back.
///
/// A device that keeps registrations, as the verbs provider does, finds the buffer still registered the next time. This saves most
/// of the connection time of large buffers. Once a buffer is dropped, its pages are freed when the device next registers something
/// or is closed.
///
/// Memory that was an output over a device that does not take access back, such as those of the verbs provider, stays in reach of accelerators.
/// The session's accelerator could write it until the session ended. Accelerators of later sessions can still do so with a key that they were
/// not given. There are no slices of such a buffer; it is copied.
#[derive(Debug)]
pub struct Buffer {
    /// The buffer alone refers to this memory, apart from a registration that the device may keep.
    memory: Memory,
    /// Whether accelerators may write the memory at any time.
    in_reach: bool,
}

impl Buffer {
    /// Makes a buffer of `len` zeroed bytes.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { memory: region::alloc(len).map_err(Error::Memory)?, in_reach: false })
    }

    /// A buffer on memory of the program's own, so that nothing is copied. Clones and parts of one [`Memory`] have the same owner, by which a
    /// device that keeps registrations recognizes the memory.
    ///
    /// # Safety
    /// As long as a session has the buffer, or the buffer is borrowed as a slice, the program may refer to its bytes only by raw pointers. It
    /// must touch none of them from the time a call is posted until the outcome of the call was handed out. The same goes for other buffers of
    /// the same memory. While the buffer is borrowed as a slice, no accelerator may write it. An accelerator can if the memory was an output of
    /// another buffer over a device that does not take access back.
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
        // SAFETY: the memory is of this buffer alone (`new`, `into_buffer`, contract of `from_memory`), and no session has it: a session takes
        // the buffer by value and ends before it gives the buffer back, so its queue pair is gone. Peers have no access: the memory was not
        // registered for them on a device that does not take access back.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// The bytes in place, mutable.
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

    /// Copies bytes from `offset` on to `out`, as many as `out` has.
    ///
    /// # Panics
    /// If the bytes do not lie inside the buffer.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.memory.read(offset, out);
    }

    /// Copies `bytes` into the buffer, from `offset` on.
    ///
    /// # Panics
    /// If they do not fit into the buffer.
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
    /// Returns the bytes as [`lease`](Self::lease) does, also those of memory that an accelerator can still write.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// As long as the slice lives, nobody may write the parameter. Over a device that does not take access back the accelerator could, and so
    /// could anybody who learns the parameter's RKey and can send packets in the accelerator's name. So you promise that this accelerator is a
    /// program that keeps to the protocol, and that nobody else on its machine or on the network between can act in its place.
    pub unsafe fn lease_trusting_the_accelerator(&self, index: usize) -> Result<&[u8], Error> {
        let region = self.region(index)?;
        region.check_not_lent()?;
        // SAFETY: as in `Region::bytes`, but that nobody writes is the caller's contract.
        Ok(unsafe { region.memory.as_slice() })
    }

    /// Returns the bytes as [`lease_mut`](Self::lease_mut) does, also those of memory that an accelerator can still write.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// The contract is that of [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator).
    pub unsafe fn lease_mut_trusting_the_accelerator(&mut self, index: usize) -> Result<&mut [u8], Error> {
        let region = self.region_mut(index)?;
        region.check_not_lent()?;
        // SAFETY: as in `Region::bytes_mut`, but that nobody writes is the caller's contract.
        Ok(unsafe { region.memory.as_mut_slice() })
    }
}

/// A registration of one region, or of several regions that lie side by side.
#[derive(Debug)]
struct Registered {
    mr: Mr,
    /// Whether the accelerator may write.
    is_open: AtomicBool,
}

impl Registered {
    /// Registers `memory`; peers have no access until it is lent.
    fn new(pd: &Pd, memory: &Memory, is_output: bool) -> Result<Arc<Self>, verbs::Error> {
        // Inputs are only read, so a registration without write access is enough.
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

/// The memory of a parameter.
#[derive(Debug)]
pub(crate) struct Region {
    /// The registration; `None` if the parameter is copied to and from a staging region instead.
    registered: Option<Arc<Registered>>,
    memory: Memory,
    flags: RegionFlags,
    /// Whether a call has the region.
    lent: bool,
    /// Whether the accelerator may write the region also between calls.
    in_reach: bool,
}

/// Whether a parameter with these flags stays in the accelerator's reach. The answer is the same whether or not the parameter is copied, which
/// the layout decides, so that programs do not depend on layouts.
fn stays_in_reach(pd: &Pd, flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::OUTPUT) && !pd.context().attr().revokes
}

impl Region {
    /// Makes a registered region of `buffer`. Peers cannot reach it until it is lent.
    pub(crate) fn new(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Result<Self, Error> {
        let mut region = Self::copied(pd, flags, buffer);
        region.register(pd)?;
        Ok(region)
    }

    /// Makes a region of `buffer` that is not registered with any device.
    pub(crate) fn copied(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Self {
        let in_reach = buffer.in_reach || stays_in_reach(pd, flags);
        Self { registered: None, memory: buffer.memory, flags, lent: false, in_reach }
    }

    /// Makes regions of outputs that lie side by side in one registration: flags, where each starts, and its size in bytes. They do not
    /// overlap.
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

    /// Registers the region, unless it is registered already.
    pub(crate) fn register(&mut self, pd: &Pd) -> Result<(), Error> {
        if self.registered.is_none() {
            let is_output = self.flags.contains(RegionFlags::OUTPUT);
            self.registered = Some(Registered::new(pd, &self.memory, is_output)?);
        }
        Ok(())
    }

    /// Returns the memory, no longer registered. `None` if a call has it.
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

    /// Gives the region back to the program. No work request on the region may be left: all have completed, or their queue pair is destroyed.
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

    /// The bytes, unless a call has the region or the accelerator keeps its access.
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

    /// The bytes, mutable, on the same conditions as [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_not_lent()?;
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: as in `bytes`; besides, the device has no work request that reads them (`take_back`), and
        // `&mut self` excludes other slices.
        Ok(unsafe { self.memory.as_mut_slice() })
    }

    /// Copies bytes out, unless a call has the region. They must lie inside.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.read(offset, out);
        Ok(())
    }

    /// Copies bytes in, unless a call has the region. They must lie inside.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.write(offset, bytes);
        Ok(())
    }

    /// Whether a call has the region, or a region of the same registration that is still lent or could not be taken back.
    pub(crate) fn is_lent(&self) -> bool {
        let is_open = |registered: &Arc<Registered>| registered.is_open.load(Ordering::Relaxed);
        self.lent || self.registered.as_ref().is_some_and(is_open)
    }

    /// Copies bytes of the region from `offset` on, also while the region is lent.
    pub(crate) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        self.memory.read(offset as usize, out);
    }

    /// Copies the whole region to its place in a staging region.
    pub(crate) fn stage(&self, staging: &Self, at: usize) {
        self.memory.copy_to(0, &staging.memory, at, self.len());
    }

    /// Copies the whole region from a staging region, which no peer may write now.
    pub(crate) fn unstage(&mut self, staging: &Self, at: usize) {
        staging.memory.copy_to(at, &self.memory, 0, self.len());
    }

    /// The memory while it is lent, for copies in and out.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.lent.then_some(&self.memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn flags(&self) -> RegionFlags {
        self.flags
    }

    /// A scatter-gather element for a part of the region; `None` if the region is copied.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Option<Sge> {
        let Registered { mr, .. } = &**self.registered.as_ref()?;
        // The memory is that of the registration or lies in it.
        Some(mr.sge(self.memory.addr() - mr.addr() + offset, length))
    }

    /// The parameter as it is announced to the accelerator; its key is 0 if it is copied.
    pub(crate) fn announced(&self) -> mrsp::Param {
        let rkey = self.registered.as_ref().map_or(0, |registered| registered.mr.rkey());
        mrsp::Param { flags: self.flags, addr: self.memory.addr(), rkey, size: self.len() as u64 }
    }

    /// The size of the registration in bytes, if a region that is not empty starts where the registration starts; else 0. So regions that share
    /// a registration count it once.
    pub(crate) fn registered_bytes(&self) -> usize {
        match &self.registered {
            Some(registered) if self.len() > 0 && registered.mr.memory().addr() == self.memory.addr() => {
                registered.mr.memory().len()
            }
            _ => 0,
        }
    }
}
