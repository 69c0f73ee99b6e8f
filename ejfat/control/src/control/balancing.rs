//! One reserved load balancer: its workers' shares, its senders' ticks, and its epochs.

mod splits;
mod workers;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ejfat::{
    Time,
    lb::{BeyondHorizon, Epoch as EpochRule, Forward, LbId, Member, Rule, Rules, TickPrefix},
    segment::IpVersion,
};

use super::{
    ControlConfig,
    publisher::{Epoch, Publisher},
    senders::Senders,
};
use crate::{
    calendar::{Calendar, Demand, MemberId, counts},
    capacity::{Alarm, Controller, DELAY, Decision, PlaneCounters},
    durable::Durable,
    p4::Members,
    plane::{PlaneId, PlaneKind},
    rate::RoutedRate,
    record::EpochRecord,
    reservation::{ReservationId, Strategy},
    session::{SessionId, Worker, WorkerSession},
};
use workers::Joined;

/// Ticks rose this short a time ago: senders send.
const FLOWS: Duration = Duration::from_secs(2);
/// Planes whose ticks do not rise for so long get ticks below them, or none.
const STANDS_STILL: Duration = Duration::from_secs(6);
/// A sender that counts from another tick is followed within this time.
const FOLLOWED: Duration = Duration::from_secs(12);
/// It takes so long to find out whether ticks above the horizon are the senders', and their rate.
const LEAPS: Duration = Duration::from_millis(1400);
/// Packets above the horizon, meanwhile, before they are taken to be the senders'.
const LEAPT: u64 = 3;
/// An epoch that begins so much later than senders are, at the highest rate, was wrong.
const FAR_AHEAD: Duration = Duration::from_secs(10);
/// Packets are on their way for no longer, counted with what syncs are late.
pub(super) const ON_THEIR_WAY: Duration = Duration::from_secs(3);

/// How much the next epoch is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    #[default]
    None,
    /// Shares have changed, or the horizon is to move on.
    Usual,
    /// Somebody gets events who should not, or the other way round.
    Urgent,
}

/// Ticks above the horizon.
#[derive(Clone, Debug)]
struct Ahead {
    since: Time,
    /// The number of packets above the horizon at `since`.
    packets: u64,
    lowest: u64,
    highest: u64,
    rate: RoutedRate,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Balancing {
    pub(crate) lb: LbId,
    pub(crate) reservation: ReservationId,
    pub(crate) options: Arc<ControlConfig>,
    strategy: Strategy,
    controller: Controller,
    workers: BTreeMap<SessionId, Joined>,
    pub(crate) senders: Senders,
    rate: RoutedRate,
    /// The highest tick that a plane told, and when it rose last.
    routed: Option<(u64, Time)>,
    /// How many slots each member is to have.
    wanted: Vec<(MemberId, u32)>,
    /// The slots are to be divided among other members.
    has_to_divide: bool,
    pub(crate) need: Need,
    /// The time since which an epoch waits because rates are not settled.
    held: Option<Time>,
    pub(crate) publisher: Publisher,
    /// No epoch begins before this time, because the last one was refused.
    pub(crate) not_before: Time,
    /// Ticks that senders had passed some seconds ago, by their syncs, the newest last.
    passed: VecDeque<(Time, u64)>,
    /// A tick above the horizon that the senders have leapt to.
    leapt: Option<u64>,
    /// Ticks above the horizon, as long as it is not known whether they are the senders'.
    ahead: Option<Ahead>,
    /// Packets above the horizon of each plane that were forged.
    forged: BTreeMap<PlaneId, u64>,
    /// Ticks below this one meet the newest epoch on planes without sets of tables, and earlier ones on other planes.
    pub(crate) mixed: u64,
    /// Where epochs begin that came within the time in which a sender is followed.
    boundaries: VecDeque<(Time, u64)>,
    /// Ticks that may be split and are not told yet: the first tick, and the first behind.
    pub(crate) unreported: Vec<(u64, u64)>,
    /// What the store has: the calendar, and the first tick of the epochs that are missing on planes that are away.
    recorded: Option<(Calendar, Option<u64>)>,
    /// The next epoch is to apply to all ticks, because senders count from a lower one again.
    is_anew: bool,
    /// Whether the first tick that planes report after epochs began anew has to be told as one that may be split. Senders may count from
    /// another tick by then.
    reports_first: bool,
}

impl Balancing {
    pub(crate) fn new(
        lb: LbId,
        reservation: ReservationId,
        strategy: Strategy,
        slots: u32,
        options: Arc<ControlConfig>,
    ) -> Self {
        Self {
            lb,
            reservation,
            options,
            strategy,
            controller: Controller::new(slots, DELAY),
            workers: BTreeMap::new(),
            senders: Senders::default(),
            rate: RoutedRate::default(),
            routed: None,
            wanted: Vec::new(),
            has_to_divide: false,
            need: Need::Urgent,
            held: None,
            publisher: Publisher::default(),
            not_before: Time::default(),
            passed: VecDeque::new(),
            leapt: None,
            ahead: None,
            forged: BTreeMap::new(),
            mixed: 0,
            boundaries: VecDeque::new(),
            unreported: Vec::new(),
            recorded: None,
            is_anew: false,
            reports_first: false,
        }
    }

