//! Protection domains, memory regions, and registrations that are kept for later use.
//!
//! If a program deallocates a protection domain with kept registrations, the protection domain is kept as well. When a
//! program allocates a protection domain later, it receives the kept protection domain with its registrations. Because
//! registrations are kept, the buffers of a session are already registered if a program ends the session and begins
//! another session with the same buffers. Although protection domains are used again, a protection domain never belongs
//! to two sessions at the same time.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use rustc_hash::FxHashMap as HashMap;
use verbs::{Access, Error, Memory, MrKeys, PdId};

use crate::{memlock, sys};

/// A registration that is kept after the program has deregistered the memory.
#[derive(Debug)]
struct Kept {
    mr: sys::RawMr,
    addr: u64,
    len: usize,
    access: Access,
    /// The object that keeps the memory mapped ([`Memory::owner`]). As long as this object is not dropped, the
    /// addresses of the registration refer to the same pages.
    owner: Weak<dyn Any + Send + Sync>,
}

impl Kept {
    fn is_of(&self, memory: &Memory, access: Access) -> bool {
        self.addr == memory.addr()
            && self.len == memory.len()
            && self.access == access
            && std::ptr::addr_eq(self.owner.as_ptr(), Arc::as_ptr(memory.owner()))
            && self.owner.strong_count() > 0
    }
}

/// A protection domain and its kept registrations. Rust drops the field `kept` before the field `pd`, so that the
/// registrations are removed before their protection domain.
#[derive(Debug)]
struct Domain {
    kept: Vec<Kept>,
    regions: usize,
    pd: Arc<sys::RawPd>,
}

#[derive(Debug)]
struct RegisteredRegion {
    mr: sys::RawMr,
    pd: PdId,
    access: Access,
    memory: Memory,
}

#[derive(Debug, Default)]
struct RegistrationTables {
    regions: HashMap<u32, RegisteredRegion>,
    domains: HashMap<PdId, Domain>,
    /// The protection domains that the program has deallocated. `alloc_pd` reuses the domain that was added last.
    /// `purge` removes the domains without kept registrations.
    retired: Vec<Domain>,
    next: u32,
}

#[derive(Debug)]
pub(crate) struct Registrations {
    tables: Mutex<RegistrationTables>,
    keep: bool,
    device: Arc<sys::IbvDevice>,
}

impl Registrations {
    pub(crate) fn new(device: &Arc<sys::IbvDevice>, keep: bool) -> Self {
        Self { tables: Mutex::default(), keep, device: device.clone() }
    }

