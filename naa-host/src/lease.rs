//! Regions of a session. At any time, a region belongs either to the program or to a call.
//!
//! This is the only module of the crate with `unsafe`. The module hands out a region's bytes as slices while nobody else can write to that
//! memory. A region's memory leaves this module only for the device, which uses the memory only between `lend` and `take_back`. `lend` needs
//! exclusive access to the region, so no slice exists while the device uses the memory. The regions of a stream are not taken back before they
//! are dropped. The module hands out only the `Memory` of a stream's regions, which makes no slices without `unsafe`.
//!
//! On a NIC, revoking access rights takes as long as many calls, or is not possible (`DeviceAttr::revokes`). If the device does not revoke, the
//! accelerator can write to outputs as long as the session lives. Accelerators of later sessions can also write to the memory, if the device
//! keeps its registration. Memory to which an accelerator can write at any time is called in reach, and stays in reach. The bytes of memory in
//! reach are copied by [`Memory`], which needs no slices. A program gets slices of memory in reach only if the program promises that nobody
//! else writes to the memory while the slices exist.
#![allow(unsafe_code)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mrsp::RegionFlags;
use verbs::{Access, Memory, Mr, Pd, Sge};

use crate::{Error, Session};

/// Memory for a parameter, which outlives sessions or is the program's own. [`Session::connect_with`](crate::Session::connect_with) takes
/// buffers, and [`Session::into_buffers`](crate::Session::into_buffers) returns them.
///
/// A device that keeps registrations, such as a device of the verbs provider, need not register the buffer again for the next session. This
/// saves most of the time to connect if buffers are large. After a buffer was dropped, its pages are freed when the device next registers
/// something or is closed.
///
/// Devices of the verbs provider do not take access back. Memory that was an output over such a device stays in reach of accelerators. The
/// session's accelerator could write to the memory until the session ended. Accelerators of later sessions can write to the memory with a key
/// that they guess. A buffer in reach gives no slices; its bytes are copied.
#[derive(Debug)]
pub struct Buffer {
    /// The memory of the buffer. Only the buffer, and a registration that the device may keep, refer to this memory.
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

    /// Makes a buffer of memory of the program's own, so that nothing is copied. A device that keeps registrations recognizes the memory by its
    /// owner, which is the same for clones and parts of one [`Memory`].
    ///
    /// # Safety
    /// As long as a session has the buffer, or the buffer is borrowed as a slice, the program may refer to the buffer's bytes only by raw
    /// pointers. The program must not read or write the bytes from the time a call is posted until the outcome of the call was handed out. Both
    /// rules also apply to other buffers of the same memory. While the buffer is borrowed as a slice, no accelerator may be able to write to
    /// it. An accelerator is able to do so if the memory was an output, in another buffer, over a device that does not take access back.
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
        // SAFETY: the memory belongs to this buffer alone (`new`, `into_buffer`, contract of `from_memory`). No session has the memory, since a
        // session takes a buffer by value, and destroys its queue pair before it returns the buffer. Peers have no access to the memory, since
        // it was never registered for their access on a device that does not take access back.
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
        // SAFETY: nobody else has access to the memory, as in `as_slice`, and `&mut self` excludes other slices.
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
    /// If `bytes` do not fit into the buffer.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec(0, self.len())
    }
}

/// Methods that return slices even over devices that do not take access back.
///
/// ```compile_fail,E0133
/// fn first(session: &naa_host::Session) -> u8 {
///     session.lease_trusting_the_accelerator(0).unwrap()[0]
/// }
/// ```
impl Session {
    /// Returns the bytes of a parameter as [`lease`](Self::lease) does, even if an accelerator can still write to the memory.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// As long as the slice lives, nobody may write to the parameter. Over a device that does not take access back, the accelerator is able to
    /// write to it. Anybody who knows the parameter's RKey and can send packets in the accelerator's name is able, too. So you promise that the
    /// accelerator is a program that keeps to the protocol. You also promise that nobody else on its machine, or on the network between, can
    /// act in its place.
    pub unsafe fn lease_trusting_the_accelerator(&self, index: usize) -> Result<&[u8], Error> {
        let region = self.region(index)?;
        region.check_not_lent()?;
        // SAFETY: no call has the region, as in `Region::bytes`. By this function's contract, nobody else writes to the memory.
        Ok(unsafe { region.memory.as_slice() })
    }

    /// Returns the bytes of a parameter as [`lease_mut`](Self::lease_mut) does, even if an accelerator can still write to the memory.
    ///
    /// # Errors
    /// [`Error::InCall`], [`Error::NoSuchParam`].
    ///
    /// # Safety
    /// The contract is that of [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator).
    pub unsafe fn lease_mut_trusting_the_accelerator(&mut self, index: usize) -> Result<&mut [u8], Error> {
        let region = self.region_mut(index)?;
        region.check_not_lent()?;
        // SAFETY: no call has the region and no other slice exists, as in `Region::bytes_mut`. By this function's contract, nobody else writes
        // to the memory.
        Ok(unsafe { region.memory.as_mut_slice() })
    }
}

/// A registration of one region, or of several regions that lie side by side.
#[derive(Debug)]
struct Registered {
    mr: Mr,
    /// Whether the accelerator may write to the memory of this registration.
    is_open: AtomicBool,
}