    /// Whether a plane tells no ticks, so that syncs are all that is known.
    pub(crate) fn by_syncs(&self) -> bool {
        self.options.has(PlaneKind::RuleByRule)
    }

    pub(crate) fn want(&mut self, need: Need) {
        self.need = self.need.max(need);
    }

    pub(crate) fn set_strategy(&mut self, strategy: Strategy) {
        if self.strategy != strategy {
            self.strategy = strategy;
            self.want(Need::Urgent);
        }
    }

    /// Goes on with an epoch that the store has.
    pub(crate) fn resume(&mut self, record: &EpochRecord, durable: &Durable) {
        let Some(calendar) =
            Calendar::of(&record.slots).filter(|_| record.slots.len() as u32 == self.slots())
        else {
            return;
        };
        let members = self.members(&calendar, durable);
        let rules = Arc::new(rules(self.lb, &calendar, &members, durable));
        self.wanted = calendar_counts(&calendar).into_iter().collect();
        let planes = BTreeSet::new();
        self.publisher.history =
            VecDeque::from([Epoch { from: record.from, calendar, members, rules, planes }]);
        self.publisher.number = record.number;
        self.publisher.highest = record.from;
        self.publisher.is_resumed = true;
        self.publisher.resumed_from = Some(record.from);
        self.publisher.open = record.untold;
        self.recorded = self.publisher.newest().map(|newest| (newest.calendar.clone(), record.untold));
        self.need = Need::Usual;
    }

    /// Makes the next epoch apply to all ticks, and notes which events may be split by that.
    pub(crate) fn begin_anew(&mut self, now: Time) {
        let on_their_way = match self.highest_routed() {
            Some(tick) => self.around(now, tick),
            None => self.on_their_way(now),
        };
        self.unreported.push(on_their_way);
        self.reports_first = true;
        self.apply_to_all_ticks();
    }

    /// Makes the next epoch apply to all ticks. Call it only if that splits no event: see [`Self::is_untouched`].
    pub(crate) fn apply_to_all_ticks(&mut self) {
        self.is_anew = true;
        let routed = self.routed.take().map_or(0, |(tick, _)| tick);
        let open = self.publisher.open.take();
        self.unreported.extend(open.map(|open| (open, self.publisher.highest.max(routed).saturating_add(1))));
        self.passed.clear();
        (self.ahead, self.leapt) = (None, None);
        self.forged.clear();
        self.rate.forget_tick();
        self.want(Need::Urgent);
    }

    pub(crate) fn is_anew(&self) -> bool {
        self.is_anew || self.publisher.history.is_empty()
    }

