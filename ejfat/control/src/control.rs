//! The control plane as a whole: the registry, the shares of workers, and the epochs on all data planes.
//!
//! ```text
//! requests ─► Registry ─► records for the store ─► replies, once the store has them
//!                │ sessions, senders
//! states ────────┼──► Controller ─► wanted slots ─┐
//! syncs ─────────┼──► gates, rates ─► boundary ───┼─► Publisher ─► calls of data planes
//! answers ───────┴──► ticks, counters ────────────┘      ▲              │
//!                                                        └── answers ◄──┘
//! ```
//!
//! The caller gives `Control` requests, syncs and answers, calls [`Control::poll`] after each and when
//! [`Control::next_wakeup`] says so, and does what [`Control::poll`] returns. Replies wait until the store has the
//! records that were returned before them. Calls of data planes do not wait, because what they change follows from
//! sessions whose workers have their reply already.

mod balancing;
mod ended;
mod epochs;
mod planes;
mod publisher;
mod report;
mod returning;
mod senders;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    num::NonZeroU64,
    sync::Arc,
    time::Duration,
};

use ejfat::{Time, lb::LbId, wire::SyncHeader};

use crate::{
    boundary::Margins,
    calendar::MemberId,
    config::{Config, ConfigError},
    plane::{Call, PlaneId, PlaneKind, PlaneTimes},
    record::{Change, Key},
    registry::{RandomBytes, Registry, RestoreError},
    request::{Accepted, Caller, Moment, Refusal, Request, Reset},
    session::SessionId,
    sync::Verdict,
};

use balancing::{Balancing, Need};
use ended::Ended;
use planes::{Effect, Planes};
pub use report::Report;
use report::split_report;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The length of a period, in which shares are decided once.
const PERIOD: Duration = Duration::from_secs(1);
/// How often it is looked which sessions live and which reservations are over.
const CHECKS: Duration = Duration::from_millis(10);
/// A driver that does not poll for so long has slept, and has states and answers waiting.
const SLEPT: Duration = Duration::from_millis(500);
/// The times between two looks at what planes routed, used in turn. They differ, so that looks do not keep step with events: the
/// ticks of a sender with an event every 100 ms would otherwise seem to rise evenly, and not by leaps.
const LOOKS: [Duration; 7] = [ms(71), ms(137), ms(89), ms(113), ms(79), ms(127), ms(97)];
/// Members' counters are asked for so long before a period ends.
const COUNTED_BEFORE: Duration = Duration::from_millis(50);
/// How soon what was refused is tried again; twice as late after each refusal, but not later than [`LATEST`].
const RETRY: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(640);

/// The options by which shares and epochs are decided, with the data planes of the site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlConfig {
    /// The margins that are added to known ticks and rates when the first tick of an epoch is computed.
    pub margins: Margins,
    /// The times for data planes, such as the time without an answer after which a data plane counts as lost.
    pub times: PlaneTimes,
    /// The data planes of the site, each with the protocol by which it is programmed.
    pub planes: BTreeMap<PlaneId, PlaneKind>,
}

impl ControlConfig {
    /// Whether a data plane of this kind is configured.
    fn has(&self, kind: PlaneKind) -> bool {
        self.planes.values().any(|of| *of == kind)
    }
}

/// Why a control plane cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BeginError {
    /// The configuration is not valid, the root token is empty, or the stored records cannot be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The number of slots is out of range, or the configuration has more load balancers, members or senders than a configured
    /// SmartNIC has room for.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Something that the caller of [`Control::poll`] has to do. The caller carries out the actions in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The caller has to store these changes, all or none.
    Store(Vec<Change>),
    /// The caller has to make this call to a data plane, and to pass the answer to [`Control::answer`].
    Call(Call),
    /// The caller has to end the connection to this data plane, and to connect again.
    Disconnect(PlaneId),
    /// The caller has to pass this report to the operators of the site.
    Report(Report),
}

