//! The registered memory, indexed by the endpoint's region numbers.

use roce::RegionId;
use verbs::Memory;

#[derive(Debug, Default)]
pub(crate) struct RegionTable(Vec<Option<Memory>>);

impl RegionTable {
    pub(crate) fn insert(&mut self, region: RegionId, memory: Memory) {
        let slot = region.0 as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, None);
        }
        self.0[slot] = Some(memory);
    }

    /// # Panics
    /// Panics if the region was not inserted; the endpoint passes only regions that are registered.
    pub(crate) fn remove(&mut self, region: RegionId) -> Memory {
        self.0[region.0 as usize].take().expect("the core named a registered region")
    }

    pub(crate) fn get(&self, region: RegionId) -> &Memory {
        self.0[region.0 as usize].as_ref().expect("the core named a registered region")
    }
}

impl roce::RegionWriter for RegionTable {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) {
        self.get(region).write(offset as usize, bytes);
    }
}
