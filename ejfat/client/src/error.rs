//! Errors of calls.

use std::{error::Error as _, fmt, io, time::Duration};

use ejfat_control::access::Need;
use naa_grpc::{BadToken, CredentialsError, TlsError, TlsFailure, innermost};
use tonic::{Code, Status};

use crate::ApiCall;

/// Why a control plane did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host and the port of the EJFAT URI cannot be used as the address of a control plane. The value is the text
    /// `HOST:PORT`, with brackets around an IPv6 address.
    #[error("{0} is no address of a control plane; correct host and port of the EJFAT URI")]
    Address(String),
    /// The token is empty, or has a character that an HTTP header cannot carry.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A file of certificates or of a private key cannot be used, or the operating system has no root certificates.
    /// This error occurs only if the scheme of the EJFAT URI is `ejfats`.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The asynchronous runtime or the thread of the connection cannot be started, or this thread has ended before the
    /// end of a call. The value is the error of the operating system, or an error that says that the thread ended.
    #[error("cannot start what gRPC runs on: {0}; raise the limits of processes and open files")]
    Runtime(io::Error),
    /// The connection to the control plane cannot be made, or was lost during the call.
    #[error(
        "the control plane at {address} cannot be reached: {why}; is it running, is the EJFAT URI right, and does no firewall \
         stand between?"
    )]
    Unreachable {
        /// The text `HOST:PORT` of the control plane.
        address: String,
        /// The innermost error of the connection, as text for people.
        why: String,
    },
    /// The time limit of the call passed before the control plane answered. The control plane may have executed the
    /// call.
    #[error("the control plane at {address} did not answer {} within {within:?}; try again", .call.name())]
    TooLate {
        /// The text `HOST:PORT` of the control plane.
        address: String,
        /// The call that was not answered.
        call: ApiCall,
        /// The time limit of the call: [`DEADLINE`](crate::DEADLINE), or 1 second for the calls that a registered
        /// [`Worker`](crate::Worker) makes by itself.
        within: Duration,
    },
    /// The client and the control plane cannot communicate because of TLS: only one side uses TLS, or one side does not
    /// accept the certificate of the other side, or the TLS connection failed for another reason.
    #[error("the control plane at {address} cannot be spoken to: {failure}{}", by_scheme(.failure))]
    Tls {
        /// The text `HOST:PORT` of the control plane.
        address: String,
        /// The reason why TLS failed.
        failure: TlsFailure,
    },
    /// The call ended with a gRPC status that is not OK, although the connection did not fail.
    #[error("the control plane at {address} refused {}: {}{}", .call.name(), refusal(.said, *.cause), remedy(.said, *.call, *.cause))]
    Refused {
        /// The text `HOST:PORT` of the control plane.
        address: String,
        /// The call that was refused.
        call: ApiCall,
        /// The cause of the refusal, which the client derives from the code of the gRPC status. If the
        /// control plane denies the permission, the client may make the call `Version`, to find out whether the control
        /// plane knows the token.
        cause: Cause,
        /// The message of the gRPC status, unchanged; empty if the status has no message. The `Display` text of the
        /// error contains no control characters and at most 500 characters of the message.
        said: String,
    },
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
