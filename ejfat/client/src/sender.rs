//! A sender whose segments a load balancer takes.

mod hold;
mod watch;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crate::{
    ClientError, Connection, RouteError, Syncs, background::Background, source_towards, syncs::no_thread,
};
use hold::{Hold, Last};
pub use watch::SenderNotice;
use watch::{ReservationMonitor, is_end, listed};

/// An error: the sender's addresses are not in the reservation's list.
#[derive(Debug, thiserror::Error)]
pub enum AllowedSenderError {
    /// The control plane did not add the sender's addresses to the reservation's list of senders.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// This machine has no route to any of the data addresses. The value is the error for the last data address.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// No sync datagram could be sent, or the thread that sends sync datagrams or watches the reservation could not be
    /// started.
    #[error(transparent)]
    Sync(#[from] ejfat_udp::Error),
}

/// This machine's addresses in a reservation's list of senders. When it is closed or dropped, it removes the addresses that it
/// or another sender of this user added, if no other sender of this user uses them any more. Addresses that were in the list
/// before stay.
#[derive(Debug)]
pub struct AllowedSender {
    monitor: Arc<ReservationMonitor>,
    allowed: Vec<AllowedAddress>,
    syncs: Option<Syncs>,
    watch: Option<Background>,
}

/// An address of a sender.
#[derive(Debug)]
struct AllowedAddress {
    address: IpAddr,
    /// Whether this sender added it.
    added: bool,
    /// What this sender shares with the others of this user, unless the user has no folder for it.
    hold: Option<Hold>,
}

impl AllowedAddress {
    fn take(connection: &Connection, lb: &str, address: IpAddr) -> Self {
        let hold = hold::folder().and_then(|folder| {
            let name = hold::name(connection.address(), lb, address);
            let held = Hold::take(&folder, &name);
            held.inspect_err(|error| {
                let folder = folder.display();
                tracing::warn!(
                    "cannot lock a file in {folder} ({error}), so this sender cannot know whether another one of this user sends from \
                     {address}; make the folder writable"
                );
            })
            .ok()
        });
        Self { address, added: false, hold }
    }

    fn note_added(&mut self) {
        self.added = true;
        if let Some(hold) = &mut self.hold
            && let Err(error) = hold.note_added()
        {
            tracing::warn!("cannot note that {} was added: {error}", self.address);
        }
    }

    /// Returns the address if it is to be taken off the list. While the lock is there, no other sender of this user begins.
    fn leave(self) -> (Option<IpAddr>, Option<Last>) {
        match self.hold {
            None => (Some(self.address).filter(|_| self.added), None),
            Some(hold) => {
                let last = hold.release();
                (last.as_ref().filter(|last| last.added).map(|_| self.address), last)
            }
        }
    }
}

impl AllowedSender {
    /// The time between two looks of [`watch`](Self::watch).
    pub const LOOKS: Duration = Duration::from_secs(2);

    /// Adds the addresses from which this machine sends to the data addresses. A data address without a route is left out if
    /// there is a route to another one.
    ///
    /// # Errors
    /// If there is no route to any of the data addresses, or the control plane does not add the addresses.
    pub fn open(connection: &Connection, lb: &str, data: &[SocketAddr]) -> Result<Self, AllowedSenderError> {
        let (mut addresses, mut problem) = (Vec::new(), None);
        for &to in data {
            match source_towards(to) {
                Ok(ip) if addresses.contains(&ip) => {}
                Ok(ip) => addresses.push(ip),
                Err(error) => problem = Some(error),
            }
        }
        if let Some(error) = problem.filter(|_| addresses.is_empty()) {
            return Err(error.into());
        }
        let take = |&ip: &IpAddr| AllowedAddress::take(connection, lb, ip);
        let mut allowed: Vec<_> = addresses.iter().map(take).collect();
        // A token without the right to read the list cannot tell which addresses are in it; then all count as added here.
        let there = connection.status(lb).map_or_else(|_| Vec::new(), |status| listed(&status));
        connection.add_senders(lb, &addresses)?;
        let added = allowed.iter_mut().filter(|one| !there.contains(&one.address));
        added.for_each(AllowedAddress::note_added);
        let monitor = Arc::new(ReservationMonitor::new(connection.clone(), lb.to_owned(), addresses));
        Ok(Self { monitor, allowed, syncs: None, watch: None })
    }

    /// Returns the addresses of this machine that are in the list.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.monitor.addresses
    }

    /// Starts to send sync datagrams to the addresses `to`, one in each `period`.
    ///
    /// # Errors
    /// The errors of [`Syncs::start`].
    pub fn keep_in_sync(
        &mut self,
        to: &[SocketAddr],
        source: u32,
        period: Duration,
    ) -> Result<(), AllowedSenderError> {
        self.syncs = Some(Syncs::start(to, source, period)?);
        Ok(())
    }

    /// Starts to look at the reservation at once, and again after each time `every`. Addresses that are missing in the list are
    /// added again. `notify` gets each kind of notice once; [`Ending::why`] says instead what ended the reservation.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn watch(
        &mut self,
        every: Duration,
        notify: impl Fn(SenderNotice) + Send + Sync + 'static,
    ) -> Result<(), AllowedSenderError> {
        self.monitor.set_notify(notify);
        self.watch = Some(watch::watch(self.monitor.clone(), every).map_err(no_thread)?);
        Ok(())
    }

    /// Looks at the reservation now, and returns when the control plane has answered.
    pub fn look(&self) {
        self.monitor.look(false);
    }

    /// Returns what tells whether the reservation ended, also after this is dropped.
    pub fn ending(&self) -> Ending {
        Ending(self.monitor.clone())
    }

    /// Sends the last sync datagram, then removes the addresses that no other sender of this user needs.
    ///
    /// # Errors
    /// If the control plane does not remove the addresses.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ClientError> {
        self.watch.take();
        self.syncs.take();
        let (off, locks): (Vec<_>, Vec<_>) = self.allowed.drain(..).map(AllowedAddress::leave).unzip();
        let off: Vec<_> = off.into_iter().flatten().collect();
        if !off.is_empty() && self.monitor.ended().is_none() {
            let removed = self.monitor.connection.remove_senders(&self.monitor.lb, &off);
            // With the reservation, its list is gone.
            removed.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) })?;
        }
        for last in locks.into_iter().flatten() {
            // A file that stays is used again by the next sender.
            let _ = last.forget();
        }
        Ok(())
    }
}

/// Tells whether a sender's reservation ended.
#[derive(Clone, Debug)]
pub struct Ending(Arc<ReservationMonitor>);

impl Ending {
    /// Returns why nothing arrives any more, or `None` while the reservation is there. It does not block.
    pub fn why(&self) -> Option<&str> {
        self.0.ended()
    }
}

impl Drop for AllowedSender {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(
                "{error} (the addresses of this sender stay in the reservation's list; `naa lb senders remove` takes them off)"
            );
        }
    }
}
