//! Memory regions by key. Every access is checked here: key, protection domain, permission, bounds.

use verbs::{Access, Error, MrKeys, PdId};

use crate::{entropy::Entropy, id_map::IdMap, memory::RegionId};

#[derive(Clone, Copy, Debug)]
struct Mr {
    generation: u32,
    keys: MrKeys,
    pd: PdId,
    va: u64,
    len: u64,
    access: Access,
    /// What it was registered for.
    most: Access,
}

/// A checked reference to a region that notices when the region went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MrRef {
    slot: u32,
    generation: u32,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
}

#[derive(Debug, Default)]
pub(crate) struct MrTable {
    slots: Vec<Option<Mr>>,
    free: Vec<u32>,
    by_lkey: IdMap<u32>,
    by_rkey: IdMap<u32>,
    generation: u32,
}

impl MrTable {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn uses_pd(&self, pd: PdId) -> bool {
        self.slots.iter().flatten().any(|mr| mr.pd == pd)
    }

    pub(crate) fn insert(
        &mut self,
        pd: PdId,
        va: u64,
        len: u64,
        access: Access,
        entropy: &mut dyn Entropy,
    ) -> (MrKeys, RegionId) {
        let keys = MrKeys { lkey: fresh(&self.by_lkey, entropy), rkey: fresh(&self.by_rkey, entropy) };
        self.generation = self.generation.wrapping_add(1);
        let mr = Mr { generation: self.generation, keys, pd, va, len, access, most: access };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(mr);
        self.by_lkey.insert(keys.lkey, slot);
        self.by_rkey.insert(keys.rkey, slot);
        (keys, RegionId(slot))
    }

    pub(crate) fn remove(&mut self, lkey: u32) -> Option<RegionId> {
        let slot = self.by_lkey.remove(&lkey)?;
        if let Some(mr) = self.slots[slot as usize].take() {
            self.by_rkey.remove(&mr.keys.rkey);
        }
        self.free.push(slot);
        Some(RegionId(slot))
    }

    /// Within what the region was registered for.
    pub(crate) fn set_access(&mut self, lkey: u32, access: Access) -> Result<(), Error> {
        let slot = self.by_lkey.get(&lkey).copied();
        let mr = slot.and_then(|slot| self.slots[slot as usize].as_mut());
        let mr = mr.ok_or(Error::NotFound { what: "LKey", id: lkey.into() })?;
        let within = |now: bool, most: bool| most || !now;
        if !(within(access.local_write, mr.most.local_write)
            && within(access.remote_write, mr.most.remote_write)
            && within(access.remote_read, mr.most.remote_read))
        {
            return Err(Error::Invalid("a memory region permits what it was registered for, and not more"));
        }
        mr.access = access;
        Ok(())
    }

    /// Finds the region a local work request names and the offset of `addr` in it.
    pub(crate) fn local(&self, lkey: u32, pd: PdId, addr: u64, len: u64, want: Want) -> Option<(MrRef, u64)> {
        self.check(*self.by_lkey.get(&lkey)?, pd, addr, len, want)
    }

    /// Finds the region a peer's RKey names and the offset of `addr` in it.
    pub(crate) fn remote(
        &self,
        rkey: u32,
        pd: PdId,
        addr: u64,
        len: u64,
        want: Want,
    ) -> Option<(MrRef, u64)> {
        self.check(*self.by_rkey.get(&rkey)?, pd, addr, len, want)
    }

    fn check(&self, slot: u32, pd: PdId, addr: u64, len: u64, want: Want) -> Option<(MrRef, u64)> {
        let mr = self.slots[slot as usize].as_ref()?;
        // Subtractions that cannot wrap: an addition could (CVE-2026-98365).
        let offset = addr.checked_sub(mr.va)?;
        let fits = offset <= mr.len && len <= mr.len - offset;
        let inside = fits && mr.pd == pd && mr.permits(want);
        inside.then_some((MrRef { slot, generation: mr.generation }, offset))
    }

    /// The region, if it still exists and still permits `want`.
    pub(crate) fn still(&self, mr: MrRef, want: Want) -> Option<RegionId> {
        let found = self.slots[mr.slot as usize].as_ref()?;
        (found.generation == mr.generation && found.permits(want)).then_some(RegionId(mr.slot))
    }
}

impl Mr {
    fn permits(&self, want: Want) -> bool {
        match want {
            Want::LocalRead => true,
            Want::LocalWrite => self.access.local_write,
            Want::RemoteRead => self.access.remote_read,
            Want::RemoteWrite => self.access.remote_write,
        }
    }
}

fn fresh(taken: &IdMap<u32>, entropy: &mut dyn Entropy) -> u32 {
    loop {
        let key = entropy.next_u32();
        // 0 reads as "no key" to people and programs.
        if key != 0 && !taken.contains_key(&key) {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Counting(u32);

    impl Entropy for Counting {
        fn next_u32(&mut self) -> u32 {
            self.0 += 1;
            self.0
        }
    }

    #[test]
    fn access_changes_within_what_was_registered() {
        let (mut table, pd) = (MrTable::default(), PdId(1));
        let (keys, _) = table.insert(pd, 0x1000, 64, Access::REMOTE_WRITE, &mut Counting(0));
        let permits = |table: &MrTable, want| table.remote(keys.rkey, pd, 0x1000, 64, want).is_some();
        // In force at once.
        assert!(permits(&table, Want::RemoteWrite) && !permits(&table, Want::RemoteRead));
        table.set_access(keys.lkey, Access::LOCAL).unwrap();
        assert!(!permits(&table, Want::RemoteWrite));
        assert!(matches!(table.set_access(keys.lkey, Access::ALL), Err(Error::Invalid(_))));
        assert!(!permits(&table, Want::RemoteWrite) && !permits(&table, Want::RemoteRead));
        table.set_access(keys.lkey, Access::REMOTE_WRITE).unwrap();
        assert!(permits(&table, Want::RemoteWrite));
        assert!(matches!(table.set_access(0, Access::LOCAL), Err(Error::NotFound { .. })));
    }
}
