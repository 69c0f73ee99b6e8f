//! The tables and counters that a forwarder and those who program it share.

mod control;
mod path;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use ejfat::{
    Time,
    lb::{BeyondHorizon, DataPlane, Drops, Engine, EngineError, LbCounters, LbId, Rules, Tables, Traffic},
};

use control::{Control, STRAGGLERS, Staged};

pub use path::DataPath;
pub use write::{LbStage, Write, WriteError};

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

impl When {
    /// The tick that it names.
    fn tick(self) -> Option<u64> {
        match self {
            Self::Tick(tick) | Self::Force(tick) => Some(tick),
            Self::Next | Self::Now => None,
        }
    }
}

/// Tables and the first tick they apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSet {
    /// The first tick to which the tables apply.
    pub from: u64,
    /// The rules of the tables.
    pub rules: Arc<Rules>,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The counters of each load balancer, by its id. There are as many as ESnet's P4 data plane has, or more if a load balancer
    /// with a higher id counted anything.
    pub lbs: Vec<LbCounters>,
    /// What was sent to each member of the tables, and to each other member that got something in the last minute.
    pub members: BTreeMap<(LbId, u16), Traffic>,
    /// What was sent to members that are gone, by the id that they had, of all load balancers.
    pub gone: BTreeMap<u16, Traffic>,
    /// Packets that were no load balancer's.
    pub unaddressed: Drops,
    /// The highest of [`Counters::routed`].
    pub newest_tick: Option<u64>,
    /// The highest tick of each load balancer that was routed lately, or since it has a horizon.
    pub routed: BTreeMap<LbId, u64>,
    /// Packets that found a receive buffer full.
    pub overflows: u64,
    /// Packets to members that the system did not send, for example without a route, and those to the forwarder itself.
    pub refused: u64,
}

/// A data plane. Forwarders lock it for a batch of packets; who programs it compiles tables beside them.
#[derive(Debug)]
pub struct SharedDataPlane {
    path: Mutex<DataPath>,
    /// What the balancer's sets were compiled from, locked before it.
    control: Mutex<Control>,
    overflows: AtomicU64,
    refused: AtomicU64,
    started: Instant,
    /// The number of load balancers. Rules of those with this id or a higher one are refused.
    lbs: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held the lock left whole tables, because tables are replaced and never edited in
    // place.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedDataPlane {
    /// `seed` is the seed of the hash tables; a random one is best.
    pub fn new(rules: Rules, seed: u64) -> Self {
        let balancer = DataPlane::new(&Tables::new(&rules), seed);
        let control = Control {
            destinations: rules.destinations(),
            lbs: LbId::all().map(|lb| vec![Staged::new(0, rules.of(lb).into())]).collect(),
            term: None,
            least: None,
            aged: Instant::now(),
        };
        Self {
            path: Mutex::new(DataPath::new(balancer)),
            control: Mutex::new(control),
            overflows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            started: Instant::now(),
            lbs: LbId::P4_COUNT,
        }
    }

    /// Sets the number of load balancers, from 1 to [`LbId::COUNT`]. The default is the number of load balancers of
    /// ESnet's P4 data plane.
    #[must_use]
    pub fn with_load_balancers(mut self, lbs: usize) -> Self {
        self.lbs = lbs;
        self
    }

    /// Refuses writes with a lower term than this, and those without any: a data plane that was started again does not know
    /// the terms that came before.
    #[must_use]
    pub fn with_least_term(mut self, least: NonZeroU64) -> Self {
        self.control.get_mut().unwrap_or_else(PoisonError::into_inner).least = Some(least);
        self
    }

    /// Has an engine decide where packets go.
    ///
    /// # Errors
    /// Fails if the present tables do not fit into the engine.
    pub fn with_engine(mut self, engine: Box<dyn Engine>) -> Result<Self, EngineError> {
        self.path.get_mut().unwrap_or_else(PoisonError::into_inner).attach(engine)?;
        Ok(self)
    }

