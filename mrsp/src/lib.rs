//! The memory region setup protocol (MRSP) and the calls that follow it, as pure state machines.
//!
//! ```text
//! host                                             NAA
//!  ├ SEND: advertise and request (AAR) ────────────►│ allocate
//!  │◄──────────────── SEND: advertisement (A) or ERR┤
//!  ├ WRITE inputs, last one WITH_IMM: function code►│ calculate
//!  │◄──────── WRITE outputs, last one WITH_IMM: code┤
//! ```
//!
//! [`host::HostSession`] and [`accelerator::AcceleratorSession`] take bytes and immediates as input, and return bytes
//! and [`plan::CallPlan`]s, which the caller sends. A program with the C library waits forever if its peer breaks one
//! of the following three rules:
//!
//! - Every SEND and every WRITE_WITH_IMM has the solicited-event bit.
//! - Before a side sends a message to which its peer responds, it posts the receive for the response.
//! - The accelerator's device acknowledges a message of the host before the accelerator sends its response to this
//!   message. This third rule applies only if at least one side uses another RDMA stack than the embedded provider of
//!   this project.
//!
//! # Example
//! In the example, the two sides of a session agree on two regions, and the host makes one call:
//!
//! ```rust
//! use mrsp::{AcceleratorSession, AnnouncedParam, CallPlan, FunctionCode, HostSession, RegionFlags, U24};
//! use mrsp::{accelerator::{RegionAddress, SessionLimits}, host::HostConfig, immediate::CallResponse};
//!
//! let input = AnnouncedParam { flags: RegionFlags::INPUT, addr: 0x1000, rkey: 1, size: 16 };
//! let output = AnnouncedParam { flags: RegionFlags::OUTPUT, addr: 0x2000, rkey: 2, size: 32 };
//! let mut host = HostSession::new(&HostConfig::default(), &[input, output], &[])?;
//! let mut naa = AcceleratorSession::new(SessionLimits::default());
//! assert_eq!(naa.handle_message(&host.start()?)?.len(), 2);
//! let addresses = [RegionAddress { addr: 0x8000, rkey: 3 }, RegionAddress { addr: 0x9000, rkey: 4 }];
//! host.handle_message(&naa.allocated(&addresses)?)?;
//!
//! let mut plan = CallPlan::with_capacity(2);
//! host.begin_call(FunctionCode::constant(1), U24::ZERO, &[], &mut plan)?;
//! let write = plan.writes()[0]; // A real host posts this WRITE to its queue pair.
//! assert_eq!((write.remote_addr, write.length), (0x8000, 16));
//! naa.handle_request(write.immediate.expect("the last WRITE has the immediate"))?;
//! naa.respond(Ok(&[]), 0, &mut plan)?;
//! let write = plan.writes()[0];
//! let outcome = host.handle_response(write.immediate.expect("the last WRITE"), write.length)?;
//! assert_eq!((outcome.answer, outcome.last_write_bytes), (CallResponse::Success, 32));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Source
//! This crate follows the document "low-level API: introduction" of the NAAICE project. The messages of NAAICE's C
//! library (naa-communication-library, `main` of 2026-03) differ from this document in some points. In these points,
//! this crate follows the C library:
//!
//! | introduction | C library and this crate |
//! |---|---|
//! | region flags unused | [`RegionFlags`]: INTERNAL, SINGLE_SEND, INPUT, OUTPUT |
//! | up to 256 regions | the C library's buffer has room for 31 regions: [`region::HOST_MAX_REGIONS`] |
//! | request immediate is the function code | code in 7 bits, start bit 0x80, 24 user bits |
//! | response immediate is the error | upper 24 bits; the low byte is ignored |
//! | symmetric or asymmetric regions | symmetric: parameter i has region i on both sides; others: [`layout`] |
//! | addresses come from a resource manager | the host assigns consecutive pages: [`address`] |
//!
//! All integers of MRSP are big-endian. The integers of [`builtin`] and [`catalogue`], which this project defines, are
//! little-endian.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accelerator;
pub mod address;
pub mod builtin;
pub mod catalogue;
pub mod codec;
pub mod host;
pub mod immediate;
pub mod layout;
pub mod liveness;
pub mod message;
pub mod plan;
pub mod private_data;
pub mod region;
pub mod return_code;

pub use accelerator::AcceleratorSession;
pub use host::{AnnouncedParam, HostSession};
pub use immediate::{Dialect, FunctionCode, U24};
pub use layout::Layout;
pub use liveness::Liveness;
pub use message::{ErrorCode, Message};
pub use plan::{CallPlan, Write};
pub use private_data::Abilities;
pub use region::{NaaAddress, RegionFlags, RegionRequest, RemoteRegion};
pub use return_code::ReturnCode;
