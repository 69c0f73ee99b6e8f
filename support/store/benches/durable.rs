//! Durable batches per second of 64 callers, against syncs per second of the same disk: `cargo bench -p naa-store`.
//!
//! Both are measured in turns, in the folder that `NAA_BENCH_FOLDER` names, or that for temporary files. A sync is that of one
//! block of 4096 bytes which is written in place, one after the other: the least that a durable change costs without others.

use std::{
    env, fs,
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use naa_store::{Batch, Change, SqliteConfig, SqliteStore, Store as _, Term};

const CALLERS: u64 = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(1000);

fn main() {
    let folder = env::var_os("NAA_BENCH_FOLDER").map_or_else(env::temp_dir, Into::into);
    let folder = folder.join(format!("naa-store-bench-{}", process::id()));
    fs::create_dir_all(&folder).expect("the folder can be written");
    let store = SqliteStore::open(&folder.join("store"), &SqliteConfig::default()).expect("a new store");
    store.claim(Term(0), Term(1)).expect("the first term");
    let mut ratios = Vec::new();
    println!("{CALLERS} callers in {}", folder.display());
    for _ in 0..ROUNDS {
        let syncs = syncs(&folder.join("block"));
        let batches = batches(&store);
        ratios.push(batches / syncs);
        println!("{syncs:9.0} syncs/s {batches:9.0} batches/s   ratio {:6.1}", batches / syncs);
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio: median {:.1}, from {:.1} to {:.1}", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    drop(store);
    fs::remove_dir_all(&folder).expect("the folder can be removed");
}

fn syncs(path: &Path) -> f64 {
    let file = File::create(path).expect("a file");
    file.write_all_at(&[1; 4096], 0).expect("room");
    file.sync_all().expect("a disk that works");
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < ROUND {
        count += 1;
        file.write_all_at(&[count as u8; 4096], 0).expect("room");
        file.sync_data().expect("a disk that works");
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

/// Each caller changes a record of 200 bytes and waits until it is durable, again and again.
fn batches(store: &SqliteStore) -> f64 {
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let count: u64 = thread::scope(|scope| {
        let callers = (0..CALLERS).map(|caller| {
            let over = &over;
            scope.spawn(move || {
                let mut count = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    let key = format!("caller/{caller}/{}", count % 16).into_bytes();
                    let changes = vec![Change { key, value: Some(vec![count as u8; 200]) }];
                    store.append(Batch { term: Term(1), changes }).expect("a disk that works");
                    count += 1;
                }
                count
            })
        });
        let callers: Vec<_> = callers.collect();
        thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().expect("no panic")).sum()
    });
    count as f64 / began.elapsed().as_secs_f64()
}
