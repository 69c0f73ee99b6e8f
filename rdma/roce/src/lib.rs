//! The RoCEv2 protocol: reliable connections and their management, without sockets or clocks (sans-I/O).
//!
//! The caller passes bytes, time and memory as arguments, and polls for packets, completions and events. An
//! [`Endpoint`] is one device on one local address. The module [`endpoint`] describes the order of calls.
//!
//! The sources are the InfiniBand Architecture Specification vol. 1 (chapters 9 and 12), its annex A17 (RoCEv2), and
//! the Linux driver `drivers/infiniband/sw/rxe`, which shows the behaviour of peers in practice.
#![forbid(unsafe_code)]

pub mod cm;
pub mod config;
mod counters;
mod cq;
pub mod endpoint;
mod entropy;
pub mod icrc;
mod id_map;
mod memory;
mod mr_table;
pub mod opcode;
pub mod psn;
mod qp;
mod refusal;
pub mod time;
mod timer;
mod transmit;
pub mod window;
pub mod wire;

pub use config::{Config, RKeys};
pub use counters::Counters;
pub use endpoint::{Endpoint, QpAttr, Received};
pub use entropy::Entropy;
pub use memory::{Memory, Piece, RegionId};
pub use qp::model;
pub use refusal::{Observer, Refusal, RefusalCause};
pub use time::Time;
pub use transmit::Transmit;
