//! What the tests of several modules share.
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod tables;

use std::{collections::BTreeMap, fmt::Debug};

use naa_fpga::{Bench, Model, Module, Tools};
use simnet::Random;

/// The model of a module, or `None` if the tools are missing and the test is skipped.
pub(crate) fn model(module: Module) -> Option<Model> {
    let tools = Tools::for_test()?;
    Some(module.model(&tools).unwrap_or_else(|error| panic!("{error}")))
}

/// A bench with the module of this name.
pub(crate) fn bench(name: &'static str) -> Option<Bench> {
    model(Module::new(name)).map(Bench::new)
}

/// The number of packets or other inputs of a test, and random numbers with their seed, which is printed.
pub(crate) fn random_run(stream: u64) -> (u64, u64, Random) {
    let (count, seed) = (number("NAA_FPGA_PACKETS", 100_000), number("NAA_FPGA_SEED", 1));
    println!("seed {seed}");
    (count, seed, Random::new(seed, stream))
}

/// The value of an environment variable, or `default` if it is not set.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Random bytes.
pub(crate) fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// Checks that the packets of a test led to `kinds` kinds of outcomes, and to each kind at least once in `rarest` packets. Fewer than 50 000
/// packets are not checked: a short run need not see what is rare.
pub(crate) fn all_came<K: Debug>(times: &BTreeMap<K, u64>, kinds: usize, packets: u64, rarest: u64) {
    println!("{times:#?}");
    let least = packets / rarest;
    assert!(packets < 50_000 || times.len() == kinds && times.values().all(|&times| times >= least));
}
