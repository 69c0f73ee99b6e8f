//! Bearer tokens.

use std::{fmt, sync::Arc};

use http::HeaderMap;
use subtle::ConstantTimeEq;
use tonic::Status;

/// The text before the token in the header `authorization`.
pub const SCHEME: &[u8] = b"Bearer ";

/// The token is empty, or has characters that no header can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The token is empty or consists of white space.
    #[error(
        "the token is empty; give one of visible ASCII characters, or none at all (unset its environment variable)"
    )]
    Empty,
    /// The token has a character that is neither a visible ASCII character nor a space.
    #[error("a token has visible ASCII characters only; this one has others")]
    Characters,
}

/// Checks if a token can be used. An empty token is refused, because it mostly comes from an environment variable that
/// is not set.
///
/// # Errors
/// Fails with [`BadToken`] if the token is empty or has a character that a header cannot contain.
pub fn check_token(token: &str) -> Result<(), BadToken> {
    if token.trim().is_empty() {
        return Err(BadToken::Empty);
    }
    let sendable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if token.bytes().all(sendable) { Ok(()) } else { Err(BadToken::Characters) }
}

/// The token that each request must show, or none.
#[derive(Clone)]
pub struct Token(Option<Arc<str>>);

/// Shows whether there is a token, but not its text.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.0.is_some()).finish()
    }
}

impl Token {
    /// With `None`, [`Token::check`] accepts each request.
    ///
    /// # Errors
    /// Fails with the error of [`check_token`] if the token is not valid.
    pub fn new(token: Option<String>) -> Result<Self, BadToken> {
        token.as_deref().map(check_token).transpose()?;
        Ok(Self(token.map(Arc::from)))
    }

    /// Checks the token in the headers of a request. The time that this takes reveals no more than the length of the token.
    ///
    /// # Errors
    /// Fails with the gRPC status `UNAUTHENTICATED` if the token is missing or wrong.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(wanted) = &self.0 else { return Ok(()) };
        let given = headers.get(http::header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        match given.and_then(|given| given.strip_prefix(SCHEME)) {
            None => Err(Status::unauthenticated("no token; send `authorization: Bearer TOKEN`")),
            Some(given) if bool::from(given.ct_eq(wanted.as_bytes())) => Ok(()),
            Some(_) => Err(Status::unauthenticated(
                "not the token that this server was started with; send that token",
            )),
        }
    }
}
