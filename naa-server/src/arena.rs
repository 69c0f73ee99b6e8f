//! Memory of sessions: accounted for, and seen as slices only while no peer can reach it.
//!
//! An [`Allocation`] owns its registration and hands neither out, so it knows whether a peer has access. It shares
//! its session's count of unfinished [`Sends`], so it knows whether the device may still read it: elements to
//! send from are made only while something is counted, slices to write only while nothing is. This is the one
//! module of the crate with `unsafe`.
//!
//! NICs take access back at the price of many calls or not at all (`DeviceAttr::revokes`). There a host keeps what
//! its regions were registered for, and one that breaks the protocol can change them while a function works on them.
//! So there are never slices of what it can write: functions work on a [twin](Allocation::work_on), which no device
//! knows, and the bytes are copied there before a call and back after it.
//!
//! An arena for kernels in other processes has its memory in files. While a process that got an allocation's
//! file lives, so long as its [`Lease`] is held, there are no slices of that allocation here.
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

/// Files by which the server knows a process that runs kernels: its socket and its descriptor.
pub(crate) const FILES_OF_A_PROCESS: u64 = 2;

/// The memory all sessions together may have. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Arena {
    ledger: Arc<Ledger>,
    /// The account of open files, where each allocation has a file.
    files: Option<Arc<Ledger>>,
}

impl Arena {
    /// `limit` is in bytes of whole pages: a region of any size, also of 0 bytes, takes at least one. Any peer may
    /// have all of it.
    pub fn new(limit: u64) -> Self {
        Self::divided(Shares::undivided(limit), None)
    }

    /// Memory that peers share as `shares` says. With `files` each allocation is a file, which other processes can map;
    /// `files` says how many open files there may be, and how many of them one peer may have.
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

    /// The share of a session whose peer has no other: at most `limit` bytes of this arena.
    pub fn quota(&self, limit: u64) -> Quota {
        self.quota_of(&Account::default(), limit)
    }

    /// A session's share: at most `limit` bytes of this arena, and with the other sessions of its peer no more than a
    /// peer may have.
    pub fn quota_of(&self, peer: &Account, limit: u64) -> Quota {
        let owner = Owner { session: Arc::default(), limit, peer: peer.bytes.clone() };
        let files = Owner { session: Arc::default(), limit: u64::MAX, peer: peer.files.clone() };
        Quota { arena: self.clone(), owner, files, sends: Sends::default() }
    }

    /// `len` zeroed bytes on no session's account.
    ///
    /// # Errors
    /// [`ArenaError::Server`] past the limit, [`ArenaError::Map`] if the kernel refuses.
    pub fn allocate(&self, len: u64) -> Result<Allocation, ArenaError> {
        self.map(len, None, Sends::default())
    }

    /// Maps `len` bytes, charged to a session's bytes and files, or to the server alone.
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

/// The bytes and the files that all sessions of a peer have together. Cloning shares the account.
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

/// What one session may have of an [`Arena`]. Allocations outlive it. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Quota {
    arena: Arena,
    owner: Owner,
    /// The same account for files. A session may have all files of its peer.
    files: Owner,
    sends: Sends,
}

impl Quota {
    /// `len` zeroed bytes on the session's account.
    ///
    /// # Errors
    /// [`ArenaError::Session`], [`ArenaError::Peer`], [`ArenaError::Server`], [`ArenaError::Files`] or
    /// [`ArenaError::ServersFiles`] past a limit, [`ArenaError::Map`] or [`ArenaError::File`] if the kernel refuses.
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

    /// Charges the files of the process that runs a session's kernels. Charges nothing where allocations have no files.
    ///
    /// # Errors
    /// [`ArenaError::Files`] or [`ArenaError::ServersFiles`].
    pub(crate) fn reserve_process(&self) -> Result<Option<Reservation>, ArenaError> {
        let charge = |files: &Arc<Ledger>| files.charge(Some(&self.files), FILES_OF_A_PROCESS);
        let charged = self.arena.files.as_ref().map(charge).transpose();
        charged.map(|charge| charge.map(Reservation)).map_err(ArenaError::of_files)
    }

    /// The session's sends from its allocations.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Bytes in use by live allocations of this session.
    pub fn used(&self) -> u64 {
        self.owner.session.used()
    }
}

