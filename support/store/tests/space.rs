//! Disks that are full, read-only or fail: the store refuses with a reason, changes nothing, and goes on when it can.

mod common;

use common::{
    TempFolder, batch,
    disk::{Disk, Faults},
    put,
};
use naa_store::{Error, Revision, SqliteConfig, SqliteStore, Store as _, Term};

fn on(disk: &Disk, folder: &TempFolder) -> SqliteStore {
    let settings = SqliteConfig { vfs: Some(disk.name()), ..SqliteConfig::default() };
    let store = SqliteStore::open(&folder.store(), &settings).unwrap();
    store.claim(Term(0), Term(1)).unwrap();
    store.append(batch(1, [put("first", "1")])).unwrap();
    store
}

/// What a fault must not change: what is stored, and that everything works when the fault is over.
fn refuses_and_recovers(
    fault: impl Fn(&mut Faults, u64),
    end: impl Fn(&mut Faults),
    is: impl Fn(&Error) -> bool,
) {
    let folder = TempFolder::new();
    let disk = Disk::new(Faults::default());
    let store = on(&disk, &folder);
    let before = store.load().unwrap();
    let large = "x".repeat(100_000);
    for _ in 0..3 {
        let used = disk.used();
        disk.change(|faults| fault(faults, used));
        for n in 0..3 {
            let why = store.append(batch(1, [put("second", &large), put(&n.to_string(), "")])).unwrap_err();
            assert!(is(&why), "{why:?}");
            assert!(why.to_string().contains("store"), "{why}");
        }
        disk.change(&end);
        assert_eq!(store.load().unwrap(), before, "nothing was changed");
    }
    assert_eq!(store.append(batch(1, [put("second", &large)])), Ok(Revision(before.revision.0 + 1)));
    drop(store);
    disk.sync_to_folder();
    let loaded = common::open(&folder.store()).unwrap().load().unwrap();
    assert_eq!(loaded.entries.len(), 2);
}

#[test]
fn a_full_disk_refuses_until_there_is_room() {
    refuses_and_recovers(
        |faults, used| faults.room = Some(used + 4096),
        |faults| faults.room = None,
        |why| matches!(why, Error::Full { .. }),
    );
}

#[test]
fn a_read_only_disk_refuses_until_it_may_be_written() {
    refuses_and_recovers(
        |faults, _| faults.read_only = true,
        |faults| faults.read_only = false,
        |why| matches!(why, Error::ReadOnly { .. }),
    );
}

#[test]
fn a_disk_that_fails_leaves_a_change_unknown_until_it_works() {
    refuses_and_recovers(
        |faults, _| faults.broken = true,
        |faults| faults.broken = false,
        |why| matches!(why, Error::Unknown { .. } | Error::Io { .. }),
    );
}

#[test]
fn one_large_batch_keeps_no_small_one_from_the_room_that_is_left() {
    let folder = TempFolder::new();
    let settings = SqliteConfig { max_bytes: 400_000, ..SqliteConfig::default() };
    let store = SqliteStore::open(&folder.store(), &settings).unwrap();
    store.claim(Term(0), Term(1)).unwrap();
    let (sender, results) = std::sync::mpsc::channel();
    for n in 0..30 {
        let sender = sender.clone();
        let value = "x".repeat(if n % 2 == 0 { 1_000_000 } else { 10 });
        let done = Box::new(move |result| sender.send((n, result)).unwrap());
        store.append_with(batch(1, [put(&n.to_string(), &value)]), done);
    }
    for (n, result) in results.iter().take(30) {
        match result {
            Ok(_) => assert!(n % 2 == 1, "{n}"),
            Err(why) => assert!(n % 2 == 0 && matches!(why, Error::Full { .. }), "{n}: {why}"),
        }
    }
    assert_eq!(store.load().unwrap().entries.len(), 15);
}

#[test]
fn a_new_store_on_a_disk_without_room_can_be_made_later() {
    for room in [0, 4096, 8192, 20_000, 40_000] {
        let folder = TempFolder::new();
        let disk = Disk::new(Faults { room: Some(room), ..Faults::default() });
        let settings = SqliteConfig { vfs: Some(disk.name()), ..SqliteConfig::default() };
        match SqliteStore::open(&folder.store(), &settings) {
            Ok(_) => {}
            Err(why) => assert!(matches!(why, Error::Full { .. }), "{room}: {why:?}"),
        }
        disk.change(|faults| faults.room = None);
        SqliteStore::open(&folder.store(), &settings).unwrap_or_else(|why| panic!("{room}: {why}"));
    }
}

#[test]
fn several_batches_share_a_sync() {
    let folder = TempFolder::new();
    let disk = Disk::new(Faults::default());
    let store = on(&disk, &folder);
    let before = disk.syncs();
    let (sender, results) = std::sync::mpsc::channel();
    for n in 0..500 {
        let sender = sender.clone();
        let done = Box::new(move |result: Result<_, _>| sender.send(result).unwrap());
        store.append_with(batch(1, [put(&n.to_string(), "")]), done);
    }
    assert!(results.iter().take(500).all(|result| result.is_ok()));
    let syncs = disk.syncs() - before;
    assert!(syncs < 250, "{syncs} syncs for 500 batches");
}
