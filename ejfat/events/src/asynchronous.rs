//! Events for programs on tokio (feature `tokio`).

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use naa_host::asynchronous::Readiness;
use tokio::runtime::Handle;

use crate::{BridgeAddress, Config, Error, Event, Worker, WorkerCounters};

/// The events of a bridge, as a [`Stream`].
///
/// An [`Event`] is released when it is dropped, in any order and by any task. An event that is not dropped keeps its slots,
/// so a program that keeps events slows the bridge down, and it cannot have more events than the ring holds. The stream ends
/// after its first error. Dropping the stream ends the subscription; events outlive it.
///
/// The stream can be dropped at any `await`: an event that it has not returned is not lost, but still in the worker.
///
/// ```no_run
/// use naa_events::{Config, asynchronous::Events};
/// use tokio_stream::StreamExt as _;
///
/// # async fn example() -> Result<(), naa_events::Error> {
/// let mut events = Events::open(&"192.0.2.7".parse()?, &Config::default()).await?;
/// while let Some(event) = events.next().await {
///     println!("{:?}", event?.descriptor().name);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    ready: Readiness,
    /// `None` only while the stream is dropped or taken apart.
    worker: Option<Worker>,
    /// True if the worker was tested since the last event, so that its file descriptor is armed.
    tested: bool,
    is_over: bool,
}

impl Events {
    /// Connects to a bridge and subscribes to its events. Connecting waits, so it is done on a thread that the runtime has
    /// for blocking work.
    ///
    /// # Errors
    /// Fails with the errors of [`Worker::open`].
    ///
    /// # Panics
    /// Panics outside of a runtime of tokio, and in a runtime that was built without `enable_io`.
    pub async fn open(source: &BridgeAddress, config: &Config) -> Result<Self, Error> {
        let (source, config) = (source.clone(), config.clone());
        match tokio::task::spawn_blocking(move || Worker::open(&source, &config)).await {
            Ok(worker) => Self::of(worker?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => {
                let source = std::io::Error::other(error);
                Err(Error::Machine { what: "the runtime shuts down", source })
            }
        }
    }

    /// Makes a stream of a worker's events.
    ///
    /// # Errors
    /// Fails with [`Error::Machine`] or [`Error::Session`] if no file descriptor can be made or watched.
    ///
    /// # Panics
    /// Panics in the same cases as [`open`](Self::open).
    pub fn of(mut worker: Worker) -> Result<Self, Error> {
        let ready = Readiness::new(worker.shared_descriptor()?)?;
        Ok(Self { ready, worker: Some(worker), tested: false, is_over: false })
    }

    /// Returns the worker, with which a program can block.
    pub fn into_worker(mut self) -> Worker {
        self.worker.take().expect("only `drop` and this method take the worker")
    }

    /// Returns the counters since the worker was opened.
    pub fn stats(&self) -> WorkerCounters {
        self.worker.as_ref().map(Worker::stats).unwrap_or_default()
    }
}

impl Stream for Events {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { ready, worker, tested, is_over } = &mut *self;
        let Some(worker) = worker.as_mut().filter(|_| !*is_over) else { return Poll::Ready(None) };
        let next = ready!(ready.poll(context, tested, || worker.try_next()));
        *tested = false;
        *is_over = next.is_err();
        Poll::Ready(Some(next))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Ending a subscription waits for what is under way.
        if let (Some(worker), Ok(runtime)) = (self.worker.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(worker));
        }
    }
}
