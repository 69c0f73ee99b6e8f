//! EJFAT's control plane on sockets: what [`ejfat_control`] decides, for clients of the service `loadbalancer.LoadBalancer`.
//!
//! ```text
//! gRPC ─► api ─► Core: Control under a lock, the thread that polls it ─► store: durable changes ─► reply
//! UDP syncs ─────►  │
//!                   └─► planes: this process, naa.lb.v1, sn_p4.v2
//! ```
#![forbid(unsafe_code)]

mod api;
mod audit;
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
pub use core::{Core, Counters, Parts, Refused, StartError};
pub use daemon::{Daemon, DaemonError};
pub use planes::{Link, PlaneAddress};
pub use series::{OneSeries, Values};
pub use syncs::{SyncAddress, SyncCounters, SyncError, Syncs};
