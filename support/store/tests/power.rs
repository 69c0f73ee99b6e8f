//! The power is cut at random moments under load: nothing acknowledged is lost, nothing half-done is seen.

mod common;

use std::sync::Mutex;

use common::{
    TempFolder,
    disk::{Disk, Faults, Unsynced},
    load::{self, Acknowledged, WRITERS},
};
use naa_store::{Error, SqliteConfig, SqliteStore, Store as _, Term};
use simnet::Random;

/// Power cuts that follow each other in one store.
const CUTS: usize = 4;

fn settings(disk: &Disk) -> SqliteConfig {
    SqliteConfig { vfs: Some(disk.name()), ..SqliteConfig::default() }
}

/// Has all writers append until they fail.
fn run(store: &SqliteStore, seed: u64, known: &mut Acknowledged) {
    let shared = Mutex::new(*known);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let from = known.batches[writer as usize];
            let shared = &shared;
            scope.spawn(move || {
                load::write(store, seed, writer, from, |number, revision| {
                    let mut known = shared.lock().unwrap();
                    known.batches[writer as usize] = number;
                    known.revision = known.revision.max(revision);
                });
            });
        }
    });
    *known = shared.into_inner().unwrap();
}

/// Gives the number of batches that were stored.
fn cut_again_and_again(seed: u64) -> u64 {
    let folder = TempFolder::new();
    let path = folder.store();
    let mut random = Random::new(seed, 0);
    let mut known = Acknowledged::default();
    for cut in 0..CUTS {
        let most = 1 << random.range(3..=13);
        let power = random.range(1..=most);
        let unsynced = random.pick(&[Unsynced::Lost, Unsynced::Kept, Unsynced::Some, Unsynced::Some]);
        let faults = Faults { power: Some(power), cautious: random.chance(300_000), ..Faults::default() };
        let disk = Disk::new(faults);
        if let Ok(store) = SqliteStore::open(&path, &settings(&disk)) {
            let _ = store.claim(Term(0), Term(1));
            run(&store, seed, &mut known);
        }
        disk.power_cut(unsynced, &mut random);
        drop(disk);

        let disk = Disk::new(Faults::default());
        let store = SqliteStore::open(&path, &settings(&disk));
        let store = store.unwrap_or_else(|why| panic!("seed {seed}, cut {cut} ({unsynced:?}): {why}"));
        known = load::check(seed, &store.load().unwrap(), &known);
        drop(store);
        disk.sync_to_folder();
    }
    known.revision.0
}

#[test]
fn what_was_acknowledged_outlives_power_cuts() {
    let seeds = common::repetitions("NAA_SEEDS", 60);
    let batches: u64 = (0..seeds).map(cut_again_and_again).sum();
    println!("{seeds} stores, {CUTS} power cuts each, {batches} batches");
}

#[test]
fn the_disk_loses_what_was_not_synced() {
    // The test of the test: a store that does not sync loses batches on this disk.
    let lost = (0..50).any(|seed| {
        let folder = TempFolder::new();
        let path = folder.store();
        let disk = Disk::new(Faults::default());
        let connection = rusqlite::Connection::open_with_flags_and_vfs(
            &path,
            rusqlite::OpenFlags::default(),
            disk.name().as_str(),
        );
        let connection = connection.unwrap();
        let set = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
                   CREATE TABLE t (x); INSERT INTO t VALUES (1);";
        connection.execute_batch(set).unwrap();
        disk.power_cut(Unsynced::Lost, &mut Random::new(seed, 0));
        drop(connection);
        drop(disk);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)).is_err()
    });
    assert!(lost);
}

#[test]
fn a_sync_that_fails_acknowledges_nothing_that_a_power_cut_takes() {
    for seed in 0..common::repetitions("NAA_SEEDS", 100) {
        let folder = TempFolder::new();
        let mut random = Random::new(seed, 1);
        let mut known = Acknowledged::default();
        let disk = Disk::new(Faults::default());
        let store = SqliteStore::open(&folder.store(), &settings(&disk)).unwrap();
        store.claim(Term(0), Term(1)).unwrap();
        for writer in 0..WRITERS {
            let mut doubtful = false;
            for number in 1..=5 {
                if random.chance(300_000) {
                    disk.change(|faults| faults.failing_syncs = random.range(1..=3));
                }
                match store.append(load::batch(seed, writer, number)) {
                    Ok(revision) => {
                        known.batches[writer as usize] = number;
                        known.revision = revision;
                    }
                    Err(Error::Unknown { .. } | Error::Io { .. }) => {
                        doubtful = true;
                        break;
                    }
                    Err(why) => panic!("seed {seed}: {why}"),
                }
            }
            if doubtful {
                disk.change(|faults| faults.failing_syncs = 0);
                // The store works again by itself, and tells what it has.
                let loaded = store.load().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                known = load::check(seed, &loaded, &known);
            }
        }
        disk.power_cut(random.pick(&[Unsynced::Lost, Unsynced::Some]), &mut random);
        drop(store);
        drop(disk);
        let store = common::open(&folder.store()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        load::check(seed, &store.load().unwrap(), &known);
    }
}
