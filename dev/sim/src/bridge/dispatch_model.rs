//! The bridge: a reassembler and a dispatcher, driven as over sockets.

use std::collections::BTreeMap;

use ejfat::{
    Time,
    bridge::{
        BackPressure, DispatchAction, Dispatcher, EligibleWorkers, EventLocation, EventLossCause,
        EventOutcome as Known, Opened, WorkerId, WorkerStats,
    },
    reassembly::{CopyCommand, EventBufferId, EventKey, Reassembler},
};

use super::{
    super::{events::check, sender::Sender},
    draw::{Aim, Setting},
    ledger::{Ledger, TrueOutcome},
    subscriber::Subscriber,
};

/// The clock of descriptors, when the run begins.
const EPOCH: u64 = 1_700_000_000_000_000_000;

pub(super) struct DispatchModel {
    pub(super) reassembler: Reassembler,
    pub(super) dispatcher: Dispatcher,
    aim: Aim,
    /// Spill memory, by the reassembler's slot.
    spill: Vec<Vec<u8>>,
    /// What is open, and whom it is for.
    open: BTreeMap<usize, Opened>,
    /// The dispatcher's trace buffer forgets nothing.
    remembers: bool,
    /// How many events the dispatcher gave up that could have been delivered again.
    pub(super) given_up: u64,
}

impl DispatchModel {
    pub(super) fn new(setting: &Setting) -> Self {
        let Setting { reassembly, dispatch, aim, .. } = setting;
        Self {
            dispatcher: Dispatcher::new(dispatch.clone(), reassembly.slots),
            spill: vec![Vec::new(); reassembly.slots as usize],
            reassembler: Reassembler::new(reassembly.clone()).expect("bounds that fit"),
            aim: *aim,
            open: BTreeMap::new(),
            remembers: dispatch.max_traces > 1000,
            given_up: 0,
        }
    }

    pub(super) fn aim_at(&mut self, aim: Aim) {
        self.aim = aim;
    }

