//! Why a store refuses, and what to do about it.

use std::path::PathBuf;

use crate::{InvalidBatch, MAX_WAITING, Revision, Term};

/// Why there is no result. If the error is [`Error::Unknown`], the batch may be stored or not; with every other error
/// the batch is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another writer claimed a newer term, so the store refuses batches and claims of the older term.
    #[error(
        "term {term} is over, the newest is {newest}: another writer took over; stop writing, or claim a term again"
    )]
    Stale {
        /// The term of the refused writer.
        term: Term,
        /// The newest claimed term.
        newest: Term,
    },
    /// A writer used a term that is above the newest claimed term.
    #[error("nobody claimed term {term}, the newest is {newest}: claim it before writing")]
    Unclaimed {
        /// The term that nobody claimed.
        term: Term,
        /// The newest claimed term.
        newest: Term,
    },
    /// A writer claimed a term that is not above the term that it named as the newest.
    #[error("term {next} is not above term {seen}: claim a higher one")]
    TermNotAbove {
        /// The term that the writer named as the newest.
        seen: Term,
        /// The term that the writer claimed.
        next: Term,
    },
    /// The batch breaks a limit.
    #[error("the batch is refused: {0}")]
    Invalid(#[from] InvalidBatch),
    /// Too many batches, or batches with too many bytes, wait to be stored.
    #[error("{MAX_WAITING} batches, or too many bytes, wait to be stored: try again when some are done")]
    Busy,
    /// The store's file cannot grow, because the disk, a quota or
    /// [`SqliteConfig::max_bytes`](crate::SqliteConfig::max_bytes)
    /// is exhausted.
    #[error("{} cannot grow: {why}; nothing was changed, and writing goes on when there is room", .path.display())]
    Full {
        /// The path of the store's file.
        path: PathBuf,
        /// The error of the operating system or of SQLite, as text for people.
        why: String,
    },
    /// This process has no right to write the store's file.
    #[error("{} may not be written: {why}; make it writable, with its folder", .path.display())]
    ReadOnly {
        /// The path of the store's file.
        path: PathBuf,
        /// The error of the operating system or of SQLite, as text for people.
        why: String,
    },
    /// Opening, reading or writing the store's file failed.
    #[error("{} cannot be used: {why}", .path.display())]
    Io {
        /// The path of the store's file.
        path: PathBuf,
        /// The error of the operating system or of SQLite, as text for people.
        why: String,
    },
    /// The storage failed at a moment at which the batch may be stored or not.
    #[error("whether {} has the change is unknown: {why}; load before trying again", .path.display())]
    Unknown {
        /// The path of the store's file.
        path: PathBuf,
        /// The error of the operating system or of SQLite, as text for people.
        why: String,
    },
    /// The content of the store's file is damaged.
    #[error("{} is damaged: {what}; restore it from a backup", .path.display())]
    Corrupt {
        /// The path of the store's file.
        path: PathBuf,
        /// The damage that was found, as text for people.
        what: String,
    },
    /// The store's file has an older state than the last acknowledged one, for example because the file was replaced by
    /// an old copy.
    #[error(
        "{} lost changes: it has revision {found} of term {found_term}, but revision {acknowledged} of term \
         {acknowledged_term} was acknowledged; restore it from a backup, or remove {} to go on with what is there",
        .path.display(), .mark.display()
    )]
    Lost {
        /// The path of the store's file.
        path: PathBuf,
        /// The path of the file that records the last acknowledged revision.
        mark: PathBuf,
        /// The newest revision in the store's file.
        found: Revision,
        /// The newest claimed term in the store's file.
        found_term: Term,
        /// The newest revision that was acknowledged to a writer.
        acknowledged: Revision,
        /// The newest term whose claim was acknowledged.
        acknowledged_term: Term,
    },
    /// A newer version of the program wrote the store's file.
    #[error("{} has version {version}, this program knows versions up to {newest}: use a newer one", .path.display())]
    Newer {
        /// The path of the store's file.
        path: PathBuf,
        /// The format version of the file.
        version: i64,
        /// The newest format version that this program knows.
        newest: i64,
    },
    /// The file is not a store: it has another format, or belongs to another program.
    #[error("{} is no store: {why}; name another file", .path.display())]
    NotAStore {
        /// The path of the store's file.
        path: PathBuf,
        /// The reason, as text for people.
        why: String,
    },
    /// Another process, or another part of this process, has the store open.
    #[error("{} is in use by {holder}: stop that first", .path.display())]
    InUse {
        /// The path of the store's file.
        path: PathBuf,
        /// The name of the process that has the store open, as text for people.
        holder: String,
    },
    /// The batches after the revision are not in the store's history: they are too old, or do not exist yet.
    #[error(
        "revision {from} cannot be followed, only {oldest} to {newest} can: load again and follow from there"
    )]
    CannotFollow {
        /// The revision after which the batches were requested.
        from: Revision,
        /// The oldest revision that can be followed.
        oldest: Revision,
        /// The newest revision of the store.
        newest: Revision,
    },
    /// The store was closed.
    #[error("the store is closed: open it again")]
    Closed,
    /// A backup cannot be written or restored. The text says why.
    #[error("{0}")]
    CannotCopy(String),
}
