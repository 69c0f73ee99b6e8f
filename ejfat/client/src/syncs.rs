//! Sync messages that go on by themselves.

use std::{
    io,
    net::SocketAddr,
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use ejfat_udp::{Error, SyncSender};

/// Tells control planes the tick, again and again, until it is dropped; then a last time.
#[derive(Debug)]
pub struct Syncs {
    /// The thread ends when this does.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncs {
    /// Begins with a message to each address. A reservation may have an IPv4 and an IPv6 address where there is a way to one of
    /// the two only; the log has the other.
    ///
    /// # Errors
    /// If there is a way to none.
    pub fn start(to: &[SocketAddr], source: u32, period: Duration) -> Result<Self, Error> {
        let (mut senders, mut problem) = (Vec::new(), None);
        for &at in to {
            // The first message tells whether there is a way.
            match SyncSender::new(at, source).and_then(|sender| sender.send().map(|()| sender)) {
                Ok(sender) => senders.push(sender),
                Err(error) => {
                    tracing::warn!("no sync messages to {at}: {error}");
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem.filter(|_| senders.is_empty()) {
            return Err(error);
        }
        let (stop, stopped) = mpsc::channel();
        let run = move || keep(&senders, period, &stopped);
        let thread = thread::Builder::new().name("ejfat-sync".into()).spawn(run);
        let thread = thread.map_err(no_thread)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

fn no_thread(source: io::Error) -> Error {
    Error::Io { what: "start a thread".into(), source }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, it said so.
            let _ = thread.join();
        }
    }
}

fn keep(to: &[SyncSender], period: Duration, stopped: &mpsc::Receiver<()>) {
    let mut refused = vec![false; to.len()];
    loop {
        // Nobody sends a message; the end of the channel is the end.
        let is_last = stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout);
        for (sync, refused) in to.iter().zip(&mut refused) {
            match sync.send() {
                Ok(()) => {}
                // A refusal is logged once, and not for each message.
                Err(error @ Error::Refused { .. }) => {
                    if !std::mem::replace(refused, true) {
                        tracing::warn!("sync messages: {error}");
                    }
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
        if is_last {
            return;
        }
    }
}
