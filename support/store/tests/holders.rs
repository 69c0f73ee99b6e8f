//! A store under several names, beside other programs, and in the hands of the thread that answers.

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{Arc, mpsc},
    time::Duration,
};

use common::{batch, new_store, open, put, remove};
use naa_store::{Error, MAX_CHANGES, MAX_HISTORY_BYTES, Revision, SqliteConfig, Store as _, restore};

#[test]
fn a_watch_may_wait_without_end() {
    let (_folder, store) = new_store();
    let mut watch = store.watch(Revision(0)).unwrap();
    store.append(batch(1, [put("k", "v")])).unwrap();
    assert_eq!(watch.next(Duration::MAX).unwrap().unwrap().revision, Revision(1));
}

#[test]
fn a_store_may_be_dropped_by_the_thread_that_answers() {
    let (folder, store) = new_store();
    let store = Arc::new(store);
    let (sender, ended) = mpsc::channel::<bool>();
    let (hold, held) = mpsc::channel::<()>();
    let own = store.clone();
    store.append_with(
        batch(1, [put("k", "v")]),
        Box::new(move |_| {
            let _ = held.recv();
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(own)));
            sender.send(dropped.is_ok()).unwrap();
        }),
    );
    drop(store);
    drop(hold);
    assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(true));
    let again = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        open(&folder.store()).ok()
    });
    assert_eq!(again.unwrap().load().unwrap().entries.len(), 1);
}

#[test]
fn a_store_under_two_names_is_open_once() {
    let (folder, store) = new_store();
    let backup = folder.path().join("backup");
    store.backup(&backup).unwrap();
    let link = folder.path().join("link");
    symlink(folder.store(), &link).unwrap();
    let why = open(&link).unwrap_err();
    assert!(matches!(&why, Error::InUse { holder, .. } if holder.starts_with("process ")), "{why}");
    let restored = restore(&backup, &link, &SqliteConfig::default());
    assert!(matches!(restored, Err(Error::InUse { .. })), "{restored:?}");
    store.append(batch(1, [put("k", "v")])).unwrap();
}

#[test]
fn a_store_that_another_program_reads_is_not_replaced() {
    let (folder, store) = new_store();
    let backup = folder.path().join("backup");
    store.append(batch(1, [put("k", "v")])).unwrap();
    store.backup(&backup).unwrap();
    drop(store);
    let other = rusqlite::Connection::open(folder.store()).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE;").unwrap();
    let restored = restore(&backup, &folder.store(), &SqliteConfig::default());
    assert!(matches!(restored, Err(Error::InUse { .. })), "{restored:?}");
}

#[test]
fn a_file_without_bytes_under_an_old_mark_is_lost() {
    let (folder, store) = new_store();
    store.append(batch(1, [put("k", "v")])).unwrap();
    drop(store);
    fs::write(folder.store(), b"").unwrap();
    let why = open(&folder.store()).unwrap_err();
    assert!(matches!(why, Error::Lost { .. }), "{why}");
    // A store that was refused is refused again.
    let why = open(&folder.store()).unwrap_err();
    assert!(matches!(why, Error::Lost { .. }), "{why}");
}

#[test]
fn many_small_changes_count_for_the_history_as_what_they_take() {
    let (_folder, store) = new_store();
    let changes: Vec<_> = (0..MAX_CHANGES).map(|n| remove(&n.to_string())).collect();
    for n in 1..=100 {
        assert_eq!(store.append(batch(1, &changes[..])), Ok(Revision(n)));
    }
    let Err(Error::CannotFollow { oldest, newest, .. }) = store.watch(Revision(0)) else {
        panic!("100 batches of {MAX_CHANGES} changes are kept")
    };
    let kept = newest.0 - oldest.0;
    assert!(
        kept > 0 && kept * (MAX_CHANGES * size_of::<naa_store::Change>()) as u64 <= MAX_HISTORY_BYTES as u64
    );
}
