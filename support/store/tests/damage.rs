//! Files that were damaged: the store says so when it is opened, or it makes no difference. No wrong value is given out.

mod common;

use std::{fs, ops::Range};

use common::{TempFolder, batch, beside, claimed, new_store, open, put, remove};
use naa_store::{Error, Snapshot, SqliteConfig, SqliteStore, Store as _, restore};
use simnet::Random;

/// The file, its log and its lock, as bytes.
type Files = [(&'static str, Vec<u8>); 3];

/// A store with something in its file and something in its log, and what it holds.
fn files(folder: &TempFolder) -> (Files, Snapshot) {
    let path = folder.store();
    let fill = |store: &SqliteStore, numbers: Range<usize>| {
        for n in numbers {
            let changes =
                [put(&format!("key {n}"), &n.to_string().repeat(n)), remove(&format!("key {}", n / 2))];
            store.append(batch(1, changes)).unwrap();
        }
    };
    let store = claimed(&path);
    fill(&store, 1..120);
    drop(store);
    let store = open(&path).unwrap();
    fill(&store, 120..123);
    let files = ["", "-wal", ".lock"].map(|ending| (ending, fs::read(beside(&path, ending)).unwrap()));
    (files, store.load().unwrap())
}

/// A store with 100 keys.
fn filled() -> (TempFolder, SqliteStore) {
    let (folder, store) = new_store();
    for n in 0..100 {
        store.append(batch(1, [put(&format!("key {n}"), &n.to_string().repeat(n))])).unwrap();
    }
    (folder, store)
}

fn open_damaged(files: &Files) -> Result<Snapshot, Error> {
    let folder = TempFolder::new();
    for (ending, bytes) in files {
        fs::write(beside(&folder.store(), ending), bytes).unwrap();
    }
    open(&folder.store())?.load()
}

/// Says whether the damage was found.
fn found(seed: u64, files: &Files, expected: &Snapshot) -> bool {
    match open_damaged(files) {
        Ok(snapshot) => {
            assert!(snapshot == *expected, "seed {seed}: another content was loaded");
            false
        }
        Err(why) => {
            assert!(
                matches!(
                    why,
                    Error::Corrupt { .. }
                        | Error::NotAStore { .. }
                        | Error::Lost { .. }
                        | Error::Newer { .. }
                ),
                "seed {seed}: {why}"
            );
            assert!(why.to_string().contains("store"), "seed {seed}: {why} names no file");
            true
        }
    }
}

/// Damages one of the files many times; gives how often it was found.
fn damage(file: usize, how: impl Fn(&mut Vec<u8>, &mut Random)) -> (u64, u64) {
    let folder = TempFolder::new();
    let (files, expected) = files(&folder);
    assert_eq!(open_damaged(&files).unwrap(), expected);
    let seeds = common::repetitions("NAA_SEEDS", 50);
    let seen = (0..seeds).filter(|seed| {
        let mut files = files.clone();
        how(&mut files[file].1, &mut Random::new(*seed, 0));
        found(*seed, &files, &expected)
    });
    (seen.count() as u64, seeds)
}

fn flip_a_bit(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
}

fn cut_short(bytes: &mut Vec<u8>, random: &mut Random) {
    bytes.truncate(random.below(bytes.len() as u64) as usize);
}

fn zero_a_sector(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64) as usize / 512 * 512;
    let end = bytes.len().min(at + 512);
    bytes[at..end].fill(0);
}

/// Ways to damage a file. The last one is found always.
const HOW: [fn(&mut Vec<u8>, &mut Random); 3] =
    [|bytes, random| flip_a_bit(bytes, random), |bytes, random| zero_a_sector(bytes, random), cut_short];

#[test]
fn a_damaged_file_is_found_or_makes_no_difference() {
    let mut closed = 0;
    for how in &HOW[..2] {
        let (seen, of) = damage(0, how);
        println!("file with a log: {seen} of {of} found");
        closed += seen;
    }
    assert!(closed > 0);
}

#[test]
fn a_damaged_log_is_found() {
    for how in HOW {
        let (seen, of) = damage(1, how);
        println!("log: {seen} of {of} found");
        assert!(seen * 2 > of, "{seen} of {of}");
    }
}

#[test]
fn a_damaged_file_without_a_log_is_found_or_makes_no_difference() {
    let (folder, store) = filled();
    let expected = store.load().unwrap();
    drop(store);
    let whole = fs::read(folder.store()).unwrap();
    let lock = fs::read(beside(&folder.store(), ".lock")).unwrap();
    let seeds = common::repetitions("NAA_SEEDS", 50);
    for how in HOW {
        let seen = (0..seeds).filter(|seed| {
            let mut bytes = whole.clone();
            how(&mut bytes, &mut Random::new(*seed, 0));
            let files = [("", bytes), ("-wal", Vec::new()), (".lock", lock.clone())];
            found(*seed, &files, &expected)
        });
        println!("file: {} of {seeds} found", seen.count());
    }
}

#[test]
fn a_damaged_backup_is_refused_and_the_store_stays() {
    let (folder, store) = filled();
    let backup = folder.path().join("backup of the store");
    store.backup(&backup).unwrap();
    store.append(batch(1, [put("later", "")])).unwrap();
    let expected = store.load().unwrap();
    drop(store);
    let whole = fs::read(&backup).unwrap();
    let mut refused = 0;
    for seed in 0..common::repetitions("NAA_SEEDS", 50) {
        let mut bytes = whole.clone();
        flip_a_bit(&mut bytes, &mut Random::new(seed, 0));
        fs::write(&backup, &bytes).unwrap();
        if let Ok(restored) = restore(&backup, &folder.store(), &SqliteConfig::default()) {
            // A bit that nobody reads. The former store comes back for the next one.
            let store = open(&folder.store()).unwrap();
            assert_eq!(store.load().unwrap().entries.len(), 100, "seed {seed}");
            store.append(batch(restored.term.0, [put("later", "")])).unwrap();
        } else {
            refused += 1;
        }
        let found = open(&folder.store()).unwrap().load().unwrap();
        assert_eq!((found.revision, &found.entries), (expected.revision, &expected.entries), "seed {seed}");
    }
    println!("{refused} refused");
    assert!(refused > 0);
}

#[test]
fn an_older_file_put_in_its_place_is_found() {
    let (folder, store) = new_store();
    store.append(batch(1, [put("k", "1")])).unwrap();
    drop(store);
    let older = fs::read(folder.store()).unwrap();
    let store = open(&folder.store()).unwrap();
    store.append(batch(1, [put("k", "2")])).unwrap();
    drop(store);
    fs::write(folder.store(), older).unwrap();
    let why = open(&folder.store()).unwrap_err();
    assert!(matches!(why, Error::Lost { .. }), "{why}");
    // The remedy that the error names.
    fs::remove_file(beside(&folder.store(), ".lock")).unwrap();
    open(&folder.store()).unwrap();
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let folder = TempFolder::new();
    fs::write(folder.store(), "something else ".repeat(1000)).unwrap();
    let why = open(&folder.store()).unwrap_err();
    assert!(matches!(why, Error::NotAStore { .. }), "{why}");
    assert_eq!(fs::read(folder.store()).unwrap(), "something else ".repeat(1000).into_bytes());
}

#[test]
fn a_database_of_something_else_is_refused_and_left_alone() {
    let folder = TempFolder::new();
    let connection = rusqlite::Connection::open(folder.store()).unwrap();
    connection.execute_batch("CREATE TABLE other (x); INSERT INTO other VALUES (1);").unwrap();
    drop(connection);
    let before = fs::read(folder.store()).unwrap();
    let why = open(&folder.store()).unwrap_err();
    assert!(matches!(why, Error::NotAStore { .. }), "{why}");
    assert_eq!(fs::read(folder.store()).unwrap(), before);
}
