//! The tables and counters that a forwarder and those who program it share.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    lb::{
        Balancer, BeyondHorizon, Drops, LbCounters, LbId, LbTables, Rules, StageError, Table, Tables,
        Traffic, WithdrawError,
    },
};

/// Segments of events come no later than this behind one another: a worker gives events up before.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// Times that an edit is applied to the tables of new ticks, if packets meet later ones meanwhile.
const EDIT_ATTEMPTS: u32 = 4;

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

/// Why a data plane's tables were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Withdraw(#[from] WithdrawError),
    #[error(
        "term {term} is over: a control plane with term {newest} programs this data plane; a control plane that reads this was replaced by another one and must stop"
    )]
    StaleTerm { term: u64, newest: u64 },
    #[error(
        "a control plane programs this data plane, with term {newest}; give that term or a higher one to take the data plane over, or start the data plane again without the control plane"
    )]
    NoTerm { newest: u64 },
    #[error(
        "each of the {EDIT_ATTEMPTS} times that the edit was applied, packets met later tables of a load balancer that it changes; try again when fewer tables are staged ahead, or give the tick from which on it is to apply"
    )]
    Moved,
    #[error(
        "this data plane takes only changes with term {least} or a higher one, as it was started; a control plane with a lower term was replaced and must stop; give a term that is high enough, or start the data plane with another least term, or none"
    )]
    LeastTerm { least: u64 },
    #[error(
        "{table} takes {limit} rules of all load balancers together, and would have {rules} with the newest tables of each; remove rules of some load balancer first",
        limit = .table.limit()
    )]
    Limit { table: Table, rules: usize },
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
    /// The highest of [`Counters::routed`].
    pub newest_tick: Option<u64>,
    /// The highest tick of each load balancer that was routed lately, or since it has a horizon.
    pub routed: [Option<u64>; LbId::COUNT],
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
    /// The rules of no load balancer.
    destinations: Rules,
    lbs: [Vec<Staged>; LbId::COUNT],
    /// The highest that came with a write.
    term: Option<NonZeroU64>,
    /// Writes with a lower one, or without any, are refused.
    least: Option<NonZeroU64>,
    aged: Instant,
}

#[derive(Debug)]
struct Staged {
    from: u64,
    /// Of one load balancer.
    rules: Arc<Rules>,
    /// Packets that it routed when somebody looked, and since when there are no more.
    hits: u64,
    since: Instant,
}

impl Staged {
    fn new(from: u64, rules: Arc<Rules>) -> Self {
        Self { from, rules, hits: 0, since: Instant::now() }
    }
}

/// The rules of one load balancer, and what is compiled from them.
#[derive(Debug)]
struct Compiled {
    lb: LbId,
    rules: Arc<Rules>,
    tables: Arc<LbTables>,
}

impl Compiled {
    fn new(lb: LbId, rules: &Rules) -> Self {
        let rules = Arc::new(rules.of(lb));
        Self { lb, tables: Arc::new(LbTables::new(lb, &rules)), rules }
    }
}

impl Control {
    fn of(&self, lb: LbId) -> &[Staged] {
        &self.lbs[usize::from(lb.get())]
    }

    /// Whether no tables of a load balancer begin later.
    fn is_newest(&self, lb: LbId, from: u64) -> bool {
        self.of(lb).iter().all(|staged| staged.from <= from)
    }

    /// Whether tables that become the newest ones of some load balancers fit into the tables of the data plane, together with
    /// the newest ones of the others. Fewer rules than before are taken in any case. Sets that are not the newest may exceed
    /// the tables together: load balancers do not change theirs at the same time.
    fn check_limits(&self, newest: &[(LbId, &Rules)]) -> Result<(), WriteError> {
        for table in Table::ALL {
            let before = |lb| self.of(lb).last().map_or(0, |staged| staged.rules.count(table));
            let after = |lb| newest.iter().find(|(of, _)| *of == lb).map(|(_, rules)| rules.count(table));
            let rules: usize = LbId::all().map(|lb| after(lb).unwrap_or_else(|| before(lb))).sum();
            let is_more = newest.iter().any(|(lb, rules)| rules.count(table) > before(*lb));
            if is_more && rules > table.limit() {
                return Err(WriteError::Limit { table, rules });
            }
        }
        Ok(())
    }

    fn at(&self, lb: LbId, tick: u64) -> &Arc<Rules> {
        let sets = &self.lbs[usize::from(lb.get())];
        // The first set has all earlier ticks, too.
        &sets.iter().rfind(|staged| staged.from <= tick).unwrap_or(&sets[0]).rules
    }

