//! `region_check` against its definition in Rust: random regions and requests at all bounds, tables that change, and a pipeline that stands still.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::{all_came, bench, random_run};
use naa_fpga::Bench;
use simnet::Random;

const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
/// The number of cycles between a request and its answer.
const LATENCY: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    is_valid: bool,
    secret: u32,
    pd: u16,
    reads: bool,
    writes: bool,
    generation: u32,
    address: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Request {
    rkey: u32,
    pd: u16,
    writes: bool,
    address: u64,
    length: u32,
}

/// The slot, the generation and the offset of an access that is permitted.
type Permitted = (u64, u64, u64);

impl Request {
    /// What the module has to answer if the region of the request's slot is this one. An error says why the access is not permitted.
    fn answer(&self, region: &Region) -> Result<Permitted, &'static str> {
        let permits = if self.writes { region.writes } else { region.reads };
        let offset = i128::from(self.address) - i128::from(region.address);
        let checks = [
            (region.is_valid, "no region"),
            (region.secret == self.rkey >> SLOT_BITS, "another key"),
            (region.pd == self.pd, "another domain"),
            (permits, "no permission"),
            (offset >= 0, "below the region"),
            (offset <= i128::from(region.length), "above the region"),
            (offset + i128::from(self.length) <= i128::from(region.length), "too long"),
        ];
        match checks.iter().find(|(is_met, _)| !is_met) {
            Some((_, why)) => Err(*why),
            None => Ok(((self.rkey as usize % SLOTS) as u64, region.generation.into(), offset as u64)),
        }
    }
}

/// A number that has any length with the same probability.
fn random_number(random: &mut Random) -> u64 {
    random.next_u64() >> random.below(64)
}

fn random_region(random: &mut Random) -> Region {
    let length = match random.below(8) {
        0 => random.pick(&[0, 1, 1 << 31, 1 << 32, (1 << 32) - 1, u64::MAX]),
        _ => random_number(random),
    };
    let address = match random.below(4) {
        0 => random.next_u64(),
        1 => random_number(random),
        // The region ends where addresses end, or nearly so.
        2 => (u64::MAX - length).wrapping_add(random.below(3)),
        _ => random.next_u64() & !0xffff_ffff | random.pick(&[0, 1, 0xffff_ffff]),
    };
    Region {
        is_valid: random.below(8) != 0,
        secret: random.next_u32() >> SLOT_BITS,
        pd: random.next_u32() as u16,
        reads: random.below(8) != 0,
        writes: random.below(8) != 0,
        generation: random.next_u32(),
        address,
        length,
    }
}

/// A request for a region, which is mostly permitted or nearly so.
fn random_request(random: &mut Random, slot: usize, region: &Region) -> Request {
    let length = match random.below(4) {
        0 => random.next_u32(),
        1 => (region.length as u32).wrapping_add(random.below(3) as u32).wrapping_sub(1),
        _ => random_number(random) as u32,
    };
    let offset = match random.below(8) {
        0 => random_number(random),
        1 => 0_u64.wrapping_sub(1 + random.below(3)),
        2 => region.length.wrapping_add(random.below(3)).wrapping_sub(1),
        // The access ends where the region ends, or one byte before or behind.
        3 | 4 => region.length.wrapping_sub(length.into()).wrapping_add(random.below(3)).wrapping_sub(1),
        5 => 1 << random.below(64),
        _ => random.next_u64().checked_rem(region.length.saturating_sub(length.into())).unwrap_or(0),
    };
    let flip =
        |random: &mut Random, bits| if random.below(16) == 0 { 1_u32 << random.below(bits) } else { 0 };
    Request {
        rkey: (region.secret << SLOT_BITS | slot as u32) ^ flip(random, 32),
        pd: region.pd ^ flip(random, 16) as u16,
        writes: random.below(2) == 0,
        address: region.address.wrapping_add(offset),
        length,
    }
}

/// The module, its table, and the answers that are in its pipeline.
struct Rig {
    bench: Bench,
    table: Vec<Region>,
    answers: VecDeque<Option<Result<Permitted, &'static str>>>,
    /// The answer at the outputs.
    shown: Option<Result<Permitted, &'static str>>,
    kinds: BTreeMap<&'static str, u64>,
}

impl Rig {
    fn new() -> Option<Self> {
        let (bench, table) = (bench("region_check")?, vec![Region::default(); SLOTS]);
        let (answers, kinds) = ([None; LATENCY - 1].into(), BTreeMap::new());
        Some(Self { bench, table, answers, shown: None, kinds })
    }