/// The part of a reservation's status that the registry does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedStatus {
    /// The number of epochs since the reservation began. The value 0 means that no epoch has begun yet.
    pub epoch: u64,
    /// The first tick of the newest epoch.
    pub from: u64,
    /// The highest tick that data planes have routed, or by which senders' syncs will have been passed.
    pub tick: u64,
    /// The members that have slots, with their numbers of slots.
    pub slots: Vec<(MemberId, u32)>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Control {
    registry: Registry,
    options: Arc<ControlConfig>,
    planes: Planes,
    lbs: BTreeMap<LbId, Balancing>,
    /// Load balancers that ended lately, at most one reservation of each.
    ended: BTreeMap<LbId, Ended>,
    /// When it was polled last.
    polled: Time,
    next_check: Time,
    next_look: Time,
    looks: usize,
    next_period: Time,
    /// Whether members' counters were asked for in this period.
    has_counted: bool,
    /// When what could not begin is looked at again.
    retry_at: Option<Time>,
    /// Epochs begin without planes that were not connected by then.
    waits_until: Time,
    out: Vec<Action>,
}

impl Control {
    /// Restores a control plane from what a store has. `term` is the store's, which is higher for each control plane.
    ///
    /// # Errors
    /// [`BeginError`] if the configuration, the options or the records cannot be served.
    pub fn begin<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        config: Config,
        options: ControlConfig,
        root: &str,
        entries: impl IntoIterator<Item = (K, V)>,
        term: NonZeroU64,
        now: Time,
    ) -> Result<Self, BeginError> {
        config.check_slots()?;
        if options.has(PlaneKind::RuleByRule) {
            config.check_smartnics()?;
        }
        let registry = Registry::restore(config, root, entries, now)?;
        let options = Arc::new(options);
        let mut control = Self {
            planes: Planes::new(options.clone(), registry.config(), term),
            waits_until: now + options.times.lost,
            registry,
            options,
            lbs: BTreeMap::new(),
            ended: BTreeMap::new(),
            polled: now,
            next_check: now,
            next_look: now,
            looks: 0,
            next_period: now + PERIOD,
            has_counted: false,
            retry_at: None,
            out: Vec::new(),
        };
        control.follow_reservations(now);
        let durable = control.registry.durable();
        for (lb, of) in &mut control.lbs {
            if let Some(record) = durable.epoch(*lb) {
                of.resume(record, durable);
            }
        }
        control.follow_readiness(now);
        Ok(control)
    }

    /// Takes over what is in no record from a control plane of the same process, whose store failed.
    pub fn carry_over(&mut self, before: Self) {
        self.registry.carry_over(before.registry.soft().clone());
        // Numbers of epochs that were published while nothing could be stored must not be used again.
        for (lb, of) in &mut self.lbs {
            if let Some(before) = before.lbs.get(lb).filter(|before| before.reservation == of.reservation) {
                of.publisher.number = of.publisher.number.max(before.publisher.number);
            }
        }
    }

    /// Returns the registry, which keeps the tokens, reservations, senders and worker sessions.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Carries out a request. The reply has to wait until the store has the changes.
    ///
    /// # Errors
    /// [`Refusal`], as [`Registry::request`] says.
    pub fn request(
        &mut self,
        at: Moment,
        caller: Caller<'_>,
        request: &Request,
        random: RandomBytes<'_>,
    ) -> Result<Accepted, Refusal> {
        let accepted = self.registry.request(at, caller, request, random)?;
        match request {
            Request::SendState(state) => self.take_state(at, &state.session_id),
            Request::Reset(reset) => self.reset(at.now, reset),
            _ => {}
        }
        if !accepted.changes.is_empty() {
            self.follow(at.now, &accepted.changes);
        }
        Ok(accepted)
    }

    fn reset(&mut self, now: Time, reset: &Reset) {
        let reservation = reset.lb_id.parse().ok().and_then(|id| self.registry.durable().reservation(id));
        let Some(of) = reservation.and_then(|reservation| self.lbs.get_mut(&reservation.lb)) else { return };
        if reset.sync {
            let split = of.forget_senders(now, |_| false);
            self.out.extend(split.and_then(|ticks| split_report(of.lb, ticks)));
        }
        if reset.epochs {
            of.begin_anew(now);
        }
    }

    fn take_state(&mut self, at: Moment, session: &str) {
        let Ok(id) = session.parse() else { return };
        let Some(session) = self.registry.durable().session(id) else { return };
        let state = self.registry.liveness(id).and_then(|liveness| liveness.state());
        if let (Some(of), Some((state, _))) = (self.lbs.get_mut(&session.lb), state) {
            of.report(at.now, id, state);
            of.follow_one(at.now, session, self.registry.readiness(id, at.now));
        }
    }

    /// The addresses whose syncs say something of a load balancer: those of its senders, and for some seconds those of senders that were
    /// removed, or whose reservation ended.
    pub fn sync_sources(&self, now: Time, lb: LbId) -> BTreeSet<IpAddr> {
        let registered = self.registry.durable().senders_of(lb).map(|sender| sender.address);
        let known = self.lbs.get(&lb).into_iter().flat_map(|of| of.senders.addresses(now));
        let ended = self.ended.get(&lb).into_iter().flat_map(|ended| ended.senders(now));
        registered.chain(known).chain(ended).collect()
    }

    /// Takes a sync datagram that came to a load balancer's sync address.
    pub fn sync(&mut self, now: Time, lb: LbId, from: IpAddr, sync: &SyncHeader) {
        if let Some(ended) = self.ended.get_mut(&lb) {
            let split = ended.sync(now, from, sync);
            self.report_splits(lb, split);
        }
        let is_sender = self.registry.durable().senders_of(lb).any(|sender| sender.address == from);
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        let (key, known_rate) = ((from, sync.source), of.fastest(now));
        let margins = &self.options.margins;
        let past = of.senders.check_past(now, key, sync.tick, known_rate, margins);
        if past.is_some() {
            let split = of.splits_by_sync(now, sync.tick, past);
            self.out.extend(split.filter_map(|ticks| split_report(lb, ticks)));
        }
        if !is_sender {
            return;
        }
        let verdict = of.senders.check(now, key, sync.tick, known_rate, margins);
        let split = of.splits_by_sync(now, sync.tick, verdict);
        self.out.extend(split.filter_map(|ticks| split_report(lb, ticks)));
        if verdict == Some(Verdict::Followed) {
            let split = of.followed(now, sync.tick);
            self.out.extend(split.and_then(|ticks| split_report(lb, ticks)));
            self.out.push(Action::Report(Report::Followed { lb, sender: from, tick: sync.tick }));
        }
    }

    fn report_splits(&mut self, lb: LbId, ranges: impl IntoIterator<Item = (u64, u64)>) {
        self.out.extend(ranges.into_iter().filter_map(|ticks| split_report(lb, ticks)));
    }

    /// A plane can be called, over a new connection.
    pub fn connected(&mut self, now: Time, plane: PlaneId) {
        let effects = self.planes.connected(now, plane);
        self.carry_out(now, effects);
    }

    /// The connection to a plane has ended; its calls are not answered any more.
    pub fn disconnected(&mut self, now: Time, plane: PlaneId) {
        let effects = self.planes.lose(plane, "the connection ended");
        self.carry_out(now, effects);
    }

    /// Takes the answer to a call.
    pub fn answer(&mut self, now: Time, answer: crate::plane::Answer) {
        let effects = self.planes.answer(now, answer);
        self.carry_out(now, effects);
    }

    /// Does what is due. Returns what is to be done, in order.
    pub fn poll(&mut self, at: Moment) -> Vec<Action> {
        let now = at.now;
        if now >= self.polled + SLEPT {
            // What came meanwhile is to be read first.
            self.next_check = now + SLEPT;
            self.planes.slept(Duration::from_nanos(now.0.saturating_sub(self.polled.0)));
        }
        self.polled = now;
        if now >= self.next_check {
            self.next_check = now + CHECKS;
            let changes = self.registry.poll(at);
            if !changes.is_empty() {
                self.follow(now, &changes);
                self.out.push(Action::Store(changes));
            }
            self.ended.retain(|_, ended| !ended.is_over(now));
            self.follow_readiness(now);
        }
        let silent = self.planes.silent(now);
        for plane in silent {
            self.out.push(Action::Disconnect(plane));
            let effects = self.planes.lose(plane, "it does not answer");
            self.carry_out(now, effects);
        }
        if now >= self.next_look {
            self.looks += 1;
            self.next_look = now + LOOKS[self.looks % LOOKS.len()];
            self.planes.look(now, false, &mut self.out);
        }
        self.period(now);
        self.retry_at = None;
        let lbs: Vec<_> = self.lbs.keys().copied().collect();
        lbs.into_iter().for_each(|lb| self.begin_epoch(now, lb));
        let effects = self.planes.join(now, &self.lbs, self.registry.config(), self.registry.durable());
        self.carry_out(now, effects);
        std::mem::take(&mut self.out)
    }

    /// When [`Self::poll`] is to be called next.
    pub fn next_wakeup(&self) -> Time {
        let period = if self.has_counted { self.next_period } else { self.counted_at() };
        let times = [Some(self.next_check), Some(self.next_look), Some(period), self.retry_at];
        let silent = self.planes.next_silent();
        times.into_iter().flatten().chain(silent).min().unwrap_or(self.next_look)
    }

    /// What was published of a load balancer that is reserved.
    pub fn published(&self, now: Time, lb: LbId) -> Option<PublishedStatus> {
        let of = self.lbs.get(&lb)?;
        let by_syncs = self.options.margins.beyond_syncs(of.senders.proven(now), Duration::ZERO);
        Some(PublishedStatus {
            epoch: of.publisher.number,
            from: of.publisher.newest().map_or(0, |newest| newest.from),
            tick: of.highest_routed().or(by_syncs).unwrap_or(0),
            slots: of.shares(),
        })
    }

    fn follow(&mut self, now: Time, changes: &[Change]) {
        self.follow_reservations(now);
        let mut lbs: BTreeSet<LbId> = BTreeSet::new();
        for change in changes {
            match change.key() {
                Key::Session(id) => self.follow_session(now, id),
                Key::Reservation(lb) => drop(lbs.insert(lb)),
                Key::Sender(sender) => {
                    lbs.insert(sender.lb);
                    let Some(of) = self.lbs.get_mut(&sender.lb) else { continue };
                    let durable = self.registry.durable();
                    let is_sender = |address| durable.senders_of(sender.lb).any(|is| is.address == address);
                    let split = of.forget_senders(now, is_sender);
                    self.out.extend(split.and_then(|ticks| split_report(of.lb, ticks)));
                    let senders = durable.senders_of(sender.lb).map(|sender| sender.address).collect();
                    self.planes.set_senders(now, sender.lb, senders, &mut self.out);
                    of.want(Need::Urgent);
                }
                _ => {}
            }
        }
        for lb in lbs {
            if let Some(of) = self.lbs.get_mut(&lb) {
                of.follow(now, self.registry.durable(), |id| self.registry.readiness(id, now));
            }
        }
    }

    /// Follows a session that began, changed or ended.
    fn follow_session(&mut self, now: Time, id: SessionId) {
        let readiness = self.registry.readiness(id, now);
        match self.registry.durable().session(id) {
            Some(session) => {
                if let Some(of) = self.lbs.get_mut(&session.lb) {
                    of.follow_one(now, session, readiness);
                }
            }
            None => self.lbs.values_mut().for_each(|of| of.leave(id)),
        }
    }

    /// Begins with new reservations, and ends those that are over.
    fn follow_reservations(&mut self, now: Time) {
        let reserved: BTreeMap<_, _> =
            self.registry.durable().reservations().map(|of| (of.lb, (of.id, of.strategy))).collect();
        let over = |of: &Balancing| reserved.get(&of.lb).is_none_or(|(id, _)| *id != of.reservation);
        let ended: Vec<_> = self.lbs.values().filter(|of| over(of)).map(|of| of.lb).collect();
        for lb in ended {
            if let Some(of) = self.lbs.remove(&lb) {
                let split = of.splits_of(now, self.planes.away());
                self.out.extend(split.filter_map(|ticks| split_report(lb, ticks)));
                self.ended.insert(lb, Ended::new(of, now));
            }
            self.planes.free(now, lb, &mut self.out);
        }
        for (lb, (id, strategy)) in reserved {
            let slots = self.registry.config().slots;
            let new = || Balancing::new(lb, id, strategy, slots, self.options.clone());
            self.lbs.entry(lb).or_insert_with(new).set_strategy(strategy);
        }
    }

    fn follow_readiness(&mut self, now: Time) {
        for of in self.lbs.values_mut() {
            of.follow(now, self.registry.durable(), |id| self.registry.readiness(id, now));
        }
    }

    fn counted_at(&self) -> Time {
        Time(self.next_period.0.saturating_sub(COUNTED_BEFORE.as_nanos() as u64))
    }

    fn period(&mut self, now: Time) {
        if !self.has_counted && now >= self.counted_at() {
            self.has_counted = true;
            self.planes.look(now, true, &mut self.out);
        }
        if now < self.next_period {
            return;
        }
        self.has_counted = false;
        // Periods that were missed are not made up for.
        self.next_period = (self.next_period + PERIOD).max(now + PERIOD / 2);
        for of in self.lbs.values_mut() {
            let alarms = of.period(now, &self.planes.packets(of.lb));
            let lb = of.lb;
            self.out.extend(alarms.into_iter().map(|alarm| Action::Report(Report::Alarm { lb, alarm })));
            // Rules of members are one table for all epochs of a plane without sets of tables.
            for member in self.planes.named_by_rules(lb) {
                self.registry.rest_member(lb, member, now);
            }
        }
    }

    fn carry_out(&mut self, now: Time, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Do(action) => self.out.push(action),
                Effect::Routed(routed) => {
                    for (lb, tick) in routed {
                        // What was routed before is forgotten together with the old tables.
                        let Some(of) = self.lbs.get_mut(&lb).filter(|of| !of.is_anew()) else { continue };
                        let split = of.routed(now, tick);
                        self.out.extend(split.and_then(|ticks| split_report(lb, ticks)));
                    }
                }
                Effect::Beyond { plane, beyond } => {
                    for (lb, beyond) in beyond {
                        let Some(of) = self.lbs.get_mut(&lb).filter(|of| !of.is_anew()) else { continue };
                        let split = of.beyond(now, plane, beyond);
                        self.out.extend(split.and_then(|ticks| split_report(lb, ticks)));
                    }
                }
                Effect::Answered { target, plane, answer } => {
                    let of = self.lbs.get_mut(&target.0).filter(|of| of.reservation == target.1);
                    if let Some(of) = of {
                        let step = of.publisher.answered(plane, answer);
                        self.step(now, target.0, step);
                    } else if let Some(ended) =
                        self.ended.get_mut(&target.0).filter(|ended| ended.target() == target)
                    {
                        let split = ended.answered(plane, answer);
                        self.report_splits(target.0, split);
                    }
                }
                Effect::Lost(plane) => {
                    for lb in self.ended.keys().copied().collect::<Vec<_>>() {
                        let Some(ended) = self.ended.get_mut(&lb) else { continue };
                        let split = ended.lost(plane);
                        self.report_splits(lb, split);
                    }
                    for lb in self.lbs.keys().copied().collect::<Vec<_>>() {
                        let Some(of) = self.lbs.get_mut(&lb) else { continue };
                        let step = of.publisher.lost(plane);
                        self.step(now, lb, step);
                    }
                }
                Effect::MaySplit { lb } => {
                    let Some(of) = self.lbs.get(&lb) else { continue };
                    let ticks = of.on_their_way_since(now);
                    self.out.extend(split_report(lb, ticks));
                }
                Effect::Loaded(plane) => {
                    for of in self.lbs.values_mut() {
                        // What others have is known by their ticks only.
                        let newest = of.publisher.newest().filter(|_| of.publisher.is_resumed);
                        if let Some(from) = newest.map(|newest| newest.from) {
                            let routed = of.highest_routed().unwrap_or(from);
                            let low = of.around(now, routed).0;
                            of.publisher.may_split_from(from.min(low));
                        }
                        of.publisher.loaded(plane);
                    }
                }
                Effect::Has { plane, lb, sets } => {
                    let Some(of) = self.lbs.get_mut(&lb) else { continue };
                    of.publisher.resume(plane, &sets);
                    if let Some(from) = of.publisher.differs(plane, &sets) {
                        of.publisher.may_split_from(from);
                    }
                    of.publisher.has_all(plane);
                    let highest = sets.last().copied().unwrap_or(0);
                    of.publisher.highest = of.publisher.highest.max(highest);
                    of.want(Need::Urgent);
                }
            }
        }
    }
}
