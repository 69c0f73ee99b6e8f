//! A data plane's tables over gRPC: [`serve`] them, or be a [`Client`].
//!
//! Two services program the same tables: `naa.lb.v1.Tables`, which changes them at a tick, and `sn_p4.v2.SmartnicP4`, by
//! which control planes program ESnet's SmartNICs. A [`SmartNicClient`] is such a control plane's end of the latter.

mod auth;
mod client;
mod server;
mod smartnic;
mod tables;

/// Bytes of a request. Full tables take half of it.
const MOST_OF_TABLES: usize = 1 << 20;

pub use auth::{BadToken, check_token};
pub use client::{Client, ClientError};
pub use server::{Callers, ServeError, Server, serve, serve_to};
pub use smartnic::{RuleChange, SmartNicClient, SmartNicCounters, SmartNicError, SmartNicLb, SmartNicMember};
