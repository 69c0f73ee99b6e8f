//! Every target on its seeds and on random bytes.

use std::{fs, path::Path};

use naa_fuzz::TARGETS;

const INPUTS: usize = 2000;

/// xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Changes some bytes.
    fn mutate(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.next() % 8 {
            let at = self.next() as usize % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = self.next() as u8;
            }
        }
        bytes
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.next() % 600;
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("readable")).collect()
}

#[test]
fn seeds_and_random_bytes() {
    for (n, (name, target)) in TARGETS.iter().enumerate() {
        let seed = 0x5eed_0100 + n as u64;
        println!("{name}, seed {seed:#x}");
        let mut random = Random(seed);
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        seeds.iter().for_each(|bytes| target(bytes));
        for round in 0..INPUTS {
            let kept = seeds[round % seeds.len()].clone();
            target(&if round % 2 == 0 { random.mutate(kept) } else { random.bytes() });
        }
    }
}