    /// All rules, with those of each load balancer that its function names.
    fn whole(&self, tick_of: impl Fn(LbId) -> u64) -> Rules {
        let mut whole = self.destinations.clone();
        LbId::all().for_each(|lb| whole.add(self.at(lb, tick_of(lb))));
        whole
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it left whole tables: they are replaced, never edited in place.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tables of one load balancer, to be staged.
#[derive(Clone, Debug)]
pub struct LbStage {
    pub lb: LbId,
    /// Those of the load balancer; others are left out.
    pub rules: Rules,
    /// The first tick that they apply to, which must be above the highest that was routed.
    pub from: u64,
    /// Higher ticks are not remembered from then on when they are routed, but counted. `None` leaves the horizon as it is, or
    /// takes it away with `reset`.
    pub horizon: Option<u64>,
    /// They take the place of tables that are staged from the same tick on.
    pub in_place: bool,
    /// They apply to all ticks, in the place of all tables of the load balancer, and what was routed is forgotten, because
    /// its senders count from a lower tick again. Events on their way may be split.
    pub reset: bool,
}

impl Plane {
    /// `seed` is of hash tables; random ones are best.
    pub fn new(rules: Rules, seed: u64) -> Self {
        let balancer = Balancer::new(&Tables::new(&rules), seed);
        let mut lbs = LbId::all().map(|lb| vec![Staged::new(0, rules.of(lb).into())]);
        let control = Control {
            destinations: rules.destinations(),
            lbs: std::array::from_fn(|_| lbs.next().unwrap_or_default()),
            term: None,
            least: None,
            aged: Instant::now(),
        };
        Self {
            balancer: Mutex::new(balancer),
            control: Mutex::new(control),
            overflows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Refuses writes with a lower term than this, and those without any: a data plane that was started again does not know
    /// the terms that came before.
    #[must_use]
    pub fn with_least_term(mut self, least: NonZeroU64) -> Self {
        self.control.get_mut().unwrap_or_else(PoisonError::into_inner).least = Some(least);
        self
    }

    /// Begins a write of a control plane with a term, or of one without; others wait until it is dropped. The term is the
    /// highest from then on, whatever becomes of the write.
    ///
    /// # Errors
    /// If a write with a higher term was begun before; without a term, if there was one with any. If there is a least term
    /// and this one is lower, or none.
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

    /// Replaces all rules, without a term. Returns the first tick they apply to.
    pub fn load(&self, rules: &Rules, when: When) -> Result<u64, WriteError> {
        self.write(None)?.load(rules, when)
    }

    /// Changes the rules that ticks from there on would meet, all or nothing, without a term. Returns the first tick they
    /// then apply to.
    pub fn edit<E: From<WriteError>>(
        &self,
        when: When,
        edit: impl FnMut(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.write(None)?.edit(when, edit)
    }

    /// Looks which tables are still in use. Whoever forwards calls it several times a second.
    pub fn tidy(&self, now: Instant) {
        // Somebody who programs holds it; there is a next time.
        let mut control = match self.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut balancer = lock(&self.balancer);
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

    /// Of a forwarder: packets that it lost before or behind the tables.
    pub(crate) fn lost(&self, overflows: u64, refused: u64) {
        self.overflows.fetch_add(overflows, Relaxed);
        self.refused.fetch_add(refused, Relaxed);
    }

    /// The most that [`Plane::sets`] makes.
    pub const MOST_SETS: usize = 1 + Balancer::MOST_STAGED;

    /// The tables there are, the newest last; the first ones have all ticks before the second, too. There is one for each
    /// tick at which those of any load balancer begin, with what each load balancer has then. `None` if there are more than
    /// [`Plane::MOST_SETS`] such ticks, as when load balancers are programmed one by one.
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
        let balancer = lock(&self.balancer);
        Ticks {
            term: control.term,
            routed: routed(&balancer),
            beyond: by_lb(|lb| balancer.beyond(lb)),
            sets: LbId::all().flat_map(of).collect(),
        }
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
            newest_tick: routed(&balancer).into_iter().max().flatten(),
            routed: routed(&balancer),
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

fn by_lb<T: Default>(of: impl Fn(LbId) -> T) -> [T; LbId::COUNT] {
    let mut all = LbId::all().map(of);
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

fn routed(balancer: &Balancer) -> [Option<u64>; LbId::COUNT] {
    by_lb(|lb| balancer.newest_tick(lb))
}

/// Where the set begins that the next new tick of each load balancer meets.
fn next_sets(balancer: &Balancer) -> [u64; LbId::COUNT] {
    by_lb(|lb| balancer.next_set(lb))
}

/// What a control plane needs to know of a data plane before it stages tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// The highest one that came with a write, also with one that was refused for another reason.
    pub term: Option<NonZeroU64>,
    /// The highest tick of each load balancer that was routed lately, or since it has a horizon.
    pub routed: [Option<u64>; LbId::COUNT],
    /// What each load balancer routed above its horizon.
    pub beyond: [Option<BeyondHorizon>; LbId::COUNT],
    /// The first tick of each set of tables, by load balancer, in order.
    pub sets: Vec<(LbId, u64)>,
}

/// The right to change a data plane's tables, until it is dropped.
#[derive(Debug)]
pub struct Write<'a> {
    plane: &'a Plane,
    control: MutexGuard<'a, Control>,
}

impl Write<'_> {
    /// Replaces all rules. Returns the first tick they apply to: the highest one, since each load balancer has ticks of its
    /// own. A load balancer whose rules stay as they are is left alone, unless those of all do. If only addresses that
    /// packets are sent to change, no tables are staged.
    pub fn load(&mut self, rules: &Rules, when: When) -> Result<u64, WriteError> {
        if when == When::Now {
            return self.replace(rules, &Tables::new(rules), &mut lock(&self.plane.balancer));
        }
        let compiled: Vec<_> = LbId::all().map(|lb| Compiled::new(lb, rules)).collect();
        let mut balancer = lock(&self.plane.balancer);
        // Packets are kept waiting, so what is compared here does not change before it is staged.
        let differs = |of: &Compiled| {
            let base = when.tick().unwrap_or_else(|| balancer.next_set(of.lb));
            let is_later = |staged: &Staged| staged.from > base;
            let drops_later = matches!(when, When::Force(_)) && self.control.of(of.lb).iter().any(is_later);
            drops_later || *self.control.at(of.lb, base) != of.rules
        };
        let (mut changed, same): (Vec<_>, Vec<_>) = compiled.into_iter().partition(differs);
        // Rules that are as they were are staged again if nothing else changes: the tick is judged all the same.
        if changed.is_empty() && rules.destinations() == self.control.destinations {
            changed = same.into_iter().filter(|of| *of.rules != Rules::default()).collect();
        }
        self.put(changed, rules, when, &mut balancer)
    }

    /// Changes the rules that ticks from there on would meet, all or nothing. Returns the first tick they then apply to, as
    /// [`Write::load`] does. Only load balancers whose rules the edit changed are staged, and none if it changed only
    /// addresses that packets are sent to. The edit is applied again if packets meet other tables meanwhile.
    pub fn edit<E: From<WriteError>>(
        &mut self,
        when: When,
        mut edit: impl FnMut(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        for _ in 0..EDIT_ATTEMPTS {
            let next = next_sets(&lock(&self.plane.balancer));
            let before = self.control.whole(|lb| when.tick().unwrap_or(next[usize::from(lb.get())]));
            let mut rules = before.clone();
            edit(&mut rules)?;
            // Nobody else changes the sets meanwhile, but packets may meet other ones.
            if when == When::Now {
                let tables = Tables::new(&rules);
                let mut balancer = lock(&self.plane.balancer);
                if next_sets(&balancer) == next {
                    return Ok(self.replace(&rules, &tables, &mut balancer)?);
                }
                continue;
            }
            let is_changed = |lb: &LbId| rules.of(*lb) != before.of(*lb);
            let changed: Vec<_> =
                LbId::all().filter(is_changed).map(|lb| Compiled::new(lb, &rules)).collect();
            let mut balancer = lock(&self.plane.balancer);
            let is_as_before = |of: &Compiled| balancer.next_set(of.lb) == next[usize::from(of.lb.get())];
            if when.tick().is_some() || changed.iter().all(is_as_before) {
                return Ok(self.put(changed, &rules, when, &mut balancer)?);
            }
        }
        Err(WriteError::Moved.into())
    }

    /// Puts rules in the place of all sets. Returns the first tick they apply to.
    fn replace(
        &mut self,
        rules: &Rules,
        tables: &Tables,
        balancer: &mut Balancer,
    ) -> Result<u64, WriteError> {
        let of_lbs: Vec<_> = LbId::all().map(|lb| (lb, rules.of(lb))).collect();
        let newest: Vec<_> = of_lbs.iter().map(|(lb, rules)| (*lb, rules)).collect();
        self.control.check_limits(&newest)?;
        balancer.replace(tables);
        for ((_, rules), sets) in of_lbs.into_iter().zip(&mut self.control.lbs) {
            *sets = vec![Staged::new(0, rules.into())];
        }
        self.control.destinations = rules.destinations();
        Ok(0)
    }

    /// Stages tables of load balancers, all or none, and takes over the destinations of rules. Returns the highest tick from
    /// which on tables apply.
    fn put(
        &mut self,
        changed: Vec<Compiled>,
        rules: &Rules,
        when: When,
        balancer: &mut Balancer,
    ) -> Result<u64, WriteError> {
        changed.iter().for_each(|of| self.control.make_room(of.lb, balancer));
        let mut newest = Vec::new();
        for Compiled { lb, rules, .. } in &changed {
            let from = match when {
                When::Next | When::Now => balancer.check_next(*lb)?,
                When::Tick(tick) => balancer.check(*lb, tick).map(|()| tick)?,
                When::Force(tick) => balancer.check_forced(*lb, tick).map(|()| tick)?,
            };
            if matches!(when, When::Force(_)) || self.control.is_newest(*lb, from) {
                newest.push((*lb, &**rules));
            }
        }
        self.control.check_limits(&newest)?;
        let mut newest = None;
        for Compiled { lb, rules, tables } in changed {
            let from = match when {
                When::Next | When::Now => balancer.stage_next(tables)?,
                When::Tick(tick) => balancer.stage(tables, tick).map(|()| tick)?,
                When::Force(tick) => balancer.force(tables, tick).map(|_| tick)?,
            };
            self.control.follow(lb, balancer, from, &rules);
            newest = newest.max(Some(from));
        }
        balancer.set_destinations(rules);
        self.control.destinations = rules.destinations();
        // No tables were staged: those that are there apply to that tick already, or to the next one of each load balancer.
        let next = || next_sets(balancer).into_iter().max().unwrap_or(0);
        Ok(newest.or(when.tick()).unwrap_or_else(next))
    }

    /// Stages tables of one load balancer.
    pub fn stage(&mut self, stage: &LbStage) -> Result<(), WriteError> {
        let LbStage { lb, from, horizon, in_place, reset, .. } = *stage;
        let rules = Arc::new(stage.rules.of(lb));
        let tables = Arc::new(LbTables::new(lb, &rules));
        let mut balancer = lock(&self.plane.balancer);
        self.control.make_room(lb, &mut balancer);
        if reset || self.control.is_newest(lb, from) {
            self.control.check_limits(&[(lb, &rules)])?;
        }
        if reset {
            balancer.reset(tables);
        } else if in_place {
            balancer.stage_in_place(tables, from)?;
        } else {
            balancer.stage(tables, from)?;
        }
        if let Some(horizon) = horizon {
            balancer.set_horizon(lb, horizon);
        }
        let from = if reset { 0 } else { from };
        self.control.follow(lb, &balancer, from, &rules);
        Ok(())
    }

    /// Takes back tables of a load balancer that were staged from a tick on, and that no packet has met, as
    /// [`Balancer::withdraw`] does.
    pub fn withdraw(&mut self, lb: LbId, from: u64) -> Result<(), WriteError> {
        lock(&self.plane.balancer).withdraw(lb, from)?;
        self.control.lbs[usize::from(lb.get())].retain(|staged| staged.from != from);
        Ok(())
    }
}

impl Control {
    /// When a load balancer has as many sets as there may be, its oldest goes if packets meet later ones and it no more.
    fn make_room(&mut self, lb: LbId, balancer: &mut Balancer) {
        let sets = &mut self.lbs[usize::from(lb.get())];
        let [oldest, next, ..] = &sets[..] else { return };
        // Few ticks may have met the next one, and all of them on other data planes.
        let later_are_met = sets[1..].iter().any(|staged| staged.hits > 0);
        let unused = later_are_met && oldest.since.elapsed() >= STRAGGLERS;
        if sets.len() > Balancer::MOST_STAGED && unused {
            balancer.retire(lb, next.from);
            sets.remove(0);
        }
    }

    /// Has the rules of the sets that the balancer has of a load balancer; those from one tick on are new.
    fn follow(&mut self, lb: LbId, balancer: &Balancer, new: u64, rules: &Arc<Rules>) {
        let sets = &mut self.lbs[usize::from(lb.get())];
        let mut before = std::mem::take(sets);
        for (at, (from, _)) in balancer.sets(lb).enumerate() {
            let kept = before.iter().position(|staged| staged.from == from).filter(|_| from != new);
            // Tables that are staged from an earlier tick on leave the first ones all ticks before it.
            let first = || (at == 0 && from != new).then_some(0);
            let staged = match kept.or_else(first) {
                Some(at) => Staged { from, ..before.swap_remove(at) },
                None => Staged::new(from, rules.clone()),
            };
            sets.push(staged);
        }
    }
}
