//! A connection to a data plane, for clients that wait for answers.

use std::{io, time::Duration};

use naa_grpc::{
    AtEnd, BadToken, CONNECT, Calls, Credentials, CredentialsError, Failures, Reach, TlsError, TlsFailure,
    innermost,
};
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status, service::interceptor::InterceptedService};

use crate::message::MessageError;

/// The longest time that an answer may take, unless a client gives another limit.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The text is not an address of the form HOST:PORT.
    #[error("{0} is no address of a data plane; give HOST:PORT")]
    Address(String),
    /// The token is not valid.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A file of certificates or keys cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The operating system did not provide the descriptors that the gRPC runtime needs.
    #[error("cannot start what gRPC runs on: {0}; raise the limit of open files")]
    Runtime(io::Error),
    /// The client cannot connect to the data plane.
    #[error("cannot reach the data plane at {address}: {why}; is it running, with gRPC on this port?")]
    Connect {
        /// The address of the data plane.
        address: String,
        /// The error of the connection, as text for people.
        why: String,
    },
    /// The TLS connection to the data plane failed.
    #[error("cannot reach the data plane at {address}: {failure}")]
    Tls {
        /// The address of the data plane.
        address: String,
        /// The cause of the failure.
        failure: TlsFailure,
    },
    /// The data plane refused the call, or did not reply in time.
    #[error("the data plane at {address} refused: {}{}", .status.message(), remedy(.status))]
    Refused {
        /// The address of the data plane.
        address: String,
        /// The status of the gRPC call.
        status: Box<Status>,
    },
    /// The reply of the data plane has a field that is not valid.
    #[error(
        "the data plane at {address} answered what is not understood: {source}; are both of one version?"
    )]
    Answer {
        /// The address of the data plane.
        address: String,
        /// The field, and its fault.
        source: MessageError,
    },
}

impl From<CredentialsError> for ClientError {
    fn from(error: CredentialsError) -> Self {
        match error {
            CredentialsError::Token(error) => Self::Token(error),
            CredentialsError::Files(error) => Self::Files(error),
        }
    }
}

impl ClientError {
    /// The address of the data plane, if it refused because the token was missing or wrong.
    pub fn wants_token(&self) -> Option<&str> {
        match self {
            Self::Refused { address, status } if status.code() == Code::Unauthenticated => Some(address),
            _ => None,
        }
    }
}

fn remedy(status: &Status) -> &'static str {
    match status.code() {
        Code::Unimplemented => "; does it serve its tables on this port?",
        Code::DeadlineExceeded | Code::Cancelled => "; it took too long, try again",
        Code::Unavailable => "; it went away, try again",
        _ => "",
    }
}

/// A connection to a data plane for a program that waits for answers. It connects again if it is lost.
pub(super) struct ServiceConnection {
    address: String,
    runtime: Runtime,
    calls: Calls,
    failures: Failures,
}

impl ServiceConnection {
    /// `address` is `HOST:PORT`; an IPv6 address as host is in brackets.
    pub(super) fn new(
        address: &str,
        credentials: &Credentials,
        deadline: Duration,
    ) -> Result<Self, ClientError> {
        let reach = Reach::new(address, credentials, AtEnd::Closed);
        let Reach { endpoint, connector } = reach.ok_or_else(|| ClientError::Address(address.to_owned()))?;
        let endpoint = endpoint.connect_timeout(CONNECT.min(deadline)).timeout(deadline);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Runtime)?;
        let failures = connector.failures.clone();
        let channel = runtime.block_on(endpoint.connect_with_connector(connector));
        let channel = channel.map_err(|error| {
            let address = address.to_owned();
            match failures.take() {
                Some(failure) => ClientError::Tls { address, failure },
                None => ClientError::Connect { address, why: innermost(&error) },
            }
        })?;
        let calls = InterceptedService::new(channel, credentials.bearer());
        Ok(Self { address: address.to_owned(), runtime, calls, failures })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// Waits for the answer of a call.
    pub(super) fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        self.failures.take();
        let answer = self.runtime.block_on(call);
        answer.map(tonic::Response::into_inner).map_err(|status| {
            let address = self.address.clone();
            match self.failures.take() {
                Some(failure) => ClientError::Tls { address, failure },
                None => ClientError::Refused { address, status: Box::new(status) },
            }
        })
    }
}