    /// Whether no epoch that is remembered has a worker in any slot, and no plane has routed an event. A new epoch that applies to
    /// all ticks splits no event then.
    pub(crate) fn is_untouched(&self) -> bool {
        let leads_nowhere = |epoch: &Epoch| epoch.calendar.slots().iter().all(Option::is_none);
        self.routed.is_none() && self.publisher.history.iter().all(leads_nowhere)
    }

    /// Forgets the senders that are not to be kept. Returns ticks that may be split by what their newest syncs say.
    pub(crate) fn forget_senders(
        &mut self,
        now: Time,
        is_kept: impl Fn(IpAddr) -> bool,
    ) -> Option<(u64, u64)> {
        let split = if self.by_syncs() { self.doubted(now, |address| !is_kept(address)) } else { None };
        self.senders.keep(now, is_kept);
        split
    }

    /// Follows a sender that counts from another tick now. Returns ticks that may be split: the first one, and the first behind.
    pub(crate) fn followed(&mut self, now: Time, tick: u64) -> Option<(u64, u64)> {
        let ahead = self.around(now, tick);
        let stands_still = self.routed.is_none_or(|(_, rose)| now >= rose + STANDS_STILL);
        // Epochs do not begin anew while a proven sender is active at the highest tick, so forged syncs alone have no
        // effect.
        let is_alone =
            self.senders.proven(now).all(|of| of.tick < self.publisher.highest || of.age >= STANDS_STILL);
        if tick < self.publisher.highest && stands_still && is_alone && !self.is_anew {
            // No epoch would begin before the sender is where it was.
            self.begin_anew(now);
            // Tables for low ticks may have gone meanwhile.
            let since = self.beyond_reach(now, tick, FOLLOWED) - tick;
            return Some((tick.saturating_sub(since), ahead.1));
        }
        self.passed_boundaries(ahead.1).filter(|_| self.by_syncs())
    }

    /// A tick below which no packet is on its way any more, by syncs.
    pub(crate) fn over(&mut self, now: Time) -> u64 {
        let is_old = |(then, _): &(Time, u64)| now >= *then + ON_THEIR_WAY;
        while self.passed.len() > 1 && self.passed.get(1).is_some_and(is_old) {
            self.passed.pop_front();
        }
        self.passed.front().filter(|passed| is_old(passed)).map_or(0, |(_, tick)| *tick)
    }

    fn slots(&self) -> u32 {
        self.controller.slots()
    }

    /// Ends a period of the controller.
    pub(crate) fn period(&mut self, now: Time, packets: &[(MemberId, u64)]) -> Vec<Alarm> {
        self.pass(now);
        self.look_if_stuck(now);
        // A rate that is only partly known would make all events seem fewer.
        let ticks = if self.rate.is_settled(now) { self.rate.rate() } else { 0.0 };
        let counters = PlaneCounters { packets, ticks };
        let Decision { wanted, is_due, alarms } = self.controller.next(now, &counters);
        if self.strategy == Strategy::Dynamic && is_due {
            self.wanted = wanted;
            self.want(Need::Usual);
        }
        // The horizon has to stay ahead of the senders.
        if self.routed.is_some() {
            self.want(Need::Usual);
        }
        alarms
    }

    /// Begins epochs anew if senders stay below the ticks at which the next epoch can begin.
    fn look_if_stuck(&mut self, now: Time) {
        let live = self.senders.proven(now).filter(|sender| sender.age < FLOWS);
        let Some(newest) = live.map(|sender| sender.tick).max().filter(|_| !self.is_anew) else { return };
        let stands_still =
            self.routed.is_some_and(|(tick, rose)| newest < tick && now >= rose + STANDS_STILL);
        let highest = self.highest_routed().map_or(newest, |tick| tick.max(newest));
        let is_far = self.publisher.highest > self.beyond_reach(now, highest, FAR_AHEAD);
        if stands_still || is_far {
            self.begin_anew(now);
            let low = self.beyond_reach(now, newest, FOLLOWED) - newest;
            let high = self.around(now, newest).1;
            self.unreported.push((newest.saturating_sub(low), high));
        }
    }

