//! TLS 1.3 of both ends: files of certificates, connections of a server, what a client trusts and shows.
//!
//! # Source
//! RFC 8446 (TLS 1.3), RFC 7301 (ALPN; gRPC is `h2`).

mod client;
mod files;
mod reload;
mod server;
mod validity;

use std::sync::Arc;

use rustls::{
    SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
};

pub use self::{
    client::{ClientTls, Failures, TlsFailure},
    files::TlsError,
    server::ServerTls,
    validity::Certificate,
};
pub(crate) use self::{
    client::{Watched, config as client_config},
    reload::{InForce, Reload, reload},
    server::handshakes,
};

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// The name of HTTP/2 in ALPN.
const PROTOCOL: &[u8] = b"h2";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