/// Bytes that a session pays for beside its allocations. They are given back when it is dropped.
#[derive(Debug)]
pub struct Reservation(#[expect(dead_code, reason = "it is held for its end")] Charge);

/// Zeroed memory for one call of a function, which no peer and no other process ever reaches. It starts on a page.
#[derive(Debug)]
pub struct Scratch {
    memory: Memory,
    _reservation: Option<Reservation>,
}

impl Scratch {
    /// Maps `len` bytes. `quota` pays for them, if there is one.
    ///
    /// # Errors
    /// As [`Quota::reserve`]; [`ArenaError::Map`] if the kernel refuses.
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

/// Sends of a session that have not completed: from the first to the last the device reads allocations.
/// Cloning shares the count.
#[derive(Clone, Debug, Default)]
pub struct Sends(Arc<AtomicU32>);

impl Sends {
    /// One more, before its elements are made.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One has completed. True if it was the last.
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

/// Who can reach an allocation besides its owner.
#[derive(Debug)]
enum Held {
    /// Nobody: not registered.
    Private,
    /// Registered, with every right of peers revoked.
    Revoked(Mr),
    /// Registered, and peers may have access.
    Granted(Mr),
    /// Registered, and its memory is known elsewhere: there are no slices any more.
    Streaming(Mr),
}

/// Zeroed memory that knows whether a peer can reach it. Dropping it ends its registration, then gives the
/// bytes back to its accounts.
pub struct Allocation {
    // Declared first: deregistered before the bytes are given back.
    held: Held,
    memory: Memory,
    /// Its pages, if other processes are to map them.
    file: Option<OwnedFd>,
    /// The last process that got the file.
    lent: Weak<Lease>,
    /// It was registered for writes of peers, whose access the device does not take back.
    in_reach: bool,
    /// What functions work on while peers can reach the memory.
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

    /// Registers the memory for `most`, of which [`Self::grant`] then opens some or all to peers. A former
    /// registration ends.
    pub fn register(&mut self, pd: &Pd, most: Access) -> Result<(), verbs::Error> {
        self.deregister();
        // In force at once.
        self.held = Held::Granted(pd.reg_mr(&self.memory, most)?);
        self.in_reach = most.remote_write && !pd.context().attr().revokes;
        self.revoke()
    }

    pub fn deregister(&mut self) {
        self.held = Held::Private;
        self.in_reach = false;
    }

    /// Peers can write the memory at any time, since the device takes no access back. There are no slices without a twin.
    pub fn is_in_reach(&self) -> bool {
        self.in_reach
    }

    /// From now on [`Self::bytes_mut`] copies the bytes to `twin` and gives its slice, where this memory is in reach. The
    /// twin is as long and not registered.
    pub fn work_on(&mut self, twin: Self) {
        debug_assert!(twin.len() == self.len() && matches!(twin.held, Held::Private));
        self.twin = Some(Box::new(twin));
    }

    /// Copies what [`Self::bytes_mut`] gave back from the twin, from where it is sent. Does nothing where there is none.
    pub fn settle(&mut self) {
        if let Some(twin) = self.twin.as_ref().filter(|_| self.in_reach) {
            twin.memory.copy_to(0, &self.memory, 0, self.memory.len());
        }
    }

    /// Lets peers have `access`. Does nothing where nothing is registered.
    pub fn grant(&mut self, access: Access) -> Result<(), verbs::Error> {
        self.held = match std::mem::replace(&mut self.held, Held::Private) {
            Held::Revoked(mr) | Held::Granted(mr) => Held::Granted(mr),
            other => {
                self.held = other;
                return Ok(());
            }
        };
        // Recorded as granted before the driver is asked: after an error nobody knows.
        self.mr().map_or(Ok(()), |mr| mr.set_access(access))
    }

    /// Takes all access from peers. When this returns, none of theirs is under way, unless the device does not revoke
    /// (`DeviceAttr::revokes`): then that is up to the peers.
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

    /// The key peers use, once registered.
    pub fn rkey(&self) -> Option<u32> {
        self.mr().map(Mr::rkey)
    }

    /// `len` bytes from `offset` for a send, if registered, inside, and the send was counted. The device reads them
    /// until it has completed.
    pub fn sge(&self, offset: u64, len: u32) -> Option<Sge> {
        let end = offset.checked_add(u64::from(len))?;
        let inside = end <= u64::try_from(self.len()).ok()?;
        self.mr().filter(|_| inside && self.sends.unfinished()).map(|mr| mr.sge(offset, len))
    }

    /// Lets a process have the file of the pages, which may write to them while `lease` is held. There are no slices
    /// until then. `None` if there is no file, or another process has it.
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

    /// The memory and its key, for whoever writes and reads it from now on while peers have `access`. There are no slices
    /// of it any more. `None` where nothing is registered, or a process may have its file.
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

    /// Peers, or whoever streams, may write.
    fn is_open(&self) -> bool {
        matches!(self.held, Held::Granted(_) | Held::Streaming(_))
    }

    /// The bytes, unless a peer or another process may have access, or the memory is in reach.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.is_open() || self.is_lent() || self.in_reach {
            return None;
        }
        // SAFETY: no peer and no stream can write (not open), no other process lives that maps the file, granting and lending take `&mut self`, which outlives no slice, and
        // the memory is written in this process through `bytes_mut` only: clones are with the registration, or with streams.
        // Where the device does not revoke, no peer was ever given the right to write (not in reach).
        Some(unsafe { self.memory.as_slice() })
    }

    /// The bytes for writing, unless a peer or another process may have access or the device may read them for a send.
    /// Where the memory is in reach they are a copy in its twin, which [`Self::settle`] copies back.
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
