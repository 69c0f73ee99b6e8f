//! The host's regions of a session, which contain its parameters. At any time, a region belongs either to the program
//! or to a call.
//!
//! This is the only module of the crate with `unsafe`. The module hands out a region's bytes as slices only while
//! nobody else can write to these bytes. Outside this module, only the device uses a region's memory, and only between
//! the calls of `lend` and `take_back`. `lend` needs exclusive access to the region, so no slice exists while the
//! device uses the memory. The regions of a streaming call are lent until the streaming call is dropped. A streaming
//! call gets the `Memory` of its regions instead of slices. The code of streaming calls has no `unsafe`, so it cannot
//! make a slice of a `Memory`.
//!
//! On a NIC, revoking access rights is not possible or takes the time of many calls. `DeviceAttr::revokes` says whether
//! a device revokes access rights. If the device does not revoke access rights, the accelerator can write to outputs
//! until the session ends. If such a device also keeps registrations, accelerators of later sessions can write to the
//! outputs of earlier sessions, too. Memory is "in reach" if an accelerator can write to the memory at any time. A
//! buffer whose memory was once in reach stays in reach. If memory is in reach, methods of [`Memory`] copy the bytes
//! without making slices. A program gets slices of memory in reach only if the program promises that nobody else writes
//! to the memory while the slices exist.
#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use mrsp::RegionFlags;
use verbs::{Access, Memory, Mr, Pd, Sge};

use crate::{Error, Session};

/// Memory that a program can use for a parameter in several sessions, one after the other, and that the program may
/// have allocated itself. [`Session::connect_with`](crate::Session::connect_with) takes buffers, and
/// [`Session::into_buffers`](crate::Session::into_buffers) returns these buffers.
///
/// A device that keeps registrations, such as a device of the verbs provider, need not register the buffer again for
/// the next session. The setup of a session takes much less time if the session's large buffers are still registered
/// from an earlier session. After a buffer was dropped, its pages are freed when a session of the device next begins or
/// ends, or when the device is closed.
///
/// Devices of the verbs provider do not revoke an accelerator's access to memory after a call. If a session over a
/// device of the verbs provider used the memory for an output, the memory stays in reach of accelerators. The
/// accelerator of a session over the verbs provider can write to the memory of an output until the session ends. A
/// device of the verbs provider keeps the registration of an output's memory after the session. The accelerator of a
/// later session can write to the memory of an earlier session's output if the accelerator guesses the RKey of the
/// memory. The bytes of a buffer in reach can only be copied, not borrowed as a slice.
///
/// The type parameter `T` is the type of the buffer's values. Sessions take and return buffers of bytes, `Buffer<u8>`,
/// which is also what `Buffer` alone means. [`zeroed`](Self::zeroed) and [`of`](Self::of) make
/// buffers of numbers. [`into_bytes`](Self::into_bytes) and [`cast`](Buffer::cast) change the type of a buffer without
/// a copy.
#[derive(Debug)]
pub struct Buffer<T = u8> {
    /// The memory of the buffer. Memory that [`Buffer::new`] allocated belongs to this buffer alone. After a session,
    /// the device can still have a registration of it. Memory that was given to [`Buffer::from_memory`] may also be
    /// used by the program and by other buffers.
    memory: Memory,
    /// True if accelerators may be able to write to the memory at any time.
    in_reach: bool,
    values: PhantomData<T>,
}

