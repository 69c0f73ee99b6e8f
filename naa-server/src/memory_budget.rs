//! The memory of sessions: their regions, and the scratch memory of their calls. The bytes of a session are charged to
//! the session, to its source network and to the server. Slices of memory are made only while no peer can reach the
//! memory.
//!
//! An [`Allocation`] owns its memory and the registration of this memory. A loop service gets the [`Memory`] from
//! `Allocation::stream`; other code gets only slices and copies. An allocation has a record of the access that peers
//! may have to its memory. An allocation shares the count of unfinished [`Sends`] with its session, so that the
//! allocation can check if the device may still read the memory. The session counts a send as unfinished before it
//! makes the scatter-gather elements of the send. Mutable slices are made only while no send is unfinished. This module
//! and `priority` are the only modules of the crate with `unsafe`.
//!
//! A NIC needs much time to revoke access rights, or cannot revoke them. `DeviceAttr::revokes` says whether a device
//! revokes access rights. On a NIC that does not revoke access rights, a host keeps the access with which its regions
//! were registered. If a NIC does not revoke access rights, a host that breaks the protocol can change regions while a
//! function works on them. Slices of memory that a host can write at any time are never made, because the memory could
//! change while the slice exists. Instead of memory that a host can write, a function gets the working copy of
//! [`Allocation::work_on`], which is not registered with any device. The bytes of a region are copied to its working
//! copy before a call, and the results are copied back to the region after the call.
//!
//! If the server has kernels, the memory of each session is in files. The process that runs the kernels of a session
//! maps these files. As long as the [`ChildAccess`] of a process exists, the process may write to the allocations whose
//! files it got. No slices of these allocations are made during this time.
#![allow(unsafe_code)]

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use naa_kernels::ChildAccess;
use verbs::{Access, Memory, Mr, Pd, Sge};

pub use crate::ledger::{AllocationError, Shares};
use crate::ledger::{Charge, Ledger, Meter, Owner};

/// The number of files that the server has open for a process that runs kernels. The two files are the socket and the
/// pidfd of the process.
pub(crate) const FILES_OF_A_PROCESS: u64 = 2;

/// The memory that all sessions together may have. All clones of a budget have the same limits, and count the same
/// bytes and files.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    ledger: Arc<Ledger>,
    /// The ledger of open files, if each allocation has a file.
    files: Option<Arc<Ledger>>,
}

impl MemoryBudget {
    /// Makes a budget that allows at most `limit` bytes to be in use at the same time. The size of each allocation is
    /// rounded up to whole pages, and an allocation of 0 bytes counts as one page. A single source network may have the
    /// whole budget.
    pub fn new(limit: u64) -> Self {
        Self::divided(Shares::undivided(limit), None)
    }

    /// Makes a budget that is divided among source networks according to `shares`. If `files` is not `None`, each
    /// allocation is a file, which other processes can map. `files` then limits the open files of the server and of
    /// each source network.
    pub fn divided(shares: Shares, files: Option<Shares>) -> Self {
        Self { ledger: Ledger::new(shares), files: files.map(Ledger::new) }
    }

    /// Returns the number of bytes that live allocations and reservations have in use.
    pub fn used(&self) -> u64 {
        self.ledger.server.used()
    }

    /// Returns the maximum number of bytes that all source networks together may have.
    pub fn limit(&self) -> u64 {
        self.ledger.shares.total
    }

    /// Returns the quota of a session that may have at most `limit` bytes of this budget. The session's source network
    /// gets a new [`Account`], which counts the bytes and files of this session only.
    pub fn quota(&self, limit: u64) -> Quota {
        self.quota_of(&Account::default(), limit)
    }

    /// Returns the quota of a session that may have at most `limit` bytes of this budget. `peer` is the account of the
    /// session's source network, and the limit for one source network applies to this account.
    pub fn quota_of(&self, peer: &Account, limit: u64) -> Quota {
        let owner = Owner { session: Arc::default(), limit, peer: peer.bytes.clone() };
        let files = Owner { session: Arc::default(), limit: u64::MAX, peer: peer.files.clone() };
        Quota { budget: self.clone(), owner, files, sends: Sends::default() }
    }

    /// Allocates `len` zeroed bytes that are charged to no session.
    ///
    /// # Errors
    /// Fails with [`AllocationError::Server`] or [`AllocationError::ServersFiles`] if the server would exceed its limit
    /// of bytes or files. Fails with [`AllocationError::Map`] if `len` is too large, or if the Linux kernel provides no
    /// memory. If each allocation is a file, fails with [`AllocationError::File`] if the Linux kernel provides no file
    /// or does not map the file.
    pub fn allocate(&self, len: u64) -> Result<Allocation, AllocationError> {
        self.map(len, None, Sends::default())
    }

