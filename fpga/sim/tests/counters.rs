//! `counters` against a table in Rust: counters of all bits, the same counter in consecutive cycles, and requests between packets.

mod common;

use std::collections::VecDeque;

use common::random_run;
use naa_fpga::{Bench, Module, Reader, Tools};
use simnet::Random;

const BITS: u64 = 6;
const ENTRIES: usize = 1 << BITS;
/// The number of cycles between a request and its answer.
const LATENCY: usize = 3;

/// What a counter counted: packets and bytes.
type Traffic = (u64, u64);

/// The module, and what it has to answer in the next cycles.
struct Rig {
    bench: Bench,
    answers: VecDeque<Option<Traffic>>,
}

/// What the module gets in a cycle.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// The counter of a packet, and its bytes.
    add: Option<(usize, u16)>,
    /// The counter that a request reads.
    take: Option<usize>,
}

impl Rig {
    fn new(tools: &Tools, seed: u16) -> Self {
        let model = Module::new("counters").with("Bits", BITS).seeded(seed).model(tools);
        let bench = Bench::new(model.unwrap_or_else(|error| panic!("{error}")));
        Self { bench, answers: [None; LATENCY - 1].into() }
    }

    /// Runs a cycle. Returns what was taken, if an answer came.
    fn cycle(&mut self, work: Work) -> Option<Traffic> {
        let model = &mut self.bench.model;
        let (add_index, add_bytes) = work.add.unwrap_or((ENTRIES - 1, u16::MAX));
        for (name, value) in [
            ("add_valid", work.add.is_some().into()),
            ("add_index", add_index as u64),
            ("add_bytes", add_bytes.into()),
            ("take_valid", work.take.is_some().into()),
            ("take_index", work.take.unwrap_or(1) as u64),
        ] {
            model.set(model.port(name), value);
        }
        self.bench.cycle(&mut []);
        let model = &self.bench.model;
        assert_eq!(model.get(model.port("take_ready")) == 1, work.add.is_none());
        let is_taken = model.get(model.port("taken_valid")) == 1;
        is_taken.then(|| {
            let mut taken = Reader::new(model, model.port("taken"));
            (taken.field(40) as u64, taken.field(48) as u64)
        })
    }

    /// Reads all counters, one after the other.
    fn take_all(&mut self) -> Vec<Traffic> {
        let requests = (0..ENTRIES).map(Some).chain([None; LATENCY]);
        let taken: Vec<_> = requests.filter_map(|take| self.cycle(Work { add: None, take })).collect();
        assert_eq!(taken.len(), ENTRIES);
        taken
    }
}

#[test]
fn packets_and_bytes_are_counted_in_all_bits() {
    let Some(tools) = Tools::for_test() else { return };
    let (count, _, mut random) = random_run(0);
    // Counters begin with the same random values in all models with the same seed, so that another model tells what they are.
    let mut ones = [(0, 0); 2];
    let seeds = 16;
    for at in 0..seeds {
        let mut counters = Rig::new(&tools, at).take_all();
        for &(packets, bytes) in &counters {
            ones[0] = (ones[0].0 | packets, ones[0].1 | bytes);
            ones[1] = (ones[1].0 | !packets, ones[1].1 | !bytes);
        }
        compare(Rig::new(&tools, at), &mut random, &mut counters, count / u64::from(seeds));
    }
    // Each bit was 0 and 1.
    assert!(ones.iter().all(|(packets, bytes)| packets.trailing_ones() >= 40 && bytes.trailing_ones() >= 48));
}

/// Counts and reads at random, and compares what is read with `counters`.
fn compare(mut rig: Rig, random: &mut Random, counters: &mut [Traffic], cycles: u64) {
    for round in 0..cycles {
        // In some rounds a few counters have all packets, and in some there is one in each cycle.
        let some = [2, 4, ENTRIES as u64][(round / 64 % 3) as usize];
        let (index, bytes) = (random.below(some) as usize, random.next_u32() as u16);
        let is_full = round / 256 % 2 == 0;
        let work = match random.below(8) {
            0 | 1 => Work { add: None, take: Some(index) },
            2 | 3 if !is_full => Work::default(),
            _ => Work {
                add: Some((index, random.pick(&[bytes, 0, 1, u16::MAX]))),
                // This request is not taken.
                take: random.chance(300_000).then_some(index),
            },
        };
        let taken = rig.cycle(work);
        rig.answers.push_back(match work {
            Work { add: Some((index, bytes)), .. } => {
                let (packets, sum) = &mut counters[index];
                *packets = (*packets + 1) % (1 << 40);
                *sum = (*sum + u64::from(bytes)) % (1 << 48);
                None
            }
            Work { take, .. } => take.map(|index| std::mem::take(&mut counters[index])),
        });
        assert_eq!(taken, rig.answers.pop_front().unwrap(), "cycle {round}");
    }
    for answer in std::mem::take(&mut rig.answers) {
        assert_eq!(rig.cycle(Work::default()), answer);
    }
    assert_eq!(rig.take_all(), counters);
}

#[test]
fn a_reset_ends_what_has_begun() {
    let Some(tools) = Tools::for_test() else { return };
    let mut rig = Rig::new(&tools, 0);
    let _ = rig.take_all();
    for cycles in 1..LATENCY {
        (0..cycles).for_each(|_| assert_eq!(rig.cycle(Work { add: None, take: Some(5) }), None));
        rig.bench.reset();
        (0..8).for_each(|_| assert_eq!(rig.cycle(Work::default()), None));
        // A packet that comes in the cycle of a reset or before is counted or not, and nothing else is.
        let add = Some((7, 100));
        (0..cycles).for_each(|_| assert_eq!(rig.cycle(Work { add, take: None }), None));
        rig.bench.reset();
        (0..8).for_each(|_| assert_eq!(rig.cycle(Work::default()), None));
        let (packets, bytes) = rig.take_all()[7];
        assert!(packets <= cycles as u64 && bytes == 100 * packets, "{packets} packets, {bytes} bytes");
        assert_eq!(rig.take_all(), [(0, 0); ENTRIES]);
    }
}
