//! What a store does while everything works.

mod common;

use std::{fs, panic, path::Path, sync::mpsc, thread, time::Duration};

use common::{TempFolder, batch, beside, claimed, new_store, open, put, remove};
use naa_store::{
    Error, InvalidBatch, MAX_BATCH_BYTES, MAX_CHANGES, MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_WAITING, Revision,
    Store as _, Term, restore,
};

fn entries(store: &naa_store::SqliteStore) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    store.load().unwrap().entries.into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

#[test]
fn what_is_appended_is_loaded_now_and_after_opening_again() {
    let (folder, store) = new_store();
    assert_eq!(store.append(batch(1, [put("b", "1"), put("a", "2")])), Ok(Revision(1)));
    assert_eq!(
        store.append(batch(1, [put("b", "3"), remove("a"), remove("never"), put("c", "")])),
        Ok(Revision(2))
    );
    let expected = [("b", "3"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(entries(&store), expected);
    drop(store);
    let store = open(&folder.store()).unwrap();
    assert_eq!(entries(&store), expected);
    let snapshot = store.load().unwrap();
    assert_eq!((snapshot.term, snapshot.revision), (Term(1), Revision(2)));
}

#[test]
fn only_the_newest_term_writes() {
    let folder = TempFolder::new();
    let store = open(&folder.store()).unwrap();
    let claim = |seen, next| store.claim(Term(seen), Term(next));
    let append = |term| store.append(batch(term, [put("k", "v")]));
    assert_eq!(append(1), Err(Error::Unclaimed { term: Term(1), newest: Term(0) }));
    claim(0, 1).unwrap();
    append(1).unwrap();
    assert_eq!(
        claim(0, 2),
        Err(Error::Stale { term: Term(0), newest: Term(1) }),
        "two claim after the same term"
    );
    assert_eq!(claim(1, 1), Err(Error::TermNotAbove { seen: Term(1), next: Term(1) }));
    assert_eq!(claim(4, 5), Err(Error::Unclaimed { term: Term(4), newest: Term(1) }));
    claim(1, 7).unwrap();
    assert_eq!(append(1), Err(Error::Stale { term: Term(1), newest: Term(7) }));
    append(7).unwrap();
}

#[test]
fn a_refused_batch_takes_no_other_down() {
    let (_folder, store) = new_store();
    let (sender, results) = mpsc::channel();
    // They are sent faster than a transaction takes, so that several are in one.
    for n in 0..200 {
        let sender = sender.clone();
        let term = if n % 3 == 0 { 0 } else { 1 };
        let done = Box::new(move |result| sender.send((n, result)).unwrap());
        store.append_with(batch(term, [put(&format!("key {n}"), "v")]), done);
    }
    let mut last = Revision(0);
    for expected in 0..200 {
        let (n, result) = results.recv().unwrap();
        assert_eq!(n, expected, "in order");
        match result {
            Ok(revision) => {
                assert!(n % 3 != 0 && revision > last);
                last = revision;
            }
            Err(why) => assert_eq!((n % 3, why), (0, Error::Stale { term: Term(0), newest: Term(1) })),
        }
    }
    assert_eq!(store.load().unwrap().entries.len(), 133);
}

#[test]
fn limits_are_named() {
    let (_folder, store) = new_store();
    let refused = |changes: Vec<_>| match store.append(batch(1, changes)) {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(vec![]), InvalidBatch::Empty);
    assert_eq!(refused(vec![put("a", ""), put("", "x")]), InvalidBatch::EmptyKey(1));
    assert_eq!(refused(vec![put("a", ""), remove("a")]), InvalidBatch::RepeatedKey(1));
    let bytes = MAX_KEY_BYTES + 1;
    assert_eq!(refused(vec![put(&"k".repeat(bytes), "")]), InvalidBatch::KeyTooLong { index: 0, bytes });
    let bytes = MAX_VALUE_BYTES + 1;
    assert_eq!(refused(vec![put("k", &"v".repeat(bytes))]), InvalidBatch::ValueTooLong { index: 0, bytes });
    let most = "v".repeat(MAX_VALUE_BYTES);
    let bytes = 6 * (1 + MAX_VALUE_BYTES);
    let six = ["a", "b", "c", "d", "e", "f"].map(|key| put(key, &most));
    assert_eq!(refused(six.to_vec()), InvalidBatch::TooLarge(bytes));
    assert!(bytes > MAX_BATCH_BYTES);
    let many: Vec<_> = (0..=MAX_CHANGES).map(|n| put(&n.to_string(), "")).collect();
    assert_eq!(refused(many.clone()), InvalidBatch::TooManyChanges(MAX_CHANGES + 1));
    store.append(batch(1, &many[..MAX_CHANGES])).unwrap();
    store.append(batch(1, [put(&"k".repeat(MAX_KEY_BYTES), &most)])).unwrap();
}

#[test]
fn what_waits_is_bounded_and_nothing_is_forgotten() {
    let (_folder, store) = new_store();
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let (sender, results) = mpsc::channel();
    // The thread of the store is kept from taking more.
    store.append_with(batch(1, [put("first", "")]), Box::new(move |_| assert!(held.recv().is_err())));
    thread::sleep(Duration::from_millis(50));
    for n in 0..MAX_WAITING + 10 {
        let sender = sender.clone();
        let done = Box::new(move |result: Result<_, _>| sender.send((n, result)).unwrap());
        store.append_with(batch(1, [put(&n.to_string(), "")]), done);
    }
    for n in MAX_WAITING..MAX_WAITING + 10 {
        assert_eq!(results.recv().unwrap(), (n, Err(Error::Busy)));
    }
    drop(hold);
    for n in 0..MAX_WAITING {
        assert_eq!(results.recv().unwrap(), (n, Ok(Revision(2 + n as u64))));
    }
}

#[test]
fn what_waits_when_the_store_is_dropped_is_stored() {
    let (folder, store) = new_store();
    let (sender, results) = mpsc::channel();
    for n in 0..100 {
        let sender = sender.clone();
        store.append_with(batch(1, [put(&n.to_string(), "")]), Box::new(move |r| sender.send(r).unwrap()));
    }
    drop(store);
    assert_eq!(results.iter().take(100).filter(Result::is_ok).count(), 100);
    assert_eq!(open(&folder.store()).unwrap().load().unwrap().entries.len(), 100);
}

#[test]
fn a_callers_panic_concerns_nobody_else() {
    let (_folder, store) = new_store();
    panic::set_hook(Box::new(|_| {}));
    store.append_with(batch(1, [put("a", "")]), Box::new(|_| panic!("on purpose")));
    assert_eq!(store.append(batch(1, [put("b", "")])), Ok(Revision(2)));
    drop(panic::take_hook());
}

#[test]
fn a_watch_gets_each_batch_once_in_order_and_the_end() {
    let (folder, store) = new_store();
    store.append(batch(1, [put("before", "")])).unwrap();
    let mut watch = store.watch(store.load().unwrap().revision).unwrap();
    assert_eq!(watch.next(Duration::ZERO), Ok(None));
    let follower = thread::spawn(move || {
        let mut seen = Vec::new();
        loop {
            match watch.next(Duration::from_secs(60)) {
                Ok(Some(committed)) => seen.push((committed.revision, committed.batch.clone())),
                Ok(None) => panic!("too slow"),
                Err(why) => return (seen, why),
            }
        }
    });
    let batches: Vec<_> = (0..50).map(|n| batch(1, [put("k", &n.to_string())])).collect();
    let appended: Vec<_> = batches.iter().map(|b| (store.append(b.clone()).unwrap(), b.clone())).collect();
    assert!(matches!(store.watch(Revision(99)), Err(Error::CannotFollow { .. })), "yet to come");
    drop(store);
    assert_eq!(follower.join().unwrap(), (appended, Error::Closed));
    let store = open(&folder.store()).unwrap();
    assert!(matches!(store.watch(Revision(3)), Err(Error::CannotFollow { .. })), "not at hand any more");
}

#[test]
fn a_store_is_open_once_and_the_error_says_where() {
    let (folder, store) = new_store();
    let holder = format!("process {}", std::process::id());
    let in_use = Error::InUse { path: folder.store(), holder };
    assert_eq!(open(&folder.store()).unwrap_err(), in_use);
    store.backup(&folder.path().join("backup")).unwrap();
    let config = naa_store::SqliteConfig::default();
    let restored = restore(&folder.path().join("backup"), &folder.store(), &config);
    assert_eq!(restored, Err(in_use));
    drop(store);
    open(&folder.store()).unwrap();
}

#[test]
fn a_backup_is_made_while_writing_goes_on_and_restored_whole() {
    let (folder, store) = new_store();
    let backup = folder.path().join("backup");
    let revision = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..300 {
                store.append(batch(1, [put("count", &n.to_string()), put(&n.to_string(), "v")])).unwrap();
            }
        });
        let mut revision = Revision(0);
        while !writer.is_finished() {
            revision = store.backup(&backup).unwrap();
        }
        revision
    });
    store.claim(Term(1), Term(5)).unwrap();
    store.append(batch(5, [put("later", "")])).unwrap();
    drop(store);

    let settings = naa_store::SqliteConfig::default();
    let restored = restore(&backup, &folder.store(), &settings).unwrap();
    assert_eq!((restored.revision, restored.term), (revision, Term(5 + (1 << 24))), "above the newest term");
    let store = open(&folder.store()).unwrap();
    let snapshot = store.load().unwrap();
    assert_eq!(snapshot.entries.len() as u64, restored.keys);
    let count = revision.0.checked_sub(1).map(|n| n.to_string().into_bytes());
    assert_eq!(snapshot.entries.get(&b"count"[..]), count.as_ref());
    assert_eq!(store.append(batch(restored.term.0, [put("goes on", "")])), Ok(Revision(revision.0 + 1)));
    drop(store);

    let elsewhere = folder.path().join("elsewhere");
    let restored = restore(&backup, &elsewhere, &settings).unwrap();
    assert!(
        restored.term > Term(5),
        "a term that the backup does not know of is not claimed again: {restored:?}"
    );
    assert_eq!(naa_store::revision_of(&backup, &settings), Ok(revision));
    assert_eq!(open(&elsewhere).unwrap().load().unwrap().revision, revision);
}

