//! The table of memory regions, which finds a region by its LKey or RKey. The table checks each access: key, protection
//! domain, access rights and bounds.

use verbs::{Access, Error, MrKeys, PdId};

use crate::{config::RKeys, entropy::Entropy, id_map::IdMap, memory::RegionId};

#[derive(Clone, Copy, Debug)]
struct MrEntry {
    generation: u32,
    keys: MrKeys,
    pd: PdId,
    va: u64,
    len: u64,
    access: Access,
    /// The access rights with which the region was registered.
    most: Access,
}

/// A reference to a region, which the table returns when it permits an access to the region. The generation shows
/// whether the region was deregistered after the reference was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MrRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The kind of an access to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
}

#[derive(Debug, Default)]
pub(crate) struct MrTable {
    slots: Vec<Option<MrEntry>>,
    free: Vec<u32>,
    by_lkey: IdMap<u32>,
    by_rkey: IdMap<u32>,
    generation: u32,
    rkeys: RKeys,
}

impl MrTable {
    pub(crate) fn new(rkeys: RKeys) -> Self {
        Self { rkeys, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn uses_pd(&self, pd: PdId) -> bool {
        self.slots.iter().flatten().any(|mr| mr.pd == pd)
    }

    /// Registers a region with new keys.
    ///
    /// # Errors
    /// Returns [`Error::Exhausted`] if all slots of the table are in use. The number of slots is limited only with
    /// [`RKeys::WithSlot`].
    pub(crate) fn insert(
        &mut self,
        pd: PdId,
        va: u64,
        len: u64,
        access: Access,
        entropy: &mut dyn Entropy,
    ) -> Result<(MrKeys, RegionId), Error> {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let lkey = fresh(&self.by_lkey, entropy, |key| key);
        let rkey = match self.rkeys {
            RKeys::Random => fresh(&self.by_rkey, entropy, |key| key),
            RKeys::WithSlot { bits } => {
                let slots = 1_u64 << bits.min(31);
                if u64::from(slot) >= slots {
                    let remedy = "release regions first, or give RKeys more bits for the slot";
                    return Err(Error::Exhausted { what: "memory regions", limit: slots, remedy });
                }
                fresh(&self.by_rkey, entropy, |key| key & !(slots as u32 - 1) | slot)
            }
        };
        let keys = MrKeys { lkey, rkey };
        self.generation = self.generation.wrapping_add(1);
        let mr = MrEntry { generation: self.generation, keys, pd, va, len, access, most: access };
        match self.free.pop() {
            Some(_) => self.slots[slot as usize] = Some(mr),
            None => self.slots.push(Some(mr)),
        }
        self.by_lkey.insert(keys.lkey, slot);
        self.by_rkey.insert(keys.rkey, slot);
        Ok((keys, RegionId(slot)))
    }

    pub(crate) fn remove(&mut self, lkey: u32) -> Option<RegionId> {
        let slot = self.by_lkey.remove(&lkey)?;
        if let Some(mr) = self.slots[slot as usize].take() {
            self.by_rkey.remove(&mr.keys.rkey);
        }
        self.free.push(slot);
        Some(RegionId(slot))
    }

    /// Changes the access rights of a region. The new rights must be among the rights with which the region was
    /// registered.
    pub(crate) fn set_access(&mut self, lkey: u32, access: Access) -> Result<(), Error> {
        let slot = self.check_access(lkey, access)?;
        if let Some(mr) = &mut self.slots[slot as usize] {
            mr.access = access;
        }
        Ok(())
    }

    /// Returns the index of the table's slot that holds the region with this LKey. Fails with [`Error::NotFound`] if no
    /// region has this LKey. Fails with [`Error::Invalid`] if `access` has a right with which the region was not
    /// registered.
    pub(crate) fn check_access(&self, lkey: u32, access: Access) -> Result<u32, Error> {
        let slot = self.by_lkey.get(&lkey).copied();
        let found = slot.and_then(|slot| Some((slot, self.slots[slot as usize].as_ref()?.most)));
        let (slot, most) = found.ok_or(Error::NotFound { what: "LKey", id: lkey.into() })?;
        let within = |now: bool, most: bool| most || !now;
        if within(access.local_write, most.local_write)
            && within(access.remote_write, most.remote_write)
            && within(access.remote_read, most.remote_read)
        {
            return Ok(slot);
        }
        Err(Error::Invalid("a memory region permits what it was registered for, and not more"))
    }

    /// Returns the region of an LKey and the offset of `addr` in the region; `None` if the access is not permitted.
    pub(crate) fn local(&self, lkey: u32, pd: PdId, addr: u64, len: u64, want: Want) -> Option<(MrRef, u64)> {
        self.check(*self.by_lkey.get(&lkey)?, pd, addr, len, want)
    }

    /// Returns the region of an RKey and the offset of `addr` in the region; `None` if the access is not permitted.
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
        // The bounds are checked with subtractions, because the sum `addr + len` could wrap around.
        let offset = addr.checked_sub(mr.va)?;
        let fits = offset <= mr.len && len <= mr.len - offset;
        let inside = fits && mr.pd == pd && mr.permits(want);
        inside.then_some((MrRef { slot, generation: mr.generation }, offset))
    }

    /// Returns the generation of a region, or 0 if the region is deregistered.
    pub(crate) fn generation(&self, region: RegionId) -> u32 {
        self.slots[region.0 as usize].as_ref().map_or(0, |mr| mr.generation)
    }

    /// Returns the id of the region if the region is still registered and still permits an access of the kind `want`.
    pub(crate) fn still(&self, mr: MrRef, want: Want) -> Option<RegionId> {
        let found = self.slots[mr.slot as usize].as_ref()?;
        (found.generation == mr.generation && found.permits(want)).then_some(RegionId(mr.slot))
    }
}

impl MrEntry {
    fn permits(&self, want: Want) -> bool {
        match want {
            Want::LocalRead => true,
            Want::LocalWrite => self.access.local_write,
            Want::RemoteRead => self.access.remote_read,
            Want::RemoteWrite => self.access.remote_write,
        }
    }
}

fn fresh(taken: &IdMap<u32>, entropy: &mut dyn Entropy, of: impl Fn(u32) -> u32) -> u32 {
    loop {
        let key = of(entropy.next_u32());
        // No region has the key 0, because people and programs read 0 as "no key".
        if key != 0 && !taken.contains_key(&key) {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tests::Counting;

    #[test]
    fn access_changes_within_what_was_registered() {
        let (mut table, pd) = (MrTable::default(), PdId(1));
        let (keys, _) = table.insert(pd, 0x1000, 64, Access::REMOTE_WRITE, &mut Counting(0)).unwrap();
        let permits = |table: &MrTable, want| table.remote(keys.rkey, pd, 0x1000, 64, want).is_some();
        // Before the first call of `set_access`, the region has the access rights with which it was registered.
        assert!(permits(&table, Want::RemoteWrite) && !permits(&table, Want::RemoteRead));
        table.set_access(keys.lkey, Access::LOCAL).unwrap();
        assert!(!permits(&table, Want::RemoteWrite));
        assert!(matches!(table.set_access(keys.lkey, Access::ALL), Err(Error::Invalid(_))));
        table.check_access(keys.lkey, Access::REMOTE_WRITE).unwrap();
        assert!(!permits(&table, Want::RemoteWrite) && !permits(&table, Want::RemoteRead));
        table.set_access(keys.lkey, Access::REMOTE_WRITE).unwrap();
        assert!(permits(&table, Want::RemoteWrite));
        assert!(matches!(table.set_access(0, Access::LOCAL), Err(Error::NotFound { .. })));
    }

    #[test]
    fn keys_with_slots_are_as_many_as_slots() {
        let (mut table, pd) = (MrTable::new(RKeys::WithSlot { bits: 2 }), PdId(1));
        let mut entropy = Counting(1000);
        let mut insert = |table: &mut MrTable| table.insert(pd, 0, 64, Access::REMOTE_WRITE, &mut entropy);
        let keys: Vec<_> = (0..4).map(|_| insert(&mut table).unwrap().0).collect();
        let slots: Vec<_> = keys.iter().map(|keys| keys.rkey & 3).collect();
        assert_eq!(slots, [0, 1, 2, 3]);
        assert!(matches!(insert(&mut table), Err(Error::Exhausted { limit: 4, .. })));
        table.remove(keys[2].lkey);
        let (again, _) = insert(&mut table).unwrap();
        assert_eq!(again.rkey & 3, 2);
        assert_ne!(again.rkey, keys[2].rkey);
        assert!(table.remote(keys[2].rkey, pd, 0, 1, Want::RemoteWrite).is_none());
    }
}
