//! How a plane that was connected gets its tables, and comes into use.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ejfat::{
    Time,
    lb::{LbId, Rule},
};

use super::{
    super::{Action, Report, balancing::Balancing},
    Effect, Planes, Purpose, State, no_tables,
};
use crate::{
    config::Config,
    durable::Durable,
    p4::{Change, Epochs},
    plane::{Order, PlaneId, PlaneKind, PlaneState, Stage},
};

/// A plane without sets of tables keeps the rules that it has for so long, until a tick of its senders is known.
const UNKNOWN: Duration = Duration::from_secs(5);

impl Planes {
    /// Leads planes that were connected on to their use.
    pub(crate) fn join(
        &mut self,
        now: Time,
        lbs: &BTreeMap<LbId, Balancing>,
        config: &Config,
        durable: &Durable,
    ) -> Vec<Effect> {
        // A plane that joins while others get an epoch would miss it.
        if !lbs.values().all(|of| of.publisher.is_between()) {
            return Vec::new();
        }
        let mut effects = Vec::new();
        for id in self.planes.keys().copied().collect::<Vec<_>>() {
            let plane = &self.planes[&id];
            match (&plane.state, plane.kind) {
                (State::Claimed(_), PlaneKind::RuleByRule) => {
                    let knows_ticks = |of: &Balancing| {
                        of.publisher.history.is_empty() || of.senders.proven(now).next().is_some()
                    };
                    if lbs.values().all(knows_ticks) || now >= plane.connected + UNKNOWN {
                        self.load_rules(now, id, lbs, durable, &mut effects);
                    }
                }
                (State::Claimed(state), PlaneKind::Staged) => {
                    let state = state.clone();
                    if state.routed.is_empty() && state.beyond.is_empty() {
                        self.set(id, State::Loading { is_waiting: false, has_destinations: false });
                        self.load_on(now, id, lbs, config, &mut effects);
                    } else {
                        self.rejoin(now, id, &state, lbs, config, &mut effects);
                    }
                }
                (State::Loading { is_waiting: false, .. }, _) => {
                    self.load_on(now, id, lbs, config, &mut effects);
                }
                _ => {}
            }
        }
        effects
    }

    /// Gives an empty plane what it lacks: the epochs that are remembered, one by one, and its addresses last.
    fn load_on(
        &mut self,
        now: Time,
        id: PlaneId,
        lbs: &BTreeMap<LbId, Balancing>,
        config: &Config,
        effects: &mut Vec<Effect>,
    ) {
        let Some(plane) = self.planes.get_mut(&id) else { return };
        let State::Loading { is_waiting, has_destinations } = &mut plane.state else { return };
        let next = lbs.values().find_map(|of| {
            let history = &of.publisher.history;
            let newest = of.publisher.number;
            let first = newest + 1 - history.len() as u64;
            let has = plane.loaded.get(&of.lb).filter(|(reservation, _)| *reservation == of.reservation);
            let number = has.map_or(first, |(_, has)| (has + 1).max(first));
            let epoch = history.get(usize::try_from(number.checked_sub(first)?).ok()?)?;
            let reset = has.is_none() || number == first;
            Some((of.lb, of.reservation, number, epoch, reset))
        });
        let is_free = |(lb, _): &(LbId, _)| !lbs.contains_key(lb) && !plane.freed.contains(lb);
        let free = config.load_balancers().find(is_free).map(|(lb, _)| lb);
        let free = free.filter(|_| plane.kind == PlaneKind::Staged && next.is_none());
        if let Some(lb) = free {
            *is_waiting = true;
            plane.freed.insert(lb);
            let order = Order::Stage(no_tables(lb));
            effects.push(Effect::Do(self.call(now, id, Purpose::Load, order)));
            return;
        }
        let order = match next {
            // All its rules were given at once, and are over.
            Some(_) if plane.kind == PlaneKind::RuleByRule => {
                plane.state = State::Claimed(Box::default());
                return;
            }
            Some((lb, reservation, number, epoch, reset)) => {
                plane.loaded.insert(lb, (reservation, number));
                let rules = epoch.rules.clone();
                Order::Stage(Stage { lb, from: epoch.from, in_place: true, horizon: None, reset, rules })
            }
            None if !*has_destinations && plane.kind == PlaneKind::Staged => {
                *has_destinations = true;
                Order::Destinations(self.destinations.clone())
            }
            None => {
                plane.loaded.clear();
                plane.state = State::InUse;
                effects.push(Effect::Do(Action::Report(Report::PlaneInUse(id))));
                effects.push(Effect::Loaded(id));
                return;
            }
        };
        *is_waiting = true;
        effects.push(Effect::Do(self.call(now, id, Purpose::Load, order)));
    }

    /// Uses a plane again that has tables, and has routed by them.
    fn rejoin(
        &mut self,
        now: Time,
        id: PlaneId,
        state: &PlaneState,
        lbs: &BTreeMap<LbId, Balancing>,
        config: &Config,
        effects: &mut Vec<Effect>,
    ) {
        self.set(id, State::InUse);
        effects.push(Effect::Do(Action::Report(Report::PlaneInUse(id))));
        effects.push(Effect::Routed(state.routed.clone()));
        effects.push(Effect::Beyond { plane: id, beyond: state.beyond.clone() });
        for (lb, _) in config.load_balancers() {
            let sets: Vec<_> = state.sets.iter().filter(|(of, _)| *of == lb).map(|(_, from)| *from).collect();
            if lbs.contains_key(&lb) {
                effects.push(Effect::Has { plane: id, lb, sets });
            } else {
                effects.push(Effect::Do(self.call(now, id, Purpose::Tidy, Order::Stage(no_tables(lb)))));
            }
        }
        let order = Order::Destinations(self.destinations.clone());
        effects.push(Effect::Do(self.call(now, id, Purpose::Tidy, order)));
    }

    /// Gives a plane without sets of tables all rules.
    fn load_rules(
        &mut self,
        now: Time,
        id: PlaneId,
        lbs: &BTreeMap<LbId, Balancing>,
        durable: &Durable,
        effects: &mut Vec<Effect>,
    ) {
        let mut rules: Vec<_> = self.destinations.iter().collect();
        for of in lbs.values() {
            let senders: BTreeSet<_> = durable.senders_of(of.lb).map(|sender| sender.address).collect();
            let (epochs, taken) = self.by_rules.entry(of.lb).or_insert_with(|| {
                let mut epochs = Epochs::new(of.lb);
                if let Some(newest) = of.publisher.newest() {
                    // There is room for the first one.
                    let _ = epochs.begin(newest.from, &newest.calendar, &newest.members, 0);
                }
                (epochs, BTreeSet::new())
            });
            if !of.publisher.history.is_empty() {
                // Events on their way may have begun by the rules that were there before.
                effects.push(Effect::MaySplit { lb: of.lb });
            }
            *taken = senders;
            rules.extend(taken.iter().map(|address| Rule::Source { lb: of.lb, address: *address }));
            rules.extend(epochs.whole());
        }
        let changes = rules.into_iter().map(Change::Insert).collect();
        self.set(id, State::Loading { is_waiting: true, has_destinations: true });
        if let Some(plane) = self.planes.get_mut(&id) {
            let newest = |of: &Balancing| (of.lb, (of.reservation, of.publisher.number));
            plane.loaded = lbs.values().map(newest).collect();
        }
        effects.push(Effect::Do(self.call(now, id, Purpose::Tidy, Order::Clear)));
        effects.push(Effect::Do(self.call(now, id, Purpose::Load, Order::Change(changes))));
    }
}
