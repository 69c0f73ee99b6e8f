//! Memory of sessions: it is accounted for, and there are slices of it only while no peer can reach it.
//!
//! An [`Allocation`] owns its registration and gives out neither it nor the memory, so it knows whether a peer has access. It shares its session's
//! count of unfinished [`Sends`], so it knows whether the device may still read the memory: scatter-gather elements are made only while a send is
//! counted, and mutable slices only while none is. This module and `priority` are the only ones of the crate with `unsafe`.
//!
//! A NIC takes access rights back at the price of many calls, or not at all (`DeviceAttr::revokes`). Then a host keeps the access with which its
//! regions were registered, and a host that breaks the protocol can change them while a function works on them. So there are never slices of memory
//! that a host can write. Functions work on a [working copy](Allocation::work_on), which is not registered with any device; the bytes are copied
//! there before a call and back after it.
//!
//! An arena for kernels in other processes has its memory in files. A process that got an allocation's file may live as long as its [`Lease`] is
//! held; until then there are no slices of that allocation here.
#![allow(unsafe_code)]

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use naa_kernels::Lease;
use verbs::{Access, Memory, Mr, Pd, Sge};

pub use crate::ledger::{ArenaError, Shares};
use crate::ledger::{Charge, Ledger, Meter, Owner};

/// The number of files that the server has open for a process that runs kernels: its socket and its pidfd.
pub(crate) const FILES_OF_A_PROCESS: u64 = 2;

/// The memory that all sessions together may have. Clones share it.
#[derive(Clone, Debug)]
pub struct Arena {
    ledger: Arc<Ledger>,
    /// The account of open files, if each allocation has a file.
    files: Option<Arc<Ledger>>,
}

impl Arena {
    /// An arena of `limit` bytes in whole pages: a region of any size, also of 0 bytes, takes at least one page. A single peer may have all of it.
    pub fn new(limit: u64) -> Self {
        Self::divided(Shares::undivided(limit), None)
    }

    /// An arena that peers share as `shares` says. With `files` each allocation is a file, which other processes can map; `files` says how many open
    /// files there may be, and how many of them one peer may have.
    pub fn divided(shares: Shares, files: Option<Shares>) -> Self {
        Self { ledger: Ledger::new(shares), files: files.map(Ledger::new) }
    }

    /// Bytes in use by live allocations.
    pub fn used(&self) -> u64 {
        self.ledger.server.used()
    }

    pub fn limit(&self) -> u64 {
        self.ledger.shares.total
    }

    /// The quota of a session whose peer has no other session: at most `limit` bytes of this arena.
    pub fn quota(&self, limit: u64) -> Quota {
        self.quota_of(&Account::default(), limit)
    }

    /// The quota of a session: at most `limit` bytes of this arena, and together with the other sessions of its peer no more than a peer may have.
    pub fn quota_of(&self, peer: &Account, limit: u64) -> Quota {
        let owner = Owner { session: Arc::default(), limit, peer: peer.bytes.clone() };
        let files = Owner { session: Arc::default(), limit: u64::MAX, peer: peer.files.clone() };
        Quota { arena: self.clone(), owner, files, sends: Sends::default() }
    }

    /// Allocates `len` zeroed bytes that are charged to no session.
    ///
    /// # Errors
    /// [`ArenaError::Server`] past the limit, [`ArenaError::Map`] if the Linux kernel refuses.
    pub fn allocate(&self, len: u64) -> Result<Allocation, ArenaError> {
        self.map(len, None, Sends::default())
    }

    /// Maps `len` bytes. They are charged to a session's accounts of bytes and files, or to the server alone.
    fn map(&self, len: u64, of: Option<(&Owner, &Owner)>, sends: Sends) -> Result<Allocation, ArenaError> {
        let charge = self.ledger.charge(of.map(|(bytes, _)| bytes), footprint(len)?)?;
        let len = usize::try_from(len).map_err(|_| no_such_size(len))?;
        let (file, memory, file_charge) = if let Some(files) = &self.files {
            let charge = files.charge(of.map(|(_, files)| files), 1).map_err(ArenaError::of_files)?;
            let (file, memory) = region::memfd("naa-region", len).map_err(ArenaError::File)?;
            (Some(file), memory, Some(charge))
        } else {
            (None, region::alloc(len)?, None)
        };
        Ok(Allocation {
            held: Held::Private,
            memory,
            file,
            lent: Weak::new(),
            in_reach: false,
            twin: None,
            sends,
            _charges: (charge, file_charge),
        })
    }
}

