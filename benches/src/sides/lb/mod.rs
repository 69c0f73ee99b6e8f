//! The control plane of EJFAT's load balancer over loopback, and a bare gRPC server that it is compared with.
//!
//! ```text
//! near  clients ─ SendState ─► far  `ejfat-cp` with its store, or a bare service of tonic
//! near  worker ─ Register, SendState ─► far  `ejfat-cp` with its data plane
//!         ▲ └ events ─────────────────────► │
//!         └────────── events ───────────────┘
//! ```

mod calls;
mod server;
mod states;
mod worker;

use serde::{Deserialize, Serialize};

pub(super) use server::serve;
pub(super) use states::Clients;
pub(super) use worker::Times;

/// The admin token of the control plane.
const TOKEN: &str = "the-admin-token-of-a-bench";
/// The UDP ports on which its data plane takes segments, and on which it takes syncs itself.
const DATA_PORT: u16 = 19_522;
const SYNC_PORT: u16 = 19_531;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Server {
    ControlPlane,
    /// A bare gRPC server, which answers each `SendState` with an empty reply.
    Echo,
}

/// Which time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    /// From the registration of a worker to its first event, in periods of the control plane: the longest of four times.
    FirstEvent,
    /// From the moment at which a silent worker counts as dead to the last event that is sent to it, in milliseconds.
    LastEvent,
}
