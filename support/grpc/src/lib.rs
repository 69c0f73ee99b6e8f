//! Parts that gRPC servers and clients share: a fair limit of connections, TLS, bearer tokens, and errors.
//!
//! The limit of connections is fair among source networks. A server reads the files of its certificate again when they
//! change.
//!
//! ```text
//! server: TCP ─► connections::accept ─► TLS handshake ─► tonic ─► the service that was given to serve()
//! client: Reach: TCP, TLS handshake ─► tonic's channel, with Bearer in each request
//! ```
//!
//! This example serves a service that only checks the token of each request:
//!
//! ```rust
//! # use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
//! # use naa_grpc::{GrpcServerConfig, HttpResponse, Token, begin, serve};
//! # use tonic::{Status, body::Body, codegen::Service};
//! #[derive(Clone)]
//! struct Checked(Token);
//!
//! impl Service<http::Request<Body>> for Checked {
//!     type Response = HttpResponse;
//!     type Error = Infallible;
//!     type Future = Ready<Result<HttpResponse, Infallible>>;
//!
//!     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
//!         Poll::Ready(Ok(()))
//!     }
//!
//!     fn call(&mut self, request: http::Request<Body>) -> Self::Future {
//!         let _in_progress = begin(&request);
//!         let refused = self.0.check(request.headers()).err();
//!         ready(Ok(refused.unwrap_or_else(|| Status::unimplemented("there is no method")).into_http()))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = GrpcServerConfig { connections: 16, streams: 8, threads: 1, permits: None, tls: None };
//! let server = serve(config, "127.0.0.1:0".parse()?, Checked(Token::new(Some("secret".into()))?))?;
//! println!("clients connect to {}", server.address());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod auth;
mod connect;
pub mod connections;
mod server;
mod stream;
mod tls;

pub use auth::{BadToken, SCHEME, Token, check_token};
pub use connect::{
    AtEnd, Bearer, CONNECT, Calls, Connector, Credentials, CredentialsError, Reach, innermost,
};
pub use server::{GrpcServer, GrpcServerConfig, HttpResponse, Permits, ServeError, begin, serve, until_sent};
pub use tls::{Certificate, ClientTls, Failures, ServerTls, TlsError, TlsFailure};
