//! EJFAT's load balancer in software.
//!
//! The load balancer does what [`ejfat::lb`] decides, on UDP sockets, with tables that several programs may change.
//!
//! ```text
//! YAML ─► document ─► Rules ─┐
//! gRPC, MRSP ─► messages ────┴► SharedDataPlane: tables of ticks, counters ◄─ Forwarder: UDP in ─► UDP out
//! ```
//!
//! ```rust
//! # use std::sync::Arc;
//! # use ejfat::{lb::Rules, listen::Listen};
//! use ejfat_lb::{Forwarder, ForwarderConfig, SharedDataPlane, When, document::Document};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = Arc::new(SharedDataPlane::new(Rules::default(), 1));
//! let listen = vec![vec![Listen::Port("127.0.0.1:0".parse()?)]];
//! let forwarder = Forwarder::start(&ForwarderConfig { listen, buffer: 1 << 20 }, &plane)?;
//! let rules = "
//! load_balancers:
//! - lb: 0
//!   addresses: [127.0.0.1]
//!   senders: [127.0.0.1]
//!   epochs:
//!   - {id: 0, ticks: [all], calendar: 1x512}
//!   members:
//!   - {id: 1, address: 127.0.0.2, port: 10000}
//! ";
//! plane.load(&Document::parse(rules)?.complete_rules()?, When::Next)?;
//! println!("senders send to {}", forwarder.addresses()[0]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod data_plane;
pub mod document;
mod forward;
pub mod grpc;
pub mod message;
pub mod requests;

pub use data_plane::{
    Counters, DataPath, LbStage, SharedDataPlane, TableSet, Ticks, When, Write, WriteError,
};
pub use forward::{ForwardError, Forwarder, ForwarderConfig, PortCounters, PortsInUse};