    /// Makes an allocation of `len` zeroed bytes. The bytes are charged to the first element of `of`. If the allocation
    /// has a file, the file is charged to the second element. If `of` is `None`, the bytes and the file are charged
    /// only to the server.
    fn map(
        &self,
        len: u64,
        of: Option<(&Owner, &Owner)>,
        sends: Sends,
    ) -> Result<Allocation, AllocationError> {
        let charge = self.ledger.charge(of.map(|(bytes, _)| bytes), footprint(len)?)?;
        let len = usize::try_from(len).map_err(|_| no_such_size(len))?;
        let (file, memory, file_charge) = if let Some(files) = &self.files {
            let charge = files.charge(of.map(|(_, files)| files), 1).map_err(AllocationError::of_files)?;
            let (file, memory) = region::memfd("naa-region", len).map_err(AllocationError::File)?;
            (Some(file), memory, Some(charge))
        } else {
            (None, region::alloc(len)?, None)
        };
        Ok(Allocation {
            held: None,
            memory,
            file,
            lent: Weak::new(),
            streamed: false,
            in_reach: false,
            working_copy: None,
            sends,
            _charges: (charge, file_charge),
        })
    }
}

/// The account of a source network, which counts the bytes and files that all sessions of the source network have in
/// use. Clones share the account.
#[derive(Clone, Debug, Default)]
pub struct Account {
    bytes: Arc<Meter>,
    files: Arc<Meter>,
}

impl Account {
    /// Returns the number of bytes that all sessions of the source network have in use.
    pub fn used(&self) -> u64 {
        self.bytes.used()
    }
}

/// The part of a [`MemoryBudget`] that one session may have. Allocations may outlive their quota. Clones share the
/// quota.
#[derive(Clone, Debug)]
pub struct Quota {
    budget: MemoryBudget,
    owner: Owner,
    /// The counts of open files to which each file of the session is charged: the count of the session, and the count
    /// of its source network. A single session may use all open files that its source network may have.
    files: Owner,
    sends: Sends,
}

impl Quota {
    /// Allocates `len` zeroed bytes that are charged to the session.
    ///
    /// # Errors
    /// Fails with [`AllocationError::Session`], [`AllocationError::Peer`] or [`AllocationError::Server`] if the
    /// session, its source network or the server would exceed its limit of bytes. Fails with [`AllocationError::Files`]
    /// or [`AllocationError::ServersFiles`] if the source network or the server would exceed its limit of open files.
    /// Fails with [`AllocationError::Map`] if `len` is too large, or if the Linux kernel provides no memory. If each
    /// allocation is a file, fails with [`AllocationError::File`] if the Linux kernel provides no file or does not map
    /// the file.
    pub fn allocate(&self, len: u64) -> Result<Allocation, AllocationError> {
        self.budget.map(len, Some((&self.owner, &self.files)), self.sends.clone())
    }

    /// Charges `bytes` bytes of scratch memory to the session, but does not allocate memory.
    ///
    /// # Errors
    /// Fails with [`AllocationError::Session`], [`AllocationError::Peer`] or [`AllocationError::Server`] if the
    /// session, its source network or the server would exceed its limit of bytes.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, AllocationError> {
        self.budget.ledger.charge(Some(&self.owner), bytes).map(Reservation)
    }

    /// Charges open files to the session's source network and to the server. These are the files by which the server
    /// controls the process that runs the session's kernels. If the budget does not limit open files, the method
    /// charges nothing and returns `None`. The budget limits open files only if each allocation is a file.
    ///
    /// # Errors
    /// Fails with [`AllocationError::Files`] or [`AllocationError::ServersFiles`] if the source network or the server
    /// would exceed its limit of open files.
    pub(crate) fn reserve_process(&self) -> Result<Option<Reservation>, AllocationError> {
        let charge = |files: &Arc<Ledger>| files.charge(Some(&self.files), FILES_OF_A_PROCESS);
        let charged = self.budget.files.as_ref().map(charge).transpose();
        charged.map(|charge| charge.map(Reservation)).map_err(AllocationError::of_files)
    }

    /// Returns the count of the session's unfinished sends.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Returns the number of bytes that are charged to this session for live allocations and reservations.
    pub fn used(&self) -> u64 {
        self.owner.session.used()
    }
}

