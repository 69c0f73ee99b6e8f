//! The audit log as a file, with one line of JSON for each durable change.
//!
//! A thread of its own writes the file, so that a slow disk does not delay requests. If its queue is full, lines are left out
//! of the file, and the log says how many. The store keeps the newest entries in any case.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, SyncSender},
    },
};

use ejfat_control::record::AuditEntry;
use serde_json::json;

/// The most lines that wait to be written.
const MOST_WAITING: usize = 4096;

/// Why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot append to the audit log {}: {source}; give a file that can be written", .path.display())]
pub struct AuditError {
    /// The file of the audit log.
    pub path: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Debug)]
pub(crate) struct Audit {
    /// An empty text only wakes the thread.
    lines: SyncSender<String>,
    left_out: AtomicU64,
    /// Whether the thread is to open the file again before it writes.
    reopen: Arc<AtomicBool>,
}

impl Audit {
    /// Opens the file for appending. A new file can be read by its owner only.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditError> {
        let file = append(path)?;
        let (lines, waiting) = mpsc::sync_channel(MOST_WAITING);
        let (of, reopen) = (path.to_owned(), Arc::<AtomicBool>::default());
        let asked = reopen.clone();
        let run = move || write(file, &of, &waiting, &asked);
        let started = std::thread::Builder::new().name("naa-audit".into()).spawn(run);
        started.map_err(|source| AuditError { path: path.to_owned(), source })?;
        Ok(Self { lines, left_out: AtomicU64::new(0), reopen })
    }

    /// Has the thread open the file again by its name, since the file that it has may have been renamed. It never waits.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Relaxed);
        // If the queue is full, the thread opens the file before the next line.
        let _ = self.lines.try_send(String::new());
    }

    /// Passes an entry to the thread that writes. It never waits.
    pub(crate) fn write(&self, entry: &AuditEntry) {
        let AuditEntry { at, by, call, what } = entry;
        let line = json!({ "at_ms": at.0, "token": by.map(|by| by.0), "call": call, "what": what });
        if self.lines.try_send(format!("{line}\n")).is_err() {
            let left_out = self.left_out.fetch_add(1, Relaxed) + 1;
            if left_out.is_power_of_two() {
                tracing::warn!(
                    "{left_out} lines were left out of the audit log's file, because its disk is too slow"
                );
            }
        }
    }
}

fn append(path: &Path) -> Result<File, AuditError> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.map_err(|source| AuditError { path: path.to_owned(), source })
}

fn write(mut file: File, path: &Path, lines: &mpsc::Receiver<String>, reopen: &AtomicBool) {
    let mut is_reported = false;
    for line in lines {
        if reopen.swap(false, Relaxed) {
            match append(path) {
                Ok(new) => {
                    file = new;
                    tracing::info!("the audit log {} was opened again", path.display());
                }
                Err(why) => tracing::warn!("{why}; its lines go on into the file that was opened before"),
            }
        }
        match file.write_all(line.as_bytes()) {
            Ok(()) => is_reported = false,
            Err(why) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(
                        "the audit log {} cannot be written: {why}; its lines are lost until it can be written again",
                        path.display()
                    );
                }
            }
        }
    }
}
