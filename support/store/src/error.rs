//! Why a store refuses, and what to do about it.

use std::path::PathBuf;

use crate::{InvalidBatch, MAX_WAITING, Revision, Term};

/// Why there is no result. If the error is [`Error::Unknown`], the batch may be stored or not; with every other error
/// the batch is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "term {term} is over, the newest is {newest}: another writer took over; stop writing, or claim a term again"
    )]
    Stale { term: Term, newest: Term },
    #[error("nobody claimed term {term}, the newest is {newest}: claim it before writing")]
    Unclaimed { term: Term, newest: Term },
    #[error("term {next} is not above term {seen}: claim a higher one")]
    TermNotAbove { seen: Term, next: Term },
    #[error("the batch is refused: {0}")]
    Invalid(#[from] InvalidBatch),
    #[error("{MAX_WAITING} batches, or too many bytes, wait to be stored: try again when some are done")]
    Busy,
    #[error("{} cannot grow: {why}; nothing was changed, and writing goes on when there is room", .path.display())]
    Full { path: PathBuf, why: String },
    #[error("{} may not be written: {why}; make it writable, with its folder", .path.display())]
    ReadOnly { path: PathBuf, why: String },
    #[error("{} cannot be used: {why}", .path.display())]
    Io { path: PathBuf, why: String },
    #[error("whether {} has the change is unknown: {why}; load before trying again", .path.display())]
    Unknown { path: PathBuf, why: String },
    #[error("{} is damaged: {what}; restore it from a backup", .path.display())]
    Corrupt { path: PathBuf, what: String },
    #[error(
        "{} lost changes: it has revision {found} of term {found_term}, but revision {acknowledged} of term \
         {acknowledged_term} was acknowledged; restore it from a backup, or remove {} to go on with what is there",
        .path.display(), .mark.display()
    )]
    Lost {
        path: PathBuf,
        mark: PathBuf,
        found: Revision,
        found_term: Term,
        acknowledged: Revision,
        acknowledged_term: Term,
    },
    #[error("{} has version {version}, this program knows versions up to {newest}: use a newer one", .path.display())]
    Newer { path: PathBuf, version: i64, newest: i64 },
    #[error("{} is no store: {why}; name another file", .path.display())]
    NotAStore { path: PathBuf, why: String },
    #[error("{} is in use by {holder}: stop that first", .path.display())]
    InUse { path: PathBuf, holder: String },
    #[error(
        "revision {from} cannot be followed, only {oldest} to {newest} can: load again and follow from there"
    )]
    CannotFollow { from: Revision, oldest: Revision, newest: Revision },
    #[error("the store is closed: open it again")]
    Closed,
    #[error("{0}")]
    CannotCopy(String),
}
