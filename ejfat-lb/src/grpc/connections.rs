//! Connections, no more than there are seats.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;

/// Further ones wait in the listener's backlog.
const MOST: usize = 32;

/// Until one that failed to be accepted is tried again: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Whoever has made no request by then that was let in loses its seat. Later on it is pinged.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request of a connection was let in.
#[derive(Clone, Debug, Default)]
pub(super) struct LetIn(Arc<AtomicBool>);

impl LetIn {
    pub(super) fn tell(&self) {
        self.0.store(true, Relaxed);
    }
}

/// A connection and its seat.
pub(super) struct Connection {
    stream: TcpStream,
    _seat: OwnedSemaphorePermit,
    let_in: LetIn,
    /// Until when it waits for that.
    until: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(stream: TcpStream, seat: OwnedSemaphorePermit) -> Self {
        let until = Some(Box::pin(sleep(PATIENCE)));
        Self { stream, _seat: seat, let_in: LetIn::default(), until }
    }
}

/// Accepts connections until nobody takes them any more.
pub(super) async fn accept(listener: TcpListener, taken: mpsc::Sender<io::Result<Connection>>) {
    let seats = Arc::new(Semaphore::new(MOST));
    while let Ok(seat) = seats.clone().acquire_owned().await {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(PAUSE).await;
                }
            }
        };
        // One that is broken already is found so when it is read.
        let _ = stream.set_nodelay(true);
        if taken.send(Ok(Connection::new(stream, seat))).await.is_err() {
            return;
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = LetIn;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.let_in.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, let_in, until, .. } = &mut *self;
        if let_in.0.load(Relaxed) {
            *until = None;
        }
        if until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
