//! What the core does with its store: who waits for it, what follows when it fails, and how it is tried again.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ejfat::Time;
use ejfat_control::{
    config::Config,
    control::{Control, ControlConfig},
    record::{AuditEntry, Change, Record},
};
use naa_store::{Store, Term};
use tokio::sync::oneshot;

use super::{Core, Inner, Refused, StartError};

/// The time until a store that failed is tried again.
const STORE_RETRY: Duration = Duration::from_millis(500);

/// One who waits until changes are durable: a caller, or an entry of the audit log.
pub(super) enum Waits {
    Caller(oneshot::Sender<Result<(), Refused>>),
    Audit(AuditEntry),
}

/// The state after a failure of the store, until it works again.
pub(super) struct Failed {
    pub(super) why: String,
    /// When the store is tried again. `None` while another thread tries it.
    retry_at: Option<Time>,
}

/// The result of beginning: a control plane with the records of the store, and the term that it claimed.
pub(super) type Begun = Result<(Control, Term), StartError>;

impl Core {
    pub(super) fn stored(&self, inner: &mut Inner, result: Result<(), naa_store::Error>) {
        match result {
            Ok(()) => self.durable(inner.storing.stored()),
            Err(naa_store::Error::Stale { .. }) => inner.replaced(),
            Err(why) => {
                self.counters.store_failures.fetch_add(1, Relaxed);
                tracing::error!("changes are not stored: {why}; requests that change something are refused");
                let why = why.to_string();
                refuse(inner.storing.failed(), &Refused::Store(why.clone()));
                inner.failed = Some(Failed { why, retry_at: Some(self.now() + STORE_RETRY) });
            }
        }
    }

    pub(super) fn durable(&self, waiting: Vec<Waits>) {
        for waits in waiting {
            match waits {
                // A caller that has gone away needs no answer.
                Waits::Caller(caller) => drop(caller.send(Ok(()))),
                Waits::Audit(entry) => self.audit.iter().for_each(|audit| audit.write(&entry)),
            }
        }
    }

    /// Starts a thread that tries a failed store again, if it is time for that.
    pub(super) fn retry_store(self: &Arc<Self>, inner: &mut Inner) {
        let now = self.now();
        let Some(failed) = &mut inner.failed else { return };
        if failed.retry_at.is_none_or(|at| now < at) || self.stop.load(Relaxed) {
            return;
        }
        let (parts, claimed, core) = (self.parts.clone(), self.claimed.clone(), Arc::downgrade(self));
        let run = move || {
            let (config, options, root, store) = parts;
            let begun = begin(&config, &options, &root, &*store, now, &claimed);
            if let Some(core) = core.upgrade() {
                core.put(|inbox| inbox.begun = Some(begun));
            }
        };
        let started = std::thread::Builder::new().name("naa-store-again".into()).spawn(run);
        failed.retry_at = started.is_err().then_some(now + STORE_RETRY);
    }

    pub(super) fn begun(&self, inner: &mut Inner, begun: Begun) {
        match begun {
            Ok((mut control, term)) => {
                std::mem::swap(&mut inner.control, &mut control);
                inner.control.carry_over(control);
                (inner.term, inner.failed) = (term, None);
                // The connections are replaced, so that an answer to an old call is never taken for an answer to a new one.
                for handle in inner.planes.values_mut() {
                    handle.disconnect();
                }
                tracing::info!("changes are stored again");
            }
            Err(StartError::Replaced(_)) => inner.replaced(),
            Err(why) => {
                let retry_at = Some(self.now() + STORE_RETRY);
                inner.failed = Some(Failed { why: why.to_string(), retry_at });
            }
        }
    }
}

impl Inner {
    /// Another control plane has claimed the store. This one changes nothing any more.
    pub(super) fn replaced(&mut self) {
        if !std::mem::replace(&mut self.replaced, true) {
            tracing::error!(
                "another control plane has claimed the store: this one changes nothing more; stop it"
            );
        }
    }
}

pub(super) fn refuse(waiting: Vec<Waits>, why: &Refused) {
    for waits in waiting {
        if let Waits::Caller(caller) = waits {
            // A caller that has gone away needs no answer.
            let _ = caller.send(Err(why.clone()));
        }
    }
}

/// Returns the entries of the audit log that are among `changes`.
pub(super) fn audited(changes: &[Change]) -> impl Iterator<Item = AuditEntry> {
    let entry = |change: &Change| match change {
        Change::Put(Record::Audit(_, entry)) => Some(entry.clone()),
        _ => None,
    };
    changes.iter().filter_map(entry)
}

/// Claims the next term and begins with the records of the store. `claimed` is the highest term that this control plane has
/// claimed, or 0 if it has claimed none yet.
pub(super) fn begin(
    config: &Config,
    options: &ControlConfig,
    root: &str,
    store: &dyn Store,
    now: Time,
    claimed: &AtomicU64,
) -> Begun {
    let seen = store.load()?.term;
    let own = claimed.load(Relaxed);
    if own != 0 && seen > Term(own) {
        return Err(StartError::Replaced(seen));
    }
    let term = Term(seen.0 + 1);
    // The term is noted before, because a claim that returns an error may have taken place.
    claimed.store(term.0, Relaxed);
    store.claim(seen, term)?;
    let snapshot = store.load()?;
    let number = NonZeroU64::new(term.0).unwrap_or(NonZeroU64::MIN);
    let control = Control::begin(config.clone(), options.clone(), root, snapshot.entries, number, now)?;
    Ok((control, term))
}
