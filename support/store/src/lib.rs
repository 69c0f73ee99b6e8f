//! Durable records under a fencing term: append, load, watch.
//!
//! A [`Store`] is a sorted map of byte keys to byte values. It changes by [`Batch`]es: all changes of one are stored, or none.
//! Each batch names the term of its writer, and only the newest claimed term may write, so a writer that was replaced and
//! does not know it yet changes nothing. A writer begins with [`Store::claim`], then [`Store::load`]: what it loads has every
//! batch of its predecessors, and none can follow.
//!
//! [`SqliteStore`] is the store in a file. Nothing in the trait needs more than compare-and-swap, leases and watch.
#![forbid(unsafe_code)]

mod batch;
mod error;
mod history;
mod queue;
pub mod record;
mod sqlite;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

pub use batch::{
    Batch, Change, Committed, InvalidBatch, MAX_BATCH_BYTES, MAX_CHANGES, MAX_KEY_BYTES, MAX_VALUE_BYTES,
    Revision, Term,
};
pub use error::Error;
pub use history::{MAX_HISTORY_BATCHES, MAX_HISTORY_BYTES};
pub use queue::{MAX_WAITING, MAX_WAITING_BYTES};
pub use sqlite::{Restored, Settings, SqliteStore, restore, revision_of};

/// What is called with the result of [`Store::append_with`]. It runs on a thread of the store, so it must not block and
/// must not call the store's blocking methods.
pub type Done<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// Everything a store holds at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The newest claimed term.
    pub term: Term,
    /// The revision of the newest batch.
    pub revision: Revision,
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Durable records that one writer at a time may change.
pub trait Store: fmt::Debug + Send + Sync {
    /// Makes `next` the newest term, if `seen` is the newest now. The store then refuses batches of `seen` and of older terms.
    /// Returns when the term is durable. The term of a new store is 0.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is a newer term than `seen`, [`Error::Unclaimed`] if `seen` was never claimed,
    /// [`Error::TermNotAbove`] if `next` is not above it, and what goes wrong with the storage.
    fn claim(&self, seen: Term, next: Term) -> Result<(), Error>;

    /// Stores all changes of the batch, or none, and returns when they are durable. Waits while too many batches wait.
    ///
    /// # Errors
    /// [`Error::Stale`] and [`Error::Unclaimed`] if the batch's term is not the newest claimed one, [`Error::Invalid`] if the
    /// batch breaks a limit, and what goes wrong with the storage. If the error is [`Error::Unknown`], the changes may be stored
    /// or not; with every other error they are not stored.
    fn append(&self, batch: Batch) -> Result<Revision, Error>;

    /// The same without waiting: `done` gets what [`Store::append`] returns, on a thread of the store or on this one. It is always
    /// called. If too many batches wait, it gets [`Error::Busy`] at once.
    fn append_with(&self, batch: Batch, done: Done<Revision>);

    /// Everything that is stored, with each batch that was acknowledged before the call.
    ///
    /// # Errors
    /// What goes wrong with the storage.
    fn load(&self) -> Result<Snapshot, Error>;

    /// Follows the batches after the revision `from`.
    ///
    /// # Errors
    /// [`Error::CannotFollow`] if they are not at hand any more, or `from` is yet to come.
    fn watch(&self, from: Revision) -> Result<Box<dyn Watch>, Error>;
}

/// The batches of a store after a revision, in their order.
pub trait Watch: fmt::Debug + Send {
    /// The next batch, or nothing if none came in time.
    ///
    /// # Errors
    /// [`Error::CannotFollow`] if the watch is too far behind: the next batch was forgotten. [`Error::Closed`] if the store was
    /// closed and every batch was given out.
    fn next(&mut self, timeout: Duration) -> Result<Option<Arc<Committed>>, Error>;
}
