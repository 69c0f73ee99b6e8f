//! What the tests of several modules share.
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod tables;

use std::{collections::BTreeMap, fmt::Debug};

use simnet::Random;

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
