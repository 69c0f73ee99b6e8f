//! Memory of sessions: accounted for, and seen as slices only while no peer can reach it.
//!
//! An [`Allocation`] owns its registration and hands neither out, so it knows whether a peer has access. It shares
//! its session's count of unfinished [`Sends`], so it knows whether the device may still read it: elements to
//! send from are made only while something is counted, slices to write only while nothing is. This is the one
//! module of the crate with `unsafe`.
//!
//! NICs take access back at the price of many calls or not at all (`DeviceAttr::revokes`). There a host keeps what
//! its regions were registered for, and one that breaks the protocol can change them while a function works on
//! them. The slices of its own session are all it can reach.
//!
//! An arena for kernels in other processes has its memory in files. While a process that got an allocation's
//! file lives, so long as its [`Lease`] is held, there are no slices of that allocation here.
#![allow(unsafe_code)]

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use naa_kernels::Lease;
use verbs::{Access, Memory, Mr, Pd, Sge};

/// Why memory was not allocated.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error(
        "the session asked for {asked} bytes, but {left} of the {limit} it may have are left; \
         map fewer or smaller regions, or raise the server's limit per session"
    )]
    Session { asked: u64, left: u64, limit: u64 },
    #[error(
        "a session asked for {asked} bytes, but {left} of the server's {limit} are left; \
         try again when other sessions have ended, or raise the server's memory limit"
    )]
    Server { asked: u64, left: u64, limit: u64 },
    #[error("the server's machine: {0}")]
    Map(#[from] io::Error),
    #[error("the server's machine has no file for a region: {0}; raise the server's `ulimit -n`")]
    File(io::Error),
}

/// Bytes in use, never more than a limit.
#[derive(Debug)]
struct Meter {
    limit: u64,
    used: AtomicU64,
}

impl Meter {
    fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Adds `bytes`, or says how many are left.
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(used) => Err(self.limit.saturating_sub(used)),
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes taken from a meter, given back when dropped.
#[derive(Debug)]
struct Charge {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Charge {
    fn new(meter: &Arc<Meter>, bytes: u64) -> Result<Self, u64> {
        meter.take(bytes)?;
        Ok(Self { meter: meter.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The memory all sessions together may have. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Arena {
    meter: Arc<Meter>,
    in_files: bool,
}

impl Arena {
    /// `limit` is in bytes of whole pages: a region of any size, also of 0 bytes, takes at least one.
    pub fn new(limit: u64) -> Self {
        Self { meter: Meter::new(limit), in_files: false }
    }

    /// Like [`Self::new`], with a file for each allocation, which other processes can map.
    pub fn in_files(limit: u64) -> Self {
        Self { meter: Meter::new(limit), in_files: true }
    }

    /// Bytes in use by live allocations.
    pub fn used(&self) -> u64 {
        self.meter.used()
    }

    pub fn limit(&self) -> u64 {
        self.meter.limit
    }

    /// A session's share: at most `limit` bytes of this arena.
    pub fn quota(&self, limit: u64) -> Quota {
        Quota { arena: self.clone(), session: Meter::new(limit), sends: Sends::default() }
    }

    /// `len` zeroed bytes on no session's account.
    ///
    /// # Errors
    /// [`ArenaError::Server`] past the limit, [`ArenaError::Map`] if the kernel refuses.
    pub fn allocate(&self, len: u64) -> Result<Allocation, ArenaError> {
        self.map(len, footprint(len)?, None, Sends::default())
    }

    fn map(
        &self,
        len: u64,
        taken: u64,
        session: Option<Charge>,
        sends: Sends,
    ) -> Result<Allocation, ArenaError> {
        let server = Charge::new(&self.meter, taken).map_err(|left| ArenaError::Server {
            asked: taken,
            left,
            limit: self.meter.limit,
        })?;
        let len = usize::try_from(len).map_err(|_| no_such_size(len))?;
        let (file, memory) = if self.in_files {
            let (file, memory) = region::memfd("naa-region", len).map_err(ArenaError::File)?;
            (Some(file), memory)
        } else {
            (None, region::alloc(len)?)
        };
        let lent = Weak::new();
        Ok(Allocation { held: Held::Private, memory, file, lent, sends, _charges: (server, session) })
    }
}

/// What one session may have of an [`Arena`]. Allocations outlive it. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Quota {
    arena: Arena,
    session: Arc<Meter>,
    sends: Sends,
}

impl Quota {
    /// `len` zeroed bytes on the session's account.
    ///
    /// # Errors
    /// [`ArenaError::Session`] or [`ArenaError::Server`] past a limit, [`ArenaError::Map`] if the kernel refuses.
    pub fn allocate(&self, len: u64) -> Result<Allocation, ArenaError> {
        let taken = footprint(len)?;
        let limit = self.session.limit;
        let charge = Charge::new(&self.session, taken).map_err(|left| ArenaError::Session {
            asked: taken,
            left,
            limit,
        })?;
        self.arena.map(len, taken, Some(charge), self.sends.clone())
    }

    /// The session's sends from its allocations.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Bytes in use by live allocations of this session.
    pub fn used(&self) -> u64 {
        self.session.used()
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
    sends: Sends,
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
        self.revoke()
    }

    pub fn deregister(&mut self) {
        self.held = Held::Private;
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

    /// The bytes, unless a peer or another process may have access.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.is_open() || self.is_lent() {
            return None;
        }
        // SAFETY: no peer and no stream can write (not open), no other process lives that maps the file, granting and lending take `&mut self`, which outlives no slice, and
        // the memory is written in this process through `bytes_mut` only: clones are with the registration, or with streams.
        // Where the device does not revoke, that no peer writes now rests on the peer keeping to the protocol
        // (module docs); the bytes are plain numbers to whoever reads them, and stay mapped whatever it does.
        Some(unsafe { self.memory.as_slice() })
    }

    /// The bytes for writing, unless a peer or another process may have access or the device may read them for a send.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_open() || self.is_lent() || self.sends.unfinished() {
            return None;
        }
        // SAFETY: as in `bytes`; `&mut self` keeps other slices and new elements of sends away, all earlier sends
        // are complete, and every allocation is a mapping of its own.
        Some(unsafe { self.memory.as_mut_slice() })
    }
}
