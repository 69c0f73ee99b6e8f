//! The data planes: which calls are on their way, and how a plane that comes back gets its tables.
//!
//! | state | event | next |
//! |---|---|---|
//! | gone | it is connected | claiming: later calls of earlier connections are refused from then on |
//! | claiming | it told what it has routed | claimed |
//! | claimed | it has routed nothing | loading: all epochs that are remembered, then its addresses |
//! | claimed | it has routed something | in use; where its tables differ, ticks may be split until the next epoch |
//! | loading | it has all epochs | in use |
//! | any | it does not answer, or its connection ends | gone |

mod joining;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    num::NonZeroU64,
    sync::Arc,
    time::Duration,
};

use ejfat::{
    Time,
    lb::{BeyondHorizon, LbId, Rule, Rules},
};

use super::{Action, ControlConfig, Report, publisher::Epoch};
use crate::{
    calendar::MemberId,
    config::Config,
    p4::{Change, Epochs},
    plane::{Answer, Call, Order, Outcome, PlaneId, PlaneKind, PlaneState, Stage},
    rate::remember,
    reservation::ReservationId,
};

/// Bits of a term that number the connections of one control plane: its connection `n` has the term `term << CONNECTIONS` plus `n`. When
/// all are used, it makes no more connections, because the following terms are the next control plane's.
const CONNECTIONS: u32 = 24;
/// Calls whose times are remembered.
const REMEMBERED: usize = 16;
/// A plane that refuses tables so often in a row is lost, so that others get them.
const MOST_REFUSALS: u32 = 16;
/// The least time that a call is expected to take until all planes have carried it out.
const LEAST_INSTALL: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Gone,
    Claiming,
    Claimed(Box<PlaneState>),
    /// A call is on its way, or the next one is to be found.
    Loading {
        is_waiting: bool,
        has_destinations: bool,
    },
    InUse,
}

#[derive(Clone, Debug)]
struct Plane {
    kind: PlaneKind,
    state: State,
    term: u64,
    connected: Time,
    /// The number of the newest epoch that the plane has, while the plane loads.
    loaded: BTreeMap<LbId, (ReservationId, u64)>,
    /// Load balancers that nobody has reserved, and whose tables the plane has given up while it loads.
    freed: BTreeSet<LbId>,
    packets: BTreeMap<(LbId, MemberId), u64>,
    /// How many times in a row the plane did not take tables.
    refusals: u32,
}

/// Which load balancer a call is for, and of which reservation.
pub(crate) type Target = (LbId, ReservationId);

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Claim,
    Load,
    Look(Option<Target>),
    Rules(Target),
    Stage(Target),
    Withdraw(Target),
    /// To delete what no reservation has, or to set addresses.
    Tidy,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    plane: PlaneId,
    purpose: Purpose,
    sent: Time,
}

/// What an answer means to a load balancer's publisher.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaneAnswer {
    Looked(Option<u64>),
    Ruled,
    Staged { took: bool },
    Withdrawn { gave: bool },
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum Effect {
    Do(Action),
    Routed(BTreeMap<LbId, u64>),
    Beyond {
        plane: PlaneId,
        beyond: BTreeMap<LbId, BeyondHorizon>,
    },
    Answered {
        target: Target,
        plane: PlaneId,
        answer: PlaneAnswer,
    },
    Lost(PlaneId),
    /// Events that are on their way now may be split.
    MaySplit {
        lb: LbId,
    },
    /// A plane was empty, and has all epochs now.
    Loaded(PlaneId),
    /// A plane that is in use again has tables of a load balancer from these ticks on, ascending.
    Has {
        plane: PlaneId,
        lb: LbId,
        sets: Vec<u64>,
    },
}

