//! The tables and counters that a forwarder and those who program it share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    lb::{Balancer, Drops, LbCounters, LbId, Rules, StageError, Tables, Traffic},
};

/// Segments of events come no later than this behind one another: a worker gives events up before.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The tick from which on tables apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The first one that no packet had lately: no event is split, and no later one waits for it. They apply until those
    /// that are staged for a later tick do.
    Next,
    /// This one, which no packet may have had lately.
    Tick(u64),
    /// This one, whatever came: events on their way may be split, later tables are dropped.
    Force(u64),
    /// At once and for every tick, in the place of all tables there are, as rules of hardware are. Events on their way may
    /// be split.
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
    /// What was sent to each member of the tables, and to each other member that got something in the last minute.
    pub members: BTreeMap<(LbId, u16), Traffic>,
    /// What was sent to members that are gone, by the id that they had, of all load balancers.
    pub gone: BTreeMap<u16, Traffic>,
    /// Packets that were no load balancer's.
    pub unaddressed: Drops,
    /// Lately.
    pub newest_tick: Option<u64>,
    /// Packets that found a receive buffer full.
    pub overflows: u64,
    /// Packets to members that the system did not send, for example without a route, and those to the forwarder itself.
    pub refused: u64,
}

/// A data plane. Forwarders lock it for a batch of packets; who programs it compiles tables beside them.
#[derive(Debug)]
pub struct Plane {
    balancer: Mutex<Balancer>,
    /// What the balancer's sets were compiled from, locked before it.
    control: Mutex<Control>,
    overflows: AtomicU64,
    refused: AtomicU64,
    started: Instant,
}

#[derive(Debug)]
struct Control {
    sets: Vec<Staged>,
    aged: Instant,
}

#[derive(Debug)]
struct Staged {
    set: TableSet,
    /// Packets that it routed when somebody looked, and since when there are no more.
    hits: u64,
    since: Instant,
}

impl Staged {
    fn new(from: u64, rules: Arc<Rules>) -> Self {
        Self { set: TableSet { from, rules }, hits: 0, since: Instant::now() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it left whole tables: they are replaced, never edited in place.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plane {
    /// `seed` is of hash tables; random ones are best.
    pub fn new(rules: Rules, seed: u64) -> Self {
        let balancer = Balancer::new(Tables::new(&rules).into(), seed);
        let control = Control { sets: vec![Staged::new(0, rules.into())], aged: Instant::now() };
        Self {
            balancer: Mutex::new(balancer),
            control: Mutex::new(control),
            overflows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Replaces all rules. Returns the first tick they apply to.
    pub fn load(&self, rules: Rules, when: When) -> Result<u64, StageError> {
        self.put(&mut lock(&self.control), rules, when)
    }

    /// Changes the rules that ticks from there on would meet, all or nothing. Returns the first tick they then apply to.
    pub fn edit<E: From<StageError>>(
        &self,
        when: When,
        edit: impl FnOnce(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut control = lock(&self.control);
        let from = match when {
            When::Next | When::Now => lock(&self.balancer).next_set(),
            When::Tick(tick) | When::Force(tick) => tick,
        };
        let base = control.sets.iter().rfind(|staged| staged.set.from <= from);
        let mut rules = base.map(|staged| Rules::clone(&staged.set.rules)).unwrap_or_default();
        edit(&mut rules)?;
        Ok(self.put(&mut control, rules, when)?)
    }

    fn put(&self, control: &mut Control, rules: Rules, when: When) -> Result<u64, StageError> {
        let tables = Arc::new(Tables::new(&rules));
        self.make_room(control);
        let mut balancer = lock(&self.balancer);
        let from = match when {
            When::Next => balancer.stage_next(tables)?,
            When::Tick(tick) => balancer.stage(tables, tick).map(|()| tick)?,
            When::Force(tick) => balancer.force(tables, tick).map(|_| tick)?,
            When::Now => {
                balancer.replace(tables);
                0
            }
        };
        let mut before = std::mem::take(&mut control.sets);
        let rules = Arc::new(rules);
        control.sets.extend(balancer.sets().map(|(of, _)| {
            let kept = before.iter().position(|staged| staged.set.from == of).filter(|_| of != from);
            kept.map_or_else(|| Staged::new(from, rules.clone()), |at| before.swap_remove(at))
        }));
        Ok(from)
    }

    /// Looks which tables are still in use. Whoever forwards calls it several times a second.
    pub fn tidy(&self, now: Instant) {
        // Somebody who programs holds it; there is a next time.
        let Ok(mut control) = self.control.try_lock() else { return };
        let mut balancer = lock(&self.balancer);
        for (staged, (_, hits)) in control.sets.iter_mut().zip(balancer.sets()) {
            if hits != staged.hits {
                (staged.hits, staged.since) = (hits, now);
            }
        }
        if now.saturating_duration_since(control.aged) >= STRAGGLERS {
            control.aged = now;
            balancer.age();
            balancer.look_at_members(self.time(now));
        }
    }

    /// When there are as many sets as there may be, the oldest goes if packets meet another one and it no more.
    fn make_room(&self, control: &mut Control) {
        let [oldest, next, ..] = &control.sets[..] else { return };
        let unused = next.hits > 0 && oldest.since.elapsed() >= STRAGGLERS;
        if control.sets.len() > Balancer::MOST_STAGED && unused {
            lock(&self.balancer).retire(next.set.from);
            control.sets.remove(0);
        }
    }

    /// Of a forwarder: packets that it lost before or behind the tables.
    pub(crate) fn lost(&self, overflows: u64, refused: u64) {
        self.overflows.fetch_add(overflows, Relaxed);
        self.refused.fetch_add(refused, Relaxed);
    }

    /// The tables there are, the newest last; the first ones have all ticks before the second, too.
    pub fn sets(&self) -> Vec<TableSet> {
        lock(&self.control).sets.iter().map(|staged| staged.set.clone()).collect()
    }

    pub fn counters(&self) -> Counters {
        let mut balancer = lock(&self.balancer);
        // Only forwarders call `tidy`, and there may be none.
        balancer.look_at_members(self.time(Instant::now()));
        let lb = |id: LbId| *balancer.counters(id);
        let mut lbs = [LbCounters::default(); LbId::COUNT];
        lbs.iter_mut().zip(LbId::all()).for_each(|(place, id)| *place = lb(id));
        Counters {
            lbs,
            members: balancer.members(),
            gone: balancer.gone(),
            unaddressed: *balancer.unaddressed(),
            newest_tick: balancer.newest_tick(),
            overflows: self.overflows.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    fn time(&self, now: Instant) -> Time {
        Time::default() + now.saturating_duration_since(self.started)
    }

    /// For a batch of packets.
    pub fn balancer(&self) -> MutexGuard<'_, Balancer> {
        lock(&self.balancer)
    }
}
