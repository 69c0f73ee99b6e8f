//! Results: files that appear under their names when they are complete.
//!
//! A result is written to a file without a name (`O_TMPFILE`), which gets its name when all of it is written. If the
//! process is killed before, nothing is left.
//!
//! In two cases a file has a passing name that nobody can predict, `.naa-….partial`: for a moment when a complete result
//! replaces a file, and all the time on file systems that have no files without names. If the process is killed then, the
//! file stays. It is locked as long as its writer lives, so [`Folder::create`] and [`Folder::remove_abandoned`] know which
//! ones are abandoned and remove them.
//!
//! Folders are opened once and files are named relative to them. A symbolic link at the place of a result or of an
//! unfinished file is never written through.

mod background;
mod destination;
mod folder;

use std::{env, io, path::PathBuf};

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
        _ if why.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "; close files or raise `ulimit -n`"
        }
        _ => "",
    }
}

/// The folder for temporary files: `TMPDIR`, and `/tmp` if it is not set, or empty.
pub fn temporary() -> PathBuf {
    let folder = env::temp_dir();
    if folder.as_os_str().is_empty() { "/tmp".into() } else { folder }
}

fn other(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}