impl Buffer {
    /// Makes a buffer of `len` zeroed bytes.
    ///
    /// # Errors
    /// Fails with [`Error::Memory`] if the memory cannot be allocated.
    pub fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { memory: region::alloc(len).map_err(Error::Memory)?, in_reach: false, values: PhantomData })
    }

    /// Makes a buffer of memory that the program allocated, without copying the memory. A device that keeps
    /// registrations uses an earlier registration again only if the address, the length and the owner
    /// ([`Memory::owner`]) of the memory have not changed. Clones and parts of a [`Memory`] have the owner of that
    /// [`Memory`].
    ///
    /// # Safety
    /// As long as a session has the buffer, or the buffer is borrowed as a slice, the program may refer to the buffer's
    /// bytes only by raw pointers. The program must not read or write the buffer's bytes from the time a call is posted
    /// until the outcome of the call was returned. All rules under the heading Safety also hold when the program uses
    /// the buffer's bytes through another buffer of the same memory. The caller must ensure that no accelerator has
    /// write access to the buffer's memory while the buffer is borrowed as a slice. If the device does not revoke
    /// access, accelerators keep write access to all memory that a session used for an output. This is so even if the
    /// session used the memory through another buffer.
    pub unsafe fn from_memory(memory: Memory) -> Self {
        Self { memory, in_reach: false, values: PhantomData }
    }

    /// Returns the length of the buffer in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns the bytes of the buffer as a slice, without a copy.
    ///
    /// # Errors
    /// Fails with [`Error::InReach`] if an accelerator may still be able to write to the buffer.
    pub fn as_slice(&self) -> Result<&[u8], Error> {
        self.bytes()
    }

    /// Returns the bytes of the buffer as a mutable slice, without a copy.
    ///
    /// # Errors
    /// Fails with [`Error::InReach`] if an accelerator may still be able to write to the buffer.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8], Error> {
        self.bytes_mut()
    }

    /// Fills `out` with the bytes of the buffer from `offset` on.
    ///
    /// # Panics
    /// Panics if the buffer has fewer than `out.len()` bytes from `offset` on.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.memory.read(offset, out);
    }

    /// Copies `bytes` into the buffer, from `offset` on.
    ///
    /// # Panics
    /// Panics if `bytes` do not fit into the buffer.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    /// Returns a copy of the buffer's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec(0, self.len())
    }
}

/// The methods of a buffer with values of any type, which see only the bytes of the values.
impl<T> Buffer<T> {
    /// Returns the bytes of the buffer as a slice. Fails with [`Error::InReach`] if an accelerator may still be able to
    /// write to the buffer.
    pub(crate) fn bytes(&self) -> Result<&[u8], Error> {
        check_out_of_reach(self.in_reach)?;
        // SAFETY: the memory belongs to this buffer alone, as `new`, `into_buffer` and the contract of `from_memory`
        // ensure. No session has the memory, since a session takes a buffer by value, and destroys its queue pair
        // before it returns the buffer. Peers have no access to the memory: either the memory was never registered for
        // remote access, or the device has revoked the access.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// Returns the bytes of the buffer as a mutable slice. Fails with the same error as [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        check_out_of_reach(self.in_reach)?;
        // SAFETY: nobody else has access to the memory, for the reasons given in `bytes`, and `&mut self` excludes
        // other slices of the memory.
        Ok(unsafe { self.memory.as_mut_slice() })
    }
}

impl<T> Buffer<T> {
    /// Returns a copy of the buffer's bytes.
    pub(crate) fn copy_of_bytes(&self) -> Vec<u8> {
        self.memory.to_vec(0, self.memory.len())
    }

    /// Returns the number of bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the same memory as a buffer of another type. The caller must check that the length fits.
    pub(crate) fn retyped<U>(self) -> Buffer<U> {
        Buffer { memory: self.memory, in_reach: self.in_reach, values: PhantomData }
    }
}

fn check_out_of_reach(in_reach: bool) -> Result<(), Error> {
    if in_reach { Err(Error::InReach) } else { Ok(()) }
}

/// The methods of this `impl` block return slices of outputs even if the device does not revoke the accelerator's
/// access to the outputs.
///
/// ```compile_fail,E0133
/// fn first(session: &naa_host::Session) -> u8 {
///     session.lease_trusting_the_accelerator(0).unwrap()[0]
/// }
/// ```
impl Session {
    /// Returns the bytes of a parameter as [`slice`](Self::slice) does, even if an accelerator can still write to the
    /// memory.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] while a call runs, and with [`Error::NoSuchParam`] if there is no parameter
    /// `index`.
    ///
    /// # Safety
    /// As long as the slice lives, nobody may write to the parameter. If the device does not revoke access, the
    /// accelerator is able to write to the parameter at any time. Anybody who knows the parameter's RKey and can send
    /// packets in the accelerator's name is also able to write to the parameter. The caller promises that the
    /// accelerator is a program that keeps to the protocol. The caller also promises that nobody on the accelerator's
    /// machine, or on the network, can act in the accelerator's place.
    pub unsafe fn lease_trusting_the_accelerator(&self, index: usize) -> Result<&[u8], Error> {
        let region = self.region(index)?;
        region.check_not_lent()?;
        // SAFETY: `check_not_lent` ensures that no call uses the region. By this function's contract, nobody else
        // writes to the memory.
        Ok(unsafe { region.memory.as_slice() })
    }