/// A charge for scratch memory, or for the files of the process that runs a session's kernels. Dropping the value ends
/// the charge.
#[derive(Debug)]
pub struct Reservation(#[expect(dead_code, reason = "it is held for its end")] Charge);

/// Zeroed memory that a function takes for one call. No peer and no other process ever reaches this memory. The memory
/// starts at a page boundary.
#[derive(Debug)]
pub struct Scratch {
    memory: Memory,
    _reservation: Option<Reservation>,
}

impl Scratch {
    /// Maps `len` zeroed bytes as scratch memory. If `quota` is not `None`, the bytes are charged to `quota`, rounded
    /// up to whole pages.
    ///
    /// # Errors
    /// Fails with the error of [`Quota::reserve`] if the bytes cannot be charged to `quota`. Fails with
    /// [`AllocationError::Map`] if the Linux kernel provides no memory, or if `len` is too large.
    pub fn new(quota: Option<&Quota>, len: usize) -> Result<Self, AllocationError> {
        let taken = footprint(len as u64)?;
        let reservation = quota.map(|quota| quota.reserve(taken)).transpose()?;
        Ok(Self { memory: region::alloc(len)?, _reservation: reservation })
    }

    /// Returns the bytes of the scratch memory for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: only this `Scratch` has the mapping `self.memory`, and the mapping lives as long as this `Scratch`. A
        // `Scratch` never registers, clones or lends its mapping, and never sends bytes from its mapping. `&mut self`
        // excludes other slices while this slice exists.
        unsafe { self.memory.as_mut_slice() }
    }
}

/// The number of a session's sends that have not completed. While a send has not completed, the device may read the
/// session's allocations. Clones count the sends of the same session.
#[derive(Clone, Debug, Default)]
pub struct Sends(Arc<AtomicU32>);

impl Sends {
    /// Counts one more unfinished send. The session calls `begin` before it makes the scatter-gather elements of a
    /// send, because [`Allocation::sge`] makes elements only while the session has an unfinished send.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Lowers the count of unfinished sends by 1, because a send has completed. Returns true if all sends of the
    /// session have completed.
    pub fn complete(&self) -> bool {
        let less = |count: u32| Some(count.saturating_sub(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok_and(|before| before <= 1)
    }

    /// Returns true if at least one send of the session has not completed.
    pub fn unfinished(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

fn footprint(len: u64) -> Result<u64, AllocationError> {
    let mapped =
        usize::try_from(len).ok().and_then(region::footprint).and_then(|bytes| u64::try_from(bytes).ok());
    Ok(mapped.ok_or_else(|| no_such_size(len))?)
}

fn no_such_size(len: u64) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("no region can have {len} bytes; map smaller regions"))
}

/// The access that peers and loop services have to the registered memory of an allocation.
#[derive(Debug)]
enum Held {
    /// [`Allocation::revoke`] has revoked the access of peers. If the device does not revoke access, peers may still
    /// have access.
    Revoked,
    /// Peers may have access rights to the memory.
    Granted,
    /// A loop service got the memory and the LKey of this registration from [`Allocation::stream`].
    Streaming,
}

/// Zeroed memory with a record of the access that peers may have to it. Dropping an allocation first ends its
/// registration, and afterwards the charge for its bytes.
pub struct Allocation {
    // Fields are dropped in the order of their declaration, so the registration in `held` ends before the charges in
    // `_charges`.
    /// The registration of the memory, and the access to the registered memory. The field is `None` if the memory is
    /// not registered, so that neither peers nor loop services can reach the memory.
    held: Option<(Mr, Held)>,
    memory: Memory,
    /// The file with the memory's pages, if other processes can map them.
    file: Option<OwnedFd>,
    /// The [`ChildAccess`] of the last process that got `file`. A process that got `file` may write to the memory as
    /// long as the `ChildAccess` of the process exists.
    lent: Weak<ChildAccess>,
    /// True if a loop service got the memory. The loop service can keep the memory after the memory was deregistered.
    streamed: bool,
    /// True if the memory is registered for writes of peers, and the device does not revoke access.
    in_reach: bool,
    /// The working copy, which functions use if peers could reach the memory during a call.
    working_copy: Option<Box<Allocation>>,
    sends: Sends,
    /// The charge for the bytes, and the charge for the file.
    _charges: (Charge, Option<Charge>),
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("held", &self.held).field("memory", &self.memory).finish()
    }
}

impl Allocation {
    /// Returns the number of bytes that were requested for the allocation.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if the allocation was made for 0 bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns the virtual address of the memory. Peers use virtual addresses of the memory as the remote addresses of
    /// their WRITEs.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Registers the memory for the access rights `most`, and ends an earlier registration. On a
    /// device that can revoke access rights, peers have no access until [`Self::grant`] gives them some or all of the
    /// rights in `most`.
    ///
    /// # Errors
    /// Fails with the device's error.
    pub fn register(&mut self, pd: &Pd, most: Access) -> Result<(), verbs::Error> {
        self.deregister();
        // `reg_mr` gives peers the access rights `most` immediately, so the state is `Granted` until `revoke` succeeds.
        self.held = Some((pd.reg_mr(&self.memory, most)?, Held::Granted));
        self.in_reach = most.remote_write && !pd.context().attr().revokes;
        self.revoke()
    }

