//! The server: its threads and their runtime, the limit of connections, TLS.

use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener},
    thread::{self, JoinHandle},
    time::Duration,
};

use http_body_util::BodyExt as _;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{body::Body, transport};
use tower_service::Service;

use crate::{
    auth::BadToken,
    connections::{self, ConnectionLimits, InProgress, Requests},
    tls::{self, InForce, Reload, ServerTls, TlsError},
};

/// A connection ends if none of its requests was let in within this time.
const FIRST_REQUEST: Duration = Duration::from_secs(5);
/// How often the server pings a connection that sends nothing.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// The number of task steps after which a thread looks at its sockets again. A client can have dozens of requests in progress
/// on each of its connections. With tokio's default of 61 steps, the requests of other clients would wait for that many.
const SOCKETS_EACH: u32 = 1;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen at its address.
    #[error("cannot serve gRPC on {address}: {source}; {}", remedy(.source.kind()))]
    Bind {
        /// The address at which the server should listen.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system provided no thread, or no runtime, for the server.
    #[error("cannot start a thread for gRPC: {0}; raise the limits of processes and open files")]
    Thread(io::Error),
    /// The token that clients must show is not valid.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A file of certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "end the program that listens there, or give another port",
        io::ErrorKind::AddrNotAvailable => "give an address of this machine",
        io::ErrorKind::PermissionDenied => "give a port above 1023",
        _ => "give another address",
    }
}

/// Returns whether an address may connect.
pub type Permits = Box<dyn Fn(IpAddr) -> bool + Send>;

/// Limits, threads and TLS of a server.
pub struct GrpcServerConfig {
    /// The most connections at a time, of all source networks together.
    pub connections: usize,
    /// The most requests that are in progress on one connection at a time.
    pub streams: u32,
    /// Threads that serve requests. If there is more than one, another thread waits for the end of the server.
    pub threads: usize,
    /// Decides which addresses may connect. `None`: all of them.
    pub permits: Option<Permits>,
    /// Files of the server's certificate. `None`: connections are not encrypted.
    pub tls: Option<ServerTls>,
}

impl fmt::Debug for GrpcServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, streams, threads, permits, tls } = self;
        let mut shown = f.debug_struct("GrpcServerConfig");
        shown.field("connections", connections).field("streams", streams).field("threads", threads);
        shown.field("permits", &permits.is_some()).field("tls", tls).finish()
    }
}

/// A server that runs until it is dropped. Requests that are in progress are cut off then.
pub struct GrpcServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The HTTP response of a gRPC service.
pub type HttpResponse = http::Response<Body>;

/// Serves `service` at an address. Port 0 stands for any free port. Files of certificates are read again when they change, for
/// new connections. A changed file that cannot be used has no effect, and the log says so once.
///
/// `service` must call [`begin`] for each request that it lets in. A connection without one ends after five seconds.
///
/// # Errors
/// Fails if the address cannot be bound, a thread cannot be started, or a file of certificates cannot be used.
pub fn serve<S>(config: GrpcServerConfig, address: SocketAddr, service: S) -> Result<GrpcServer, ServeError>
where
    S: Service<http::Request<Body>, Response = HttpResponse, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let GrpcServerConfig { connections, streams, threads, permits, tls } = config;
    let tls = tls.map(tls::reload).transpose()?;
    let bind = |source| ServeError::Bind { address, source };
    let listener = TcpListener::bind(address).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    let mut builder = if threads > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().thread_name("grpc").event_interval(SOCKETS_EACH);
    if threads > 1 {
        builder.worker_threads(threads);
    }
    let runtime = builder.build().map_err(ServeError::Thread)?;
    let (stop, stopped) = oneshot::channel();
    let permits = permits.unwrap_or_else(|| Box::new(|_| true));
    let limits = ConnectionLimits { connections, request_timeout: FIRST_REQUEST, permits };
    let run = move || {
        run(&runtime, (listener, limits, streams), tls, service, stopped);
        // The end does not wait for a task that reads a certificate's file, because that may hang.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("grpc".into()).spawn(run).map_err(ServeError::Thread)?;
    Ok(GrpcServer { address: bound, stop: Some(stop), thread: Some(thread) })
}

fn run<S>(
    runtime: &Runtime,
    (listener, limits, streams): (TcpListener, ConnectionLimits, u32),
    tls: Option<(InForce, Reload)>,
    service: S,
    stopped: oneshot::Receiver<()>,
) where
    S: Service<http::Request<Body>, Response = HttpResponse, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    runtime.block_on(async {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("gRPC is not served: {error}"),
        };
        let (taken, connections) = mpsc::channel(1);
        tokio::spawn(connections::accept(listener, limits, taken));
        let server = transport::Server::builder()
            .max_concurrent_streams(streams)
            .http2_keepalive_interval(Some(KEEPALIVE));
        let serving = match tls {
            None => tokio::spawn(server.serve_with_incoming(service, ReceiverStream::new(connections))),
            Some((in_force, reload)) => {
                let (secured, connected) = mpsc::channel(1);
                tokio::spawn(reload.run());
                tokio::spawn(tls::handshakes(connections, in_force, secured));
                tokio::spawn(server.serve_with_incoming(service, ReceiverStream::new(connected)))
            }
        };
        let stop = serving.abort_handle();
        tokio::spawn(async move {
            // No message is ever sent. The channel closes when the server is to stop.
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

impl GrpcServer {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a message if the server has stopped by itself.
    pub fn ended(&self) -> Option<String> {
        let over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        over.then(|| format!("gRPC at {} ended; the log says why", self.address))
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for GrpcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Counts a request that is let in. The request is in progress until the returned value is dropped. A connection with requests in
/// progress does not have to make room for another one of its source network.
pub fn begin(request: &http::Request<Body>) -> Option<InProgress> {
    request.extensions().get::<Requests>().map(Requests::begin)
}

/// Keeps a request in progress until the body of its response is sent.
pub fn until_sent(body: Body, in_progress: Option<InProgress>) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _held = &in_progress;
        frame
    }))
}
