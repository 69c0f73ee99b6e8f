//! What a program calls.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ejfat::ring::SubscribeResponse;

use crate::{
    BridgeAddress, Config, Error, Event,
    connection::{BridgeConnection, SubscriptionEnd},
    notifier::{EpollSet, Notifier},
    reconnect::{ReconnectTask, Reconnection},
};

/// Counters of a [`Worker`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// The number of events that arrived.
    pub events: u64,
    /// The sum of the lengths of the events that arrived, in bytes.
    pub bytes: u64,
    /// The number of events that were delivered again, because another worker had them before.
    pub again: u64,
    /// The number of times that the worker connected again after the bridge had ended.
    pub reconnects: u64,
    /// The number of events that the program has not released.
    pub held: u64,
}

/// A subscription to a bridge's events. It may be moved to another thread; [`Event`]s may be used and dropped on any.
///
/// Dropping it ends the subscription. Events outlive it.
#[derive(Debug)]
pub struct Worker {
    source: BridgeAddress,
    config: Config,
    state: State,
    /// The bridge's answer to the newest subscription.
    answer: SubscribeResponse,
    counters: WorkerCounters,
    held: Arc<AtomicU64>,
    notifier: Arc<Notifier>,
    /// The file descriptor for programs that poll, made when the program first asks for it.
    descriptor: Option<EpollSet>,
    /// The thread that closes the connection of a subscription that is over.
    closing: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum State {
    Up(Box<BridgeConnection>),
    /// The bridge is gone.
    Reconnecting(Reconnection),
    /// The subscription is over for ever, with the reason.
    Over(String),
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// Wait until this time; `None`: without limit.
    Wait(Option<Instant>),
    Test,
}

impl Worker {
    /// Connects to a bridge and subscribes to its events.
    ///
    /// # Errors
    /// Fails with [`Error::Session`] or [`Error::Local`] if the bridge cannot be reached or a region cannot be allocated,
    /// with [`Error::Refused`] if the bridge refuses the subscription, and with [`Error::NoAnswer`] or [`Error::Files`] if
    /// the peer is not a bridge of a supported version.
    pub fn open(source: &BridgeAddress, config: &Config) -> Result<Self, Error> {
        Self::open_within(source, config, config.session.setup_timeout)
    }

