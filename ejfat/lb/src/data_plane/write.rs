//! Changes of a data plane's tables.

use std::sync::{Arc, MutexGuard};

use ejfat::lb::{DataPlane, EngineError, LbId, LbTables, Rules, StageError, Table, Tables, WithdrawError};

use super::{
    DataPath, SharedDataPlane, When,
    control::{Control, Staged},
    lock,
};

/// Times that an edit is applied to the tables of new ticks, if packets meet later ones meanwhile.
const EDIT_ATTEMPTS: u32 = 4;

/// Why a data plane's tables were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The tables cannot be staged from the requested tick on.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The staged tables cannot be withdrawn.
    #[error(transparent)]
    Withdraw(#[from] WithdrawError),
    /// The engine that routes packets cannot use the new tables.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A control plane with a higher term programs the data plane.
    #[error(
        "term {term} is over: a control plane with term {newest} programs this data plane; a control plane that reads this was replaced by another one and must stop"
    )]
    StaleTerm {
        /// The term of the refused control plane.
        term: u64,
        /// The highest term so far.
        newest: u64,
    },
    /// The change has no term, and a control plane with a term programs the data plane.
    #[error(
        "a control plane programs this data plane, with term {newest}; give that term or a higher one to take the data plane over, or start the data plane again without the control plane"
    )]
    NoTerm {
        /// The highest term so far.
        newest: u64,
    },
    /// Each time that the edit was applied, packets meanwhile reached later tables of a load balancer that the edit
    /// changes.
    #[error(
        "each of the {EDIT_ATTEMPTS} times that the edit was applied, packets met later tables of a load balancer that it changes; try again when fewer tables are staged ahead, or give the tick from which on it is to apply"
    )]
    Moved,
    /// The term of the change is below the least term of the data plane, or the change has no term.
    #[error(
        "this data plane takes only changes with term {least} or a higher one, as it was started; a control plane with a lower term was replaced and must stop; give a term that is high enough, or start the data plane with another least term, or none"
    )]
    LeastTerm {
        /// The least term, which the operator of the data plane chose.
        least: u64,
    },
    /// The data plane has no load balancer with this number.
    #[error(
        "this data plane has no load balancer {lb}, only 0 to {}; start it with more (--load-balancers)", .lbs.saturating_sub(1)
    )]
    LbId {
        /// The number of the load balancer.
        lb: u8,
        /// The number of load balancers that the data plane has.
        lbs: usize,
    },
    /// The newest rules of all load balancers together do not fit into a table.
    #[error(
        "{table} takes {limit} rules of all load balancers together, and would have {rules} with the newest tables of each; remove rules of some load balancer first",
        limit = .table.limit()
    )]
    Limit {
        /// The table.
        table: Table,
        /// The number of rules that the table would have.
        rules: usize,
    },
}

/// Tables of one load balancer, to be staged.
#[derive(Clone, Debug)]
pub struct LbStage {
    /// The load balancer whose tables are staged.
    pub lb: LbId,
    /// The rules of the load balancer; rules of other load balancers are ignored.
    pub rules: Rules,
    /// The first tick to which the rules apply, which must be above the highest tick that was routed.
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

/// The right to change a data plane's tables, until it is dropped.
#[derive(Debug)]
pub struct Write<'a> {
    pub(super) plane: &'a SharedDataPlane,
    pub(super) control: MutexGuard<'a, Control>,
}

