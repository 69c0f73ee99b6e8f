//! A worker, captures, counters of running processes.
#![allow(dead_code, reason = "each suite uses its own part")]

pub(crate) mod capture;
pub(crate) mod counters;

use crate::common::{Process, naa};

/// `naa ejfat recv` on a port of loopback.
#[track_caller]
pub(crate) fn start_worker(arguments: &[&str]) -> Process {
    Process::spawn(naa(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json"]).args(arguments))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}
