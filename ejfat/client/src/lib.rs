//! A client of EJFAT's control plane: of every program that serves the gRPC service `loadbalancer.LoadBalancer`.
//!
//! ```text
//! Connection     has a method for each call, which has a time limit; it connects again by itself
//! Worker         registers, reports its state ten times a second, registers again if necessary, and drains before it leaves
//! AllowedSender  adds a sender's addresses to the reservation's list, looks after them, and sends syncs once a second, until it
//!                is dropped
//! ```
//!
//! Calls block. Each connection has one thread, which also does the work of its workers. A state machine without sockets and
//! clocks decides what a worker does next, from answers and times.
//!
//! In this example, the function `work` registers a worker, which reports its state until it is drained. No control
//! plane serves port 1 of the loopback address, so the call of `work` fails:
//!
//! ```rust
//! use std::time::Duration;
//!
//! use ejfat::uri::EjfatUri;
//! use ejfat_client::{ClientError, Connection, Departure, Registration, Trust, Worker, WorkerState};
//!
//! fn work(uri: &EjfatUri, lb: &str) -> Result<Departure, ClientError> {
//!     let connection = Connection::open(uri, &Trust::default())?;
//!     let registration = Registration::new("worker 1", "192.0.2.7:10000".parse().unwrap());
//!     let state = || WorkerState { fill: 0.25, ..WorkerState::default() };
//!     let worker = Worker::register(&connection, lb, registration, Worker::PERIOD, state)?;
//!     // Another thread receives segments at UDP port 10000, until `drain` returns.
//!     Ok(worker.drain(Duration::from_secs(10)))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let uri: EjfatUri = "ejfat://token@127.0.0.1:1/lb/1".parse()?;
//! let error = work(&uri, "1").unwrap_err();
//! assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod background;
mod backoff;
mod calls;
mod connection;
mod error;
mod route;
mod sender;
mod syncs;
mod targets;
mod worker;

pub use connection::{Connection, DEADLINE, Token, Trust};
pub use ejfat_control::access::ApiCall;
pub use error::{Cause, ClientError};
pub use naa_grpc::{ClientTls, TlsError, TlsFailure};
/// The messages of the calls, as prost generates them.
pub use proto::loadbalancer as messages;
pub use route::{RouteError, source_towards};
pub use sender::{AllowedSender, AllowedSenderError, Ending, SenderNotice};
pub use syncs::Syncs;
pub use targets::{Targets, TargetsError};
pub use worker::{
    Departure, Leaver, PortRange, PortRangeError, Registration, Standing, Totals, Worker, WorkerState,
};