    fn pass(&mut self, now: Time) {
        let lowest = self.senders.proven(now).filter(|sender| sender.age < FLOWS).map(|of| of.tick).min();
        if let Some(tick) = lowest {
            self.passed.push_back((now, tick));
            self.over(now);
        }
    }

    /// Takes the highest tick that a plane routed. If it is the first one since epochs began anew, returns the ticks that may be split:
    /// the first one, and the first one behind.
    pub(crate) fn routed(&mut self, now: Time, tick: u64) -> Option<(u64, u64)> {
        match &mut self.routed {
            Some((highest, _)) if tick <= *highest => {}
            routed => *routed = Some((tick, now)),
        }
        if let Some((highest, _)) = self.routed {
            self.rate.see(now, highest);
        }
        std::mem::take(&mut self.reports_first).then(|| self.around(now, tick))
    }

    /// Takes what a plane routed above the horizon. If it goes on, and no tick below the horizon does, the senders have leapt there;
    /// returns the ticks that may be split then: the first one, and the first behind.
    pub(crate) fn beyond(&mut self, now: Time, plane: PlaneId, beyond: BeyondHorizon) -> Option<(u64, u64)> {
        if beyond.packets <= self.forged.get(&plane).copied().unwrap_or(0) {
            return None;
        }
        let BeyondHorizon { packets, lowest, highest } = beyond;
        let begins = Ahead { since: now, packets, lowest, highest, rate: RoutedRate::default() };
        let rose = self.routed.map(|(_, rose)| rose);
        let ahead = self.ahead.get_or_insert(begins);
        if rose.is_some_and(|rose| rose > ahead.since) {
            let (since, lowest) = (ahead.since, ahead.lowest);
            self.ahead = None;
            self.forged.insert(plane, beyond.packets);
            // A higher horizon has reached them: they were the senders'.
            let (routed, _) = self.routed.filter(|(tick, _)| *tick >= lowest)?;
            let from = self.begun_since(since)?.min(lowest);
            return Some((from, self.around(now, routed).1));
        }
        ahead.highest = ahead.highest.max(beyond.highest);
        ahead.rate.see(now, beyond.highest);
        if now < ahead.since + LEAPS || beyond.packets < ahead.packets + LEAPT {
            return None;
        }
        let Ahead { since, rate, .. } = self.ahead.take()?;
        self.rate.adopt(now, rate);
        self.forged.clear();
        self.routed = Some((beyond.highest, now));
        self.leapt = Some(beyond.highest);
        self.want(Need::Urgent);
        let from = self.begun_since(since)?.min(beyond.lowest);
        Some((from, self.around(now, beyond.highest).1))
    }

    pub(crate) fn highest_routed(&self) -> Option<u64> {
        self.routed.map(|(tick, _)| tick)
    }

    /// Whether rates are known well enough for an epoch to begin.
    pub(crate) fn may_begin(&mut self, now: Time) -> bool {
        // It is not known yet where the senders are.
        if self.ahead.as_ref().is_some_and(|ahead| now < ahead.since + LEAPS + LEAPS) {
            return false;
        }
        let flows = self.routed.is_some_and(|(_, rose)| now < rose + FLOWS);
        let routed_is_known = !flows || self.rate.rate() > 0.0;
        let by_syncs = self.by_syncs();
        let syncs_are_known = !by_syncs || self.senders.proven(now).next().is_some();
        // Planes that tell ticks refuse what comes too late.
        let settled = !by_syncs || self.senders.are_settled(now);
        let known = routed_is_known && syncs_are_known;
        if known && (settled || self.need == Need::Urgent) {
            self.held = None;
            return true;
        }
        let since = *self.held.get_or_insert(now);
        known && now >= since + self.options.times.settle
    }