#[test]
fn a_restored_store_takes_nothing_from_the_one_before() {
    // The former store was left with a log, which belongs to it alone.
    let (folder, store) = new_store();
    let [backup, left] = ["backup", "left"].map(|name| folder.path().join(name));
    store.append(batch(1, [put("k", "old")])).unwrap();
    store.backup(&backup).unwrap();
    store.append(batch(1, [put("k", "new")])).unwrap();
    for ending in ["", "-wal", ".lock"] {
        fs::copy(beside(&folder.store(), ending), beside(&left, ending)).unwrap();
    }
    drop(store);
    restore(&backup, &left, &naa_store::SqliteConfig::default()).unwrap();
    assert_eq!(entries(&open(&left).unwrap()), [("k".to_owned(), "old".to_owned())]);
}

#[test]
fn a_file_of_version_1_is_read() {
    let folder = TempFolder::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1.store");
    if std::env::var_os("NAA_WRITE_FIXTURE").is_some() {
        let store = claimed(&folder.store());
        for n in 0..20 {
            store.append(batch(1, [put(&format!("key {n}"), &"v".repeat(n)), remove("gone")])).unwrap();
        }
        store.backup(&fixture).unwrap();
        drop(store);
    }
    fs::copy(&fixture, folder.store()).unwrap();
    let store = open(&folder.store()).unwrap();
    let snapshot = store.load().unwrap();
    assert_eq!((snapshot.term, snapshot.revision, snapshot.entries.len()), (Term(1), Revision(20), 20));
    assert_eq!(snapshot.entries[&b"key 19"[..]], b"v".repeat(19));
    store.append(batch(1, [put("k", "v")])).unwrap();
}
