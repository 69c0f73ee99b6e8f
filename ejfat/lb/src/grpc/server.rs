//! The server: a thread and its runtime.

use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use http_body_util::BodyExt as _;
use proto::{
    lb::v1::tables_server::{self, TablesServer},
    sn_p4::v2::smartnic_p4_server::{self, SmartnicP4Server},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, body::Body, transport};
use tower_service::Service;

use super::{
    MOST_OF_TABLES,
    auth::{BadToken, Token},
    smartnic::Smartnic,
    tables::Tables,
    tls::{self, InForce, Reload, ServerTls, TlsError},
};
use crate::{
    Plane,
    connections::{self, InProgress, Limits, Requests},
};

/// Rules of all tables, with the names of tables and actions in each.
const MOST_OF_SMARTNIC: usize = 3 << 20;
/// Of a connection. With as many connections as there may be, requests take 400 MB: all from peers with the token.
const MOST_STREAMS: u32 = 4;

/// Connections at a time, of all sources together.
const SEATS: usize = 32;
/// Whoever has made no request by then that was let in loses its seat. Later on it is pinged.
const PATIENCE: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot serve gRPC on {address}: {source}; {}", remedy(.source.kind()))]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread for gRPC: {0}; raise the limits of processes and open files")]
    Thread(io::Error),
    #[error(transparent)]
    Token(#[from] BadToken),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "end the program that listens there, or give another port",
        io::ErrorKind::AddrNotAvailable => "give an address of this host",
        io::ErrorKind::PermissionDenied => "give a port above 1023",
        _ => "give another address",
    }
}

/// Serves until it is dropped. What is then under way is cut off: changes of tables are made whole or not at all.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Who may make requests.
#[derive(Default)]
pub struct Callers {
    /// What requests must have in the header `authorization: Bearer TOKEN`, if anything.
    pub token: Option<String>,
    /// Connections from other addresses are ended at once. `None`: they may come from anywhere.
    pub permits: Option<Box<dyn Fn(IpAddr) -> bool + Send>>,
    /// They must speak TLS, and see this certificate. `None`: nothing is encrypted.
    pub tls: Option<ServerTls>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, permits) = (self.token.is_some(), self.permits.is_some());
        let mut shown = f.debug_struct("Callers");
        shown.field("token", &token).field("permits", &permits).field("tls", &self.tls).finish()
    }
}

/// Serves a data plane's tables to whoever has the token, or to everybody.
///
/// # Errors
/// As [`serve_to`].
pub fn serve(address: SocketAddr, plane: Arc<Plane>, token: Option<String>) -> Result<Server, ServeError> {
    serve_to(Callers { token, ..Callers::default() }, address, plane)
}

/// Serves a data plane's tables to some callers. Port 0 stands for any that is free. Files of certificates are read again
/// when they change, for new connections; one that cannot be used then changes nothing, and the log says so once.
///
/// # Errors
/// If the address cannot be bound, there is no thread, the token is none, or a file of certificates cannot be used.
pub fn serve_to(callers: Callers, address: SocketAddr, plane: Arc<Plane>) -> Result<Server, ServeError> {
    let Callers { token, permits, tls } = callers;
    let tls = tls.map(tls::reload).transpose()?;
    let services = Services::new(plane, Token::new(token)?);
    let bind = |source| ServeError::Bind { address, source };
    let listener = TcpListener::bind(address).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
    let (stop, stopped) = oneshot::channel();
    let permits = permits.unwrap_or_else(|| Box::new(|_| true));
    let limits = Limits { seats: SEATS, patience: PATIENCE, permits };
    let run = move || {
        run(&runtime, listener, limits, tls, services, stopped);
        // Reading a certificate may take for ever, which is not to hold up the end.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("grpc".into()).spawn(run).map_err(ServeError::Thread)?;
    Ok(Server { address: bound, stop: Some(stop), thread: Some(thread) })
}

fn run(
    runtime: &Runtime,
    listener: TcpListener,
    limits: Limits,
    tls: Option<(InForce, Reload)>,
    services: Services,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("gRPC is not served: {error}"),
        };
        let (taken, connections) = mpsc::channel(1);
        tokio::spawn(connections::accept(listener, limits, taken));
        let server = transport::Server::builder()
            .max_concurrent_streams(MOST_STREAMS)
            .http2_keepalive_interval(Some(KEEPALIVE));
        let serving = match tls {
            None => tokio::spawn(server.serve_with_incoming(services, ReceiverStream::new(connections))),
            Some((in_force, reload)) => {
                let (secured, connected) = mpsc::channel(1);
                tokio::spawn(reload.run());
                tokio::spawn(tls::handshakes(connections, in_force, secured));
                tokio::spawn(server.serve_with_incoming(services, ReceiverStream::new(connected)))
            }
        };
        let stop = serving.abort_handle();
        tokio::spawn(async move {
            // No message comes; the end of the channel tells that the server is to stop.
            let _ = stopped.await;
            stop.abort();
        });
        match serving.await {
            Err(error) if error.is_cancelled() => {}
            Ok(Err(error)) => tracing::error!("gRPC is not served any more: {error}"),
            Ok(Ok(())) | Err(_) => tracing::error!("gRPC is not served any more"),
        }
    });
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A message if the server stopped by itself.
    pub fn ended(&self) -> Option<String> {
        let over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        over.then(|| format!("gRPC at {} ended; the log says why", self.address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Who panicked there has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The service that a request is for.
#[derive(Clone)]
struct Services {
    token: Token,
    tables: TablesServer<Tables>,
    smartnic: SmartnicP4Server<Smartnic>,
}

impl Services {
    fn new(plane: Arc<Plane>, token: Token) -> Self {
        let tables = TablesServer::new(Tables::new(plane.clone()));
        let smartnic = SmartnicP4Server::new(Smartnic::new(plane));
        Self {
            token,
            tables: tables.max_decoding_message_size(MOST_OF_TABLES),
            smartnic: smartnic.max_decoding_message_size(MOST_OF_SMARTNIC),
        }
    }
}

type Answer = http::Response<Body>;

impl Service<http::Request<Body>> for Services {
    type Response = Answer;
    type Error = Infallible;
    type Future = tonic::codegen::BoxFuture<Answer, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if let Err(refused) = self.token.check(request.headers()) {
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        }
        // The connection counts as busy until the answer is sent.
        let in_progress = request.extensions().get::<Requests>().map(Requests::begin);
        let answer = self.answer(request);
        Box::pin(async { Ok(answer.await?.map(|body| until_sent(body, in_progress))) })
    }
}

fn until_sent(body: Body, in_progress: Option<InProgress>) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _held = &in_progress;
        frame
    }))
}

impl Services {
    fn answer(&mut self, request: http::Request<Body>) -> tonic::codegen::BoxFuture<Answer, Infallible> {
        let mut path = request.uri().path().split('/').skip(1);
        match path.next() {
            Some(tables_server::SERVICE_NAME) => self.tables.call(request),
            Some(smartnic_p4_server::SERVICE_NAME) => self.smartnic.call(request),
            _ => {
                let unknown = Status::unimplemented(format!(
                    "no such service; there are {} and {}",
                    tables_server::SERVICE_NAME,
                    smartnic_p4_server::SERVICE_NAME
                ));
                Box::pin(std::future::ready(Ok(unknown.into_http())))
            }
        }
    }
}
