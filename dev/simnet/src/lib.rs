//! Seeded virtual network: one-way links in virtual time that lose, repeat, delay, reorder and damage packets.
//!
//! A [`Link`] knows nothing of what it carries beyond [`Packet`]. Everything it does follows from its seed, its
//! [`Faults`] and the calls made, so a run can be repeated exactly. Time is nanoseconds since an origin of the
//! caller's choice and must not go backwards.
#![forbid(unsafe_code)]

mod faults;
mod link;
pub mod pcap;
mod random;

pub use faults::{Bottleneck, Bursts, Faults};
pub use link::{Arrival, Link, LinkCounters, Packet};
pub use random::Random;