    /// Opens a worker like [`Worker::open`], but connecting may take up to `limit`. Reconnecting later has the limit of
    /// `config`.
    ///
    /// # Errors
    /// Fails with the errors of [`Worker::open`].
    pub fn open_within(source: &BridgeAddress, config: &Config, limit: Duration) -> Result<Self, Error> {
        let held = Arc::default();
        let connection = BridgeConnection::open(source, config, limit, &held)?;
        let notifier = Notifier::new().map_err(|e| machine("cannot create an eventfd", e))?;
        let answer = connection.answer;
        tracing::info!(bridge = %source, worker = answer.worker, placing = answer.placing.name(), "subscribed");
        Ok(Self {
            source: source.clone(),
            config: config.clone(),
            state: State::Up(Box::new(connection)),
            answer,
            counters: WorkerCounters::default(),
            held,
            notifier: Arc::new(notifier),
            descriptor: None,
            closing: None,
        })
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Fails with [`Error::BridgeGone`] if the bridge ended and the worker could not connect again in time, with
    /// [`Error::Refused`] if a bridge that was started again refuses the subscription, and with [`Error::Protocol`] if the
    /// bridge breaks the protocol. Fails with [`Error::Session`] or [`Error::Machine`] if another problem ends the
    /// subscription, and with [`Error::Over`] if an earlier error has ended the subscription.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: it has errors, and no end")]
    pub fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.next_until(None)? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, and returns `None` if no event came before `deadline`.
    ///
    /// # Errors
    /// Fails with the errors of [`next`](Self::next).
    pub fn next_until(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.step(How::Wait(deadline))? {
                return Ok(Some(event));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    /// Returns the next event, or `None` if no event has arrived. The call does not wait: after an error, a thread closes the
    /// connection. Only if no thread can be started, the call closes the connection itself, for up to half a second.
    ///
    /// # Errors
    /// Fails with the errors of [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<Event>, Error> {
        self.notifier.clear();
        self.step(How::Test)
    }

    fn step(&mut self, how: How) -> Result<Option<Event>, Error> {
        loop {
            let end = match &mut self.state {
                State::Up(connection) => match next(connection, how) {
                    Ok(Some(event)) => {
                        self.counters.events += 1;
                        self.counters.bytes += u64::from(event.descriptor().length);
                        self.counters.again += u64::from(event.delivered_again());
                        return Ok(Some(event));
                    }
                    Ok(None) => return Ok(None),
                    Err(end) => end,
                },
                State::Reconnecting(reconnection) => {
                    let found = match how {
                        How::Wait(until) => reconnection.wait(until),
                        How::Test => reconnection.look(),
                    };
                    match found {
                        None => return Ok(None),
                        Some(Ok(connection)) => {
                            self.reconnected(connection, how)?;
                            continue;
                        }
                        Some(Err(error)) => SubscriptionEnd::Error(error),
                    }
                }
                State::Over(why) => {
                    let (bridge, why) = (self.source.to_string(), why.clone());
                    return Err(Error::Over { bridge, why });
                }
            };
            self.end(end, how)?;
        }
    }

    /// Looks for a bridge that is gone, if it is to be looked for; else the subscription is over.
    fn end(&mut self, end: SubscriptionEnd, how: How) -> Result<(), Error> {
        if let (Some(set), State::Up(connection)) = (&self.descriptor, &mut self.state)
            && let Ok(fd) = connection.descriptor()
        {
            set.remove(fd);
        }
        let former = match std::mem::replace(&mut self.state, State::Over(String::new())) {
            State::Up(connection) => Some(connection),
            State::Reconnecting(_) | State::Over(_) => None,
        };
        let bridge = self.source.to_string();
        let error = match (end, self.config.reconnect) {
            (SubscriptionEnd::Gone(why), Some(limit)) => {
                tracing::warn!(%bridge, %why, "lost the bridge; looking for it");
                let (source, config, held) = (self.source.clone(), self.config.clone(), self.held.clone());
                let task = ReconnectTask { former, source, config, held, why, limit };
                match Reconnection::start(task, self.notifier.clone()) {
                    Ok(reconnection) => {
                        self.state = State::Reconnecting(reconnection);
                        return Ok(());
                    }
                    Err(error) => machine("cannot start a thread to look for the bridge", error),
                }
            }
            (SubscriptionEnd::Gone(why), None) => {
                self.close(former, how);
                Error::BridgeGone { bridge, why, tried: None, last: String::new() }
            }
            (SubscriptionEnd::Error(error), _) => {
                self.close(former, how);
                error
            }
        };
        self.state = State::Over(error.to_string());
        Err(error)
    }

    fn reconnected(&mut self, mut connection: Box<BridgeConnection>, how: How) -> Result<(), Error> {
        self.answer = connection.answer;
        self.counters.reconnects += 1;
        tracing::info!(bridge = %self.source, worker = self.answer.worker, "the bridge is back");
        if let Some(set) = &self.descriptor {
            let watched = connection
                .descriptor()
                .and_then(|fd| set.add(fd).map_err(|e| machine("cannot watch a descriptor", e)));
            if let Err(error) = watched {
                self.state = State::Over(error.to_string());
                self.close(Some(connection), how);
                return Err(error);
            }
        }
        self.state = State::Up(connection);
        Ok(())
    }

    /// Closes the connection of a subscription that is over. This takes up to half a second, because the bridge is waited
    /// for. If the caller does not wait, a thread closes the connection, and dropping the worker waits for the thread.
    fn close(&mut self, connection: Option<Box<BridgeConnection>>, how: How) {
        let Some(connection) = connection else { return };
        match how {
            How::Wait(_) => drop(connection),
            How::Test => {
                let thread = std::thread::Builder::new().name("naa-events".to_owned());
                match thread.spawn(move || drop(connection)) {
                    Ok(thread) => self.closing = Some(thread),
                    Err(error) => {
                        tracing::debug!(%error, "no thread closes the connection, so it was closed at once");
                    }
                }
            }
        }
    }

    /// A descriptor that becomes readable when [`try_next`](Self::try_next) is to be called, after it gave nothing: for
    /// event loops. Call it until it gives nothing. Nothing is to be read from the descriptor, which serves as long as the
    /// worker, whatever becomes of the bridge.
    ///
    /// # Errors
    /// Fails with [`Error::Machine`] or [`Error::Session`] if no file descriptor can be made or watched.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        self.epoll_set().map(EpollSet::as_fd)
    }

    /// Returns the same file descriptor as [`descriptor`](Self::descriptor), and keeps it open beyond the worker.
    #[cfg(feature = "tokio")]
    pub(crate) fn shared_descriptor(&mut self) -> Result<Arc<std::os::fd::OwnedFd>, Error> {
        self.epoll_set().map(EpollSet::shared)
    }

    fn epoll_set(&mut self) -> Result<&EpollSet, Error> {
        let set = match self.descriptor.take() {
            Some(set) => set,
            None => {
                let failed = |e| machine("cannot make a descriptor to sleep on", e);
                let set = EpollSet::new(&self.notifier).map_err(failed)?;
                if let State::Up(connection) = &mut self.state {
                    set.add(connection.descriptor()?).map_err(failed)?;
                }
                // Nothing was armed when somebody last looked.
                self.notifier.notify();
                set
            }
        };
        Ok(self.descriptor.insert(set))
    }

    /// Returns the bridge's answer to the newest subscription: the number of this worker, and how events are placed.
    pub fn answer(&self) -> SubscribeResponse {
        self.answer
    }

    /// Returns the counters since the worker was opened.
    pub fn stats(&self) -> WorkerCounters {
        WorkerCounters { held: self.held.load(Ordering::Relaxed), ..self.counters }
    }

    /// Returns a text for people that says by which transport the events come, and why.
    pub fn describe(&self) -> String {
        let Self { source, answer, .. } = self;
        match &self.state {
            State::Up(connection) => {
                let (placing, how) = (answer.placing.name(), &connection.how);
                format!("worker {} of {source}, placing {placing}: {how}", answer.worker)
            }
            State::Reconnecting(_) => format!("looking for {source} again"),
            State::Over(why) => format!("over: {why}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(thread) = self.closing.take() {
            // A panic of the thread leaves nothing to do here.
            let _ = thread.join();
        }
    }
}

fn next(connection: &mut BridgeConnection, how: How) -> Result<Option<Event>, SubscriptionEnd> {
    if let Some(event) = connection.look()? {
        return Ok(Some(event));
    }
    match how {
        How::Wait(until) => connection.wait(until),
        How::Test => connection.test(),
    }
}

fn machine(what: &'static str, source: io::Error) -> Error {
    Error::Machine { what, source }
}