    /// The boundary of the next epoch. It is that of the newest one if no tick can have reached that. Planes were asked at the time
    /// `asked`, and `routed` is the highest tick of all planes.
    pub(crate) fn boundary(
        &self,
        now: Time,
        asked: Time,
        routed: Option<u64>,
        install: Duration,
    ) -> Option<u64> {
        let (by_syncs, margins) = (self.by_syncs(), &self.options.margins);
        let routed = routed.max(self.leapt.filter(|_| routed.is_some()));
        let since = Duration::from_nanos(now.0.saturating_sub(asked.0));
        let delay = since.saturating_add(install.saturating_mul(1 << self.publisher.tries.min(5)));
        let (leap, rate) = (self.rate.leap(), self.rate.rate());
        let beyond_routed = routed.map_or(0, |tick| margins.beyond_leap(tick, leap, rate, delay));
        let beyond_syncs =
            if by_syncs { margins.beyond_syncs(self.senders.expected(now), delay)? } else { 0 };
        let proposed = beyond_routed.max(beyond_syncs);
        let highest = self.publisher.highest;
        let is_pending = self.publisher.newest().is_some_and(|newest| newest.from == highest);
        if proposed > highest {
            Some(proposed)
        } else if is_pending && !by_syncs && self.publisher.open.is_none() {
            // No tick can reach the newest epoch before its tables are replaced.
            Some(highest)
        } else {
            highest.checked_add(1)
        }
    }

    /// Ticks above it are not remembered by planes. `None` as long as no rate or no tick of the senders is known.
    pub(crate) fn horizon(&self, now: Time, from: u64) -> Option<u64> {
        let ControlConfig { margins, times, .. } = &*self.options;
        let by_syncs = margins.beyond_syncs(self.senders.expected(now), Duration::ZERO);
        let fastest = self.fastest(now);
        let anchor = from.max(by_syncs.unwrap_or(0));
        // An epoch that begins at tick 0 does not tell which ticks the senders have.
        (fastest > 0.0 && anchor > 0).then(|| margins.beyond_routed(anchor, fastest, times.horizon))
    }

    /// The tables of the next epoch.
    pub(crate) fn epoch(&self, from: u64, durable: &Durable) -> Epoch {
        let before = match self.publisher.newest() {
            Some(newest) => newest.calendar.clone(),
            None => Calendar::empty(self.slots()).expect("the slots were checked"),
        };
        let calendar = match self.strategy {
            Strategy::Dynamic => before.next(&self.wanted),
            Strategy::Static | Strategy::Explicit => self.by_demands(&before, durable),
        };
        let members = self.members(&calendar, durable);
        let rules = Arc::new(rules(self.lb, &calendar, &members, durable));
        Epoch { from, calendar, members, rules, planes: BTreeSet::new() }
    }

    /// Slots that are demanded, and with [`Strategy::Static`] the others by weight.
    fn by_demands(&self, before: &Calendar, durable: &Durable) -> Calendar {
        let gets_events = |id: &SessionId| self.workers.get(id).is_some_and(|joined| joined.gets_events);
        let sessions: Vec<_> =
            durable.sessions_of(self.lb).filter(|session| gets_events(&session.id)).collect();
        let demanded = |session: &&WorkerSession| {
            let member = session.member;
            let ranges = session.slots.clone().into_iter();
            ranges.flat_map(|range| range.first..range.first + range.count).map(move |slot| (slot, member))
        };
        let fixed: Vec<_> = sessions.iter().flat_map(demanded).collect();
        let own = |member: MemberId| fixed.iter().filter(|(_, of)| *of == member).count() as u32;
        let left = self.slots() - fixed.len() as u32;
        let demand = |session: &&WorkerSession| Demand {
            member: session.member,
            weight: session.worker.weight.into(),
            least: 0,
            most: left,
        };
        let demands: Vec<_> = sessions.iter().map(demand).collect();
        let others = match self.strategy {
            Strategy::Explicit => vec![0; demands.len()],
            _ => counts(left, &demands).unwrap_or_else(|_| vec![0; demands.len()]),
        };
        let wanted: Vec<_> = demands
            .iter()
            .zip(others)
            .map(|(demand, others)| (demand.member, own(demand.member) + others))
            .collect();
        before.next_around(&fixed, &wanted)
    }

