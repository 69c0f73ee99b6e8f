//! Backups of the store, in a file that is written again and again.
//!
//! A control plane whose store was lost begins with an empty one. Its backups must not replace the only copy of what it lost, so a
//! backup that this store does not go on from is kept under another name.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use naa_store::{Revision, SqliteConfig, SqliteStore, Store as _};

/// What the name of the backup before the newest one ends with.
const BEFORE: &str = ".1";
/// What the name of the former backup ends with while the next one is written.
const FORMER: &str = ".former";
/// What the name of a backup of another store ends with.
const KEPT: &str = ".kept";

/// Why a backup was not written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store failed to read, check or write a backup.
    #[error(transparent)]
    Store(#[from] naa_store::Error),
    /// The file of the backup and the file for kept backups both contain backups of other stores.
    #[error("{} and {} are both of another store than this one; move one of them away", .file.display(), .kept.display())]
    Others {
        /// The file of the backup.
        file: PathBuf,
        /// The file whose name ends with `.kept`, in which a backup of another store is kept.
        kept: PathBuf,
    },
    /// A file of a backup cannot be renamed.
    #[error("the former backup {} cannot be renamed: {source}; give a folder that can be written", .file.display())]
    Rename {
        /// The file of the backup.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Writes backups of one store.
#[derive(Debug)]
pub(crate) struct Backups {
    /// Whether the store was made when this process opened it.
    is_new: bool,
    /// Whether the backup that was there at the start has been checked.
    is_checked: AtomicBool,
}

impl Backups {
    pub(crate) fn new(is_new: bool) -> Self {
        Self { is_new, is_checked: AtomicBool::new(false) }
    }

    /// Writes a backup to `to`. The one before stays in a file whose name ends with `.1`. If the first one that is found is of a
    /// store that this one does not go on from, it is kept in a file whose name ends with `.kept`.
    pub(crate) fn write(&self, store: &SqliteStore, to: &Path) -> Result<(), BackupError> {
        let failed = |source| BackupError::Rename { file: to.to_owned(), source };
        // All files are checked before any of them is renamed.
        store.check_backup(to)?;
        for ending in [BEFORE, FORMER, KEPT] {
            store.check_backup(&beside(to, ending))?;
        }
        let mut former = None;
        if !self.is_checked.load(Relaxed) && to.exists() && self.is_of_another(store.load()?.revision, to) {
            let kept = beside(to, KEPT);
            if kept.exists() {
                return Err(BackupError::Others { file: to.to_owned(), kept });
            }
            fs::rename(to, &kept).map_err(failed)?;
            tracing::warn!(
                "the backup {} is not of this store, or newer than it; it is kept as {}; if it should be in use, stop this \
                 control plane and restore it by `naa lb restore {}`",
                to.display(),
                kept.display(),
                kept.display()
            );
        } else if to.exists() {
            former = Some(second_name(to).map_err(failed)?);
        }
        let written = store.backup(to);
        if let Some(former) = former {
            // What was not written takes no generation away.
            let kept = if written.is_ok() {
                fs::rename(&former, beside(to, BEFORE))
            } else {
                fs::remove_file(&former)
            };
            kept.map_err(failed)?;
        }
        written?;
        self.is_checked.store(true, Relaxed);
        Ok(())
    }

    /// A backup that cannot be read may be one of a newer version of this program, so it counts as another store's.
    fn is_of_another(&self, own: Revision, backup: &Path) -> bool {
        let theirs = naa_store::revision_of(backup, &SqliteConfig::default());
        self.is_new || theirs.map_or(true, |theirs| theirs > own)
    }
}

/// Gives the backup that is there a second name, which is returned.
fn second_name(to: &Path) -> io::Result<PathBuf> {
    let (from, former) = (fs::canonicalize(to)?, beside(to, FORMER));
    match fs::remove_file(&former) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    // Some file systems have no links.
    fs::hard_link(&from, &former).or_else(|_| fs::copy(&from, &former).map(drop))?;
    Ok(former)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
