//! Records the tables of a data plane while they change, so that the worker of each tick is known afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use ejfat::{
    lb::{LbId, Tables},
    wire::{LbHeader, Select},
};
use ejfat_lb::{TableSet, grpc::Client};

/// How often the tables are read. A set of tables is there for longer than that before its first tick comes, and afterwards.
const LOOK: Duration = Duration::from_millis(50);

/// Calendar slots.
const SLOTS: u64 = 512;

/// The table sets of each load balancer, by the first tick to which they apply.
#[derive(Clone, Debug, Default)]
pub(super) struct TableHistory(BTreeMap<LbId, BTreeMap<u64, Arc<Tables>>>);

impl TableHistory {
    /// The address of the worker that gets an event with this tick from the sender `from`; `None` if the tables drop it.
    pub(super) fn worker(&self, lb: LbId, from: IpAddr, tick: u64) -> Option<SocketAddr> {
        let sets = self.0.get(&lb)?;
        let (_, tables) = sets.range(..=tick).next_back().or_else(|| sets.first_key_value())?;
        let header = LbHeader { select: Select::V2 { entropy: 0 }, protocol: LbHeader::REASSEMBLY, tick };
        tables.route(lb, from, &header).ok().map(|route| route.to)
    }

    /// The addresses of the workers that the newest tables of a load balancer send events to.
    pub(super) fn newest(&self, lb: LbId, from: IpAddr) -> BTreeSet<SocketAddr> {
        let slots = (0..SLOTS).map(|slot| self.worker(lb, from, u64::MAX - slot));
        slots.flatten().collect()
    }

    /// How many table sets were seen.
    pub(super) fn sets(&self, lb: LbId) -> usize {
        self.0.get(&lb).map_or(0, BTreeMap::len)
    }

    /// Takes the table sets that a data plane has now. Sets seen before are kept if they are older than all of these: their ticks
    /// are over. A set that is missing among these was taken back, and is removed.
    pub(super) fn update(&mut self, lb: LbId, sets: Vec<TableSet>) {
        let seen = self.0.entry(lb).or_default();
        let Some(first) = sets.iter().map(|set| set.from).min() else { return };
        let there: Vec<_> = sets.iter().map(|set| set.from).collect();
        seen.retain(|from, _| *from < first || there.contains(from));
        for set in sets {
            seen.insert(set.from, Arc::new(Tables::new(&set.rules)));
        }
    }
}

/// Reads a data plane's tables again and again, until it is dropped.
#[derive(Debug)]
pub(super) struct Recorder {
    grpc: SocketAddr,
    history: Arc<Mutex<TableHistory>>,
    stop: Arc<AtomicBool>,
}

impl Recorder {
    pub(super) fn start(grpc: SocketAddr) -> anyhow::Result<Self> {
        let (history, stop) = (Arc::<Mutex<TableHistory>>::default(), Arc::new(AtomicBool::new(false)));
        let (of, stopped) = (history.clone(), stop.clone());
        let mut client = Client::connect(&grpc.to_string(), None)?;
        let lbs = [LbId::new(0)?, LbId::new(1)?];
        thread::spawn(move || {
            while !stopped.load(Relaxed) {
                for lb in lbs {
                    // A data plane that was killed does not answer; the one that follows it has a recorder of its own.
                    if let Ok(sets) = client.get(Some(lb), false) {
                        of.lock().unwrap_or_else(PoisonError::into_inner).update(lb, sets);
                    }
                }
                thread::sleep(LOOK);
            }
        });
        Ok(Self { grpc, history, stop })
    }

    /// Packets of a load balancer that the data plane dropped, by cause, and those for which its receive buffer had no room.
    pub(super) fn drops(&self, lb: LbId) -> anyhow::Result<BTreeMap<String, u64>> {
        let counters = Client::connect(&self.grpc.to_string(), None)?.counters()?;
        let of = counters.lbs.into_iter().find(|of| of.lb == u32::from(lb.get()));
        let mut drops: BTreeMap<_, _> =
            of.into_iter().flat_map(|of| of.drops).filter(|(_, n)| *n > 0).collect();
        drops.extend((counters.overflows > 0).then(|| ("receive buffer full".into(), counters.overflows)));
        Ok(drops)
    }

    pub(super) fn history(&self) -> TableHistory {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}
