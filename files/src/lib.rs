//! Results: files that appear under their names when they are complete.
//!
//! A result is written to a file without a name (`O_TMPFILE`), which gets its name when all of it is written. Whatever
//! ends the process before, nothing is left. File systems that have no such files get one with a name that nobody can
//! predict; it is locked as long as its writer lives, so the next writer knows which ones are abandoned.
//!
//! Folders are opened once and files are named relative to them. A symbolic link at the place of a result or of an
//! unfinished file is never written through.

mod background;
mod destination;
mod folder;

use std::{io, path::PathBuf};

pub use background::Background;
pub use destination::Destination;
pub use folder::{Folder, Unfinished, is_unfinished};

/// Why there is no result, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}{}", .path.display(), remedy(why))]
pub struct CannotWrite {
    pub path: PathBuf,
    pub why: io::Error,
}

impl CannotWrite {
    pub fn new(path: impl Into<PathBuf>, why: impl Into<io::Error>) -> Self {
        Self { path: path.into(), why: why.into() }
    }
}

fn remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::StorageFull => "; free space on its file system, or write to another one",
        io::ErrorKind::QuotaExceeded => "; remove files of yours there, or have your quota raised",
        io::ErrorKind::FileTooLarge => "; raise the limit with `ulimit -f`, or write to another file system",
        _ => "",
    }
}

fn other(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}
