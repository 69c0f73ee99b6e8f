//! Senders of a reservation.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use ejfat::uri::EjfatUri;
use ejfat_client::{AllowedSender, AllowedSenderError, Ending, Syncs, Targets, TargetsError};

use super::{ControlPlane, explained, reservation};
use crate::{show, signals};

/// The settings of a sender for its admission and its sync datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionConfig {
    /// The sender's id in sync datagrams.
    pub(crate) source: u32,
    /// The time from one sync datagram to the next.
    pub(crate) period: Duration,
    /// Whether the IPv6 data address is preferred.
    pub(crate) v6: bool,
}

/// A sender whose address is in the reservation's list if the control plane was asked, and whose sync datagrams are sent, until
/// this is dropped.
#[derive(Debug, Default)]
pub(crate) struct AdmittedSender {
    /// The sender's place in the list, with its sync datagrams. `None`: the control plane was not asked, or the sender has left.
    allowed: Arc<Mutex<Option<AllowedSender>>>,
    /// Tells whether the reservation ended, if the control plane was asked.
    ending: Option<Ending>,
    /// The sync datagrams of a sender that did not ask the control plane.
    syncs: Option<Syncs>,
}

impl AdmittedSender {
    /// Returns whether the first event has to wait for the control plane: until it has the sender's ticks, or the data plane has the
    /// sender's address.
    pub(crate) fn wants_warm_up(&self) -> bool {
        self.syncs.is_some() || self.is_allowed()
    }

    /// Returns whether the control plane put the sender's address on the list.
    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns why nothing that is sent arrives any more, if the reservation ended. It does not block.
    pub(crate) fn ended(&self) -> Option<&str> {
        self.ending.as_ref().and_then(Ending::why)
    }

    /// Asks the control plane about the reservation, and waits for the answer.
    pub(crate) fn look(&self) {
        if let Some(allowed) = &*self.allowed.lock().unwrap_or_else(PoisonError::into_inner) {
            allowed.look();
        }
    }

    /// Sends the last sync datagram, and removes the address from the list if no other sender of this user needs it.
    pub(crate) fn end(&self) {
        drop(self.allowed.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for AdmittedSender {
    fn drop(&mut self) {
        self.end();
    }
}

impl ControlPlane {
    /// Returns the address to which segments go. If the control plane is wanted and the URI has a token, this adds the addresses of
    /// this machine to the reservation's list of senders, and sends sync datagrams. Without a token it only sends sync datagrams, with
    /// a note on standard error.
    ///
    /// # Errors
    /// If no data address is known, no sync datagram can be sent, or the control plane cannot be reached or refuses.
    pub(crate) fn let_in(
        &self,
        uri: &EjfatUri,
        is_wanted: bool,
        config: AdmissionConfig,
    ) -> anyhow::Result<(SocketAddr, AdmittedSender)> {
        let AdmissionConfig { source, period, v6 } = config;
        let no_data = "the EJFAT URI has no data address; use the URI that `naa lb reserve` prints, or name an address by --to";
        if !is_wanted || uri.token.is_none() {
            let to = uri.data(v6).context(no_data)?;
            let sync = Targets::of(uri).sync;
            let syncs = (is_wanted && !sync.is_empty()).then(|| Syncs::start(&sync, source, period));
            if is_wanted {
                show::note(
                    "the EJFAT URI has no token, so the control plane is not asked to let this sender in; only sync datagrams are sent",
                );
            }
            let syncs = syncs.transpose()?;
            return Ok((to, AdmittedSender { allowed: Arc::default(), ending: None, syncs }));
        }
        let lb = reservation(uri)?;
        let connection = self.connect(uri)?;
        let without = |error| explained(error, "sends segments only,");
        let targets = Targets::find(&connection, uri, &lb).map_err(|error| match error {
            TargetsError::Client(error) => without(error),
            error => error.into(),
        })?;
        let preferred = targets.data.iter().find(|at| at.is_ipv6() == v6).or(targets.data.first());
        let to = *preferred.context(no_data)?;
        let slot: Arc<Mutex<Option<AllowedSender>>> = Arc::default();
        let at_end = slot.clone();
        // A signal ends the program without dropping anything, so the signal handler removes the addresses from the
        // list. The handler waits for this lock, so a signal that comes while the addresses are being added removes them
        // afterwards.
        let mut opening = slot.lock().unwrap_or_else(PoisonError::into_inner);
        signals::on_terminate(move || {
            drop(at_end.lock().unwrap_or_else(PoisonError::into_inner).take());
            std::process::exit(128 + libc::SIGINT);
        })?;
        let mut allowed =
            AllowedSender::open(&connection, &lb, &targets.data).map_err(|error| match error {
                AllowedSenderError::Client(error) => without(error),
                error => error.into(),
            })?;
        if !targets.sync.is_empty() {
            allowed.keep_in_sync(&targets.sync, source, period)?;
        }
        allowed.watch(AllowedSender::LOOKS, |notice| tracing::warn!("{notice}"))?;
        let ending = Some(allowed.ending());
        *opening = Some(allowed);
        drop(opening);
        let let_in = AdmittedSender { allowed: slot, ending, syncs: None };
        Ok((to, let_in))
    }
}
