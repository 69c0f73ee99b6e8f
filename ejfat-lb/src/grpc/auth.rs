//! Bearer tokens.

use std::sync::Arc;

use http::HeaderMap;
use subtle::ConstantTimeEq;
use tonic::Status;

const SCHEME: &[u8] = b"Bearer ";

/// What a request must bring.
#[derive(Clone)]
pub(super) struct Token(Option<Arc<str>>);

impl Token {
    pub(super) fn new(token: Option<String>) -> Self {
        Self(token.map(Arc::from))
    }

    /// How long it takes tells the length of the token at most.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(wanted) = &self.0 else { return Ok(()) };
        let given = headers.get(http::header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        match given.and_then(|given| given.strip_prefix(SCHEME)) {
            None => Err(Status::unauthenticated("no token; send `authorization: Bearer TOKEN`")),
            Some(given) if bool::from(given.ct_eq(wanted.as_bytes())) => Ok(()),
            Some(_) => Err(Status::unauthenticated("not the token that this data plane was started with")),
        }
    }
}
