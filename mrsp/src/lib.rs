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
//! [`host::HostSession`] and [`naa::NaaSession`] take bytes and immediates as input, and return bytes and
//! [`plan::CallPlan`]s; drivers send them. The C library sleeps for ever unless three rules are kept: every SEND and
//! every WRITE_WITH_IMM carries the solicited-event bit; a side posts its receive before the message that causes the
//! response; and, with other stacks as peers, a request is acknowledged before its response is sent.
//!
//! # Source
//! The NAAICE project's "low-level API: introduction" and, where they differ, the messages of its C library
//! (naa-communication-library, `main` of 2026-03), which this crate follows:
//!
//! | introduction | wire, and here |
//! |---|---|
//! | region flags unused | [`RegionFlags`]: INTERNAL, SINGLE_SEND, INPUT, OUTPUT |
//! | up to 256 regions | the C library's buffer holds 31: [`region::HOST_MAX_REGIONS`] |
//! | request immediate is the function code | code in 7 bits, start bit 0x80, 24 bits of the user's |
//! | response immediate is the error | upper 24 bits; the low byte is ignored |
//! | symmetric or asymmetric regions | symmetric: parameter i here is parameter i there; others: [`layout`] |
//! | addresses come from a resource manager | counted up page by page by the host: [`address`] |
//!
//! All integers of MRSP are big-endian; those of [`builtin`] and [`catalogue`], which this project defines, are
//! little-endian.
#![forbid(unsafe_code)]

pub mod address;
pub mod builtin;
pub mod catalogue;
pub mod codec;
pub mod host;
pub mod immediate;
pub mod layout;
pub mod liveness;
pub mod message;
pub mod naa;
pub mod plan;
pub mod private_data;
mod reader;
pub mod region;
pub mod return_code;

pub use host::{HostSession, Param};
pub use immediate::{Dialect, FunctionCode, U24};
pub use layout::Layout;
pub use liveness::Liveness;
pub use message::{ErrorCode, Message};
pub use naa::NaaSession;
pub use plan::{CallPlan, Write};
pub use private_data::Abilities;
pub use region::{NaaAddress, RegionFlags, RegionRequest, RemoteRegion};
pub use return_code::ReturnCode;
