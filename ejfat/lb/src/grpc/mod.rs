//! A data plane's tables over gRPC: [`serve`] them, or be a [`Client`].
//!
//! Two services program the same tables: `naa.lb.v1.Tables`, which changes them at a tick, and `sn_p4.v2.SmartnicP4`, by
//! which control planes program ESnet's SmartNICs. Both are on one port, with or without TLS. A [`SmartNicClient`] is such a
//! control plane's end of the latter.

mod client;
mod connect;
mod server;
mod smartnic;
mod tables;

/// Bytes of a request. Full tables take half of it.
const MOST_OF_TABLES: usize = 1 << 21;

pub use client::Client;
pub use connect::ClientError;
pub use naa_grpc::{
    BadToken, ClientTls, Credentials, CredentialsError, GrpcServer, ServeError, ServerTls, TlsError,
    TlsFailure, check_token,
};
pub use server::{Callers, serve, serve_to};
pub use smartnic::{RuleChange, SmartNicClient, SmartNicCounters, SmartNicError, SmartNicLb, SmartNicMember};