/// What planes without sets of tables need to know beside an epoch.
#[derive(Clone, Debug)]
pub(crate) struct RuleOrder {
    pub(crate) senders: BTreeSet<IpAddr>,
    /// No packet of a lower tick is on its way any more.
    pub(crate) over: u64,
    /// Nothing of the load balancer stays.
    pub(crate) reset: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Planes {
    planes: BTreeMap<PlaneId, Plane>,
    calls: BTreeMap<u64, Pending>,
    next_call: u64,
    next_term: u64,
    /// The first term that is the next control plane's.
    last_term: u64,
    options: Arc<ControlConfig>,
    took: VecDeque<Duration>,
    destinations: Arc<Rules>,
    /// The epochs of planes without sets of tables, and the senders that they take.
    by_rules: BTreeMap<LbId, (Epochs, BTreeSet<IpAddr>)>,
}

fn destinations(config: &Config) -> Rules {
    let mut rules = Rules::default();
    for (lb, of) in config.load_balancers() {
        for address in of.data_addresses() {
            // An address that no plane takes is left out: the configuration's reader refuses it.
            let _ = rules.insert(Rule::Destination { address, lb }, true);
        }
    }
    rules
}

impl Planes {
    pub(crate) fn new(options: Arc<ControlConfig>, config: &Config, term: NonZeroU64) -> Self {
        let plane = |kind: PlaneKind| Plane {
            kind,
            state: State::Gone,
            term: 0,
            connected: Time::default(),
            loaded: BTreeMap::new(),
            freed: BTreeSet::new(),
            packets: BTreeMap::new(),
            refusals: 0,
        };
        Self {
            planes: options.planes.iter().map(|(id, kind)| (*id, plane(*kind))).collect(),
            calls: BTreeMap::new(),
            next_call: 0,
            next_term: term.get().saturating_mul(1 << CONNECTIONS),
            last_term: term.get().saturating_add(1).saturating_mul(1 << CONNECTIONS),
            options,
            took: VecDeque::new(),
            destinations: Arc::new(destinations(config)),
            by_rules: BTreeMap::new(),
        }
    }

    /// Whether every plane is in use.
    pub(crate) fn are_in_use(&self) -> bool {
        self.planes.values().all(|plane| matches!(plane.state, State::InUse))
    }

    /// The planes that cannot be programmed now. They may still route.
    pub(crate) fn away(&self) -> impl Iterator<Item = PlaneId> {
        let is_away = |(_, plane): &(&PlaneId, &Plane)| !matches!(plane.state, State::InUse);
        self.planes.iter().filter(is_away).map(|(id, _)| *id)
    }

    fn in_use(&self, kind: PlaneKind) -> BTreeSet<PlaneId> {
        let is = |plane: &Plane| plane.kind == kind && matches!(plane.state, State::InUse);
        self.planes.iter().filter(|(_, plane)| is(plane)).map(|(id, _)| *id).collect()
    }

    fn call(&mut self, now: Time, plane: PlaneId, purpose: Purpose, order: Order) -> Action {
        let number = self.next_call;
        self.next_call += 1;
        self.calls.insert(number, Pending { plane, purpose, sent: now });
        let term = self.planes.get(&plane).map_or(0, |plane| plane.term);
        Action::Call(Call { plane, number, term, order })
    }

    /// Makes a call of all planes of a kind that are in use. Returns these planes.
    fn call_all(
        &mut self,
        now: Time,
        kind: PlaneKind,
        purpose: Purpose,
        order: &Order,
        out: &mut Vec<Action>,
    ) -> BTreeSet<PlaneId> {
        let planes = self.in_use(kind);
        out.extend(planes.iter().map(|plane| self.call(now, *plane, purpose, order.clone())));
        planes
    }

    pub(crate) fn connected(&mut self, now: Time, plane: PlaneId) -> Vec<Effect> {
        let mut effects = self.lose(plane, "it was connected again");
        if self.next_term >= self.last_term {
            let why = "all terms of this control plane are used up; start it again, which claims a new one";
            let report = Report::PlaneLost { plane, why: why.to_owned() };
            effects.extend([Action::Report(report), Action::Disconnect(plane)].map(Effect::Do));
            return effects;
        }
        let term = self.next_term;
        let Some(of) = self.planes.get_mut(&plane) else { return effects };
        self.next_term += 1;
        (of.term, of.state, of.connected) = (term, State::Claiming, now);
        effects.push(Effect::Do(self.call(now, plane, Purpose::Claim, Order::Claim)));
        effects
    }