/// The bytes and the files that all sessions of a peer have together. Clones share the account.
#[derive(Clone, Debug, Default)]
pub struct Account {
    bytes: Arc<Meter>,
    files: Arc<Meter>,
}

impl Account {
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.bytes.used()
    }
}

/// What one session may have of an [`Arena`]. Allocations may outlive their quota. Clones share it.
#[derive(Clone, Debug)]
pub struct Quota {
    arena: Arena,
    owner: Owner,
    /// The same kind of account for files. A session may have all files of its peer.
    files: Owner,
    sends: Sends,
}

impl Quota {
    /// Allocates `len` zeroed bytes that are charged to the session.
    ///
    /// # Errors
    /// [`ArenaError::Session`], [`ArenaError::Peer`], [`ArenaError::Server`], [`ArenaError::Files`] or [`ArenaError::ServersFiles`] past a limit,
    /// [`ArenaError::Map`] or [`ArenaError::File`] if the Linux kernel refuses.
    pub fn allocate(&self, len: u64) -> Result<Allocation, ArenaError> {
        self.arena.map(len, Some((&self.owner, &self.files)), self.sends.clone())
    }

    /// Charges `bytes` for memory that a function takes beside the regions, without allocating any.
    ///
    /// # Errors
    /// [`ArenaError::Session`], [`ArenaError::Peer`] or [`ArenaError::Server`] past a limit.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, ArenaError> {
        self.arena.ledger.charge(Some(&self.owner), bytes).map(Reservation)
    }

    /// Charges the files of the process that runs a session's kernels. Charges nothing if allocations have no files.
    ///
    /// # Errors
    /// [`ArenaError::Files`] or [`ArenaError::ServersFiles`].
    pub(crate) fn reserve_process(&self) -> Result<Option<Reservation>, ArenaError> {
        let charge = |files: &Arc<Ledger>| files.charge(Some(&self.files), FILES_OF_A_PROCESS);
        let charged = self.arena.files.as_ref().map(charge).transpose();
        charged.map(|charge| charge.map(Reservation)).map_err(ArenaError::of_files)
    }

    /// The count of the session's sends from its allocations.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Bytes in use by live allocations of this session.
    pub fn used(&self) -> u64 {
        self.owner.session.used()
    }
}

