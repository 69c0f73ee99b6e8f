//! EJFAT's data path as pure state machines: detectors stream events as UDP segments, a load balancer sends all segments
//! of an event to one worker, the worker reassembles.
//!
//! ```text
//! event ─► segment::Segmenter ─► IP | UDP | LB header | RE header | payload ─► lb::Tables: epoch, slot, member
//!       ─► IP | UDP | RE header | payload ─► reassembly::Reassembler ─► Place commands: caller's memory
//! ```
//!
//! Bytes, time and random numbers are arguments. Nothing here keeps or copies payload.
//!
//! # Source
//! EJFAT technical design overview. Where E2SAR 0.3.2 and ESnet's P4 data plane (udplb) differ from it, this crate
//! follows their wire format. All integers of EJFAT are big-endian.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod lb;
pub mod listen;
pub mod reassembly;
pub mod ring;
pub mod segment;
mod time;
pub mod uri;
pub mod wire;

pub use time::Time;
