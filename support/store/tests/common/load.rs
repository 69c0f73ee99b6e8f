//! Several writers at once, and whether what is stored is what they wrote.
//!
//! Batch number n of writer w puts, replaces and removes keys of w's in a way that follows from the seed, w and n alone. So
//! whatever is stored tells how many batches of each writer it has, and must be exactly what these leave.

use std::collections::BTreeMap;

use naa_store::{Batch, Change, Revision, Snapshot, Store, Term};
use simnet::Random;

pub(crate) const WRITERS: u64 = 4;

const KEYS: u64 = 12;

/// What the writers know to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acknowledged {
    /// Batches of each writer.
    pub(crate) batches: [u64; WRITERS as usize],
    pub(crate) revision: Revision,
}

fn count_key(writer: u64) -> Vec<u8> {
    format!("count/{writer}").into_bytes()
}

/// Batch `number`, from 1, of a writer.
pub(crate) fn batch(seed: u64, writer: u64, number: u64) -> Batch {
    let mut random = Random::new(seed ^ number << 8, writer);
    let largest = if random.chance(100_000) { 20_000 } else { 500 };
    let mut changes = vec![Change { key: count_key(writer), value: Some(number.to_be_bytes().to_vec()) }];
    let first = random.below(KEYS);
    for n in 0..random.below(KEYS) {
        let key = format!("data/{writer}/{}", (first + n) % KEYS).into_bytes();
        let mut value = vec![0; random.below(largest) as usize];
        random.fill(&mut value);
        changes.push(Change { key, value: random.chance(800_000).then_some(value) });
    }
    Batch { term: Term(1), changes }
}

/// Has a writer append batches after number `from` until one fails; tells each that was acknowledged.
pub(crate) fn write(
    store: &dyn Store,
    seed: u64,
    writer: u64,
    from: u64,
    mut acknowledged: impl FnMut(u64, Revision),
) {
    for number in from + 1.. {
        match store.append(batch(seed, writer, number)) {
            Ok(revision) => acknowledged(number, revision),
            Err(_) => return,
        }
    }
}

/// How many batches of each writer are stored, as far as the counts say.
pub(crate) fn count(snapshot: &Snapshot) -> [u64; WRITERS as usize] {
    std::array::from_fn(|writer| {
        let value = snapshot.entries.get(&count_key(writer as u64));
        value.map_or(0, |value| u64::from_be_bytes(value.as_slice().try_into().expect("a count")))
    })
}

/// How many batches of each writer are stored. Panics unless these are all that were acknowledged and at most one more of each
/// writer, each of them whole, and nothing else.
pub(crate) fn check(seed: u64, snapshot: &Snapshot, acknowledged: &Acknowledged) -> Acknowledged {
    let stored = count(snapshot);
    let mut expected = BTreeMap::new();
    for (writer, stored) in (0..).zip(&stored) {
        let known = acknowledged.batches[writer as usize];
        assert!(
            (known..=known + 1).contains(stored),
            "seed {seed}: writer {writer} was told of {known} batches, {stored} are stored"
        );
        for number in 1..=*stored {
            for Change { key, value } in batch(seed, writer, number).changes {
                match value {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(&key),
                };
            }
        }
    }
    assert!(snapshot.entries == expected, "seed {seed}: what is stored is not what {stored:?} batches leave");
    assert!(
        acknowledged.revision <= snapshot.revision,
        "seed {seed}: {} is stored, {} was acknowledged",
        snapshot.revision,
        acknowledged.revision
    );
    assert_eq!(
        snapshot.revision.0,
        stored.iter().sum::<u64>(),
        "seed {seed}: each revision is a batch, so none before the newest is missing"
    );
    Acknowledged { batches: stored, revision: snapshot.revision }
}