    /// Ends the registration of the memory, so that peers cannot reach the memory. Does nothing if the memory is not
    /// registered. A loop service that got the memory can keep it after this call, so the allocation makes no slices of
    /// it after this call.
    pub fn deregister(&mut self) {
        self.held = None;
        self.in_reach = false;
    }

    /// Returns true if peers can write the memory at any time, because the device does not revoke access. Functions
    /// need a working copy of memory that is in reach.
    pub fn is_in_reach(&self) -> bool {
        self.in_reach
    }

    /// Gives the allocation the working copy `working_copy`, which has the same length and is not registered. While
    /// this memory is in reach, [`Self::bytes_mut`] copies the bytes to `working_copy` and returns a slice of
    /// `working_copy`.
    pub fn work_on(&mut self, working_copy: Self) {
        debug_assert!(working_copy.len() == self.len() && working_copy.held.is_none());
        self.working_copy = Some(Box::new(working_copy));
    }

    /// Copies the bytes of the working copy to this memory, from which results are sent. Does nothing if the allocation
    /// has no working copy, or if the memory is not in reach.
    pub fn settle(&mut self) {
        if let Some(working_copy) = self.working_copy.as_ref().filter(|_| self.in_reach) {
            working_copy.memory.copy_to(0, &self.memory, 0, self.memory.len());
        }
    }

    /// Gives `access` to peers. Does nothing if the memory is not registered, or if a loop service got the memory.
    ///
    /// # Errors
    /// Fails with the device's error. After an error, the allocation is treated as if peers had access.
    pub fn grant(&mut self, access: Access) -> Result<(), verbs::Error> {
        let Some((mr, state @ (Held::Revoked | Held::Granted))) = &mut self.held else { return Ok(()) };
        // The grant is recorded before the driver grants access, because peers may have access even if the driver
        // returns an error.
        *state = Held::Granted;
        mr.set_access(access)
    }

    /// Revokes all access of peers. If the device revokes access (`DeviceAttr::revokes`), no access of peers is in
    /// progress when this function returns. If the device does not revoke access, peers keep their access. Does nothing
    /// if a loop service got the memory.
    ///
    /// # Errors
    /// Fails with the device's error. After an error, the allocation is still treated as if peers had access.
    pub fn revoke(&mut self) -> Result<(), verbs::Error> {
        if let Some((mr, state @ Held::Granted)) = &mut self.held {
            mr.set_access(Access::LOCAL)?;
            *state = Held::Revoked;
        }
        Ok(())
    }

    /// Returns the RKey of the memory, or `None` if the memory is not registered.
    pub fn rkey(&self) -> Option<u32> {
        self.mr().map(Mr::rkey)
    }

    /// Returns a scatter-gather element of `len` bytes from `offset` on. Returns `None` if the memory is not
    /// registered, or if the range is not inside the memory. Also returns `None` if the session has no unfinished send,
    /// so the caller must count the send with [`Sends::begin`] before it calls `sge`. The device may read the bytes
    /// until the send that uses the element has completed.
    pub fn sge(&self, offset: u64, len: u32) -> Option<Sge> {
        let end = offset.checked_add(u64::from(len))?;
        let inside = end <= u64::try_from(self.len()).ok()?;
        self.mr().filter(|_| inside && self.sends.unfinished()).map(|mr| mr.sge(offset, len))
    }