    fn get(&self, name: &str) -> u64 {
        self.bench.model.get(self.bench.model.port(name))
    }

    /// Runs a cycle, in which a region may be written and a request may come, and checks the outputs.
    fn cycle(&mut self, enable: bool, write: Option<(usize, Region)>, request: Option<Request>) {
        let (slot, region) = write.unwrap_or((3, Region { is_valid: true, ..Region::default() }));
        let asked = request.unwrap_or_default();
        let model = &mut self.bench.model;
        for (name, value) in [
            ("enable", enable.into()),
            ("table_write", write.is_some().into()),
            ("table_slot", slot as u64),
            ("table_valid", region.is_valid.into()),
            ("table_secret", region.secret.into()),
            ("table_pd", region.pd.into()),
            ("table_remote_read", region.reads.into()),
            ("table_remote_write", region.writes.into()),
            ("table_generation", region.generation.into()),
            ("table_address", region.address),
            ("table_length", region.length),
            ("request_valid", request.is_some().into()),
            ("request_rkey", asked.rkey.into()),
            ("request_pd", asked.pd.into()),
            ("request_write", asked.writes.into()),
            ("request_address", asked.address),
            ("request_length", asked.length.into()),
        ] {
            model.set(model.port(name), value);
        }
        self.bench.cycle(&mut []);
        if enable {
            self.answers.push_back(request.map(|request| {
                let answer = request.answer(&self.table[request.rkey as usize % SLOTS]);
                *self.kinds.entry(answer.err().unwrap_or("permitted")).or_default() += 1;
                answer
            }));
            self.shown = self.answers.pop_front().unwrap();
        }
        if let Some((slot, region)) = write {
            self.table[slot] = region;
        }
    }

    /// Compares the outputs with the answer that has to be there before the next cycle.
    fn check(&mut self) {
        self.bench.model.eval();
        assert_eq!(self.get("answer_valid") == 1, self.shown.is_some());
        let Some(expected) = self.shown else { return };
        assert_eq!(self.get("answer_ok") == 1, expected.is_ok(), "{expected:?}");
        let seen = ["answer_slot", "answer_generation", "answer_offset"].map(|name| self.get(name));
        if let Ok((slot, generation, offset)) = expected {
            assert_eq!(seen, [slot, generation, offset]);
        }
    }

    /// Resets the module. While it clears its table, nothing is permitted and nothing is written.
    fn reset(&mut self, random: &mut Random) {
        self.bench.reset();
        self.answers = [None; LATENCY - 1].into();
        self.shown = None;
        let before = std::mem::replace(&mut self.table, vec![Region::default(); SLOTS]);
        for _ in 0..SLOTS {
            self.check();
            assert_eq!(self.get("table_ready"), 0);
            let slot = random.below(SLOTS as u64) as usize;
            let request = random_request(random, slot, &before[slot]);
            self.cycle(true, None, Some(request));
        }
        self.check();
        assert_eq!(self.get("table_ready"), 1);
        // Each region from before is gone.
        for (slot, region) in before.iter().enumerate() {
            let (rkey, pd) = (region.secret << SLOT_BITS | slot as u32, region.pd);
            self.cycle(true, None, Some(Request { rkey, pd, address: region.address, ..Request::default() }));
            self.check();
        }
    }
}

#[test]
fn random_accesses_are_permitted_exactly_if_they_lie_in_their_regions() {
    let Some(mut rig) = Rig::new() else { return };
    let (count, _, mut random) = random_run(0);
    rig.reset(&mut random);
    for slot in 0..SLOTS {
        rig.cycle(true, Some((slot, random_region(&mut random))), None);
    }
    for round in 0..count {
        let slot = random.below(SLOTS as u64) as usize;
        let request = random_request(&mut random, slot, &rig.table[slot]);
        let is_asked = random.below(8) != 0;
        // Often the region of the request changes in the same cycle: the request sees the older one.
        let write = (random.below(8) == 0).then(|| {
            let at = if random.below(2) == 0 { slot } else { random.below(SLOTS as u64) as usize };
            (at, random_region(&mut random))
        });
        let is_enabled = round / 256 % 2 == 0 || random.below(4) != 0;
        rig.cycle(is_enabled, write, is_asked.then_some(request));
        rig.check();
        if round % 20_000 == 300 {
            rig.reset(&mut random);
            (0..SLOTS).for_each(|slot| rig.cycle(true, Some((slot, random_region(&mut random))), None));
        }
    }
    for _ in 0..LATENCY {
        rig.cycle(true, None, None);
        rig.check();
    }
    all_came(&rig.kinds, 8, count, 500);
}
