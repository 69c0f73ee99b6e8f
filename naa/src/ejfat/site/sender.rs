//! Senders at a control plane.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use ejfat::uri::EjfatUri;
use ejfat_client::{AllowedSender, AllowedSenderError, Syncs, Targets, TargetsError};

use super::{ControlPlane, reservation, told};
use crate::{show, signals};

/// What a sender was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// In sync messages.
    pub(crate) source: u32,
    pub(crate) period: Duration,
    /// Which data address is preferred.
    pub(crate) v6: bool,
}

/// A sender whose segments a load balancer takes, as far as it is known, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct LetIn {
    /// Its address is in the reservation's list; syncs go with it.
    allowed: Arc<Mutex<Option<AllowedSender>>>,
    /// Syncs of who did not ask the control plane.
    syncs: Option<Syncs>,
}

impl LetIn {
    /// Whether anything takes time until it is in force.
    pub(crate) fn wants_warm_up(&self) -> bool {
        self.syncs.is_some() || self.is_allowed()
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The last sync is sent, then its address is taken off the list.
    pub(crate) fn end(&self) {
        drop(self.allowed.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for LetIn {
    fn drop(&mut self) {
        self.end();
    }
}

impl ControlPlane {
    /// Where segments go. If there is a control plane and a token, this host is put on the list of those whose segments the load
    /// balancer takes; without a token only syncs are sent, and standard error says so.
    ///
    /// # Errors
    /// If the URI lacks a data address, or the control plane refuses.
    pub(crate) fn let_in(
        &self,
        uri: &EjfatUri,
        is_wanted: bool,
        way: Way,
    ) -> anyhow::Result<(SocketAddr, LetIn)> {
        let Way { source, period, v6 } = way;
        let no_data = "the EJFAT URI has no data address; reserve a load balancer, or use --to";
        if !is_wanted || uri.token.is_none() {
            let to = uri.data(v6).context(no_data)?;
            let sync = Targets::of(uri).sync;
            let syncs = (is_wanted && !sync.is_empty()).then(|| Syncs::start(&sync, source, period));
            if is_wanted {
                show::note(
                    "the EJFAT URI has no token: syncs are sent, and the control plane is not asked to let this sender in",
                );
            }
            return Ok((to, LetIn { allowed: Arc::default(), syncs: syncs.transpose()? }));
        }
        let lb = reservation(uri)?;
        let connection = self.connect(uri)?;
        let without = |error| told(error, "sends segments only,");
        let targets = Targets::find(&connection, uri, &lb).map_err(|error| match error {
            TargetsError::Client(error) => without(error),
            error => error.into(),
        })?;
        let preferred = targets.data.iter().find(|at| at.is_ipv6() == v6).or(targets.data.first());
        let to = *preferred.context(no_data)?;
        let mut allowed =
            AllowedSender::open(&connection, &lb, &targets.data).map_err(|error| match error {
                AllowedSenderError::Client(error) => without(error),
                error => error.into(),
            })?;
        if !targets.sync.is_empty() {
            allowed.keep_in_sync(&targets.sync, source, period)?;
        }
        let let_in = LetIn { allowed: Arc::new(Mutex::new(Some(allowed))), syncs: None };
        let at_end = let_in.allowed.clone();
        // Otherwise the address would stay on the list.
        signals::on_terminate(move || {
            drop(at_end.lock().unwrap_or_else(PoisonError::into_inner).take());
            std::process::exit(128 + libc::SIGINT);
        })?;
        Ok((to, let_in))
    }
}
