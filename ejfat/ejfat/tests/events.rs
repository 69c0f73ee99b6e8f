//! Tests that any event is reassembled correctly, for any MTU, any order of segments and duplicate segments.

mod common;

use common::{NOW, WorkerModel, segment, segments};
use ejfat::{
    reassembly::{Config, SegmentDropCause},
    segment::{EventFields, IpVersion, SegmentSize},
};
use simnet::Random;

fn seeds() -> u64 {
    std::env::var("NAA_SEEDS").map_or(300, |seeds| seeds.parse().expect("NAA_SEEDS is a number"))
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

fn random_event(random: &mut Random, most: u64) -> Vec<u8> {
    let mut event = vec![0; random.range(1..=most) as usize];
    random.fill(&mut event);
    event
}

fn random_size(random: &mut Random) -> SegmentSize {
    let mtu = random.range(576..=9000) as u16;
    SegmentSize::of_mtu(mtu, random.pick(&[IpVersion::V4, IpVersion::V6])).unwrap()
}

#[test]
fn any_order_with_duplicates() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 0);
        let event = random_event(random, 300_000);
        let name = EventFields { tick: seed, event: random.next_u64(), data_id: 7, entropy: 0 };
        let mut datagrams = segments(name, random_size(random), &event);
        let distinct = datagrams.len();
        for _ in 0..random.below(20) {
            datagrams.push(datagrams[random.below(distinct as u64) as usize].clone());
        }
        if random.chance(900_000) {
            shuffle(random, &mut datagrams);
        }
        let mut worker = WorkerModel::new(Config::default());
        let mut delivered = Vec::new();
        let mut duplicates = 0;
        for datagram in &datagrams {
            match worker.event(NOW, None, datagram) {
                Ok(complete) => delivered.extend(complete),
                Err(SegmentDropCause::Duplicate) => duplicates += 1,
                Err(cause) => panic!("seed {seed}: {cause:?}"),
            }
        }
        assert!(delivered.len() == 1 && delivered[0] == event, "seed {seed}");
        assert_eq!(duplicates, datagrams.len() - distinct, "seed {seed}");
        assert_eq!(worker.reassembler.touched_memory(), 0, "seed {seed}");
    }
}

#[test]
fn never_with_a_segment_missing() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 1);
        let event = random_event(random, 300_000);
        let name = EventFields { tick: seed, event: 0, data_id: 7, entropy: 0 };
        let mut datagrams = segments(name, random_size(random), &event);
        datagrams.remove(random.below(datagrams.len() as u64) as usize);
        let mut order: Vec<_> = [&datagrams, &datagrams, &datagrams].into_iter().flatten().collect();
        shuffle(random, &mut order);
        let mut worker = WorkerModel::new(Config::default());
        for datagram in order {
            match worker.event(NOW, None, datagram) {
                Ok(None) | Err(SegmentDropCause::Duplicate) => {}
                other => panic!("seed {seed}: {:?}", other.map(|event| event.is_some())),
            }
        }
    }
}

/// Segments of any length at any offset are recognised as new, duplicate or overlapping. The test's model has a flag
/// for each byte of the event.
#[test]
fn any_pieces() {
    for seed in 0..seeds() {
        let random = &mut Random::new(seed, 2);
        let length = random.range(1..=60_000) as u32;
        let mut event = vec![0; length as usize];
        random.fill(&mut event);
        let mut worker = WorkerModel::new(Config { chunks: random.range(1..=3) as u32, ..Config::default() });
        let mut have = vec![false; length as usize];
        let stride = random.range(1..=900) as u32;
        for _ in 0..random.range(1..=2_000) {
            let (offset, len) = if random.chance(800_000) {
                let offset = random.below(length.div_ceil(stride).into()) as u32 * stride;
                (offset, stride.min(length - offset))
            } else {
                let offset = random.below(length.into()) as u32;
                (offset, random.range(1..=u64::from(length - offset).min(1_000)) as u32)
            };
            let range = offset as usize..(offset + len) as usize;
            let there = have[range.clone()].iter().filter(|&&there| there).count();
            let placed = worker.handle(NOW, None, &segment(0, offset, length, &event[range.clone()]));
            match placed {
                Ok(place) => {
                    assert_eq!(there, 0, "seed {seed}: {range:?} overlaps");
                    have[range].fill(true);
                    assert_eq!(place.complete, have.iter().all(|&there| there), "seed {seed}");
                    assert!(!place.complete || worker.bytes(&place) == event, "seed {seed}");
                }
                Err(SegmentDropCause::Duplicate) => {
                    assert_eq!(there, len as usize, "seed {seed}: {range:?} was missing")
                }
                Err(SegmentDropCause::Overlap) => assert_ne!(there, 0, "seed {seed}: {range:?}"),
                Err(SegmentDropCause::Scattered | SegmentDropCause::Memory) => {}
                Err(cause) => panic!("seed {seed}: {cause:?}"),
            }
        }
    }
}
