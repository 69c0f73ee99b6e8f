//! How a client connects to a server: over TCP, with or without TLS, and with a token in each request.

use std::{
    fmt,
    net::Ipv6Addr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Authority};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use tonic::{
    Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use tower_service::Service;

use crate::{
    auth::{BadToken, check_token},
    tls::{self, ClientTls, Failures, TlsError, Watched},
};

/// The longest time that a client may take to connect.
pub const CONNECT: Duration = Duration::from_secs(5);

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The token is not valid.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A file of certificates or keys cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
}

/// The token that a client shows with each request, and whether it connects over TLS.
#[derive(Clone, Default)]
pub struct Credentials {
    bearer: Bearer,
    tls: Option<Arc<ClientConfig>>,
}

impl Credentials {
    /// Reads the files of `tls`. If `tls` is `None`, the connection is not encrypted.
    ///
    /// # Errors
    /// Fails if the token is not valid, or if a file of `tls` cannot be used.
    pub fn new(token: Option<&str>, tls: Option<&ClientTls>) -> Result<Self, CredentialsError> {
        Ok(Self { tls: tls.map(tls::client_config).transpose()?, ..Self::without_tls(token)? })
    }

    /// Credentials for connections that are not encrypted.
    ///
    /// # Errors
    /// Fails if the token is not valid.
    pub fn without_tls(token: Option<&str>) -> Result<Self, BadToken> {
        token.map(check_token).transpose()?;
        let bearer = token.map(|token| format!("Bearer {token}").parse()).transpose();
        Ok(Self { bearer: Bearer(bearer.map_err(|_| BadToken::Characters)?), tls: None })
    }

    /// The interceptor that adds the token to each request.
    pub fn bearer(&self) -> Bearer {
        self.bearer.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, tls) = (self.bearer.0.is_some(), self.tls.is_some());
        f.debug_struct("Credentials").field("token", &token).field("tls", &tls).finish()
    }
}

/// An interceptor that adds the token, if there is one, to each request.
#[derive(Clone, Default)]
pub struct Bearer(Option<AsciiMetadataValue>);

/// Shows whether there is a token, but not its text.
impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bearer").field(&self.0.is_some()).finish()
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// The channel that generated clients make their calls on. It adds the token to each call.
pub type Calls = InterceptedService<Channel, Bearer>;

/// The name that the server's certificate must have. `host` is the host of an address, so an IPv6 address is in brackets.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ip) => ip.parse::<Ipv6Addr>().ok().map(|ip| ServerName::from(std::net::IpAddr::V6(ip))),
        None => ServerName::try_from(host.to_owned()).ok(),
    }
}

/// What happens to the TCP connection when the client drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It is closed, and the system still sends the bytes that wait.
    Closed,
    /// It is reset, and the system discards the bytes that wait.
    Reset,
}

/// The endpoint and the connector with which a client connects to one server.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The address of the server, from which tonic makes a channel.
    pub endpoint: Endpoint,
    /// The connector, which makes the connections of the channel.
    pub connector: Connector,
}

impl Reach {
    /// `address` is `HOST:PORT`; an IPv6 address as host is in brackets. Returns `None` if `address` has another form.
    pub fn new(address: &str, credentials: &Credentials, at_end: AtEnd) -> Option<Self> {
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

/// Connects over TCP, and then makes the TLS handshake if the credentials have TLS.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    at_end: AtEnd,
    /// The record of the last TLS failure of this connector's connections.
    pub failures: Failures,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tls, at_end) = (self.tls.is_some(), self.at_end);
        f.debug_struct("Connector").field("tls", &tls).field("at_end", &at_end).finish_non_exhaustive()
    }
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

/// The text of the innermost source of an error. tonic's own errors say only "transport error".
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