    /// Expects nothing of a plane any more.
    pub(crate) fn lose(&mut self, id: PlaneId, why: &str) -> Vec<Effect> {
        self.calls.retain(|_, call| call.plane != id);
        let Some(plane) = self.planes.get_mut(&id) else { return Vec::new() };
        plane.packets.clear();
        plane.freed.clear();
        plane.loaded.clear();
        plane.refusals = 0;
        if matches!(std::mem::take(&mut plane.state), State::Gone) {
            return Vec::new();
        }
        let report = Report::PlaneLost { plane: id, why: why.to_owned() };
        vec![Effect::Do(Action::Report(report)), Effect::Lost(id)]
    }

    fn fail(&mut self, id: PlaneId, why: &str) -> Vec<Effect> {
        let mut effects = vec![Effect::Do(Action::Disconnect(id))];
        effects.extend(self.lose(id, why));
        effects
    }

    /// Planes with a call that is not answered for too long.
    pub(crate) fn silent(&self, now: Time) -> BTreeSet<PlaneId> {
        let late = self.calls.values().filter(|call| now >= call.sent + self.options.times.lost);
        late.map(|call| call.plane).collect()
    }

    pub(crate) fn next_silent(&self) -> Option<Time> {
        self.calls.values().map(|call| call.sent + self.options.times.lost).min()
    }

    /// The time from a call until all planes have carried it out.
    pub(crate) fn install(&self) -> Duration {
        let Some(longest) = self.took.iter().max() else { return self.options.times.install };
        match (self.options.has(PlaneKind::Staged), self.options.has(PlaneKind::RuleByRule)) {
            // Planes that tell their ticks refuse tables that come too late, so the time may be short.
            (_, false) => (*longest).max(LEAST_INSTALL),
            (false, true) => (*longest).max(self.options.times.install),
            // The planes without sets of tables get an epoch first, and the others after them.
            (true, true) => 2 * (*longest).max(self.options.times.install),
        }
    }

    /// Asks all planes what they routed.
    pub(crate) fn look(&mut self, now: Time, counters: bool, out: &mut Vec<Action>) {
        let order = Order::Look { counters };
        self.call_all(now, PlaneKind::Staged, Purpose::Look(None), &order, out);
        if counters {
            self.call_all(now, PlaneKind::RuleByRule, Purpose::Look(None), &order, out);
        }
    }

    /// Asks all planes that tell it what they routed, for an epoch. Returns the planes.
    pub(crate) fn look_for(&mut self, now: Time, target: Target, out: &mut Vec<Action>) -> BTreeSet<PlaneId> {
        let order = Order::Look { counters: false };
        self.call_all(now, PlaneKind::Staged, Purpose::Look(Some(target)), &order, out)
    }

    /// Begins an epoch on planes without sets of tables. Returns the planes, or `None` if they have no room for it yet.
    pub(crate) fn begin_by_rules(
        &mut self,
        now: Time,
        target: Target,
        epoch: &Epoch,
        order: RuleOrder,
        out: &mut Vec<Action>,
    ) -> Option<BTreeSet<PlaneId>> {
        if !self.options.has(PlaneKind::RuleByRule) {
            return Some(BTreeSet::new());
        }
        let (lb, _) = target;
        let RuleOrder { senders, over, reset } = order;
        let (epochs, taken) = self.by_rules.entry(lb).or_insert_with(|| (Epochs::new(lb), BTreeSet::new()));
        let mut changes = Vec::new();
        if reset {
            changes.extend(epochs.whole().into_iter().map(|rule| Change::Delete(rule.key())));
            *epochs = Epochs::new(lb);
        }
        changes.extend(epochs.begin(epoch.from, &epoch.calendar, &epoch.members, over)?);
        changes.splice(0..0, changes_of_senders(lb, taken, &senders));
        *taken = senders;
        let order = Order::Change(changes);
        Some(self.call_all(now, PlaneKind::RuleByRule, Purpose::Rules(target), &order, out))
    }

    /// Members that the rules of an epoch name, on planes whose epochs share the rules of members.
    pub(crate) fn named_by_rules(&self, lb: LbId) -> BTreeSet<MemberId> {
        self.by_rules.get(&lb).map(|(epochs, _)| epochs.named()).unwrap_or_default()
    }

