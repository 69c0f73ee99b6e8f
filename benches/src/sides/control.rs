//! What the control plane of EJFAT costs, and what its store makes of the disk.

use std::{
    env, fs,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use naa_store::{Batch, Change, SqliteConfig, SqliteStore, Store as _, Term};
use serde::{Deserialize, Serialize};
use sim::site::{Site, Size};

use crate::side::{Effort, Measure, Work};

/// Seconds of virtual time until the shares of all workers are known.
const SETTLE: usize = 20;
/// Callers of the store.
const CALLERS: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A period of 8 load balancers with 128 workers each, all of which became faster or slower. Milliseconds.
    Period,
    /// A state of a worker. Microseconds.
    State,
    /// Durable commands per second, of callers each of which waits for its own.
    Commands,
    /// Syncs per second of one block, one after the other.
    Syncs,
}

pub(super) struct Control {
    what: What,
    site: Option<Site>,
    /// Where the store and the block are; removed in the end.
    folder: PathBuf,
    store: Option<SqliteStore>,
}

impl Control {
    pub(super) fn new(what: What) -> anyhow::Result<Self> {
        let is_site = matches!(what, What::Period | What::State);
        let site = is_site.then(|| Site::new(Size::FULL, 1).map_err(anyhow::Error::msg)).transpose()?;
        let folder = env::temp_dir().join(format!("naa-bench-{}-{what:?}", process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let store = (what == What::Commands).then(|| -> anyhow::Result<_> {
            let store = SqliteStore::open(&folder.join("store"), &SqliteConfig::default())?;
            store.claim(Term(0), Term(1))?;
            Ok(store)
        });
        Ok(Self { what, site, folder, store: store.transpose()? })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.store = None;
        // What is left in the folder for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Measure for Control {
    fn warm_up(&mut self, _: &Effort) -> anyhow::Result<String> {
        if let Some(site) = &mut self.site {
            (0..SETTLE).for_each(|_| site.second());
        }
        Ok(String::new())
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let round = Duration::from_secs_f64(effort.seconds);
        match (self.what, &mut self.site, &self.store) {
            (What::Period, Some(site), _) => period(site, round),
            (What::State, Some(site), _) => Ok(state(site, effort.calls)),
            (What::Commands, _, Some(store)) => commands(store, round),
            _ => syncs(&self.folder.join("block"), round),
        }
    }
}

fn period(site: &mut Site, round: Duration) -> anyhow::Result<Work> {
    site.periods.clear();
    let began = Instant::now();
    while began.elapsed() < round {
        site.change_all();
        site.second();
    }
    let count = site.periods.len() as f64;
    anyhow::ensure!(count > 0.0, "no epoch began");
    let sum: Duration = site.periods.iter().sum();
    Ok(Work { value: sum.as_secs_f64() * 1e3 / count, amount: count })
}

fn state(site: &mut Site, calls: u32) -> Work {
    let workers = site.workers();
    let sum: Duration = (0..calls as usize).map(|n| site.state(n % workers)).sum();
    Work { value: sum.as_secs_f64() * 1e6 / f64::from(calls), amount: f64::from(calls) }
}

/// Each caller changes a record of 200 bytes and waits until it is durable, again and again.
fn commands(store: &SqliteStore, round: Duration) -> anyhow::Result<Work> {
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let count = thread::scope(|scope| -> anyhow::Result<u64> {
        let call = |caller: u64| {
            let over = &over;
            scope.spawn(move || -> anyhow::Result<u64> {
                let mut count = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    let key = format!("caller/{caller}/{}", count % 16).into_bytes();
                    let changes = vec![Change { key, value: Some(vec![count as u8; 200]) }];
                    store.append(Batch { term: Term(1), changes })?;
                    count += 1;
                }
                Ok(count)
            })
        };
        let callers: Vec<_> = (0..CALLERS).map(call).collect();
        thread::sleep(round);
        over.store(true, Ordering::Relaxed);
        let joined = callers.into_iter().map(|caller| caller.join().expect("a caller does not panic"));
        joined.sum()
    })?;
    Ok(Work { value: count as f64 / began.elapsed().as_secs_f64(), amount: count as f64 })
}

fn syncs(path: &Path, round: Duration) -> anyhow::Result<Work> {
    let file = File::create(path)?;
    file.write_all_at(&[1; 4096], 0)?;
    file.sync_all()?;
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < round {
        count += 1;
        file.write_all_at(&[count as u8; 4096], 0)?;
        file.sync_data()?;
    }
    Ok(Work { value: count as f64 / began.elapsed().as_secs_f64(), amount: count as f64 })
}
