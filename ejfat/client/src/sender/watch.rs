//! Looks after a sender's place in the reservation's list while it sends.

use std::{
    collections::HashSet,
    fmt, io,
    mem::discriminant,
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc::RecvTimeoutError},
    time::Duration,
};

use proto::loadbalancer::LoadBalancerStatusReply;

use crate::{Cause, ClientError, Connection, background::Background};

/// A reason why events of a sender may not arrive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenderNotice {
    /// No worker of the reservation has a calendar slot, so the load balancer cannot send events to any worker. When
    /// [`AllowedSender::watch`](crate::AllowedSender::watch) asks for the reservation's status for the first time, it
    /// gives this notice only if the reservation has no worker. A worker that has just registered has no calendar slots
    /// yet.
    #[error(
        "reservation {lb} has no worker that is ready, so events that are sent now are lost; start one by `naa ejfat recv`"
    )]
    NoWorker {
        /// The id of the reservation.
        lb: String,
    },
    /// At least one address of the sender was missing in the reservation's list of senders, and the control plane added
    /// the missing addresses again. Segments from an address are lost while the address is not in the list of senders.
    #[error(
        "{addresses} was not in the list of senders of reservation {lb} any more, and is added again; events that were sent meanwhile are lost"
    )]
    AddedAgain {
        /// The id of the reservation.
        lb: String,
        /// The sender's IP addresses that were added to the list of senders again, separated by commas.
        addresses: String,
    },
    /// A call to the control plane failed, and the error does not mean that the reservation ended or that the token was
    /// revoked. The sender cannot tell whether its events arrive. The value is the text of the error.
    #[error("{0} (this sender goes on, and cannot tell whether its events arrive)")]
    Unknown(String),
}

/// What a sender asks the control plane, and which notices it has given so far.
pub(super) struct ReservationMonitor {
    pub(super) connection: Connection,
    pub(super) lb: String,
    pub(super) addresses: Vec<IpAddr>,
    /// Why the reservation ended, if it did.
    ended: OnceLock<String>,
    given: Mutex<HashSet<std::mem::Discriminant<SenderNotice>>>,
    /// Gets each kind of notice once.
    notify: OnceLock<Box<dyn Fn(SenderNotice) + Send + Sync>>,
}

impl fmt::Debug for ReservationMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReservationMonitor");
        shown.field("lb", &self.lb).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Whether an error means that the reservation, or the right to use it, is gone for good.
pub(super) fn is_end(error: &ClientError) -> bool {
    matches!(error.cause(), Some(Cause::NotFound | Cause::UnknownToken | Cause::NoToken))
}

/// Returns the addresses in the list of a reservation.
pub(super) fn listed(status: &LoadBalancerStatusReply) -> Vec<IpAddr> {
    status.sender_addresses.iter().filter_map(|text| text.parse().ok()).collect()
}

impl ReservationMonitor {
    pub(super) fn new(connection: Connection, lb: String, addresses: Vec<IpAddr>) -> Self {
        let (ended, given, notify) = Default::default();
        Self { connection, lb, addresses, ended, given, notify }
    }

    pub(super) fn set_notify(&self, notify: impl Fn(SenderNotice) + Send + Sync + 'static) {
        // The first one stays, since a sender is watched once.
        let _ = self.notify.set(Box::new(notify));
    }

    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    fn notify(&self, notice: SenderNotice) {
        let is_new = self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(discriminant(&notice));
        if let Some(notify) = self.notify.get().filter(|_| is_new) {
            notify(notice);
        }
    }

    /// Asks for the status, and adds the addresses again if they are missing. A worker that has just registered has no slots
    /// yet, so at the `first` look only a reservation without any worker is told of.
    pub(super) fn look(&self, first: bool) {
        if self.ended().is_some() {
            return;
        }
        match self.connection.status(&self.lb) {
            Ok(status) => {
                let has_slots = status.workers.iter().any(|worker| worker.slots_assigned > 0);
                if !has_slots && (!first || status.workers.is_empty()) {
                    self.notify(SenderNotice::NoWorker { lb: self.lb.clone() });
                }
                let there = listed(&status);
                let missing: Vec<_> =
                    self.addresses.iter().copied().filter(|ip| !there.contains(ip)).collect();
                if !missing.is_empty() && self.add(&missing) {
                    let addresses: Vec<_> = missing.iter().map(IpAddr::to_string).collect();
                    let addresses = addresses.join(", ");
                    self.notify(SenderNotice::AddedAgain { lb: self.lb.clone(), addresses });
                }
            }
            // A token without the right to read the list adds the addresses in any case, which changes nothing if they are there.
            Err(error) if error.cause() == Some(Cause::NoRight) => {
                self.add(&self.addresses);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn add(&self, addresses: &[IpAddr]) -> bool {
        let added = self.connection.add_senders(&self.lb, addresses);
        added.map_err(|error| self.failed(&error)).is_ok()
    }

    fn failed(&self, error: &ClientError) {
        if !is_end(error) {
            return self.notify(SenderNotice::Unknown(error.to_string()));
        }
        let (lb, at) = (&self.lb, self.connection.address());
        let why = format!(
            "reservation {lb} at {at} ended, or its token was revoked, while events were sent; those that were sent since then are \
             lost: reserve a load balancer, and send them again"
        );
        // The first reason stays.
        let _ = self.ended.set(why);
    }
}

/// Starts a thread that looks after a sender until the returned value is dropped.
pub(super) fn watch(monitor: Arc<ReservationMonitor>, every: Duration) -> io::Result<Background> {
    Background::start("ejfat-sender", move |stopped| {
        monitor.look(true);
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            monitor.look(false);
        }
    })
}
