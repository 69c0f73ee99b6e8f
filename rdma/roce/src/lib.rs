//! The RoCEv2 protocol: reliable connections and their management, without sockets or clocks (sans-I/O).
//!
//! The caller passes bytes, time and memory as arguments, and polls for packets, completions and events. An
//! [`Endpoint`] is one device on one local address. The module [`endpoint`] describes the order of calls.
//!
//! This crate follows the InfiniBand Architecture Specification vol. 1 (chapters 9 and 12) and its annex A17 (RoCEv2).
//! The crate also follows the Linux driver `drivers/infiniband/sw/rxe`, which shows the behaviour of peers in practice.
//!
//! In the example, an endpoint starts to connect, and its caller takes the first packet, which is a REQ. An endpoint's
//! caller sends the endpoint's packets by UDP, and passes received datagrams to [`Endpoint::handle_datagram`].
//!
//! ```rust
//! use roce::{Config, Endpoint, Entropy, Time, Transmit};
//! use verbs::{ConnParam, QpCap, QpInit};
//!
//! struct Counting(u32); // A real device needs random numbers that nobody can guess.
//! impl Entropy for Counting {
//!     fn next_u32(&mut self) -> u32 {
//!         self.0 += 1;
//!         self.0
//!     }
//! }
//!
//! let mut endpoint = Endpoint::new(Config::default(), 4096, Box::new(Counting(1)));
//! let (pd, cq, channel) = (endpoint.alloc_pd(), endpoint.create_cq(16)?, endpoint.create_channel());
//! let qp = endpoint.create_qp(&QpInit { pd, send_cq: cq, recv_cq: cq, cap: QpCap::default() })?;
//! let (now, local, remote) = (Time(0), "10.9.0.1".parse()?, "10.9.0.2:7000".parse()?);
//! endpoint.connect(now, channel, qp, local, remote, &ConnParam::default())?;
//!
//! let mut packet = Transmit::default();
//! assert!(endpoint.poll_transmit(now, &mut packet));
//! assert_eq!(packet.to, "10.9.0.2:4791".parse()?);
//! assert!(endpoint.poll_timeout().is_some(), "the REQ is sent again if no response arrives");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
pub use endpoint::{DatagramMeta, Endpoint, QpAttr};
pub use entropy::Entropy;
pub use memory::{Piece, RegionId, RegionWriter};
pub use qp::model;
pub use refusal::{Observer, Refusal, RefusalCause};
pub use time::Time;
pub use transmit::Transmit;
