//! Errors of calls.

use std::{error::Error as _, fmt, io, time::Duration};

use ejfat_control::access::Need;
use naa_grpc::{BadToken, CredentialsError, TlsError, TlsFailure, innermost};
use tonic::{Code, Status};

use crate::ApiCall;

/// Why a control plane did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0} is no address of a control plane; correct host and port of the EJFAT URI")]
    Address(String),
    #[error(transparent)]
    Token(#[from] BadToken),
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("cannot start what gRPC runs on: {0}; raise the limits of processes and open files")]
    Runtime(io::Error),
    #[error(
        "the control plane at {address} cannot be reached: {why}; is it running, is the EJFAT URI right, and does no firewall \
         stand between?"
    )]
    Unreachable { address: String, why: String },
    #[error("the control plane at {address} did not answer {} within {within:?}; try again", .call.name())]
    TooLate { address: String, call: ApiCall, within: Duration },
    #[error("the control plane at {address} cannot be spoken to: {failure}{}", by_scheme(.failure))]
    Tls { address: String, failure: TlsFailure },
    #[error("the control plane at {address} refused {}: {}{}", .call.name(), refusal(.said, *.cause), remedy(.said, *.call, *.cause))]
    Refused { address: String, call: ApiCall, cause: Cause, said: String },
}

/// Why a control plane refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The call showed no token.
    NoToken,
    /// The control plane does not know the token.
    UnknownToken,
    /// The control plane knows the token, which lacks the right to this call.
    NoRight,
    /// The control plane does not know the reservation, the session or the token that the call names.
    NotFound,
    /// Another reservation or session already has the name, the load balancer or the ports.
    Taken,
    /// The control plane has reached a limit, or is too busy.
    Busy,
    /// An argument is wrong, or does not fit the state of the reservation.
    Invalid,
    /// The control plane does not have the call.
    NotServed,
    /// The control plane had an internal error.
    Failed,
}

impl From<CredentialsError> for ClientError {
    fn from(error: CredentialsError) -> Self {
        match error {
            CredentialsError::Token(error) => Self::Token(error),
            CredentialsError::Files(error) => Self::Files(error),
        }
    }
}

/// The remedy if the scheme of the URI is the wrong one.
fn by_scheme(failure: &TlsFailure) -> &'static str {
    match failure {
        TlsFailure::Wanted => ": write ejfats:// in the EJFAT URI",
        TlsFailure::NotSpoken => ": write ejfat:// in the EJFAT URI",
        _ => "",
    }
}

/// Returns the message of a control plane, or a text for the cause if it is empty, or if this client knows the cause better.
fn refusal(said: &str, cause: Cause) -> impl fmt::Display {
    let without = match cause {
        Cause::NoToken => "it wants a token",
        Cause::UnknownToken => "the token is unknown",
        Cause::NoRight => "the token has no right to it",
        Cause::NotFound => "there is no such reservation or session",
        Cause::Taken => "it is taken",
        Cause::Busy => "it has no room",
        Cause::Invalid => "an argument is wrong",
        Cause::NotServed => "it does not have this call",
        Cause::Failed => "it failed",
    };
    // The peer chose these characters: a control character could write over other lines of a terminal.
    let text: String = said.chars().filter(|c| !c.is_control()).take(500).collect();
    if text.is_empty() || cause == Cause::UnknownToken { without.to_owned() } else { text }
}

/// Returns what the caller can do, unless the control plane has said so itself. Its texts have the remedy behind a semicolon, as ours.
fn remedy(said: &str, call: ApiCall, cause: Cause) -> String {
    if said.contains(';') && cause != Cause::UnknownToken {
        return String::new();
    }
    match cause {
        Cause::NoToken => "; put one into the EJFAT URI: ejfat://TOKEN@host:port/...".into(),
        Cause::UnknownToken => {
            "; it is mistyped, or it was revoked, or the reservation that it came with ended: get a new EJFAT URI".into()
        }
        Cause::NoRight => format!("; use a token {}", call.need().described()),
        Cause::NotFound => match call.need() {
            Need::Reservation(_) => "; it may have ended: get a new EJFAT URI".into(),
            Need::Session(_) => "; it may have ended".into(),
            _ => String::new(),
        },
        Cause::Taken => "; end the other one, or choose other ports".into(),
        Cause::Busy => "; try again later".into(),
        Cause::NotServed => "; is it a control plane of EJFAT, and recent enough?".into(),
        Cause::Failed => "; its log says more".into(),
        // The message of the control plane says which argument to change.
        Cause::Invalid => String::new(),
    }
}

impl ClientError {
    /// Returns the error for the status of a call. `failure` is the reason why TLS failed, if it did.
    pub(crate) fn of(address: &str, call: ApiCall, status: &Status, failure: Option<TlsFailure>) -> Self {
        let address = address.to_owned();
        if let Some(failure) = failure {
            return Self::Tls { address, failure };
        }
        // Only an error of the connection has a source: a status that the control plane sent has none.
        if status.source().is_some() {
            return Self::Unreachable { address, why: innermost(status) };
        }
        let cause = match status.code() {
            Code::Unauthenticated => Cause::NoToken,
            Code::PermissionDenied => Cause::NoRight,
            Code::NotFound => Cause::NotFound,
            Code::AlreadyExists => Cause::Taken,
            Code::ResourceExhausted | Code::Unavailable | Code::Aborted => Cause::Busy,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => Cause::Invalid,
            Code::Unimplemented => Cause::NotServed,
            _ => Cause::Failed,
        };
        Self::Refused { address, call, cause, said: status.message().to_owned() }
    }

    /// Returns the same refusal with another cause.
    pub(crate) fn caused(self, cause: Cause) -> Self {
        match self {
            Self::Refused { address, call, said, .. } => Self::Refused { address, call, cause, said },
            other => other,
        }
    }

    /// Returns the cause if the control plane refused the call.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Refused { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}
