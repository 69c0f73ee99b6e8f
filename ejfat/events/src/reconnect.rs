//! Connecting again to a bridge that ended, on a thread of its own for as long as that takes: trying to connect waits.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use crate::{BridgeAddress, Config, Error, connection::BridgeConnection, notifier::Notifier};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// The least time of an attempt, also if less is left.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Reconnection {
    found: Receiver<Result<Box<BridgeConnection>, Error>>,
    given_up: Arc<AtomicBool>,
}

/// The bridge to which the worker is to connect again.
#[derive(Debug)]
pub(crate) struct ReconnectTask {
    /// The connection that was lost.
    pub(crate) former: Option<Box<BridgeConnection>>,
    pub(crate) source: BridgeAddress,
    pub(crate) config: Config,
    pub(crate) held: Arc<AtomicU64>,
    /// Why it was lost.
    pub(crate) why: String,
    /// So long.
    pub(crate) limit: Duration,
}

impl Reconnection {
    /// Calls [`notify`](Notifier::notify) when there is an end to it.
    pub(crate) fn start(task: ReconnectTask, notifier: Arc<Notifier>) -> io::Result<Self> {
        let (sender, found) = mpsc::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let stop = given_up.clone();
        let run = move || {
            if let Some(end) = task.run(&stop) {
                // Nobody may want it any more.
                let _ = sender.send(end);
                notifier.notify();
            }
        };
        std::thread::Builder::new().name("naa-events".to_owned()).spawn(run)?;
        Ok(Self { found, given_up })
    }

    /// `None`: it is still being looked for at `until`.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Option<Result<Box<BridgeConnection>, Error>> {
        match until {
            None => Some(self.found.recv().unwrap_or_else(|_| Err(died()))),
            Some(until) => match self.found.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(end) => Some(end),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(died())),
            },
        }
    }

    pub(crate) fn look(&self) -> Option<Result<Box<BridgeConnection>, Error>> {
        match self.found.try_recv() {
            Ok(end) => Some(end),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(died())),
        }
    }
}

impl Drop for Reconnection {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// A panic on the thread, which is a fault of this library.
fn died() -> Error {
    let source = io::Error::other("its thread died; report it with the program's output");
    Error::Machine { what: "cannot look for the bridge", source }
}

impl ReconnectTask {
    fn run(mut self, stop: &AtomicBool) -> Option<Result<Box<BridgeConnection>, Error>> {
        // The new connection may need the same device address.
        self.former = None;
        // Longer than anybody waits.
        let limit = self.limit.min(Duration::from_secs(u32::MAX.into()));
        let deadline = Instant::now() + limit;
        while !stop.load(Ordering::Relaxed) {
            let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST);
            let limit = left.min(self.config.session.setup_timeout);
            match BridgeConnection::open(&self.source, &self.config, limit, &self.held) {
                Ok(connection) => return Some(Ok(Box::new(connection))),
                Err(error) if !error.may_pass() => return Some(Err(error)),
                Err(error) if Instant::now() + PAUSE >= deadline => {
                    let (bridge, last) = (self.source.to_string(), error.to_string());
                    let (why, tried) = (self.why, Some(self.limit));
                    return Some(Err(Error::BridgeGone { bridge, why, tried, last }));
                }
                Err(error) => tracing::debug!(bridge = %self.source, %error, "not back yet"),
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}
