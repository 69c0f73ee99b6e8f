//! EJFAT's control plane for those who use it: any that serves `loadbalancer.LoadBalancer`, by an EJFAT URI.
//!
//! ```text
//! Connection     a method for each call, with a deadline; it connects again by itself
//! Worker         registers, tells its state ten times a second, registers again if it has to, drains before it leaves
//! AllowedSender  a sender's addresses in the reservation's list, and syncs once a second, until it is dropped
//! ```
//!
//! Whoever calls waits. One thread of a connection does what goes on by itself. What a worker does next is decided by a pure
//! machine, of answers and time.
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

pub use calls::Call;
pub use connection::{Connection, DEADLINE, Token, Trust};
pub use error::{Cause, ClientError};
pub use naa_grpc::{ClientTls, TlsError, TlsFailure};
/// Messages of the calls.
pub use proto::loadbalancer as messages;
pub use route::{RouteError, source_towards};
pub use sender::{AllowedSender, AllowedSenderError};
pub use syncs::Syncs;
pub use targets::{Targets, TargetsError};
pub use worker::{Departure, PortRange, PortRangeError, Registration, Standing, Totals, Worker, WorkerState};
