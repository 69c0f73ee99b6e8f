//! A data plane in virtual time: the tables of `ejfat::lb`, and the order in which calls reach them.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ejfat::lb::{DataPlane, LbId, LbTables, Rules, StageError, Tables, WithdrawError};
use ejfat_control::{
    p4::Change,
    plane::{Call, Order, Outcome, PlaneKind, PlaneState, Stage},
};

pub(super) struct DataPlaneModel {
    pub(super) kind: PlaneKind,
    balancer: DataPlane,
    /// Rules of a plane whose rules are changed one by one.
    rules: Rules,
    term: u64,
    /// The packets that tables of each load balancer had routed when others were staged last, by their first ticks.
    before: BTreeMap<LbId, Vec<(u64, u64)>>,
    /// It forwards packets and can be called.
    pub(super) is_up: bool,
    /// Which connection is open. Calls and answers of others are lost.
    pub(super) connection: u64,
    pub(super) is_connected: bool,
    /// When the newest call comes, and the newest answer: they do not overtake each other.
    pub(super) called_at: u64,
    pub(super) answered_at: u64,
    /// Calls that are on their way to it, also those of connections that ended.
    pub(super) waiting: usize,
}

impl DataPlaneModel {
    pub(super) fn new(kind: PlaneKind) -> Self {
        Self {
            kind,
            balancer: empty(),
            rules: Rules::default(),
            term: 0,
            before: BTreeMap::new(),
            is_up: true,
            connection: 0,
            is_connected: false,
            called_at: 0,
            answered_at: 0,
            waiting: 0,
        }
    }

    /// It comes back without tables.
    pub(super) fn restart(&mut self) {
        (self.balancer, self.rules, self.term) = (empty(), Rules::default(), 0);
    }

    /// Where a datagram goes.
    pub(super) fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Option<(IpAddr, u16)> {
        self.balancer.route(to, from, datagram).ok().map(|route| (route.to.ip(), route.to.port()))
    }

    /// Carries a call out. With `Order::Change` only changes from `begin` on, up to the first that packets notice; returns where
    /// to go on, if there are more.
    pub(super) fn carry_out(&mut self, call: &Call, begin: usize) -> Result<Outcome, usize> {
        if call.term < self.term {
            return Ok(Outcome::Replaced);
        }
        self.term = call.term;
        Ok(match &call.order {
            Order::Claim => Outcome::State(Box::new(self.state(true))),
            Order::Look { counters } => Outcome::State(Box::new(self.state(*counters))),
            Order::Stage(stage) => self.stage(stage),
            Order::Withdraw { lb, from } => match self.balancer.withdraw(*lb, *from) {
                Ok(()) | Err(WithdrawError::Absent { .. }) => self.done(),
                Err(WithdrawError::Routed { .. }) => Outcome::Routed,
            },
            Order::Destinations(rules) => {
                self.balancer.set_destinations(rules);
                self.done()
            }
            Order::Clear => {
                self.rules = Rules::default();
                self.balancer.replace(&Tables::new(&self.rules));
                self.done()
            }
            Order::Change(changes) => return self.change(changes, begin),
        })
    }

    fn done(&self) -> Outcome {
        let routed = (self.kind == PlaneKind::Staged).then(|| self.routed());
        Outcome::Done { routed }
    }

    fn routed(&self) -> BTreeMap<LbId, u64> {
        LbId::all().filter_map(|lb| Some((lb, self.balancer.newest_tick(lb)?))).collect()
    }

    fn state(&self, counters: bool) -> PlaneState {
        let members = || self.balancer.members().into_iter().map(|(key, sent)| (key, sent.packets));
        let packets = counters.then(|| members().collect::<BTreeMap<_, _>>());
        if self.kind == PlaneKind::RuleByRule {
            return PlaneState { packets, ..PlaneState::default() };
        }
        let sets = |lb| self.balancer.sets(lb).map(move |(from, _)| (lb, from));
        PlaneState {
            routed: self.routed(),
            sets: LbId::all().flat_map(sets).collect(),
            beyond: LbId::all().filter_map(|lb| Some((lb, self.balancer.beyond(lb)?))).collect(),
            packets,
        }
    }

    fn stage(&mut self, stage: &Stage) -> Outcome {
        let &Stage { lb, from, in_place, horizon, reset, .. } = stage;
        let tables = Arc::new(LbTables::new(lb, &stage.rules));
        // The oldest tables go when there is no room, if packets meet later ones and have not met these lately.
        let sets: Vec<_> = self.balancer.sets(lb).collect();
        if let [oldest, (next, _), ..] = sets[..] {
            let is_unused = self.before.get(&lb).is_some_and(|before| before.contains(&oldest));
            let later_are_met = sets[1..].iter().any(|(_, hits)| *hits > 0);
            if sets.len() > DataPlane::MOST_STAGED && later_are_met && is_unused {
                self.balancer.retire(lb, next);
            }
        }
        self.before.insert(lb, sets);
        let staged = if reset {
            self.balancer.reset(tables);
            Ok(())
        } else if in_place {
            self.balancer.stage_in_place(tables, from)
        } else {
            self.balancer.stage(tables, from)
        };
        match staged {
            Ok(()) => {
                horizon.into_iter().for_each(|horizon| self.balancer.set_horizon(lb, horizon));
                self.done()
            }
            Err(StageError::Routed { .. }) => Outcome::Routed,
            Err(why) => Outcome::Refused { why: why.to_string() },
        }
    }

    fn change(&mut self, changes: &[Change], begin: usize) -> Result<Outcome, usize> {
        for (at, change) in changes.iter().enumerate().skip(begin) {
            let refused = match *change {
                Change::Insert(rule) => self.rules.insert(rule, false).err().map(|why| why.to_string()),
                Change::Replace(rule) => self.rules.insert(rule, true).err().map(|why| why.to_string()),
                Change::Delete(key) => self.rules.remove(&key).is_none().then(|| format!("no {key:?}")),
            };
            if let Some(why) = refused {
                return Ok(Outcome::Refused { why: format!("{change:?}: {why}") });
            }
            // Slots alone are of epochs that no tick leads to yet, or no more.
            let is_noticed = match *change {
                Change::Insert(rule) | Change::Replace(rule) => rule.key(),
                Change::Delete(key) => key,
            };
            let is_slot = matches!(is_noticed, ejfat::lb::RuleKey::Slot { .. });
            if !is_slot || at + 1 == changes.len() {
                self.balancer.replace(&Tables::new(&self.rules));
                if at + 1 < changes.len() {
                    return Err(at + 1);
                }
            }
        }
        Ok(self.done())
    }
}

fn empty() -> DataPlane {
    DataPlane::new(&Tables::new(&Rules::default()), 1)
}
