//! Durable records under a fencing term: append, load, watch.
//!
//! A [`Store`] is a sorted map of byte keys to byte values. A [`Batch`] changes the store: all changes of a batch are
//! stored, or none of them. Each batch names the term of its writer, and the store accepts only batches of the newest
//! claimed term. A writer that was replaced therefore changes nothing, even if it does not know that it was replaced. A
//! writer begins with [`Store::claim`], followed by [`Store::load`]. The loaded records include every batch of earlier
//! writers, and no batch of an earlier writer can follow.
//!
//! [`SqliteStore`] is a store in a file. The trait [`Store`] needs only compare-and-swap, leases and watch, so other
//! storage can implement it, too.
//!
//! ```rust
//! use naa_store::{Batch, Change, SqliteConfig, SqliteStore, Store, Term};
//!
//! # fn main() -> Result<(), naa_store::Error> {
//! # let folder = std::env::temp_dir().join(format!("naa-store-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! let store = SqliteStore::open(&folder.join("records"), &SqliteConfig::default())?;
//! let seen = store.load()?.term;
//! let term = Term(seen.0 + 1);
//! store.claim(seen, term)?;
//! let change = Change { key: b"worker".to_vec(), value: Some(b"1".to_vec()) };
//! let revision = store.append(Batch { term, changes: vec![change] })?;
//! let snapshot = store.load()?;
//! assert_eq!((snapshot.revision, snapshot.entries[&b"worker"[..]].as_slice()), (revision, &b"1"[..]));
//! # drop(store);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
pub use sqlite::{Restored, SqliteConfig, SqliteStore, restore, revision_of};

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
    /// The values of all keys that exist.
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Durable records that one writer at a time may change.
pub trait Store: fmt::Debug + Send + Sync {
    /// Makes `next` the newest term, if `seen` is the newest now. The store then refuses batches of `seen` and of older terms.
    /// Returns when the term is durable. The term of a new store is 0.
    ///
    /// # Errors
    /// Fails with [`Error::Stale`] if there is a newer term than `seen`, with [`Error::Unclaimed`] if `seen` was never
    /// claimed, and with [`Error::TermNotAbove`] if `next` is not above `seen`. Fails with the error of the storage if
    /// the term cannot be stored.
    fn claim(&self, seen: Term, next: Term) -> Result<(), Error>;

    /// Stores all changes of the batch, or none, and returns when they are durable. Waits while too many batches wait.
    ///
    /// # Errors
    /// Fails with [`Error::Stale`] or [`Error::Unclaimed`] if the batch's term is not the newest claimed term, with
    /// [`Error::Invalid`] if the batch breaks a limit, and with the error of the storage if the batch cannot be stored.
    /// After [`Error::Unknown`], the changes may be stored or not. After every other error, the changes are not stored.
    fn append(&self, batch: Batch) -> Result<Revision, Error>;

    /// Stores a batch as [`Store::append`] does, without waiting. `done` is always called with the result, on a thread
    /// of the store or on the calling thread. If too many batches wait, `done` gets [`Error::Busy`] at once.
    fn append_with(&self, batch: Batch, done: Done<Revision>);

    /// Returns all records, including those of each batch that was acknowledged before the call.
    ///
    /// # Errors
    /// Fails with the error of the storage if the records cannot be read.
    fn load(&self) -> Result<Snapshot, Error>;

    /// Follows the batches after the revision `from`.
    ///
    /// # Errors
    /// Fails with [`Error::CannotFollow`] if the store has forgotten a batch after `from`, or if the store has no
    /// revision `from` yet.
    fn watch(&self, from: Revision) -> Result<Box<dyn Watch>, Error>;
}

/// The batches of a store after a revision, in their order.
pub trait Watch: fmt::Debug + Send {
    /// Returns the next batch, or `None` if no batch came within `timeout`.
    ///
    /// # Errors
    /// Fails with [`Error::CannotFollow`] if the store has forgotten the next batch, because the watch is too far
    /// behind. Fails with [`Error::Closed`] after the last batch of a closed store.
    fn next(&mut self, timeout: Duration) -> Result<Option<Arc<Committed>>, Error>;
}
