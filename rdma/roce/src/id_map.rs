//! Hash maps with a cheap hash function. The keys are numbers that this stack chose. A peer can cause look-ups, but
//! cannot choose the keys in the map. The peer therefore cannot fill the map with keys of equal hashes, which would
//! make look-ups slow.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

pub(crate) type IdMap<V> = HashMap<u32, V, IdHash>;
pub(crate) type IdHash = BuildHasherDefault<IdHasher>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u32(b.into());
        }
    }

    fn write_u32(&mut self, n: u32) {
        // `HashMap` uses the high bits of the hash as well as the low bits. The multiplication (Fibonacci hashing)
        // makes the high bits depend on the low bits of the key.
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, hash::BuildHasher as _};

    use super::*;

    /// `HashMap` uses the lowest bits of a hash to choose a key's place in its table, and the seven highest bits to
    /// tell keys apart.
    #[test]
    fn ids_that_follow_each_other_have_different_hashes_at_both_ends() {
        let hashes = (0..64_u32).map(|id| IdHash::default().hash_one(id));
        let (high, low): (BTreeSet<_>, BTreeSet<_>) = hashes.map(|hash| (hash >> 57, hash & 63)).unzip();
        assert_eq!(low.len(), 64);
        assert!(high.len() > 32, "{}", high.len());
    }
}