    fn members(&self, calendar: &Calendar, durable: &Durable) -> Members {
        let named: BTreeSet<_> = calendar.slots().iter().flatten().copied().collect();
        let sessions = durable.sessions_of(self.lb).filter(|session| named.contains(&session.member));
        let member = |session: &WorkerSession| {
            let Worker { address, port, port_bits, keep_lb_header, .. } = session.worker;
            let ip = if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
            let forward = Forward { mac: None, address, port, port_bits, keep_lb_header };
            ((session.member, ip), Member::Forward(forward))
        };
        sessions.map(member).collect()
    }

    /// Notes that an epoch is in force, but not on the planes that are away.
    ///
    /// Returns `None` if the store has this epoch's calendar already. Otherwise the epoch is to be recorded, with the tick
    /// ([`EpochRecord::untold`]) from which on events may be split if this control plane dies.
    pub(crate) fn begun(
        &mut self,
        now: Time,
        reset: bool,
        away: impl Iterator<Item = PlaneId>,
    ) -> Option<Option<u64>> {
        if reset {
            (self.is_anew, self.routed) = (false, None);
        }
        let history = &self.publisher.history;
        let newest = history.back()?;
        let counts: Vec<_> = calendar_counts(&newest.calendar).into_iter().collect();
        self.controller.published(&counts);
        self.boundaries.retain(|(then, _)| now < *then + FOLLOWED);
        self.boundaries.push_back((now, newest.from));
        let calendar = newest.calendar.clone();
        let away: Vec<_> = away.collect();
        self.publisher.without(away.iter().copied());
        let lacks = away.into_iter().filter_map(|plane| self.publisher.lacks(plane)).min();
        let recorded = Some((calendar, lacks));
        if self.recorded == recorded && !reset {
            return None;
        }
        self.recorded = recorded;
        // A sender may have passed the boundaries of the last seconds already, if it was too fast. That is known later only.
        let doubted = self.boundaries.iter().map(|(_, from)| *from).filter(|_| self.by_syncs());
        Some(lacks.into_iter().chain(doubted).min())
    }

    /// Members that get events, with their slots, by the newest epoch.
    pub(crate) fn shares(&self) -> Vec<(MemberId, u32)> {
        let newest = self.publisher.newest();
        newest.map(|newest| calendar_counts(&newest.calendar).into_iter().collect()).unwrap_or_default()
    }
}

fn calendar_counts(calendar: &Calendar) -> BTreeMap<MemberId, u32> {
    let mut counts = BTreeMap::new();
    calendar.slots().iter().flatten().for_each(|member| *counts.entry(*member).or_default() += 1);
    counts
}

fn rules(lb: LbId, calendar: &Calendar, members: &Members, durable: &Durable) -> Rules {
    let slot_bits = calendar.slots().len().ilog2() as u8;
    let epoch = EpochRule { slot_bits, ..EpochRule::new(0) };
    let mut rules = Rules::default();
    let mut add = |rule| rules.insert(rule, true).expect("records are checked, with the limits of tables");
    add(Rule::Epoch { lb, ticks: TickPrefix::ALL, epoch });
    for (slot, member) in (0..).zip(calendar.slots()) {
        if let Some(member) = *member {
            add(Rule::Slot { lb, epoch: 0, slot, member });
        }
    }
    for (&(id, ip), &member) in members {
        add(Rule::Member { lb, ip, id, member });
    }
    durable.senders_of(lb).for_each(|sender| add(Rule::Source { lb, address: sender.address }));
    rules
}