    /// Begins a write of a control plane with a term, or of one without; others wait until it is dropped. The term is the
    /// highest from then on, whatever becomes of the write.
    ///
    /// # Errors
    /// Fails with [`WriteError::StaleTerm`] if a write with a higher term was begun before. Fails with
    /// [`WriteError::NoTerm`] if `term` is `None` and a write with a term was begun before. Fails with
    /// [`WriteError::LeastTerm`] if the data plane has a least term, and `term` is lower or `None`.
    pub fn write(&self, term: Option<NonZeroU64>) -> Result<Write<'_>, WriteError> {
        let mut control = lock(&self.control);
        if let Some(least) = control.least.filter(|least| term.is_none_or(|term| term < *least)) {
            return Err(WriteError::LeastTerm { least: least.get() });
        }
        match (term, control.term) {
            (None, Some(newest)) => return Err(WriteError::NoTerm { newest: newest.get() }),
            (Some(term), Some(newest)) if term < newest => {
                return Err(WriteError::StaleTerm { term: term.get(), newest: newest.get() });
            }
            _ => control.term = term,
        }
        Ok(Write { plane: self, control })
    }

    /// Replaces all rules, without a term. Returns the first tick to which the new rules apply.
    ///
    /// # Errors
    /// Fails with [`WriteError`] if a control plane with a term programs the data plane, or if the rules are refused.
    pub fn load(&self, rules: &Rules, when: When) -> Result<u64, WriteError> {
        self.write(None)?.load(rules, when)
    }

    /// Changes the rules by the function `edit`, without a term. `edit` gets the rules that the first changed tick
    /// would have. Returns the first tick to which the changed rules apply.
    ///
    /// # Errors
    /// Fails with the error of `edit`, or with [`WriteError`] if a control plane with a term programs the data plane,
    /// or if the changed rules are refused. After an error, no rule is changed.
    pub fn edit<E: From<WriteError>>(
        &self,
        when: When,
        edit: impl FnMut(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.write(None)?.edit(when, edit)
    }

    /// Checks which tables are still in use. A forwarder calls this several times a second.
    pub fn tidy(&self, now: Instant) {
        // If a writer holds the lock, the next call does the check.
        let mut control = match self.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut path = lock(&self.path);
        let balancer = path.balancer();
        for (lb, sets) in LbId::all().zip(&mut control.lbs) {
            for (staged, (_, hits)) in sets.iter_mut().zip(balancer.sets(lb)) {
                if hits != staged.hits {
                    (staged.hits, staged.since) = (hits, now);
                }
            }
        }
        if now.saturating_duration_since(control.aged) >= STRAGGLERS {
            control.aged = now;
            balancer.age();
            balancer.look_at_members(self.time(now));
        }
    }

    /// Counts packets that a forwarder lost before or behind the tables.
    pub(crate) fn lost(&self, overflows: u64, refused: u64) {
        self.overflows.fetch_add(overflows, Relaxed);
        self.refused.fetch_add(refused, Relaxed);
    }

    /// The most that [`SharedDataPlane::sets`] makes.
    pub const MOST_SETS: usize = 1 + DataPlane::MOST_STAGED;

    /// The tables there are, the newest last; the first ones have all ticks before the second, too. There is one for each
    /// tick at which those of any load balancer begin, with what each load balancer has then. `None` if there are more than
    /// [`SharedDataPlane::MOST_SETS`] such ticks, as when load balancers are programmed one by one.
    pub fn sets(&self) -> Option<Vec<TableSet>> {
        let control = lock(&self.control);
        let froms = |sets: &'_ Vec<Staged>| sets.iter().map(|staged| staged.from).collect::<Vec<_>>();
        let froms: Vec<_> = control.lbs.iter().map(froms).collect();
        let mut ticks: BTreeSet<_> = froms.iter().flat_map(|froms| &froms[1..]).copied().collect();
        // The first tables of each load balancer have all earlier ticks, too.
        let second = ticks.first().copied();
        let firsts = froms.iter().map(|froms| froms[0]);
        ticks.extend(firsts.filter(|&first| second.is_none_or(|second| first < second)).max());
        let set = |from| TableSet { from, rules: control.whole(|_| from).into() };
        (ticks.len() <= Self::MOST_SETS).then(|| ticks.into_iter().map(set).collect())
    }

    /// The newest tables of each load balancer.
    pub fn newest_set(&self) -> TableSet {
        let control = lock(&self.control);
        let from = control.lbs.iter().flatten().map(|staged| staged.from).max().unwrap_or(0);
        TableSet { from, rules: control.whole(|_| from).into() }
    }

    /// The tables of one load balancer, the newest last, with the addresses that its packets have.
    pub fn sets_of(&self, lb: LbId) -> Vec<TableSet> {
        let control = lock(&self.control);
        let addresses = control.destinations.destinations_of(lb);
        let set = |staged: &Staged| {
            let mut rules = addresses.clone();
            rules.add(&staged.rules);
            TableSet { from: staged.from, rules: rules.into() }
        };
        control.lbs[usize::from(lb.get())].iter().map(set).collect()
    }

    /// The highest term, what was routed, and where the tables of load balancers begin.
    pub fn ticks(&self) -> Ticks {
        let control = lock(&self.control);
        let of = |lb: LbId| control.lbs[usize::from(lb.get())].iter().map(move |staged| (lb, staged.from));
        let mut path = lock(&self.path);
        let balancer = path.balancer();
        Ticks {
            term: control.term,
            routed: routed(balancer),
            beyond: by_lb(|lb| balancer.beyond(lb)),
            sets: LbId::all().take(self.lbs).flat_map(of).collect(),
        }
    }

    /// Returns all counters of the data plane.
    pub fn counters(&self) -> Counters {
        let mut path = lock(&self.path);
        let differences = path.differences();
        let balancer = path.balancer();
        // Only forwarders call `tidy`, and there may be none.
        balancer.look_at_members(self.time(Instant::now()));
        let mut lbs: Vec<_> = LbId::all().map(|lb| *balancer.counters(lb)).collect();
        let last = lbs.iter().rposition(|lb| *lb != LbCounters::default());
        lbs.truncate(last.map_or(0, |last| last + 1).max(LbId::P4_COUNT));
        let routed = routed(balancer);
        Counters {
            lbs,
            members: balancer.members(),
            gone: balancer.gone(),
            unaddressed: *balancer.unaddressed(),
            newest_tick: routed.values().copied().max(),
            routed,
            overflows: self.overflows.load(Relaxed),
            refused: self.refused.load(Relaxed) + differences,
        }
    }

    fn time(&self, now: Instant) -> Time {
        Time::default() + now.saturating_duration_since(self.started)
    }

    /// Locks the data path. A forwarder holds the lock for a batch of packets.
    pub fn path(&self) -> MutexGuard<'_, DataPath> {
        lock(&self.path)
    }
}

fn by_lb<T>(of: impl Fn(LbId) -> Option<T>) -> BTreeMap<LbId, T> {
    LbId::all().filter_map(|lb| Some((lb, of(lb)?))).collect()
}

fn routed(balancer: &DataPlane) -> BTreeMap<LbId, u64> {
    by_lb(|lb| balancer.newest_tick(lb))
}

/// What a control plane needs to know of a data plane before it stages tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// The highest one that came with a write, also with one that was refused for another reason.
    pub term: Option<NonZeroU64>,
    /// The highest tick of each load balancer that was routed lately, or since it has a horizon.
    pub routed: BTreeMap<LbId, u64>,
    /// What each load balancer routed above its horizon.
    pub beyond: BTreeMap<LbId, BeyondHorizon>,
    /// The first tick of each set of tables, by load balancer, in order.
    pub sets: Vec<(LbId, u64)>,
}
