//! What the tests of several modules share.
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod packets;
pub(crate) mod tables;

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
