//! EJFAT's data path as pure state machines. Detectors stream events as UDP segments, a load balancer sends all
//! segments of an event to one worker, and the worker reassembles the event.
//!
//! ```text
//! event ─► segment::Segments ─► IP | UDP | LB header | RE header | payload ─► lb::Tables: epoch, slot, member
//!       ─► IP | UDP | RE header | payload ─► reassembly::Reassembler ─► CopyCommand: caller's memory
//! ```
//!
//! The functions of this crate get bytes, time and random numbers as arguments. The crate neither stores nor copies
//! payload.
//!
//! # Example
//! A sender cuts an event into segments, and a worker reassembles the event:
//!
//! ```rust
//! use ejfat::reassembly::{Config, Reassembler};
//! use ejfat::segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments};
//! use ejfat::Time;
//!
//! let event = vec![7; 3000];
//! let size = SegmentSize::of_mtu(1500, IpVersion::V4)?;
//! let fields = EventFields { tick: 1, event: 1, data_id: 5, entropy: 0 };
//! let mut reassembler = Reassembler::new(Config::default())?;
//! let mut memory = vec![0; event.len()];
//! let mut complete = false;
//! for segment in Segments::new(LbVersion::V2, size, fields, event.len() as u64)? {
//!     let datagram = [&segment.headers[..], &event[segment.payload.clone()]].concat();
//!     let command = reassembler.handle(Time(0), None, &datagram).expect("the segment is valid");
//!     let at = command.offset as usize;
//!     memory[at..at + command.payload.len()].copy_from_slice(&datagram[command.payload]);
//!     complete = command.complete;
//! }
//! assert!(complete && memory == event);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Source
//! The source of the protocol is the EJFAT technical design overview. The wire format of E2SAR 0.3.2 and ESnet's P4
//! data plane (udplb) differs from this document in some points. In these points, the crate follows E2SAR and udplb.
//! All integers of EJFAT are big-endian.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
mod named;

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
