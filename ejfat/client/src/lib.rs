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
#![forbid(unsafe_code)]

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