    fn tables(&self) -> MutexGuard<'_, RegistrationTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn alloc_pd(&self) -> Result<PdId, Error> {
        let mut tables = self.tables();
        let gone = tables.purge();
        let domain = match tables.retired.pop() {
            Some(domain) => domain,
            None => Domain { kept: Vec::new(), regions: 0, pd: Arc::new(sys::RawPd::new(&self.device)?) },
        };
        let id = PdId(tables.next);
        tables.next = tables.next.wrapping_add(1);
        tables.domains.insert(id, domain);
        drop(tables);
        drop(gone);
        Ok(id)
    }

    pub(crate) fn dealloc_pd(&self, id: PdId) -> Result<(), Error> {
        let mut tables = self.tables();
        let domain = tables.domains.get(&id).ok_or_else(|| unknown_pd(id))?;
        // `domain` has one reference to the protection domain, and each kept registration has one. If there are more
        // references, a queue pair or a registration in progress still uses the protection domain.
        if domain.regions > 0 || Arc::strong_count(&domain.pd) > 1 + domain.kept.len() {
            return Err(Error::Busy("the protection domain has regions or queue pairs"));
        }
        if let Some(domain) = tables.domains.remove(&id) {
            tables.retired.push(domain);
        }
        let gone = tables.purge();
        drop(tables);
        drop(gone);
        Ok(())
    }

    pub(crate) fn pd(&self, id: PdId) -> Result<Arc<sys::RawPd>, Error> {
        self.tables().domains.get(&id).map(|domain| domain.pd.clone()).ok_or_else(|| unknown_pd(id))
    }

    pub(crate) fn reg_mr(&self, id: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error> {
        let mut tables = self.tables();
        let domain = tables.domains.get_mut(&id).ok_or_else(|| unknown_pd(id))?;
        let found = domain.kept.iter().position(|kept| kept.is_of(memory, access));
        let mr = match found {
            Some(at) => domain.kept.remove(at).mr,
            None => {
                // The lock is released while memory is pinned, because pinning takes long and other sessions need the
                // lock.
                let pd = domain.pd.clone();
                drop(tables);
                let mr = self.register(&pd, memory, access)?;
                tables = self.tables();
                mr
            }
        };
        let keys = mr.keys();
        if let Some(domain) = tables.domains.get_mut(&id) {
            domain.regions += 1;
        }
        tables.regions.insert(keys.lkey, RegisteredRegion { mr, pd: id, access, memory: memory.clone() });
        Ok(keys)
    }

    fn register(&self, pd: &Arc<sys::RawPd>, memory: &Memory, access: Access) -> Result<sys::RawMr, Error> {
        let failed = |error| memlock::refused(&format!("does not register {} bytes", memory.len()), error);
        match sys::RawMr::new(pd, memory, access) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) => {
                // Kept registrations pin memory, and the amount of pinned memory is limited. All kept registrations are
                // therefore dropped before the second attempt to register `memory`.
                let gone = self.tables().take_kept();
                drop(gone);
                sys::RawMr::new(pd, memory, access).map_err(failed)
            }
            result => result.map_err(failed),
        }
    }

    /// Returns an error if `access` contains a right that the region did not get when it was registered. The device
    /// keeps the rights with which the region was registered, because a NIC needs much time for revoking rights, or
    /// cannot revoke them.
    pub(crate) fn set_access(&self, lkey: u32, access: Access) -> Result<(), Error> {
        let tables = self.tables();
        let most = tables.regions.get(&lkey).ok_or_else(|| unknown_mr(lkey))?.access;
        let within = (most.remote_write || !access.remote_write)
            && (most.remote_read || !access.remote_read)
            && (most.local_write || most.remote_write || !access.local_write);
        if within { Ok(()) } else { Err(Error::Invalid("the region was registered for less access")) }
    }

    pub(crate) fn dereg_mr(&self, lkey: u32) -> Result<(), Error> {
        let mut tables = self.tables();
        let region = tables.regions.remove(&lkey).ok_or_else(|| unknown_mr(lkey))?;
        let RegisteredRegion { mr, pd, access, memory } = region;
        let Some(domain) = tables.domains.get_mut(&pd) else { return Ok(()) };
        domain.regions -= 1;
        let mut ended = Some(mr);
        if let Some(mr) = ended.take_if(|_| self.keep) {
            let owner = Arc::downgrade(memory.owner());
            domain.kept.push(Kept { mr, addr: memory.addr(), len: memory.len(), access, owner });
        }
        // `purge` removes only the kept registrations whose owner was dropped. `memory` may have the last reference to
        // its owner, so `memory` is dropped before `purge` is called.
        drop(memory);
        let gone = tables.purge();
        drop(tables);
        drop((ended, gone));
        Ok(())
    }
}

/// The registrations and protection domains that a method has removed from the tables. A method must unlock the tables
/// before it drops a `Gone`, because dropping the removed objects takes long.
type Gone = (Vec<Kept>, Vec<Domain>);

impl RegistrationTables {
    /// Removes each kept registration whose `owner` was dropped. Then removes each protection domain in `retired` that
    /// has no kept registration any more. Returns the removed objects.
    #[must_use]
    fn purge(&mut self) -> Gone {
        let kept = self.take(|kept| kept.owner.strong_count() == 0);
        (kept, self.retired.extract_if(.., |domain| domain.kept.is_empty()).collect())
    }

    /// Removes all kept registrations, and all protection domains that no session uses. Returns the removed objects.
    #[must_use]
    fn take_kept(&mut self) -> Gone {
        (self.take(|_| true), std::mem::take(&mut self.retired))
    }

    fn take(&mut self, mut which: impl FnMut(&Kept) -> bool) -> Vec<Kept> {
        let domains = self.domains.values_mut().chain(&mut self.retired);
        domains
            .flat_map(|domain| domain.kept.extract_if(.., |kept| which(kept)).collect::<Vec<_>>())
            .collect()
    }
}

fn unknown_pd(id: PdId) -> Error {
    Error::NotFound { what: "protection domain", id: id.0.into() }
}

fn unknown_mr(lkey: u32) -> Error {
    Error::NotFound { what: "memory region", id: lkey.into() }
}