impl Registered {
    /// Registers `memory`. Peers have no access before `open` is called.
    fn new(pd: &Pd, memory: &Memory, is_output: bool) -> Result<Arc<Self>, verbs::Error> {
        // The device only reads inputs, so a registration without write access is enough for them.
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
    /// The registration of the memory. `None` if the parameter is copied to and from a staging region, which is registered in its place.
    registered: Option<Arc<Registered>>,
    memory: Memory,
    flags: RegionFlags,
    /// Whether a call, and not the program, has the region.
    lent: bool,
    /// Whether the accelerator may write to the region at any time, even between calls.
    in_reach: bool,
}

/// Whether the accelerator can write to a parameter with these flags at any time. The result is the same for parameters that are copied to a
/// staging region, so that programs do not depend on the layout.
fn stays_in_reach(pd: &Pd, flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::OUTPUT) && !pd.context().attr().revokes
}

impl Region {
    /// Makes a registered region of `buffer`. Peers have no access to the region before a call has it.
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

    /// Makes regions of outputs that lie side by side in one registration. `outputs` has flags, start and size in bytes of each output. The
    /// outputs do not overlap.
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

    /// Ends the registration and returns the memory. `None` if a call has the region.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (!self.lent).then_some(Buffer { memory: self.memory, in_reach: self.in_reach })
    }

    /// Gives the region to a call. From now on the device may read the region, and the accelerator may write to the region if it is an output.
    pub(crate) fn lend(&mut self) -> Result<(), verbs::Error> {
        self.lent = true;
        match &self.registered {
            Some(registered) if self.flags.contains(RegionFlags::OUTPUT) => registered.open(),
            _ => Ok(()),
        }
    }

    /// Gives the region back to the program. Before this, all work requests on the region must have completed, or their queue pair must be
    /// destroyed.
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

    /// The bytes of the region. This is an error while a call has the region, and if the accelerator keeps its access.
    pub(crate) fn bytes(&self) -> Result<&[u8], Error> {
        self.check_not_lent()?;
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: the region is not lent and not in reach, so peers have no access (`Registered::new`, `take_back`). Regions of one
        // registration are lent and taken back with `&mut` to all regions of the session. The device writes only what peers send, and the
        // program needs `&mut self` to write.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// The bytes of the region as a mutable slice, with the same errors as [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_not_lent()?;
        if self.in_reach {
            return Err(Error::InReach);
        }
        // SAFETY: peers have no access, as in `bytes`. The device has no work request that reads the region (`take_back`), and `&mut self`
        // excludes other slices.
        Ok(unsafe { self.memory.as_mut_slice() })
    }

    /// Copies bytes from `offset` on to `out`, unless a call has the region. The bytes must lie inside the region.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.read(offset, out);
        Ok(())
    }

    /// Copies `bytes` into the region from `offset` on, unless a call has the region. The bytes must lie inside the region.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.write(offset, bytes);
        Ok(())
    }

    /// Whether a call has the region, or has another region of the same registration, or access to the registration could not be taken back.
    pub(crate) fn is_lent(&self) -> bool {
        let is_open = |registered: &Arc<Registered>| registered.is_open.load(Ordering::Relaxed);
        self.lent || self.registered.as_ref().is_some_and(is_open)
    }

    /// Copies bytes of the region from `offset` on to `out`, even while a call has the region.
    pub(crate) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        self.memory.read(offset as usize, out);
    }

    /// Copies the whole region to offset `at` of a staging region.
    pub(crate) fn stage(&self, staging: &Self, at: usize) {
        self.memory.copy_to(0, &staging.memory, at, self.len());
    }

    /// Copies the whole region from offset `at` of a staging region. No peer may write to the staging region at this time.
    pub(crate) fn unstage(&mut self, staging: &Self, at: usize) {
        staging.memory.copy_to(at, &self.memory, 0, self.len());
    }

    /// The memory of the region while a call has it, for copies from and to it.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.lent.then_some(&self.memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn flags(&self) -> RegionFlags {
        self.flags
    }

    /// A scatter-gather element for a part of the region. `None` if the region is copied to a staging region and has no registration.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Option<Sge> {
        let Registered { mr, .. } = &**self.registered.as_ref()?;
        // The region's memory is the registration's memory, or a part of it.
        Some(mr.sge(self.memory.addr() - mr.addr() + offset, length))
    }

    /// The parameter as it is announced to the accelerator. The RKey is 0 if the parameter is copied to a staging region.
    pub(crate) fn announced(&self) -> mrsp::Param {
        let rkey = self.registered.as_ref().map_or(0, |registered| registered.mr.rkey());
        mrsp::Param { flags: self.flags, addr: self.memory.addr(), rkey, size: self.len() as u64 }
    }

    /// The size of the registration in bytes, if this region is not empty and starts where the registration starts; else 0. So the sum over
    /// regions that share a registration has its size once.
    pub(crate) fn registered_bytes(&self) -> usize {
        match &self.registered {
            Some(registered) if self.len() > 0 && registered.mr.memory().addr() == self.memory.addr() => {
                registered.mr.memory().len()
            }
            _ => 0,
        }
    }
}