impl Write<'_> {
    /// Replaces all rules. Each load balancer has its own ticks, and the result is the highest of the first ticks to
    /// which the new rules apply. A load balancer with unchanged rules keeps its tables, unless the rules of all load
    /// balancers are unchanged. If only the destination addresses of packets change, no tables are staged.
    ///
    /// # Errors
    /// Fails with [`WriteError`] if the data plane refuses the tables. After an error, no tables are changed.
    pub fn load(&mut self, rules: &Rules, when: When) -> Result<u64, WriteError> {
        self.check_ids(rules.highest_lb())?;
        if when == When::Now {
            return self.replace(rules, &Tables::new(rules), &mut lock(&self.plane.path));
        }
        let compiled: Vec<_> = LbId::all().map(|lb| Compiled::new(lb, rules)).collect();
        let mut path = lock(&self.plane.path);
        let balancer = path.balancer();
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
        self.put(changed, rules, when, &mut path)
    }

    /// Changes the rules by the function `edit`. `edit` gets the rules that the first changed tick would have. Returns
    /// the tick that [`Write::load`] would return for the changed rules. Tables are staged only for load balancers
    /// whose rules have changed. If only the destination addresses of packets change, no tables are staged. If packets
    /// reach other tables during the edit, the edit is applied again.
    ///
    /// # Errors
    /// Fails with the error of `edit`, or with [`WriteError`] if the data plane refuses the changed rules. After an
    /// error, no rule is changed.
    pub fn edit<E: From<WriteError>>(
        &mut self,
        when: When,
        mut edit: impl FnMut(&mut Rules) -> Result<(), E>,
    ) -> Result<u64, E> {
        for _ in 0..EDIT_ATTEMPTS {
            let next = next_sets(lock(&self.plane.path).balancer());
            let before = self.control.whole(|lb| when.tick().unwrap_or(next[usize::from(lb.get())]));
            let mut rules = before.clone();
            edit(&mut rules)?;
            self.check_ids(rules.highest_lb())?;
            // Nobody else changes the sets meanwhile, but packets may meet other ones.
            if when == When::Now {
                let tables = Tables::new(&rules);
                let mut path = lock(&self.plane.path);
                if next_sets(path.balancer()) == next {
                    return Ok(self.replace(&rules, &tables, &mut path)?);
                }
                continue;
            }
            let is_changed = |lb: &LbId| rules.of(*lb) != before.of(*lb);
            let changed: Vec<_> =
                LbId::all().filter(is_changed).map(|lb| Compiled::new(lb, &rules)).collect();
            let mut path = lock(&self.plane.path);
            let balancer = path.balancer();
            let is_as_before = |of: &Compiled| balancer.next_set(of.lb) == next[usize::from(of.lb.get())];
            if when.tick().is_some() || changed.iter().all(is_as_before) {
                return Ok(self.put(changed, &rules, when, &mut path)?);
            }
        }
        Err(WriteError::Moved.into())
    }

    fn check_ids(&self, highest: Option<LbId>) -> Result<(), WriteError> {
        let lbs = self.plane.lbs;
        match highest.map(LbId::get) {
            Some(lb) if usize::from(lb) >= lbs => Err(WriteError::LbId { lb, lbs }),
            _ => Ok(()),
        }
    }

    /// Puts rules in the place of all sets. Returns the first tick they apply to.
    fn replace(&mut self, rules: &Rules, tables: &Tables, path: &mut DataPath) -> Result<u64, WriteError> {
        let of_lbs: Vec<_> = LbId::all().map(|lb| (lb, rules.of(lb))).collect();
        let newest: Vec<_> = of_lbs.iter().map(|(lb, rules)| (*lb, rules)).collect();
        self.control.check_limits(&newest)?;
        path.change(false, |balancer| {
            balancer.replace(tables);
            Ok::<_, WriteError>(())
        })?;
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
        path: &mut DataPath,
    ) -> Result<u64, WriteError> {
        let balancer = path.balancer();
        changed.iter().for_each(|of| self.control.make_room(of.lb, false, balancer));
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
        let is_guarded = !matches!(when, When::Force(_));
        let staged = path.change(is_guarded, |balancer| {
            let stage = |Compiled { tables, .. }: &Compiled| match when {
                When::Next | When::Now => balancer.stage_next(tables.clone()),
                When::Tick(tick) => balancer.stage(tables.clone(), tick).map(|()| tick),
                When::Force(tick) => balancer.force(tables.clone(), tick).map(|_| tick),
            };
            let staged = changed.iter().map(stage).collect::<Result<Vec<_>, _>>()?;
            balancer.set_destinations(rules);
            Ok::<_, WriteError>(staged)
        })?;
        let balancer = path.balancer();
        for (Compiled { lb, rules, .. }, from) in changed.iter().zip(&staged) {
            self.control.follow(*lb, balancer, *from, rules);
        }
        self.control.destinations = rules.destinations();
        // No tables were staged: those that are there apply to that tick already, or to the next one of each load balancer.
        let next = || next_sets(balancer).into_iter().max().unwrap_or(0);
        Ok(staged.into_iter().max().or(when.tick()).unwrap_or_else(next))
    }

    /// Stages tables of one load balancer.
    ///
    /// # Errors
    /// Fails with [`WriteError`] if the data plane refuses the tables.
    pub fn stage(&mut self, stage: &LbStage) -> Result<(), WriteError> {
        let LbStage { lb, from, horizon, in_place, reset, .. } = *stage;
        self.check_ids(Some(lb))?;
        let rules = Arc::new(stage.rules.of(lb));
        let tables = Arc::new(LbTables::new(lb, &rules));
        let mut path = lock(&self.plane.path);
        self.control.make_room(lb, horizon.is_some(), path.balancer());
        if reset || self.control.is_newest(lb, from) {
            self.control.check_limits(&[(lb, &rules)])?;
        }
        path.change(!reset, |balancer| {
            let tables = tables.clone();
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
            Ok::<_, WriteError>(())
        })?;
        let from = if reset { 0 } else { from };
        self.control.follow(lb, path.balancer(), from, &rules);
        Ok(())
    }

    /// Withdraws tables of a load balancer that were staged from the tick `from` on, as [`DataPlane::withdraw`] does.
    ///
    /// # Errors
    /// Fails with [`WriteError::Withdraw`] if no tables are staged from the tick on, or if a packet has already met
    /// these tables.
    pub fn withdraw(&mut self, lb: LbId, from: u64) -> Result<(), WriteError> {
        lock(&self.plane.path).change(true, |balancer| Ok::<_, WriteError>(balancer.withdraw(lb, from)?))?;
        self.control.lbs[usize::from(lb.get())].retain(|staged| staged.from != from);
        Ok(())
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

/// Where the set begins that the next new tick of each load balancer meets.
fn next_sets(balancer: &DataPlane) -> Vec<u64> {
    LbId::all().map(|lb| balancer.next_set(lb)).collect()
}