    /// See [`Epochs::first_tick`].
    pub(crate) fn first_tick_by_rules(&self, lb: LbId) -> u64 {
        self.by_rules.get(&lb).map_or(0, |(epochs, _)| epochs.first_tick())
    }

    pub(crate) fn stage(
        &mut self,
        now: Time,
        target: Target,
        stage: Stage,
        out: &mut Vec<Action>,
    ) -> BTreeSet<PlaneId> {
        self.call_all(now, PlaneKind::Staged, Purpose::Stage(target), &Order::Stage(stage), out)
    }

    pub(crate) fn withdraw(
        &mut self,
        now: Time,
        target: Target,
        from: u64,
        planes: &BTreeSet<PlaneId>,
        out: &mut Vec<Action>,
    ) {
        for plane in planes {
            let order = Order::Withdraw { lb: target.0, from };
            out.push(self.call(now, *plane, Purpose::Withdraw(target), order));
        }
    }

    /// Has planes without sets of tables take segments of these senders, and of no others, at once.
    pub(crate) fn set_senders(
        &mut self,
        now: Time,
        lb: LbId,
        senders: BTreeSet<IpAddr>,
        out: &mut Vec<Action>,
    ) {
        let Some((_, taken)) = self.by_rules.get_mut(&lb) else { return };
        let changes = changes_of_senders(lb, taken, &senders);
        *taken = senders;
        if !changes.is_empty() {
            self.call_all(now, PlaneKind::RuleByRule, Purpose::Tidy, &Order::Change(changes), out);
        }
    }

    /// Nobody read answers for so long.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.calls.values_mut().for_each(|call| call.sent = call.sent + time);
    }

    /// Deletes the tables of a load balancer that nobody has reserved.
    pub(crate) fn free(&mut self, now: Time, lb: LbId, out: &mut Vec<Action>) {
        self.call_all(now, PlaneKind::Staged, Purpose::Tidy, &Order::Stage(no_tables(lb)), out);
        if let Some((epochs, taken)) = self.by_rules.remove(&lb) {
            let sources = taken.into_iter().map(|address| Rule::Source { lb, address });
            let changes = sources.chain(epochs.whole()).map(|rule| Change::Delete(rule.key())).collect();
            self.call_all(now, PlaneKind::RuleByRule, Purpose::Tidy, &Order::Change(changes), out);
        }
    }

    /// Packets that all planes sent to the members of a load balancer.
    pub(crate) fn packets(&self, lb: LbId) -> Vec<(MemberId, u64)> {
        let mut sums: BTreeMap<MemberId, u64> = BTreeMap::new();
        for plane in self.planes.values() {
            for ((_, member), packets) in plane.packets.range((lb, 0)..=(lb, MemberId::MAX)) {
                let sum = sums.entry(*member).or_default();
                *sum = sum.saturating_add(*packets);
            }
        }
        sums.into_iter().collect()
    }

