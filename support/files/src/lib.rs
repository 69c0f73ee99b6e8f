//! Results: files that get their names when they are complete.
//!
//! A result is written to a file without a name (`O_TMPFILE`). The file gets its name when the whole result is written.
//! If the process is killed before the file has its name, nothing is left.
//!
//! In two cases a file has a temporary name that nobody can predict, `.naa-….partial`. A complete result has a
//! temporary name for a moment before it replaces a file. On file systems that have no files without names, a result
//! has a temporary name until it is complete. If the process is killed while a file has a temporary name, the file
//! stays. The writer locks the file, so [`ResultFolder::create`] and [`ResultFolder::remove_abandoned`] recognize
//! abandoned files and remove them.
//!
//! Folders are opened once, and files are named relative to the open folder. No result is written through a symbolic
//! link that appears at the place of the result or of an unfinished file.
//!
//! ```rust
//! use std::{fs, io::Write};
//! use naa_files::{CannotWrite, Destination};
//!
//! # fn main() -> Result<(), CannotWrite> {
//! let path = naa_files::temporary().join(format!("result-{}", std::process::id()));
//! let destination = Destination::new(&path)?;
//! destination.write(
//!     true,
//!     |file| file.write_all(b"42\n").map_err(|why| CannotWrite::new(&path, why)),
//!     || Ok(()),
//! )?;
//! assert_eq!(fs::read(&path).unwrap(), b"42\n");
//! # fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod background;
mod destination;
mod result_folder;

use std::{env, io, path::PathBuf};

pub use background::Background;
pub use destination::Destination;
pub use result_folder::{ResultFolder, Unfinished, is_unfinished};

/// Why there is no result, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}{}", .path.display(), remedy(why))]
pub struct CannotWrite {
    /// The path of the result as the user named it.
    pub path: PathBuf,
    /// The error of the operating system, or a text that says what is wrong with the path.
    pub why: io::Error,
}

impl CannotWrite {
    /// Makes the error for the result at `path`.
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
