//! Hash tables of IP addresses, which are searched for every packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A map from IP addresses to values.
#[derive(Clone, Debug)]
pub(super) struct Addresses<T> {
    v4: AddressTable<u32, T>,
    v6: AddressTable<u128, T>,
}

impl<T: Copy> Addresses<T> {
    /// Creates a map from the addresses in `all` to their values. `all` must have each address at most once.
    pub(super) fn new(all: &[(IpAddr, T)]) -> Self {
        let v4 = all.iter().filter_map(|&(address, value)| match address {
            IpAddr::V4(address) => Some((address.to_bits(), value)),
            IpAddr::V6(_) => None,
        });
        let v6 = all.iter().filter_map(|&(address, value)| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits(), value)),
        });
        Self { v4: AddressTable::new(v4.collect()), v6: AddressTable::new(v6.collect()) }
    }

    /// Returns all addresses with their values, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, T)> + '_ {
        let v4 =
            self.v4.places.iter().flatten().map(|&(key, value)| (Ipv4Addr::from_bits(key).into(), value));
        let v6 =
            self.v6.places.iter().flatten().map(|&(key, value)| (Ipv6Addr::from_bits(key).into(), value));
        v4.chain(v6)
    }

    #[inline]
    pub(super) fn get(&self, address: IpAddr) -> Option<T> {
        match address {
            IpAddr::V4(address) => self.v4.get(address.to_bits()),
            IpAddr::V6(address) => self.v6.get(address.to_bits()),
        }
    }
}

/// A hash table with linear probing, which does not change after its creation. A key is stored at the index that its
/// hash selects, or at the first free index after this index. The table is at least half empty. All keys of the table
/// come from rules. Senders of packets cannot add keys, so they cannot slow the table down by keys whose hashes
/// collide.
#[derive(Clone, Debug)]
struct AddressTable<K, T> {
    places: Vec<Option<(K, T)>>,
}

trait Key: Copy + Eq {
    fn hash(self) -> u64;
}

/// The number 2^64 divided by the golden ratio. Neighbouring keys that are multiplied by this number get hashes that
/// are far apart.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key for u32 {
    #[inline]
    fn hash(self) -> u64 {
        u64::from(self).wrapping_mul(SPREAD)
    }
}

impl Key for u128 {
    #[inline]
    fn hash(self) -> u64 {
        let (upper, lower) = ((self >> 64) as u64, self as u64);
        (upper.wrapping_mul(SPREAD) ^ lower).wrapping_mul(SPREAD)
    }
}

impl<K: Key, T: Copy> AddressTable<K, T> {
    fn new(all: Vec<(K, T)>) -> Self {
        let mut table = Self { places: vec![None; (2 * all.len() + 1).next_power_of_two()] };
        for (key, value) in all {
            let mut at = table.place(key);
            while table.places[at].is_some() {
                at = table.next(at);
            }
            table.places[at] = Some((key, value));
        }
        table
    }

    #[inline]
    fn place(&self, key: K) -> usize {
        // The upper half of the hash is used, because hashes of neighbouring keys differ most in their upper half.
        self.next((key.hash() >> 32) as usize)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    #[inline]
    fn get(&self, key: K) -> Option<T> {
        let mut at = self.place(key);
        while let Some((found, value)) = self.places[at] {
            if found == key {
                return Some(value);
            }
            at = self.next(at);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 64, 256] {
            let all =
                |n: u32| [IpAddr::from(Ipv4Addr::from(n * 4)), Ipv6Addr::from(u128::from(n) << 60).into()];
            let known: Vec<_> = (0..count).flat_map(|n| all(n).map(|address| (address, n))).collect();
            let addresses = Addresses::new(&known);
            for n in 0..2 * count + 2 {
                assert_eq!(all(n).map(|address| addresses.get(address)), [(n < count).then_some(n); 2]);
            }
        }
    }
}