    pub(crate) fn answer(&mut self, now: Time, answer: Answer) -> Vec<Effect> {
        // Calls of an earlier connection are answered to nobody.
        let is_expected = self.calls.get(&answer.number).is_some_and(|call| call.plane == answer.plane);
        let Some(Pending { plane, purpose, sent }) =
            is_expected.then(|| self.calls.remove(&answer.number)).flatten()
        else {
            return Vec::new();
        };
        if answer.outcome == Outcome::Replaced {
            let mut effects = vec![Effect::Do(Action::Report(Report::Replaced { plane }))];
            effects.extend(self.fail(plane, "a control plane with a higher term has taken over"));
            return effects;
        }
        if let Purpose::Stage(_) | Purpose::Rules(_) = purpose {
            remember(&mut self.took, REMEMBERED, Duration::from_nanos(now.0.saturating_sub(sent.0)));
        }
        if let (Purpose::Stage(_), Some(of)) = (purpose, self.planes.get_mut(&plane)) {
            of.refusals = if let Outcome::Done { .. } = answer.outcome { 0 } else { of.refusals + 1 };
            if of.refusals >= MOST_REFUSALS {
                return self.fail(plane, "it took no tables for long");
            }
        }
        let answered = |target, plane_answer| Effect::Answered { target, plane, answer: plane_answer };
        match (purpose, answer.outcome) {
            (Purpose::Claim, Outcome::State(state)) => {
                self.set(plane, State::Claimed(state));
                Vec::new()
            }
            (Purpose::Look(target), Outcome::State(mut state)) => {
                if let (Some(packets), Some(of)) = (state.packets.take(), self.planes.get_mut(&plane)) {
                    of.packets = packets;
                }
                let routed = |(lb, _): Target| state.routed.get(&lb).copied();
                let effect = target.map(|target| answered(target, PlaneAnswer::Looked(routed(target))));
                let beyond = Effect::Beyond { plane, beyond: state.beyond };
                [Effect::Routed(state.routed), beyond].into_iter().chain(effect).collect()
            }
            (Purpose::Rules(target), Outcome::Done { .. }) => vec![answered(target, PlaneAnswer::Ruled)],
            (Purpose::Stage(target), Outcome::Done { routed }) => {
                let effect = answered(target, PlaneAnswer::Staged { took: true });
                routed.map(Effect::Routed).into_iter().chain([effect]).collect()
            }
            (Purpose::Stage(target), Outcome::Routed) => {
                vec![answered(target, PlaneAnswer::Staged { took: false })]
            }
            (Purpose::Stage(target), Outcome::Refused { why }) => {
                let report = Report::Refused { plane, lb: target.0, why };
                let effect = answered(target, PlaneAnswer::Staged { took: false });
                vec![Effect::Do(Action::Report(report)), effect]
            }
            (Purpose::Withdraw(target), Outcome::Done { .. }) => {
                vec![answered(target, PlaneAnswer::Withdrawn { gave: true })]
            }
            (Purpose::Withdraw(target), Outcome::Routed) => {
                vec![answered(target, PlaneAnswer::Withdrawn { gave: false })]
            }
            (Purpose::Load, Outcome::Done { .. }) => {
                if let Some(State::Loading { is_waiting, .. }) =
                    self.planes.get_mut(&plane).map(|plane| &mut plane.state)
                {
                    *is_waiting = false;
                }
                Vec::new()
            }
            (Purpose::Tidy, Outcome::Done { .. }) => Vec::new(),
            (_, Outcome::Refused { why }) => self.fail(plane, &why),
            (_, _) => self.fail(plane, "its answer does not fit the call"),
        }
    }

    fn set(&mut self, plane: PlaneId, state: State) {
        if let Some(plane) = self.planes.get_mut(&plane) {
            plane.state = state;
        }
    }
}

fn changes_of_senders(lb: LbId, taken: &BTreeSet<IpAddr>, senders: &BTreeSet<IpAddr>) -> Vec<Change> {
    let source = |address: &IpAddr| Rule::Source { lb, address: *address };
    let gone = taken.difference(senders).map(|gone| Change::Delete(source(gone).key()));
    gone.chain(senders.difference(taken).map(|new| Change::Insert(source(new)))).collect()
}

fn no_tables(lb: LbId) -> Stage {
    Stage { lb, from: 0, in_place: false, horizon: None, reset: true, rules: Arc::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_gets_a_term_of_the_next_control_plane() {
        let planes = [(PlaneId(0), PlaneKind::Staged)].into();
        let options = Arc::new(ControlConfig { planes, ..ControlConfig::default() });
        let term = NonZeroU64::new(3).expect("a term");
        let mut planes = Planes::new(options, &Config::default(), term);
        let connect = |planes: &mut Planes| planes.connected(Time(0), PlaneId(0));
        let claims = |effects: &[Effect]| {
            let of = |effect: &Effect| match effect {
                Effect::Do(Action::Call(call)) => Some(call.term),
                _ => None,
            };
            effects.iter().find_map(of)
        };
        assert_eq!(claims(&connect(&mut planes)), Some(3 << CONNECTIONS));
        planes.next_term = (4 << CONNECTIONS) - 1;
        assert_eq!(claims(&connect(&mut planes)), Some((4 << CONNECTIONS) - 1));
        let effects = connect(&mut planes);
        assert_eq!(claims(&effects), None);
        assert!(matches!(effects.last(), Some(Effect::Do(Action::Disconnect(PlaneId(0))))));
    }
}