/// Bytes that are charged to a session beside its allocations. Dropping the value ends the charge.
#[derive(Debug)]
pub struct Reservation(#[expect(dead_code, reason = "it is held for its end")] Charge);

/// Zeroed memory for one call of a function, which no peer and no other process ever reaches. It starts at the start of a page.
#[derive(Debug)]
pub struct Scratch {
    memory: Memory,
    _reservation: Option<Reservation>,
}

impl Scratch {
    /// Maps `len` bytes. They are charged to `quota`, if there is one.
    ///
    /// # Errors
    /// The same errors as [`Quota::reserve`]; [`ArenaError::Map`] if the Linux kernel refuses.
    pub fn new(quota: Option<&Quota>, len: usize) -> Result<Self, ArenaError> {
        let taken = footprint(len as u64)?;
        let reservation = quota.map(|quota| quota.reserve(taken)).transpose()?;
        Ok(Self { memory: region::alloc(len)?, _reservation: reservation })
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this value's alone: it is never registered, sent from, cloned or lent, and `&mut self`
        // keeps other slices away.
        unsafe { self.memory.as_mut_slice() }
    }
}

/// The number of a session's sends that have not completed. While it is not 0, the device may read allocations. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Sends(Arc<AtomicU32>);

impl Sends {
    /// Counts one more send. Call this before making its scatter-gather elements.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a completed send. Returns true if it was the last one.
    pub fn complete(&self) -> bool {
        let less = |count: u32| Some(count.saturating_sub(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok_and(|before| before <= 1)
    }

    pub fn unfinished(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

fn footprint(len: u64) -> Result<u64, ArenaError> {
    let mapped =
        usize::try_from(len).ok().and_then(region::footprint).and_then(|bytes| u64::try_from(bytes).ok());
    Ok(mapped.ok_or_else(|| no_such_size(len))?)
}

fn no_such_size(len: u64) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("no region can have {len} bytes; map smaller regions"))
}

/// What other parties can reach an allocation.
#[derive(Debug)]
enum Held {
    /// Nobody can, since the memory is not registered.
    Private,
    /// The memory is registered, with every right of peers revoked.
    Revoked(Mr),
    /// The memory is registered, and peers may have access.
    Granted(Mr),
    /// The memory is registered and was handed out to a stream: there are no slices any more.
    Streaming(Mr),
}

/// Zeroed memory that knows whether a peer can reach it. Dropping it ends its registration, and then the charge for its bytes.
pub struct Allocation {
    // Fields are dropped in order: the memory is deregistered before its charge ends.
    held: Held,
    memory: Memory,
    /// The file with the memory's pages, if other processes are to map them.
    file: Option<OwnedFd>,
    /// The lease of the last process that got the file.
    lent: Weak<Lease>,
    /// Whether it was registered for writes of peers on a device that does not take access back.
    in_reach: bool,
    /// The working copy, which functions use while peers can reach the memory.
    twin: Option<Box<Allocation>>,
    sends: Sends,
    /// The charge for the bytes, and the one for the file.
    _charges: (Charge, Option<Charge>),
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("held", &self.held).field("memory", &self.memory).finish()
    }
}

impl Allocation {
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The virtual address, which peers use too.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Registers the memory for the access rights `most`; [`Self::grant`] then gives some or all of them to peers. A former registration ends.
    pub fn register(&mut self, pd: &Pd, most: Access) -> Result<(), verbs::Error> {
        self.deregister();
        // The rights are in force at once.
        self.held = Held::Granted(pd.reg_mr(&self.memory, most)?);
        self.in_reach = most.remote_write && !pd.context().attr().revokes;
        self.revoke()
    }

    pub fn deregister(&mut self) {
        self.held = Held::Private;
        self.in_reach = false;
    }

    /// Whether peers can write the memory at any time, since the device takes no access back. Then slices need a working copy.
    pub fn is_in_reach(&self) -> bool {
        self.in_reach
    }

    /// Gives the allocation a working copy. If this memory is in reach, [`Self::bytes_mut`] then copies the bytes to `twin` and returns a slice of
    /// that. `twin` has the same length and is not registered.
    pub fn work_on(&mut self, twin: Self) {
        debug_assert!(twin.len() == self.len() && matches!(twin.held, Held::Private));
        self.twin = Some(Box::new(twin));
    }

    /// Copies the bytes that [`Self::bytes_mut`] gave back from the working copy, since they are sent from here. Does nothing without a working copy.
    pub fn settle(&mut self) {
        if let Some(twin) = self.twin.as_ref().filter(|_| self.in_reach) {
            twin.memory.copy_to(0, &self.memory, 0, self.memory.len());
        }
    }

    /// Gives `access` to peers. Does nothing if the memory is not registered.
    pub fn grant(&mut self, access: Access) -> Result<(), verbs::Error> {
        self.held = match std::mem::replace(&mut self.held, Held::Private) {
            Held::Revoked(mr) | Held::Granted(mr) => Held::Granted(mr),
            other => {
                self.held = other;
                return Ok(());
            }
        };
        // The grant is recorded before the driver is asked: after an error it is unknown whether peers have access.
        self.mr().map_or(Ok(()), |mr| mr.set_access(access))
    }

    /// Takes all access from peers. When this returns, no access of theirs is under way, unless the device does not revoke (`DeviceAttr::revokes`);
    /// then peers keep their access.
    pub fn revoke(&mut self) -> Result<(), verbs::Error> {
        if let Held::Granted(mr) = &self.held {
            mr.set_access(Access::LOCAL)?;
            self.held = match std::mem::replace(&mut self.held, Held::Private) {
                Held::Granted(mr) => Held::Revoked(mr),
                other => other,
            };
        }
        Ok(())
    }

    /// The key that peers use; `None` before the memory is registered.
    pub fn rkey(&self) -> Option<u32> {
        self.mr().map(Mr::rkey)
    }

    /// A scatter-gather element of `len` bytes from `offset` on, if the memory is registered, the range lies inside, and the send was counted. The
    /// device reads the bytes until the send has completed.
    pub fn sge(&self, offset: u64, len: u32) -> Option<Sge> {
        let end = offset.checked_add(u64::from(len))?;
        let inside = end <= u64::try_from(self.len()).ok()?;
        self.mr().filter(|_| inside && self.sends.unfinished()).map(|mr| mr.sge(offset, len))
    }

    /// Lends the file of the pages to a process, which may write to them while `lease` is held. There are no slices until the lease ends. `None` if
    /// there is no file, or another process has it.
    pub fn lend(&mut self, lease: &Arc<Lease>) -> Option<BorrowedFd<'_>> {
        if self.is_lent() && !self.lent.ptr_eq(&Arc::downgrade(lease)) {
            return None;
        }
        self.lent = Arc::downgrade(lease);
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The file of the pages, while it is lent.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|_| self.is_lent()).map(AsFd::as_fd)
    }

    fn is_lent(&self) -> bool {
        self.lent.strong_count() > 0
    }

    fn mr(&self) -> Option<&Mr> {
        match &self.held {
            Held::Private => None,
            Held::Revoked(mr) | Held::Granted(mr) | Held::Streaming(mr) => Some(mr),
        }
    }

    /// The memory and its key, for code that writes and reads it from now on while peers have `access`. There are no slices of it any more. `None` if
    /// the memory is not registered, or a process may have its file.
    pub(crate) fn stream(&mut self, access: Access) -> Result<Option<(Memory, u32)>, verbs::Error> {
        if self.is_lent() {
            return Ok(None);
        }
        self.grant(access)?;
        self.twin = None;
        self.held = match std::mem::replace(&mut self.held, Held::Private) {
            Held::Revoked(mr) | Held::Granted(mr) | Held::Streaming(mr) => Held::Streaming(mr),
            Held::Private => return Ok(None),
        };
        Ok(self.mr().map(|mr| (self.memory.clone(), mr.lkey())))
    }

    /// Whether peers, or the code of a stream, may write.
    fn is_open(&self) -> bool {
        matches!(self.held, Held::Granted(_) | Held::Streaming(_))
    }

    /// The bytes, unless a peer or another process may have access, or the memory is in reach.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.is_open() || self.is_lent() || self.in_reach {
            return None;
        }
        // SAFETY: no peer and no stream can write (not open), and no other process lives that maps the file. Granting and lending take `&mut self`,
        // which no slice survives. This process writes the memory through `bytes_mut` only: clones are with the registration, or with streams. If the
        // device does not revoke, no peer was ever given the right to write (not in reach).
        Some(unsafe { self.memory.as_slice() })
    }

    /// The bytes for writing, unless a peer or another process may have access or the device may read them for a send. If the memory is in reach,
    /// they are those of the working copy, which [`Self::settle`] copies back.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_open() || self.is_lent() || self.sends.unfinished() {
            return None;
        }
        if self.in_reach {
            let twin = self.twin.as_mut()?;
            self.memory.copy_to(0, &twin.memory, 0, self.memory.len());
            return twin.bytes_mut();
        }
        // SAFETY: as in `bytes`; `&mut self` keeps other slices and new elements of sends away, all earlier sends
        // are complete, and every allocation is a mapping of its own.
        Some(unsafe { self.memory.as_mut_slice() })
    }
}