    /// Lends the file of the memory's pages to a process, which may write to the pages until `access` is dropped. No
    /// slices of the memory are made before `access` is dropped. Returns `None` if the allocation has no file, or
    /// another process has the file.
    pub fn lend(&mut self, access: &Arc<ChildAccess>) -> Option<BorrowedFd<'_>> {
        if self.is_lent() && !self.lent.ptr_eq(&Arc::downgrade(access)) {
            return None;
        }
        self.lent = Arc::downgrade(access);
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the file of the allocation while the file is lent to a process, and `None` otherwise.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|_| self.is_lent()).map(AsFd::as_fd)
    }

    fn is_lent(&self) -> bool {
        self.lent.strong_count() > 0
    }

    fn mr(&self) -> Option<&Mr> {
        self.held.as_ref().map(|(mr, _)| mr)
    }

    /// Gives peers `access` to the memory, and returns the memory and its LKey to a loop service. After `stream` has
    /// returned the memory, both the loop service and peers may use the memory, so no slices of the memory are made any
    /// more. Returns `None` if the memory is not registered, or if the file of the memory is lent to a process.
    pub(crate) fn stream(&mut self, access: Access) -> Result<Option<(Memory, u32)>, verbs::Error> {
        if self.is_lent() {
            return Ok(None);
        }
        self.grant(access)?;
        self.working_copy = None;
        let Some((mr, state)) = &mut self.held else { return Ok(None) };
        *state = Held::Streaming;
        self.streamed = true;
        Ok(Some((self.memory.clone(), mr.lkey())))
    }

    /// Returns true if a loop service got the memory, or if peers may have access that [`Self::revoke`] has not
    /// revoked. The result does not say whether the memory is in reach.
    fn is_open(&self) -> bool {
        self.streamed || matches!(self.held, Some((_, Held::Granted)))
    }

    /// Returns the bytes, or `None` if a peer, a loop service or another process may be able to write the memory. On a
    /// device that does not revoke access, peers can write the memory as long as the memory is registered for writes of
    /// peers.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.is_open() || self.is_lent() || self.in_reach {
            return None;
        }
        // SAFETY: this allocation made the mapping `self.memory`, which lives as long as the allocation. Neither peers
        // nor loop services can write the mapping, because `is_open` is false. Because `is_lent` is false, every other
        // process that mapped the allocation's file has ended. Because `in_reach` is false, either the device revoked
        // the right of peers to write, or peers never got this right. This process writes the mapping only in methods
        // that take `&mut self`, and in loop services, which get the memory from [`Self::stream`]. `register`, `grant`,
        // `lend` and `stream` take `&mut self`, so nobody gets access to the mapping while the slice exists.
        Some(unsafe { self.memory.as_slice() })
    }

    /// Returns the bytes for writing. If the memory is in reach, the bytes are those of the working copy, which
    /// [`Self::settle`] copies to the memory after the call. Returns `None` if peers got access that neither
    /// [`Self::revoke`] nor [`Self::deregister`] has ended, or if a loop service or another process has access. Also
    /// returns `None` if the device may read the memory for a send, or if the memory is in reach and has no working
    /// copy.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_open() || self.is_lent() || self.sends.unfinished() {
            return None;
        }
        if self.in_reach {
            let working_copy = self.working_copy.as_mut()?;
            self.memory.copy_to(0, &working_copy.memory, 0, self.memory.len());
            return working_copy.bytes_mut();
        }
        // SAFETY: this allocation made the mapping `self.memory`, which no other allocation shares. No peer, loop
        // service or other process can write the mapping, because `is_open`, `is_lent` and `in_reach` are false. The
        // device does not read the mapping, because all earlier sends are complete. Because of `&mut self`, no other
        // slices and no scatter-gather elements for new sends are made while this slice exists.
        Some(unsafe { self.memory.as_mut_slice() })
    }
}

#[cfg(test)]
mod tests {
    use verbs::Context;

    use super::*;
    use crate::device::DeviceModel;

    #[test]
    fn memory_of_a_loop_service_is_not_sliced_after_its_registration_ended() {
        let pd = Context::new(Arc::new(DeviceModel::default())).alloc_pd().unwrap();
        let mut allocation = MemoryBudget::new(1 << 20).allocate(100).unwrap();
        allocation.register(&pd, Access::ALL).unwrap();
        let _of_the_loop_service = allocation.stream(Access::ALL).unwrap().unwrap();
        assert!(allocation.bytes().is_none() && allocation.bytes_mut().is_none());
        allocation.deregister();
        assert!(allocation.bytes().is_none() && allocation.bytes_mut().is_none());
        allocation.register(&pd, Access::ALL).unwrap();
        assert!(allocation.bytes().is_none() && allocation.bytes_mut().is_none());
    }
}
