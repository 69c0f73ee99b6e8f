//! EJFAT's control plane as a server. [`ejfat_control`] makes the decisions; this crate adds gRPC (the service
//! `loadbalancer.LoadBalancer`), sync sockets, the store and the connections to data planes.
//!
//! ```text
//! gRPC ─► api ─► Core: Control behind a lock, polled by one thread ─► store: durable changes ─► reply
//! UDP: sync datagrams ─►  │
//!                         └─► data planes: in this process, by naa.lb.v1, by sn_p4.v2
//! ```
#![forbid(unsafe_code)]

mod api;
mod audit;
mod backups;
mod certificate;
mod core;
mod daemon;
mod planes;
mod reports;
mod series;
pub mod settings;
mod sources;
mod storing;
mod syncs;
mod token;

pub use api::{Public, decode, service};
pub use backups::BackupError;
pub use core::{Core, Counters, Parts, Refused, StartError};
pub use daemon::{Daemon, DaemonError};
pub use planes::{Away, Link, PlaneAddress};
pub use series::{OneSeries, Values};
pub use syncs::{SyncAddress, SyncCounters, SyncError, Syncs};
