//! What servers and clients of gRPC share: connections with seats that sources share fairly, TLS whose certificates are read
//! again when they change, bearer tokens, and what is said when one of these fails.
//!
//! ```text
//! TCP ─► connections::accept: seats ─► tls: handshakes ─► tonic ─► the service of whoever calls serve
//! Reach: TCP, TLS ─► tonic's channel, Bearer in each request
//! ```
#![forbid(unsafe_code)]

mod auth;
mod connect;
pub mod connections;
mod server;
mod tls;

pub use auth::{BadToken, SCHEME, Token, check_token};
pub use connect::{
    AtEnd, Bearer, CONNECT, Calls, Connector, Credentials, CredentialsError, Reach, innermost,
};
pub use server::{Answer, Permits, ServeError, Server, Settings, begin, serve, until_sent};
pub use tls::{ClientTls, Failures, ServerTls, TlsError, TlsFailure};
