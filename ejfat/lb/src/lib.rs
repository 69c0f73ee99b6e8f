//! EJFAT's load balancer in software: what [`ejfat::lb`] decides, on real sockets, with tables that many may program.
//!
//! ```text
//! YAML ─► document ─► Rules ─┐
//! gRPC, MRSP ─► messages ────┴► Plane: tables of ticks, counters ◄─ Forwarder: UDP in ─► UDP out
//! ```
#![deny(unsafe_code)]

pub mod document;
mod forward;
pub mod grpc;
pub mod message;
mod plane;
pub mod requests;

pub use forward::{ForwardError, Forwarder, ForwarderConfig, PortCounters, PortsInUse};
pub use plane::{Counters, DataPath, LbStage, Plane, TableSet, Ticks, When, Write, WriteError};
