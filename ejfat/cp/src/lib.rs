//! EJFAT's control plane as a server. [`ejfat_control`] makes the decisions; this crate adds gRPC (the service
//! `loadbalancer.LoadBalancer`), sync sockets, the store and the connections to data planes.
//!
//! ```text
//! gRPC ─► api ─► Core: Control behind a lock, polled by one thread ─► store: durable changes ─► reply
//! UDP: sync datagrams ─►  │
//!                         └─► data planes: in this process, by naa.lb.v1, by sn_p4.v2
//! ```
//!
//! [`Daemon`] is a control plane with all its parts. This example starts a control plane on a loopback address, with a
//! data plane in the same process, and reserves a load balancer over gRPC:
//!
//! ```rust
//! use ejfat::uri::EjfatUri;
//! use ejfat_client::{Connection, Token, Trust, messages::ReserveLoadBalancerRequest};
//! use ejfat_cp::{Daemon, settings::Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = std::env::temp_dir().join(format!("ejfat-cp-doc-{}", std::process::id()));
//! let settings = Settings::parse(
//!     "
//! listen: ['127.0.80.41:0']
//! load_balancers:
//! - {ipv4: 127.0.80.41}
//! ",
//! )?;
//! let daemon = Daemon::start(&settings, &state, 7)?;
//! let token = Token(std::fs::read_to_string(daemon.token_file())?.trim().to_owned());
//! let uri = EjfatUri::new(&daemon.public().host, daemon.public().port);
//! let admin = Connection::open(&uri, &Trust { token: Some(token), ..Trust::default() })?;
//! let request = ReserveLoadBalancerRequest { name: "run".into(), ..Default::default() };
//! let reserved = admin.reserve(request)?;
//! assert_eq!(reserved.data_ipv4_address, "127.0.80.41");
//! println!("senders and workers use EJFAT_URI={}", reserved.ejfat_uri);
//! daemon.stop();
//! # let _ = std::fs::remove_dir_all(&state);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
pub use planes::{Away, PlaneAddress, SmartNicNetwork};
pub use series::{OneSeries, Values};
pub use syncs::{SyncAddress, SyncCounters, SyncError, Syncs};
