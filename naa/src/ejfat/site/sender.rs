//! Senders at a control plane.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use ejfat::uri::EjfatUri;
use ejfat_client::{Admission, AdmissionError, Syncs, Targets, TargetsError};

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
    admission: Arc<Mutex<Option<Admission>>>,
    /// Syncs of who did not ask the control plane.
    syncs: Option<Syncs>,
}

impl LetIn {
    /// Whether anything takes time until it is in force.
    pub(crate) fn wants_warm_up(&self) -> bool {
        self.syncs.is_some() || self.is_admitted()
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The last sync is sent, then its address is taken off the list.
    pub(crate) fn end(&self) {
        drop(self.admission.lock().unwrap_or_else(PoisonError::into_inner).take());
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
            return Ok((to, LetIn { admission: Arc::default(), syncs: syncs.transpose()? }));
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
        let mut admission =
            Admission::open(&connection, &lb, &targets.data).map_err(|error| match error {
                AdmissionError::Client(error) => without(error),
                error => error.into(),
            })?;
        if !targets.sync.is_empty() {
            admission.keep_in_sync(&targets.sync, source, period)?;
        }
        let let_in = LetIn { admission: Arc::new(Mutex::new(Some(admission))), syncs: None };
        let at_end = let_in.admission.clone();
        // Otherwise the address would stay on the list.
        signals::on_terminate(move || {
            drop(at_end.lock().unwrap_or_else(PoisonError::into_inner).take());
            std::process::exit(128 + libc::SIGINT);
        })?;
        Ok((to, let_in))
    }
}