    /// Returns the bytes of a parameter as [`slice_mut`](Self::slice_mut) does, even if an accelerator can still write
    /// to the memory.
    ///
    /// # Errors
    /// Fails with [`Error::InCall`] while a call runs, and with [`Error::NoSuchParam`] if there is no parameter
    /// `index`.
    ///
    /// # Safety
    /// The caller must keep the contract of [`lease_trusting_the_accelerator`](Self::lease_trusting_the_accelerator).
    pub unsafe fn lease_mut_trusting_the_accelerator(&mut self, index: usize) -> Result<&mut [u8], Error> {
        let region = self.region_mut(index)?;
        region.check_not_lent()?;
        // SAFETY: `check_not_lent` ensures that no call uses the region, and `&mut self` excludes other slices. By this
        // function's contract, nobody else writes to the memory.
        Ok(unsafe { region.memory.as_mut_slice() })
    }
}

/// A registration of one region, or of several regions that lie side by side.
#[derive(Debug)]
struct Registered {
    mr: Mr,
    /// True while the host allows the accelerator to write to the memory of this registration. A device that does not
    /// revoke access lets the accelerator write to an output even if `is_open` is false.
    is_open: AtomicBool,
}

impl Registered {
    /// Registers `memory`, with remote write access only if `is_output` is true. If the device can revoke access
    /// rights, peers have access to the memory only between a call of `Registered::open` and the next call of
    /// `Registered::close`.
    fn new(pd: &Pd, memory: &Memory, is_output: bool) -> Result<Arc<Self>, verbs::Error> {
        // The device only reads inputs, so the memory of an input is registered without remote write access.
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
pub(crate) struct HostRegion {
    /// The registration of the memory. `None` if the parameter is copied to and from a staging region, because only the
    /// staging region is registered.
    registered: Option<Arc<Registered>>,
    memory: Memory,
    flags: RegionFlags,
    /// True while the region is lent to a call and the program must not use it.
    lent: bool,
    /// True if the accelerator may be able to write to the region at any time, even between calls.
    in_reach: bool,
}

/// Returns true if the accelerator can write to a parameter with these flags at any time. This function returns the
/// same value whether or not the parameter is copied to a staging region, so that programs do not depend on the layout.
fn stays_in_reach(pd: &Pd, flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::OUTPUT) && !pd.context().attr().revokes
}

impl HostRegion {
    /// Makes a region with the memory of `buffer`, and registers the region. If the device revokes access rights, peers
    /// have no access to the region before the region is lent to a call.
    pub(crate) fn new(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Result<Self, Error> {
        let mut region = Self::copied(pd, flags, buffer);
        region.register(pd)?;
        Ok(region)
    }

    /// Makes a region with the memory of `buffer`, but does not register the region.
    pub(crate) fn copied(pd: &Pd, flags: RegionFlags, buffer: Buffer) -> Self {
        let in_reach = buffer.in_reach || stays_in_reach(pd, flags);
        Self { registered: None, memory: buffer.memory, flags, lent: false, in_reach }
    }

    /// Makes the regions of outputs that share one registration. Each element of `outputs` has the flags of an output,
    /// its offset in the registration in bytes, and its size in bytes. The outputs must not overlap.
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

    /// Returns the memory of the region as a buffer, or `None` if the region is lent to a call.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (!self.lent).then_some(Buffer { memory: self.memory, in_reach: self.in_reach, values: PhantomData })
    }

    /// Lends the region to a call. While the region is lent, the device may read it, and the accelerator may write to
    /// it if the region is an output.
    pub(crate) fn lend(&mut self) -> Result<(), verbs::Error> {
        self.lent = true;
        match &self.registered {
            Some(registered) if self.flags.contains(RegionFlags::OUTPUT) => registered.open(),
            _ => Ok(()),
        }
    }

    /// Gives the region back to the program. Before this method is called, all work requests that use the region must
    /// have completed, or their queue pair must be destroyed.
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

