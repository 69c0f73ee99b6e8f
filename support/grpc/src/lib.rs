//! Parts that gRPC servers and clients share: a limit of connections that source networks share fairly, TLS with certificates
//! that are read again when they change, bearer tokens, and the errors of these.
//!
//! ```text
//! server: TCP ─► connections::accept ─► TLS handshake ─► tonic ─► the service that was given to serve()
//! client: Reach: TCP, TLS handshake ─► tonic's channel, with Bearer in each request
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
pub use tls::{Certificate, ClientTls, Failures, ServerTls, TlsError, TlsFailure};
