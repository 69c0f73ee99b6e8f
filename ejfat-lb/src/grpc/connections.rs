//! Connections, no more than there are seats.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
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

/// Bytes of HTTP/2's preface and of the first frame's header.
const GREETING: usize = 24 + 9;

/// Whoever has not sent them by then loses its seat. Later on it is pinged.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection and its seat.
pub(super) struct Connection {
    stream: TcpStream,
    _seat: OwnedSemaphorePermit,
    /// What is still to come of the greeting, and until when.
    greeting: Option<(usize, Pin<Box<Sleep>>)>,
}

impl Connection {
    fn new(stream: TcpStream, seat: OwnedSemaphorePermit) -> Self {
        Self { stream, _seat: seat, greeting: Some((GREETING, Box::pin(sleep(PATIENCE)))) }
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
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, greeting, .. } = &mut *self;
        if greeting.as_mut().is_some_and(|(_, until)| until.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        ready!(Pin::new(stream).poll_read(context, into))?;
        let read = into.filled().len() - before;
        *greeting =
            greeting.take().filter(|(left, _)| *left > read).map(|(left, until)| (left - read, until));
        Poll::Ready(Ok(()))
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
