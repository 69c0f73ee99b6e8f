//! Backups and what they are restored to: neither takes anything from a store that it was not asked to replace.

mod common;

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use common::{
    TempFolder, batch, beside, claimed,
    disk::{Disk, Faults},
    new_store, open, put,
};
use naa_store::{Error, Revision, SqliteConfig, Store as _, Term, restore};

/// What FILE and FILE-wal have of a store that was killed after three changes.
fn killed(folder: &TempFolder, name: &str) -> PathBuf {
    let copy = folder.path().join(name);
    let store = claimed(&folder.store());
    for n in 0..3 {
        store.append(batch(1, [put(&n.to_string(), "")])).unwrap();
    }
    for ending in ["", "-wal", ".lock"] {
        fs::copy(beside(&folder.store(), ending), beside(&copy, ending)).unwrap();
    }
    copy
}

fn cannot_copy<T>(result: Result<T, Error>, expected: &str) {
    match result {
        Err(Error::CannotCopy(text)) => assert!(text.contains(expected), "{text}"),
        Err(why) => panic!("{why}"),
        Ok(_) => panic!("it was copied"),
    }
}

#[test]
fn a_backup_is_not_written_over_a_file_of_the_store_itself() {
    let (folder, store) = new_store();
    store.append(batch(1, [put("a", "1")])).unwrap();
    let [link, linked, hard] = ["link", "linked", "hard"].map(|name| folder.path().join(name));
    symlink(folder.path(), &link).unwrap();
    symlink(beside(&folder.store(), "-journal"), &linked).unwrap();
    fs::hard_link(folder.store(), &hard).unwrap();
    let mut own = vec![link.join("store"), folder.path().join(".").join("store"), linked, hard];
    own.extend(["", "-wal", "-shm", "-journal", ".lock"].map(|ending| beside(&folder.store(), ending)));
    for to in &own {
        cannot_copy(store.backup(to), "name another file for its backup");
    }
    assert_eq!(store.append(batch(1, [put("b", "2")])), Ok(Revision(2)));
    let other = folder.path().join("store-backup");
    for _ in 0..2 {
        assert_eq!(store.backup(&other), Ok(Revision(2)), "a backup may be replaced");
    }
    let expected = store.load().unwrap();
    drop(store);
    assert_eq!(open(&folder.store()).unwrap().load().unwrap(), expected);
}

#[test]
fn a_store_is_not_restored_from_itself() {
    let folder = TempFolder::new();
    let store = killed(&folder, "killed");
    let link = folder.path().join("link");
    symlink(&store, &link).unwrap();
    for (from, to) in [(&store, &store), (&link, &store), (&store, &link)] {
        cannot_copy(restore(from, to, &SqliteConfig::default()), "name a backup");
    }
    assert_eq!(open(&store).unwrap().load().unwrap().entries.len(), 3);
}

#[test]
fn the_file_of_a_store_that_was_not_closed_is_no_backup() {
    let folder = TempFolder::new();
    let store = killed(&folder, "killed");
    let to = folder.path().join("new");
    let link = folder.path().join("link");
    symlink(&store, &link).unwrap();
    for from in [&store, &link] {
        cannot_copy(restore(from, &to, &SqliteConfig::default()), "killed-wal; make a backup of that store");
        assert!(!to.exists());
    }
    // The remedy that the error names.
    let backup = folder.path().join("backup");
    open(&store).unwrap().backup(&backup).unwrap();
    assert_eq!(restore(&backup, &to, &SqliteConfig::default()).unwrap().keys, 3);
    // When it was closed, all is in the file.
    let closed = folder.path().join("closed");
    assert_eq!(restore(&store, &closed, &SqliteConfig::default()).unwrap().keys, 3);
}

#[test]
fn a_store_whose_newest_term_cannot_be_read_is_replaced_only_if_it_is_damaged() {
    let (folder, store) = new_store();
    let backup = folder.path().join("backup");
    store.backup(&backup).unwrap();
    store.claim(Term(1), Term(7)).unwrap();
    drop(store);
    let whole = fs::read(folder.store()).unwrap();
    let refused = |settings: &SqliteConfig, is: fn(&Error) -> bool| {
        let before = fs::read(folder.store()).unwrap();
        let why = restore(&backup, &folder.store(), settings).unwrap_err();
        assert!(is(&why), "{why}");
        assert_eq!(fs::read(folder.store()).unwrap(), before);
    };
    let disk = Disk::new(Faults { broken: true, ..Faults::default() });
    let broken = SqliteConfig { vfs: Some(disk.name()), ..SqliteConfig::default() };
    refused(&broken, |why| matches!(why, Error::Io { .. }));
    let other = rusqlite::Connection::open(folder.store()).unwrap();
    other.execute_batch("PRAGMA user_version = 99;").unwrap();
    drop(other);
    refused(&SqliteConfig::default(), |why| matches!(why, Error::Newer { .. }));
    let mut newest = Term(7);
    for damaged in [&whole[..whole.len() / 2], b"something else"] {
        fs::write(folder.store(), damaged).unwrap();
        let restored = restore(&backup, &folder.store(), &SqliteConfig::default()).unwrap();
        assert_eq!(restored.term, Term(newest.0 + (1 << 24)), "the lock has the newest one");
        newest = restored.term;
    }
}

#[test]
fn a_term_is_claimed_only_when_the_mark_that_outlives_the_file_is_on_disk() {
    // The null device takes the mark, but nothing brings it to disk.
    let folder = TempFolder::new();
    symlink("/dev/null", beside(&folder.store(), ".lock")).unwrap();
    let store = open(&folder.store()).unwrap();
    let claimed = store.claim(Term(0), Term(1));
    assert!(matches!(claimed, Err(Error::Unknown { .. })), "{claimed:?}");
}
