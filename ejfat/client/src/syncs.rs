//! Sync datagrams that a thread sends periodically.

use std::{
    io,
    mem::discriminant,
    net::SocketAddr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use ejfat_udp::{Error, SyncSender};

use crate::background::Background;

/// A thread that sends sync datagrams until this is dropped, and a last one then.
#[derive(Debug)]
pub struct Syncs {
    _thread: Background,
}

impl Syncs {
    /// Sends a sync datagram to each address, and starts the thread. An address that cannot be reached is left out, with a
    /// warning: a reservation may have an IPv4 and an IPv6 address, of which this machine has a route to one only.
    ///
    /// # Errors
    /// If none of the addresses can be reached, or no thread can be started.
    pub fn start(to: &[SocketAddr], source: u32, period: Duration) -> Result<Self, Error> {
        let (mut senders, mut problem) = (Vec::new(), None);
        for &at in to {
            // The first datagram fails if there is no route.
            match SyncSender::new(at, source).and_then(|sender| sender.send().map(|()| sender)) {
                Ok(sender) => senders.push(sender),
                Err(error) => {
                    tracing::warn!("no sync datagrams to {at}: {error}");
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem.filter(|_| senders.is_empty()) {
            return Err(error);
        }
        let thread = Background::start("ejfat-sync", move |stopped| keep(&senders, period, &stopped));
        Ok(Self { _thread: thread.map_err(no_thread)? })
    }
}

pub(crate) fn no_thread(source: io::Error) -> Error {
    Error::Io { what: "start a thread".into(), source }
}

fn keep(to: &[SyncSender], period: Duration, stopped: &Receiver<()>) {
    // The kind of the last error of each address.
    let mut logged = vec![None; to.len()];
    loop {
        // No message is ever sent: the channel closes when `Syncs` is dropped.
        let is_last = stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout);
        for (sync, logged) in to.iter().zip(&mut logged) {
            // An error is logged when it begins, and not for each datagram.
            if let Err(error) = sync.send()
                && logged.replace(discriminant(&error)) != Some(discriminant(&error))
            {
                tracing::warn!("sync datagrams: {error}; the next ones are sent nevertheless");
            }
        }
        if is_last {
            return;
        }
    }
}
