//! What the suites share. Each uses a part of it.
#![allow(dead_code, reason = "each suite is a program of its own and uses a part")]

pub(crate) mod disk;
pub(crate) mod load;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use naa_store::{Batch, Change, Error, SqliteConfig, SqliteStore, Store as _, Term};

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("naa-store-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How often a suite repeats itself, unless the environment says it.
pub(crate) fn repetitions(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |n| n.parse().expect("a number"))
}

pub(crate) fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, &SqliteConfig::default())
}

/// A new store of which term 1 is claimed.
pub(crate) fn claimed(path: &Path) -> SqliteStore {
    let store = open(path).unwrap();
    store.claim(Term(0), Term(1)).unwrap();
    store
}

/// A new folder with such a store.
pub(crate) fn new_store() -> (TempFolder, SqliteStore) {
    let folder = TempFolder::new();
    let store = claimed(&folder.store());
    (folder, store)
}

/// The file beside another one whose name has `ending` behind it.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    format!("{}{ending}", path.display()).into()
}

pub(crate) fn put(key: &str, value: &str) -> Change {
    Change { key: key.into(), value: Some(value.into()) }
}

pub(crate) fn remove(key: &str) -> Change {
    Change { key: key.into(), value: None }
}

pub(crate) fn batch(term: u64, changes: impl Into<Vec<Change>>) -> Batch {
    Batch { term: Term(term), changes: changes.into() }
}
