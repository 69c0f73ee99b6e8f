//! `lb_addresses` against a table in Rust: entries in all ways and rows, and keys that differ from an entry in one bit.

mod common;

use std::collections::VecDeque;

use common::{bench, random_run};
use naa_fpga::{Bench, Writer};

const WAYS: usize = 4;
const ROWS: usize = 256;
const KEY_BITS: u64 = 132;
/// The number of cycles between a key and its answer.
const LATENCY: usize = 3;

/// A key: an address, and whether it is of IPv6 and its load balancer as four bits.
type Key = (u128, u8);

/// A key and its value.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    is_valid: bool,
    value: u8,
    key: Key,
}

/// The rows of a key, which `lb_tables_pkg` defines: each bit that is 1 adds the next number of xorshift32.
fn rows((address, more): Key) -> [u8; WAYS] {
    let (mut word, mut rows) = (1_u32, 0);
    for bit in 0..KEY_BITS {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        let is_one = if bit < 128 { address >> bit & 1 == 1 } else { more >> (bit - 128) & 1 == 1 };
        rows ^= if is_one { word } else { 0 };
    }
    rows.to_le_bytes()
}

fn flip((address, more): Key, bit: u64) -> Key {
    if bit < 128 { (address ^ 1 << bit, more) } else { (address, more ^ 1 << (bit - 128)) }
}

struct Rig {
    bench: Bench,
    /// The entries of each image, way and row.
    table: Vec<Entry>,
    /// The key that came in the cycle before, with its image.
    before: Option<(usize, Key)>,
    expected: VecDeque<Option<(bool, u8)>>,
}

fn place(image: usize, way: usize, row: u8) -> usize {
    (image * WAYS + way) * ROWS + usize::from(row)
}

impl Rig {
    /// Runs a cycle, in which an entry may be written and a key comes.
    fn cycle(&mut self, write: Option<(usize, usize, u8, Entry)>, key: (usize, Key)) {
        let model = &mut self.bench.model;
        let (image, way, row, entry) = write.unwrap_or_default();
        for (name, value) in [
            ("write", write.is_some().into()),
            ("write_image", image as u64),
            ("write_way", way as u64),
            ("write_row", row.into()),
            ("image", key.0 as u64),
        ] {
            model.set(model.port(name), value);
        }
        let bits = |(address, more): Key| Writer::default().field(address, 128).field(more.into(), 4);
        let written = bits(entry.key).field(entry.value.into(), 5).field(entry.is_valid.into(), 1);
        written.give(model, model.port("write_entry"));
        bits(key.1).give(model, model.port("key"));
        self.bench.cycle(&mut []);
        // The rows of a key are read one cycle after it came. An entry that is written in that cycle is not seen.
        let found = self.before.replace(key).map(|(image, key)| {
            let rows = rows(key);
            let of_way = |way: usize| self.table[place(image, way, rows[way])];
            let hits: Vec<_> =
                (0..WAYS).map(of_way).filter(|entry| entry.is_valid && entry.key == key).collect();
            (!hits.is_empty(), hits.iter().fold(0, |value, entry| value | entry.value))
        });
        self.expected.push_back(found);
        if let Some((image, way, row, entry)) = write {
            self.table[place(image, way, row)] = entry;
        }
        if let Some((hit, value)) = self.expected.pop_front().unwrap() {
            let model = &self.bench.model;
            let seen = ["hit", "value"].map(|name| model.get(model.port(name)));
            assert_eq!(seen, [hit.into(), value.into()], "{key:x?}");
        }
    }
}

#[test]
fn addresses_are_found_in_their_rows_of_all_ways() {
    let Some(bench) = bench("lb_addresses") else { return };
    let (count, _, mut random) = random_run(0);
    let table = vec![Entry::default(); 2 * WAYS * ROWS];
    let expected = [None; LATENCY - 2].into();
    let mut rig = Rig { bench, table, before: None, expected };
    for at in 0..2 * WAYS * ROWS {
        let (image, way, row) = (at / (WAYS * ROWS), at / ROWS % WAYS, (at % ROWS) as u8);
        // The answer to a key before the table is written means nothing.
        rig.before = None;
        rig.expected = [None; LATENCY - 2].into();
        rig.cycle(Some((image, way, row, Entry::default())), (0, (0, 0)));
    }
    let mut keys: Vec<Key> = Vec::new();
    let mut hits = 0;
    for round in 0..count {
        if round % 2000 == 0 {
            let key = |_| {
                let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                (bits >> random.pick(&[0, 0, 96]), random.below(16) as u8)
            };
            keys = (0..60).map(key).collect();
        }
        let key = random.pick(&keys);
        let write = (random.below(3) == 0).then(|| {
            let key = random.pick(&keys);
            // An entry with another key in the row of this key is not found.
            let bit = random.below(KEY_BITS);
            let held = if random.below(3) == 0 { flip(key, bit) } else { key };
            let is_valid = random.below(4) != 0;
            let (image, way) = (random.below(2) as usize, random.below(4) as usize);
            (image, way, rows(key)[way], Entry { is_valid, value: random.below(32) as u8, key: held })
        });
        let bit = random.below(KEY_BITS);
        let asked = if random.below(8) == 0 { flip(key, bit) } else { key };
        rig.cycle(write, (random.below(2) as usize, asked));
        hits += u64::from(rig.expected.back().copied().flatten().is_some_and(|(hit, _)| hit));
    }
    assert!(hits > count / 8, "{hits} hits");
}