    /// A datagram.
    pub(super) fn arrive(
        &mut self,
        now: u64,
        from: Option<std::net::IpAddr>,
        datagram: &[u8],
        subscribers: &mut [Subscriber],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let Ok(place) = self.reassembler.handle(Time(now), from, datagram) else { return Ok(()) };
        self.give_up(now, ledger)?;
        if place.opened && !self.open(now, &place, subscribers, ledger)? {
            return Ok(());
        }
        let bytes = &datagram[place.payload.clone()];
        match self.dispatcher.location(place.id) {
            Some(EventLocation::Ring { worker, offset }) => {
                find(subscribers, worker)?.place(now, offset + u64::from(place.offset), bytes);
            }
            Some(EventLocation::Spill) => {
                self.spill[place.id.slot()][place.offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            None => return Err(format!("{place:?} has no home")),
        }
        if place.complete {
            self.dispatcher.complete(Time(now), place.id);
            self.carry_out(now, subscribers, ledger)?;
        }
        Ok(())
    }

    /// False if the event is lost at once.
    fn open(
        &mut self,
        now: u64,
        place: &CopyCommand,
        subscribers: &[Subscriber],
        ledger: &mut Ledger,
    ) -> Result<bool, String> {
        let CopyCommand { id, name, length, lb, .. } = *place;
        let tick = lb.map(|header| header.tick);
        let opened = Opened { id, name, tick, length, target: self.aim.target(name) };
        ledger.open(name)?;
        match self.dispatcher.open(Time(now), EPOCH + now, opened) {
            Ok(location) => {
                if location == EventLocation::Spill {
                    self.prepare_spill(id, length);
                }
                self.open.insert(id.slot(), opened);
                Ok(true)
            }
            Err(loss) => {
                self.check_loss(&opened, Some(loss), subscribers)?;
                ledger.end(name, TrueOutcome::Lost(Some(loss)))?;
                self.release(id)?;
                Ok(false)
            }
        }
    }

    fn prepare_spill(&mut self, id: EventBufferId, length: u32) {
        let memory = &mut self.spill[id.slot()];
        memory.clear();
        memory.resize(length as usize, 0xee);
    }

    fn release(&mut self, id: EventBufferId) -> Result<(), String> {
        check(self.reassembler.release(id), || format!("{id:?} was not there to release"))
    }

    /// What the reassembler gives up.
    pub(super) fn give_up(&mut self, now: u64, ledger: &mut Ledger) -> Result<(), String> {
        while let Some(event) = self.reassembler.poll_given_up(Time(now)) {
            self.dispatcher.gave_up(event.id);
            self.open.remove(&event.id.slot());
            ledger.end(event.name, TrueOutcome::Incomplete)?;
        }
        Ok(())
    }

    /// A worker ended.
    pub(super) fn remove(
        &mut self,
        now: u64,
        at: usize,
        subscribers: &mut [Subscriber],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        self.dispatcher.look(Time(now), subscribers[at].id, subscribers[at].words());
        self.carry_out(now, subscribers, ledger)?;
        subscribers[at].ended_at = Some(now);
        self.dispatcher.remove(Time(now), subscribers[at].id);
        self.carry_out(now, subscribers, ledger)?;
        subscribers[at].leave(now);
        check(subscribers[at].forgotten || self.dispatcher.waiting_for_redelivery() > 0, || {
            "a ring is kept, and no event in it waits".into()
        })
    }

    /// What comes of a wire.
    pub(super) fn pass(
        &mut self,
        now: u64,
        at: usize,
        subscribers: &mut [Subscriber],
        senders: &[Sender],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        if subscribers[at].gone {
            return Ok(());
        }
        subscribers[at].pass(now)?;
        let id = subscribers[at].id;
        while subscribers[at].next_acknowledged(now, senders)? {
            self.dispatcher.acknowledged(Time(now), id);
            self.carry_out(now, subscribers, ledger)?;
        }
        if let Some(words) = subscribers[at].words_at(now) {
            self.dispatcher.look(Time(now), id, words);
            self.carry_out(now, subscribers, ledger)?;
        }
        if subscribers[at].ready_at.take_if(|at| *at <= now).is_some() {
            self.dispatcher.ready(Time(now), id);
            self.carry_out(now, subscribers, ledger)?;
        }
        Ok(())
    }

    /// The dispatcher's actions.
    pub(super) fn carry_out(
        &mut self,
        now: u64,
        subscribers: &mut [Subscriber],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let mut actions = 0;
        while let Some(action) = self.dispatcher.poll_action() {
            let is_for_ended =
                matches!(action, DispatchAction::Redeliver { .. } | DispatchAction::Forget { .. });
            actions += u32::from(!is_for_ended);
            match action {
                DispatchAction::Deliver { id, worker, descriptor, spilled } => {
                    let its = self.open.remove(&id.slot()).ok_or("what is delivered is not open")?;
                    let as_opened = descriptor.name == its.name && descriptor.tick == its.tick;
                    check(as_opened && descriptor.length == its.length, || format!("{descriptor:?}"))?;
                    ledger.end(its.name, TrueOutcome::Sent(worker))?;
                    let to = find(subscribers, worker)?;
                    if spilled {
                        to.put(descriptor.offset, &self.spill[id.slot()][..descriptor.length as usize]);
                    }
                    to.deliver(now, &descriptor, spilled)?;
                    self.release(id)?;
                }
                DispatchAction::Rescue { id, length, worker, offset } => {
                    self.prepare_spill(id, length);
                    self.spill[id.slot()].copy_from_slice(find(subscribers, worker)?.bytes(offset, length));
                }
                DispatchAction::Redeliver { from, offset, worker, descriptor } => {
                    ledger.deliver_again(descriptor.name, from, worker)?;
                    let bytes = kept(subscribers, from)?.bytes(offset, descriptor.length).to_vec();
                    let to = find(subscribers, worker)?;
                    let may = to.worker.behaviour().redelivery;
                    check(descriptor.delivered_again && may, || format!("{descriptor:?}"))?;
                    to.put(descriptor.offset, &bytes);
                    to.deliver(now, &descriptor, true)?;
                }
                DispatchAction::Forget { worker, given_up } => {
                    self.check_time(now, given_up, kept(subscribers, worker)?.ended_at, subscribers)?;
                    kept(subscribers, worker)?.forgotten = true;
                    self.given_up += u64::from(given_up);
                    self.check_given_up(worker, given_up, subscribers)?;
                }
                DispatchAction::Drop { id } => {
                    let its = self.open.remove(&id.slot()).ok_or("what is dropped is not open")?;
                    let loss = self.loss_of(&its)?;
                    self.check_loss(&its, loss, subscribers)?;
                    ledger.end(its.name, TrueOutcome::Lost(loss))?;
                    self.release(id)?;
                }
            }
        }
        // Each event is rescued, delivered or dropped.
        let most = self.spill.len();
        check(actions as usize <= most, || format!("{actions} actions at once"))
    }

    fn loss_of(&self, its: &Opened) -> Result<Option<EventLossCause>, String> {
        let key = its.tick.unwrap_or(its.name.event);
        let trace = self.dispatcher.trace(key).find(|trace| trace.opened.id == its.id);
        match trace.map(|trace| trace.outcome) {
            Some(Known::Lost(loss)) => Ok(Some(loss)),
            None if !self.remembers => Ok(None),
            other => Err(format!("{its:?} is dropped, and known as {other:?}")),
        }
    }

    /// Nothing is lost for lack of room while an idle worker may have it, nor as too large or without a worker while
    /// there is one with a ring for it.
    fn check_loss(
        &self,
        its: &Opened,
        loss: Option<EventLossCause>,
        subscribers: &[Subscriber],
    ) -> Result<(), String> {
        let takes = |worker: &WorkerStats| match its.target {
            EligibleWorkers::Anybody => true,
            EligibleWorkers::DataId(id) => worker.filter.takes(id),
            EligibleWorkers::Member(member) => worker.filter.member == Some(member),
        };
        let fits = |worker: &WorkerStats| {
            u64::from(its.length) <= u64::from(worker.slots) * u64::from(worker.slot_bytes)
        };
        let idle = |worker: &WorkerStats| {
            let ready = subscribers.iter().any(|one| one.id == worker.id && one.ready_at.is_none());
            worker.in_use == 0 && !worker.stalled && ready
        };
        let taker = self.dispatcher.workers().find(|worker| match loss {
            None | Some(EventLossCause::WorkerEnded) => false,
            Some(EventLossCause::NoWorker) => takes(worker),
            Some(EventLossCause::TooLarge) => takes(worker) && fits(worker),
            Some(EventLossCause::NoCredit | EventLossCause::Displaced | EventLossCause::Expired) => {
                takes(worker) && fits(worker) && idle(worker)
            }
        });
        check(taker.is_none(), || format!("{its:?} is lost by {loss:?}, and there is {taker:?}"))?;
        let waited = matches!(
            loss,
            Some(EventLossCause::NoCredit | EventLossCause::Displaced | EventLossCause::Expired)
        );
        let somebody = match its.target {
            EligibleWorkers::DataId(_) => self.dispatcher.workers().any(|worker| takes(&worker)),
            EligibleWorkers::Anybody | EligibleWorkers::Member(_) => {
                self.dispatcher.workers().next().is_some()
            }
        };
        check(!waited || somebody, || format!("{its:?} is lost by {loss:?}, and nobody may have it"))
    }

    /// Checks that events which could be delivered again are not given up before their time, unless too many rings are kept.
    fn check_time(
        &self,
        now: u64,
        given_up: u32,
        ended_at: Option<u64>,
        subscribers: &[Subscriber],
    ) -> Result<(), String> {
        let config = self.dispatcher.config();
        let kept = || subscribers.iter().filter(|one| one.ended_at.is_some() && !one.forgotten);
        let bytes: u64 = kept().map(|one| one.worker.behaviour().geometry.ring_bytes() as u64).sum();
        let too_much = bytes > config.redelivery_bytes || kept().count() > config.max_workers as usize;
        let late = ended_at.is_some_and(|at| now >= at + config.hold.as_nanos() as u64);
        check(given_up == 0 || too_much || late, || {
            format!("{given_up} events are given up before their time")
        })
    }

    /// Checks that events which could be delivered again are not given up while an idle worker may have all of them.
    fn check_given_up(
        &self,
        worker: WorkerId,
        given_up: u32,
        subscribers: &mut [Subscriber],
    ) -> Result<(), String> {
        let bytes = kept_bytes(subscribers, worker);
        let idle = |its: &WorkerStats| {
            let ready = subscribers.iter().any(|one| one.id == its.id && one.ready_at.is_none());
            let large = u64::from(its.slots) * u64::from(its.slot_bytes) >= bytes;
            its.redelivery && its.in_use == 0 && !its.stalled && ready && large
        };
        let taker = self.dispatcher.workers().find(idle);
        let anybody = matches!(self.aim, Aim::Anybody | Aim::At(EligibleWorkers::Anybody));
        check(given_up == 0 || !anybody || taker.is_none(), || {
            format!("{given_up} events of {worker:?} are given up, and there is {taker:?}")
        })
    }

    /// What must hold at any time.
    pub(super) fn check(&self) -> Result<(), String> {
        let (counters, config) = (self.dispatcher.counters(), self.dispatcher.config());
        let ends = counters.open + counters.sent + counters.incomplete + counters.lost_of_any_cause();
        check(counters.opened == ends, || format!("opened is no sum: {counters:?}"))?;
        let outstanding: u64 = self.dispatcher.workers().map(|worker| u64::from(worker.outstanding)).sum();
        let announced = counters.released + counters.held_by_ended + outstanding;
        let lost = counters.held_by_ended.checked_sub(counters.delivered_again);
        let lost = lost.and_then(|lost| lost.checked_sub(self.dispatcher.waiting_for_redelivery() as u64));
        check(lost.is_some_and(|lost| lost >= self.given_up), || {
            format!("{} given up: {counters:?}", self.given_up)
        })?;
        check(counters.sent + counters.delivered_again == announced, || {
            format!("sent is no sum, {outstanding} are out: {counters:?}")
        })?;
        check(counters.delivered <= counters.sent + counters.delivered_again, || format!("{counters:?}"))?;
        let waiting = self.dispatcher.waiting();
        let most = if config.pressure == BackPressure::DropNewest { 0 } else { config.most_waiting };
        check(waiting <= most as usize, || format!("{waiting} events wait"))?;
        check(self.open.len() as u64 == counters.open, || format!("open is not {}", self.open.len()))?;
        let fill = self.dispatcher.fill();
        check((0.0..=1.0).contains(&fill), || format!("the fill level is {fill}"))
    }
}

fn find(subscribers: &mut [Subscriber], id: WorkerId) -> Result<&mut Subscriber, String> {
    subscribers.iter_mut().find(|one| one.id == id && !one.gone).ok_or_else(|| format!("{id:?} is gone"))
}

/// The worker with this id, if the bridge still has its ring. The worker may have ended.
fn kept(subscribers: &mut [Subscriber], id: WorkerId) -> Result<&mut Subscriber, String> {
    let subscriber = subscribers.iter_mut().find(|one| one.id == id && !one.forgotten);
    subscriber.ok_or_else(|| format!("the ring of {id:?} is forgotten"))
}

/// Bytes of a worker's ring; 0 if there is no such worker.
fn kept_bytes(subscribers: &[Subscriber], id: WorkerId) -> u64 {
    let subscriber = subscribers.iter().find(|one| one.id == id);
    subscriber.map_or(0, |one| one.worker.behaviour().geometry.ring_bytes() as u64)
}

impl Aim {
    fn target(self, name: EventKey) -> EligibleWorkers {
        match self {
            Self::Anybody => EligibleWorkers::Anybody,
            Self::DataId => EligibleWorkers::DataId(name.data_id),
            Self::Member { of } => EligibleWorkers::Member((name.event % u64::from(of)) as u16),
            Self::Mixed { of } => match name.event % 3 {
                0 => EligibleWorkers::Anybody,
                1 => EligibleWorkers::DataId(name.data_id),
                _ => EligibleWorkers::Member((name.event / 3 % u64::from(of)) as u16),
            },
            Self::At(target) => target,
        }
    }
}
