//! How a client connects to a data plane, whichever of its services it uses.

use std::{
    fmt, io,
    net::Ipv6Addr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Authority};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use tonic::{
    Code, Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use tower_service::Service;

use super::{
    auth::{BadToken, check_token},
    tls::{self, ClientTls, Failures, TlsError, TlsFailure, Watched},
};
use crate::message::MessageError;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0} is no address of a data plane; give HOST:PORT")]
    Address(String),
    #[error(transparent)]
    Token(#[from] BadToken),
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("cannot start what gRPC runs on: {0}; raise the limit of open files")]
    Runtime(io::Error),
    #[error("cannot reach the data plane at {address}: {why}; is it running, with gRPC on this port?")]
    Connect { address: String, why: String },
    #[error("cannot reach the data plane at {address}: {failure}")]
    Tls { address: String, failure: TlsFailure },
    #[error("the data plane at {address} refused: {}{}", .status.message(), remedy(.status))]
    Refused { address: String, status: Box<Status> },
    #[error(
        "the data plane at {address} answered what is not understood: {source}; are both of one version?"
    )]
    Answer { address: String, source: MessageError },
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

/// The token that a client shows with each request, and whether it connects over TLS.
#[derive(Clone, Default)]
pub struct Credentials {
    bearer: Bearer,
    tls: Option<Arc<ClientConfig>>,
}

impl Credentials {
    /// Reads the files of `tls`. Without it nothing is encrypted.
    ///
    /// # Errors
    /// If the token is none, or a file cannot be used.
    pub fn new(token: Option<&str>, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        Ok(Self { tls: tls.map(tls::client_config).transpose()?, ..Self::without_tls(token)? })
    }

    pub(super) fn without_tls(token: Option<&str>) -> Result<Self, BadToken> {
        token.map(check_token).transpose()?;
        let bearer = token.map(|token| format!("Bearer {token}").parse()).transpose();
        Ok(Self { bearer: Bearer(bearer.map_err(|_| BadToken::Characters)?), tls: None })
    }
}

impl Credentials {
    pub(super) fn bearer(&self) -> Bearer {
        self.bearer.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, tls) = (self.bearer.0.is_some(), self.tls.is_some());
        f.debug_struct("Credentials").field("token", &token).field("tls", &tls).finish()
    }
}

#[derive(Clone, Default)]
pub(super) struct Bearer(Option<AsciiMetadataValue>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// What the clients that are generated of a service make their calls by.
pub(super) type Calls = InterceptedService<Channel, Bearer>;

/// A connection to a data plane for a program that waits for answers. It connects again if it is lost.
pub(super) struct ServiceConnection {
    address: String,
    runtime: Runtime,
    calls: Calls,
    failures: Failures,
}

impl ServiceConnection {
    /// `address` is `HOST:PORT`; an IPv6 address as host is in brackets.
    pub(super) fn new(address: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let reach = Reach::new(address, credentials, AtEnd::Closed);
        let Reach { endpoint, connector } = reach.ok_or_else(|| ClientError::Address(address.to_owned()))?;
        let endpoint = endpoint.connect_timeout(CONNECT).timeout(ANSWER);
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
        let calls = InterceptedService::new(channel, credentials.bearer.clone());
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

/// `host` is of an address, so IPv6 addresses are in brackets.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ip) => ip.parse::<Ipv6Addr>().ok().map(|ip| ServerName::from(std::net::IpAddr::V6(ip))),
        None => ServerName::try_from(host.to_owned()).ok(),
    }
}

/// What becomes of a connection that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    Closed,
    /// The system forgets what it has not sent yet.
    Reset,
}

/// How one reaches a data plane.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) endpoint: Endpoint,
    pub(super) connector: Connector,
}

impl Reach {
    /// `None` if there is no such address.
    pub(super) fn new(address: &str, credentials: &Credentials, at_end: AtEnd) -> Option<Self> {
        let authority: Authority = address.parse().ok()?;
        authority.port_u16()?;
        let mut endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let tls = match &credentials.tls {
            None => None,
            Some(config) => {
                endpoint = endpoint.origin(format!("https://{address}").parse().ok()?);
                Some((config.clone().into(), server_name(authority.host())?))
            }
        };
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        Some(Self { endpoint, connector: Connector { tcp, tls, at_end, failures: Failures::default() } })
    }
}

/// Connects by TCP, then by TLS if that is wanted.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    at_end: AtEnd,
    pub(super) failures: Failures,
}

type Stream = TokioIo<Watched<Either<TcpStream, TlsStream<TcpStream>>>>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (tls, failures, tcp) = (self.tls.clone(), self.failures.clone(), self.tcp.call(to));
        let at_end = self.at_end;
        Box::pin(async move {
            let stream = tcp.await?.into_inner();
            if at_end == AtEnd::Reset {
                stream.set_zero_linger()?;
            }
            let (stream, is_plain) = match tls {
                None => (Either::Left(stream), true),
                Some((tls, name)) => {
                    let shaken = tls.connect(name, stream).await;
                    (Either::Right(shaken.inspect_err(|error| failures.note_handshake(error))?), false)
                }
            };
            Ok(TokioIo::new(Watched::new(stream, failures, is_plain)))
        })
    }
}

/// tonic's errors say only "transport error"; what they stem from says which.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
