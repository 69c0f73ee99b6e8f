//! TCP connections of a server: their number is limited, and shared fairly among source networks.
//!
//! A newcomer is never left waiting behind others. At the limit, a connection of the source network with most of them
//! is ended for it, or the newcomer itself is, as [`verbs::admission`] decides.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;
use verbs::admission::{Activity, Admission, AdmissionDecision};

use crate::stream::write_to;

/// How long [`accept`] waits after it failed to accept: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// What a server takes.
pub struct ConnectionLimits {
    /// Connections at a time.
    pub connections: usize,
    /// A connection without a request that was let in ends after this time.
    pub request_timeout: Duration,
    /// Connections from other addresses are ended at once.
    pub permits: Box<dyn Fn(IpAddr) -> bool + Send>,
}

impl fmt::Debug for ConnectionLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, request_timeout, .. } = self;
        let mut shown = f.debug_struct("ConnectionLimits");
        shown.field("connections", connections).field("request_timeout", request_timeout);
        shown.finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct AdmittedTable {
    admission: Admission<u64>,
    connections: BTreeMap<u64, AdmittedConnection>,
    next: u64,
}

#[derive(Debug)]
struct AdmittedConnection {
    /// Notifies the connection that it has to end for another one.
    lost: oneshot::Sender<()>,
    requests: u32,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<AdmittedTable>>);

impl Shared {
    fn table(&self) -> MutexGuard<'_, AdmittedTable> {
        // If another thread panicked while it held the lock, the table is still whole: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the newcomer is refused.
    fn admit(&self, most: usize, from: IpAddr) -> Option<(AdmissionGuard, oneshot::Receiver<()>)> {
        let mut table = self.table();
        match table.admission.decide(most, from.into()) {
            AdmissionDecision::Admit => {}
            AdmissionDecision::InPlaceOf(key) => {
                table.admission.leave(key);
                if let Some(admitted) = table.connections.remove(&key) {
                    // Nobody receives this if the connection has ended already.
                    let _ = admitted.lost.send(());
                }
            }
            AdmissionDecision::Refuse => return None,
        }
        let key = table.next;
        table.next += 1;
        let (lost, is_lost) = oneshot::channel();
        table.admission.admit(key, from.into());
        table.connections.insert(key, AdmittedConnection { lost, requests: 0 });
        Some((AdmissionGuard { key, shared: self.clone() }, is_lost))
    }

    fn count(&self, key: u64, change: impl FnOnce(u32) -> u32) {
        let table = &mut *self.table();
        if let Some(admitted) = table.connections.get_mut(&key) {
            admitted.requests = change(admitted.requests);
            let activity = if admitted.requests > 0 { Activity::Busy } else { Activity::Idle };
            table.admission.set(key, activity);
        }
    }
}

/// The admission of a connection, which ends when this is dropped.
#[derive(Debug)]
struct AdmissionGuard {
    key: u64,
    shared: Shared,
}

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.admission.leave(self.key);
        table.connections.remove(&self.key);
    }
}

/// Counts the requests of a connection that were let in.
#[derive(Clone, Debug)]
pub struct Requests {
    key: u64,
    peer: Option<IpAddr>,
    shared: Shared,
    any: Arc<AtomicBool>,
}

impl Requests {
    /// The IP address of the peer. `None` if the connection had ended when the server took it over.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Ends the connection if none of its requests was let in yet.
    pub fn end_stranger(&self) {
        if !self.any.load(Relaxed) {
            self.end();
        }
    }

    /// Ends the connection, also if requests of it are in progress.
    pub fn end(&self) {
        let mut table = self.shared.table();
        table.admission.leave(self.key);
        if let Some(admitted) = table.connections.remove(&self.key) {
            // Nobody receives this if the connection has ended already.
            let _ = admitted.lost.send(());
        }
    }

    /// A request is let in. It is in progress until what this returns is dropped.
    pub fn begin(&self) -> InProgress {
        self.any.store(true, Relaxed);
        self.shared.count(self.key, |requests| requests + 1);
        InProgress(self.clone())
    }
}

/// A request is in progress.
#[derive(Debug)]
pub struct InProgress(Requests);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.shared.count(self.0.key, |requests| requests - 1);
    }
}

/// A connection that was admitted. It fails once it has to end for another one, or its time is over.
#[derive(Debug)]
pub struct TcpConnection {
    stream: TcpStream,
    guard: AdmissionGuard,
    lost: Option<oneshot::Receiver<()>>,
    any_request: Arc<AtomicBool>,
    /// The time at which a connection without a request ends.
    until: Option<Pin<Box<Sleep>>>,
}

impl TcpConnection {
    /// Counts the connection's requests.
    pub fn requests(&self) -> Requests {
        let AdmissionGuard { key, shared } = &self.guard;
        let peer = self.stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
        Requests { key: *key, peer, shared: shared.clone(), any: self.any_request.clone() }
    }

    /// The address of the connection's peer, for the log.
    pub fn peer(&self) -> String {
        self.stream.peer_addr().map_or_else(|error| format!("a peer ({error})"), |peer| peer.to_string())
    }

    /// Ends the connection if its time is up. Called whenever something is read or written, so that a peer that takes
    /// no responses cannot delay the end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // A receiver that was ready once must not be polled again.
        let lost = self.lost.as_mut().is_none_or(|lost| Pin::new(lost).poll(context).is_ready());
        if lost {
            self.lost = None;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its seat went to another source"));
        }
        if self.any_request.load(Relaxed) {
            self.until = None;
        }
        let late = |until: &mut Pin<Box<Sleep>>| until.as_mut().poll(context).is_ready();
        if self.until.as_mut().is_some_and(late) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Accepts connections until nobody takes them any more.
pub async fn accept(
    listener: TcpListener,
    limits: ConnectionLimits,
    taken: mpsc::Sender<io::Result<TcpConnection>>,
) {
    let (shared, mut logged) = (Shared::default(), false);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // This is reported once, until a connection is accepted again.
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!("cannot accept a connection: {error}; raise the limit of open files");
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        logged = false;
        if !(limits.permits)(from.ip()) {
            tracing::debug!("{from} is not allowed to connect");
            continue;
        }
        let Some((guard, lost)) = shared.admit(limits.connections, from.ip()) else {
            tracing::debug!(
                "{from} finds no seat: its source has most of them, all with requests in progress"
            );
            continue;
        };
        // A connection that is broken already fails when it is read.
        let _ = stream.set_nodelay(true);
        let until = Some(Box::pin(sleep(limits.request_timeout)));
        let (lost, any_request) = (Some(lost), Arc::default());
        let connection = TcpConnection { stream, guard, lost, any_request, until };
        if taken.send(Ok(connection)).await.is_err() {
            return;
        }
    }
}

impl Connected for TcpConnection {
    type ConnectInfo = Requests;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.requests()
    }
}

impl AsyncRead for TcpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for TcpConnection {
    write_to!(stream after check);
}