    /// Returns the bytes of the region. Fails with [`Error::InCall`] while the region is lent to a call, and with
    /// [`Error::InReach`] if an accelerator may be able to write to the region at any time.
    pub(crate) fn bytes(&self) -> Result<&[u8], Error> {
        self.check_not_lent()?;
        check_out_of_reach(self.in_reach)?;
        // SAFETY: while the slice exists, nobody writes to the region. Peers have no write access, because the region
        // is neither lent nor in reach: `Registered::new` and `take_back` have revoked the access rights, and only
        // `lend` grants them again. Several regions can share one registration. They are lent and taken back only by
        // code that has `&mut` to all regions of the session, so none of them is lent while a slice of another one
        // exists. The device writes only what peers send, and the program needs `&mut self` to write.
        Ok(unsafe { self.memory.as_slice() })
    }

    /// Returns the bytes of the region as a mutable slice. Fails with the same errors as [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], Error> {
        self.check_not_lent()?;
        check_out_of_reach(self.in_reach)?;
        // SAFETY: peers have no access to the region, for the reasons given in `bytes`. By the contract of `take_back`,
        // the device has no work request that reads the region. `&mut self` excludes other slices of the region.
        Ok(unsafe { self.memory.as_mut_slice() })
    }

    /// Fills `out` with the bytes of the region from `offset` on. Fails with [`Error::InCall`] while the region is lent
    /// to a call. The bytes must lie inside the region.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.read(offset, out);
        Ok(())
    }

    /// Copies `bytes` into the region from `offset` on. Fails with [`Error::InCall`] while the region is lent to a
    /// call. The bytes must lie inside the region.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_not_lent()?;
        self.memory.write(offset, bytes);
        Ok(())
    }

    /// Returns true if the program must not use the region. The result is true while the region, or another region with
    /// the same registration, is lent to a call. After a call, the result is still true if the device failed to revoke
    /// the accelerator's access to the region.
    pub(crate) fn is_lent(&self) -> bool {
        let is_open = |registered: &Arc<Registered>| registered.is_open.load(Ordering::Relaxed);
        self.lent || self.registered.as_ref().is_some_and(is_open)
    }

    /// Fills `out` with the bytes of the region from `offset` on, even while the region is lent to a call.
    pub(crate) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        self.memory.read(offset as usize, out);
    }

    /// Copies all bytes of the region to offset `at` of the staging region `staging`.
    pub(crate) fn stage(&self, staging: &Self, at: usize) {
        self.memory.copy_to(0, &staging.memory, at, self.len());
    }

    /// Overwrites the whole region with the bytes at offset `at` of a staging region. While the bytes are copied, no
    /// peer may write to the staging region.
    pub(crate) fn unstage(&mut self, staging: &Self, at: usize) {
        staging.memory.copy_to(at, &self.memory, 0, self.len());
    }

    /// Returns the memory of the region if the region is lent to a call, else `None`. A streaming call copies bytes
    /// from and to the memory while the region is lent.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.lent.then_some(&self.memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn flags(&self) -> RegionFlags {
        self.flags
    }

    /// Returns a scatter-gather element for a part of the region, or `None` if the region has no registration because
    /// it is copied to a staging region.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Option<Sge> {
        let Registered { mr, .. } = &**self.registered.as_ref()?;
        // The region's memory may begin after the start of the registered memory, so the distance between the two
        // starts is added to `offset`.
        Some(mr.sge(self.memory.addr() - mr.addr() + offset, length))
    }

    /// Returns the description with which the parameter is announced to the accelerator. The RKey in the description is
    /// 0 if the parameter is copied to a staging region.
    pub(crate) fn announced(&self) -> mrsp::AnnouncedParam {
        let rkey = self.registered.as_ref().map_or(0, |registered| registered.mr.rkey());
        mrsp::AnnouncedParam { flags: self.flags, addr: self.memory.addr(), rkey, size: self.len() as u64 }
    }

    /// Returns the size of the region's registration in bytes, or 0 if the region has no registration. If several
    /// regions share a registration, this method returns the size only for the region that is not empty and lies at the
    /// start of the registration. For the other regions, it returns 0, so that the sum over all regions counts each
    /// registration once.
    pub(crate) fn registered_bytes(&self) -> usize {
        match &self.registered {
            Some(registered) if self.len() > 0 && registered.mr.memory().addr() == self.memory.addr() => {
                registered.mr.memory().len()
            }
            _ => 0,
        }
    }
}
