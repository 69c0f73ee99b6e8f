//! EJFAT's data path as pure state machines. Detectors stream events as UDP segments, a load balancer sends all
//! segments of an event to one worker, and the worker reassembles the event.
//!
//! ```text
//! event ─► segment::Segments ─► IP | UDP | LB header | RE header | payload ─► lb::Tables: epoch, slot, member
//!       ─► IP | UDP | RE header | payload ─► reassembly::Reassembler ─► Place commands: caller's memory
//! ```
//!
//! The functions of this crate get bytes, time and random numbers as arguments. The crate neither stores nor copies
//! payload.
//!
//! # Source
//! The source of the protocol is the EJFAT technical design overview. Where E2SAR 0.3.2 and ESnet's P4 data plane
//! (udplb) differ from the overview, this crate follows the wire format of E2SAR and udplb. All integers of EJFAT are
//! big-endian.
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
