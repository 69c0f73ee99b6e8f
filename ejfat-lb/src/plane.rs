//! The tables and counters that a forwarder and those who program it share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ejfat::lb::{Balancer, Drops, LbCounters, LbId, Rules, StageError, Tables, Traffic};

/// Segments of events of older tables come no later than this after the first one of newer tables: a worker has given
/// their events up long before.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The tick from which on tables apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The first one that no packet had yet: no event is split, and no later one waits for it.
    Next,
    /// This one, which no packet may have had.
    Tick(u64),
    /// This one, whatever came: events on their way may be split, later tables are dropped.
    Force(u64),
    /// At once, in the place of the newest ones, as rules that are edited in hardware do. Events on their way may be
    /// split.
    Now,
}

/// Tables and the first tick they apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSet {
    pub from: u64,
    pub rules: Arc<Rules>,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By load balancer.
    pub lbs: [LbCounters; LbId::COUNT],
    /// Sent to each member.
    pub members: BTreeMap<(LbId, u16), Traffic>,
    /// Packets that were no load balancer's.
    pub unaddressed: Drops,
    pub newest_tick: Option<u64>,
}

/// A data plane. Forwarders lock it for a batch of packets; who programs it compiles tables beside them.
#[derive(Debug)]
pub struct Plane {
    balancer: Mutex<Balancer>,
    /// What the balancer's sets were compiled from, locked before it.
    control: Mutex<Vec<Staged>>,
}

#[derive(Debug)]
struct Staged {
    set: TableSet,
    /// Since when packets have met it.
    met: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it left whole tables: they are replaced, never edited in place.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plane {
    /// `seed` is of hash tables; random ones are best.
    pub fn new(rules: Rules, seed: u64) -> Self {
        let balancer = Balancer::new(Tables::new(&rules).into(), seed);
        let set = TableSet { from: 0, rules: rules.into() };
        Self { balancer: Mutex::new(balancer), control: Mutex::new(vec![Staged { set, met: None }]) }
    }

    /// Replaces all rules. Returns the first tick they apply to.
    pub fn load(&self, rules: Rules, when: When) -> Result<u64, StageError> {
        self.replace(&mut lock(&self.control), rules, when)
    }

    /// Changes the newest rules, all or nothing. Returns the first tick they then apply to.
    pub fn edit<E: From<StageError>>(
        &self,
        when: When,
        edit: impl FnOnce(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut control = lock(&self.control);
        let newest = control.last().map(|staged| staged.set.rules.clone()).unwrap_or_default();
        let mut rules = Rules::clone(&newest);
        edit(&mut rules)?;
        Ok(self.replace(&mut control, rules, when)?)
    }

    fn replace(&self, control: &mut Vec<Staged>, rules: Rules, when: When) -> Result<u64, StageError> {
        let tables = Arc::new(Tables::new(&rules));
        self.settle(control, Instant::now());
        let newest_set = control.last().map_or(0, |staged| staged.set.from);
        let mut balancer = lock(&self.balancer);
        let from = match when {
            When::Tick(tick) => {
                balancer.stage(tables, tick)?;
                tick
            }
            When::Force(tick) => {
                balancer.force(tables, tick)?;
                tick
            }
            When::Now => {
                balancer.replace(tables);
                newest_set
            }
            When::Next => match balancer.newest_tick().filter(|&newest| newest >= newest_set) {
                // Nobody met the newest ones, so these can take their place.
                None => {
                    balancer.replace(tables);
                    newest_set
                }
                Some(newest) => {
                    let next = newest.saturating_add(1);
                    balancer.stage(tables, next)?;
                    next
                }
            },
        };
        drop(balancer);
        control.retain(|staged| staged.set.from < from);
        control.push(Staged { set: TableSet { from, rules: rules.into() }, met: None });
        Ok(from)
    }

    /// Forgets tables whose last packets must have come. Whoever forwards calls it now and then.
    pub fn tidy(&self, now: Instant) {
        self.settle(&mut lock(&self.control), now);
    }

    fn settle(&self, control: &mut Vec<Staged>, now: Instant) {
        let newest = lock(&self.balancer).newest_tick();
        for staged in control.iter_mut().filter(|staged| newest.is_some_and(|n| n >= staged.set.from)) {
            staged.met.get_or_insert(now);
        }
        let over = |staged: &Staged| staged.met.is_some_and(|met| now.duration_since(met) >= STRAGGLERS);
        if let Some(oldest) = control.iter().rposition(over).filter(|&at| at > 0) {
            lock(&self.balancer).retire(control[oldest].set.from);
            control.drain(..oldest);
        }
    }

    /// The tables there are, the newest last; the first ones have all ticks before the second, too.
    pub fn sets(&self) -> Vec<TableSet> {
        lock(&self.control).iter().map(|staged| staged.set.clone()).collect()
    }

    pub fn counters(&self) -> Counters {
        let balancer = lock(&self.balancer);
        let lb = |id: LbId| *balancer.counters(id);
        let mut lbs = [LbCounters::default(); LbId::COUNT];
        lbs.iter_mut().zip(LbId::all()).for_each(|(place, id)| *place = lb(id));
        Counters {
            lbs,
            members: balancer.members(),
            unaddressed: *balancer.unaddressed(),
            newest_tick: balancer.newest_tick(),
        }
    }

    /// For a batch of packets.
    pub fn balancer(&self) -> MutexGuard<'_, Balancer> {
        lock(&self.balancer)
    }
}
