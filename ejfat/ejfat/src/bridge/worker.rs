//! The workers, and the choice of the worker that gets an event.

use super::{Config, EligibleWorkers, redelivery::AnnouncedEvent};
use crate::{
    Time,
    ring::{CreditCounts, Credited, DeliveryMode, Filter, RingSlots, Run, Subscription, WorkerName},
};

/// The id of a subscribed worker. An id is never used for a second worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId {
    at: u32,
    number: u32,
}

impl WorkerId {
    /// Returns the worker's number. Workers are numbered from 1, modulo 2^32, in the order in which they subscribed.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns the index of the worker in the dispatcher's list of workers. The index is less than
    /// [`Config::max_workers`](super::Config::max_workers). After a worker ended, a new worker may get the same index.
    pub fn at(self) -> usize {
        self.at as usize
    }
}

#[derive(Debug)]
pub(super) struct SubscribedWorker {
    id: WorkerId,
    name: WorkerName,
    filter: Filter,
    pub(super) placing: DeliveryMode,
    pub(super) slots: RingSlots,
    /// True if the worker uses version 2 of the event ring's protocol. Such a worker may get an event that another
    /// worker had when the other worker ended.
    pub(super) redelivery: bool,
    /// For each slot, the newest announced event that begins in this slot. An element is `None` if there is no such
    /// event, or if the bridge's memory has no copy of the event. The list ends with the highest slot at which an
    /// announced event ever began.
    announced: Vec<Option<AnnouncedEvent>>,
    pub(super) ready: bool,
    pub(super) behind: bool,
    /// True if the ring's free room is kept for an event that waits for more room.
    blocked: bool,
    stalled: bool,
    /// True if the worker gets one event although it is stalled. Some workers release an event only when the next event
    /// arrives. Such a worker would stay stalled for ever if it got no event.
    trial: bool,
    last_sent: Time,
    /// The last time at which the worker released an event. If an event is announced to the worker while the worker has
    /// no unreleased event, the field is set to the time of this announcement.
    progress: Time,
    /// The last time at which the worker acknowledged a WRITE. If an event is announced to the worker while all earlier
    /// events are acknowledged, the field is set to the time of this announcement.
    pub(super) last_acknowledgement: Time,
    since: Time,
    sent: u64,
    bytes: u64,
    released: u64,
    wrong_credits: u64,
}

/// The state and counters of a worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerStats {
    /// The id of the worker.
    pub id: WorkerId,
    /// The name that the worker gave in its subscription. The name has no influence on the decisions of the dispatcher.
    pub name: WorkerName,
    /// The events that the worker takes.
    pub filter: Filter,
    /// The delivery mode by which the bridge puts events into the worker's ring.
    pub placing: DeliveryMode,
    /// The number of slots of the worker's ring.
    pub slots: u32,
    /// The size of one slot in bytes.
    pub slot_bytes: u32,
    /// The number of slots that are in use.
    pub in_use: u32,
    /// The part of the worker's slots that is in use, from 0 to 1.
    pub fill: f64,
    /// True if the worker is stalled. A worker is stalled if it has events and has released none of them for
    /// [`Config::stall`]. A worker is also stalled if it has unacknowledged WRITEs and has acknowledged none of them
    /// for [`Config::silence`]. A stalled worker gets at most one event in each period of [`Config::stall`].
    pub stalled: bool,
    /// The time at which the worker subscribed.
    pub since: Time,
    /// The number of events that were announced to the worker.
    pub sent: u64,
    /// The sum of the lengths of the events that were announced to the worker, in bytes.
    pub bytes: u64,
    /// The number of events that the worker released.
    pub released: u64,
    /// The number of announced events that the worker has not released.
    pub outstanding: u32,
    /// The number of changes of the worker's credit words to values that are not a valid credit.
    pub wrong_credits: u64,
    /// True if the worker uses version 2 of the event ring's protocol. Such a worker may get an event that another
    /// worker had when the other worker ended.
    pub redelivery: bool,
}

/// The reason why an event needs slots in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The event will be reassembled in the ring. Incomplete events may take at most half of the ring's slots.
    Reassembly,
    /// The event is complete, and will be delivered at once.
    Delivery,
    /// The worker that had the event has ended, and the event will be delivered again to another worker. Only workers
    /// that use version 2 of the event ring's protocol can get the event.
    Redelivery,
}

/// The result of a search for a worker that can get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerChoice {
    /// The worker with this index has room for the event.
    Room(usize),
    /// Some workers may get the event, but none of these workers has room now.
    Full,
    /// The event is longer than the ring of every worker that may get the event.
    TooLarge,
    Nobody,
}

#[derive(Debug)]
pub(super) struct Workers {
    all: Vec<Option<SubscribedWorker>>,
    most: u32,
    next: u32,
    /// The index at which the next search begins, so that equally filled workers are chosen in turn.
    turn: usize,
}

impl SubscribedWorker {
    pub(super) fn look(
        &mut self,
        now: Time,
        words: &[u32],
        given_back: impl FnMut(Credited),
    ) -> CreditCounts {
        let looked = self.slots.look(words, given_back);
        if looked.credits > 0 {
            (self.progress, self.stalled) = (now, false);
            self.released += u64::from(looked.credits);
        }
        self.wrong_credits += u64::from(looked.wrong);
        looked
    }

    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns the unreleased events of the worker, each with the number of its first slot. Events are omitted if the
    /// bridge's memory has no copy of them.
    pub(super) fn announced(&self) -> impl Iterator<Item = (u32, AnnouncedEvent)> + '_ {
        let announced = |slot: u32| self.announced.get(slot as usize).copied().flatten();
        self.slots.held().filter_map(move |(slot, _)| Some((slot, announced(slot)?)))
    }

    fn may(&self, target: EligibleWorkers, need: Need) -> bool {
        (need != Need::Redelivery || self.redelivery) && self.takes(target)
    }

    fn takes(&self, target: EligibleWorkers) -> bool {
        match target {
            EligibleWorkers::Anybody => true,
            EligibleWorkers::DataId(id) => self.filter.takes(id),
            EligibleWorkers::Member(member) => self.filter.member == Some(member),
        }
    }

    /// Returns the part of the ring's slots that is in use, in units of 1/2^16.
    fn filled(&self) -> u64 {
        (u64::from(self.slots.in_use()) << 16) / u64::from(self.slots.geometry().slots())
    }

    fn is_open(&self) -> bool {
        self.ready && !self.behind && (!self.stalled || self.trial)
    }
}

impl Workers {
    pub(super) fn new(most: u32) -> Self {
        Self { all: Vec::new(), most, next: 1, turn: 0 }
    }

    pub(super) fn add(
        &mut self,
        now: Time,
        subscription: &Subscription,
        placing: DeliveryMode,
    ) -> Option<WorkerId> {
        let free = self.all.iter().position(Option::is_none);
        let at = free.or_else(|| {
            (self.all.len() < self.most as usize).then(|| {
                self.all.push(None);
                self.all.len() - 1
            })
        })?;
        let id = WorkerId { at: at as u32, number: self.next };
        self.next = self.next.wrapping_add(1);
        let Subscription { geometry, filter, name, redelivery } = *subscription;
        self.all[at] = Some(SubscribedWorker {
            id,
            name,
            filter,
            placing,
            slots: RingSlots::new(geometry),
            redelivery,
            announced: Vec::new(),
            ready: false,
            behind: false,
            blocked: false,
            stalled: false,
            trial: false,
            last_sent: now,
            progress: now,
            last_acknowledgement: now,
            since: now,
            sent: 0,
            bytes: 0,
            released: 0,
            wrong_credits: 0,
        });
        Some(id)
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<&SubscribedWorker> {
        self.all.get(id.at())?.as_ref().filter(|worker| worker.id == id)
    }

    pub(super) fn get_mut(&mut self, id: WorkerId) -> Option<&mut SubscribedWorker> {
        self.all.get_mut(id.at())?.as_mut().filter(|worker| worker.id == id)
    }

    pub(super) fn remove(&mut self, id: WorkerId) -> Option<SubscribedWorker> {
        self.get(id)?;
        self.all[id.at()].take()
    }

    fn iter(&self) -> impl Iterator<Item = &SubscribedWorker> {
        self.all.iter().flatten()
    }

    /// Returns true if at least one subscribed worker may get an event, now or later. `target` says which workers may
    /// get the event.
    pub(super) fn has_taker(&self, target: EligibleWorkers) -> bool {
        self.iter().any(|worker| worker.takes(target) || matches!(target, EligibleWorkers::Member(_)))
    }

    /// Chooses the worker that gets an event of `length` bytes. Among the workers that may get the event and have room
    /// for it, this is the worker with the least filled ring. If `target` is [`EligibleWorkers::Member`], and no worker
    /// with this member number can get events at present, any worker may get the event.
    pub(super) fn choose(&mut self, target: EligibleWorkers, length: u32, need: Need) -> WorkerChoice {
        let found = self.choose_among(target, length, need);
        match (target, found) {
            (EligibleWorkers::Member(_), WorkerChoice::Nobody) => {
                self.choose_among(EligibleWorkers::Anybody, length, need)
            }
            _ => found,
        }
    }

    fn choose_among(&mut self, target: EligibleWorkers, length: u32, need: Need) -> WorkerChoice {
        let count = self.all.len();
        let (mut best, mut choice): (Option<(u64, usize)>, _) = (None, WorkerChoice::Nobody);
        let mut later = false;
        for at in (self.turn..count).chain(0..self.turn.min(count)) {
            let Some(worker) = self.all[at].as_ref().filter(|its| its.may(target, need)) else { continue };
            let geometry = worker.slots.geometry();
            let slots = geometry.slots_for(length);
            if !worker.is_open() {
                later |= slots.is_some();
                continue;
            }
            let Some(slots) = slots else {
                choice = if choice == WorkerChoice::Nobody { WorkerChoice::TooLarge } else { choice };
                continue;
            };
            choice = WorkerChoice::Full;
            let filled = worker.filled();
            let better = best.is_none_or(|(least, _)| filled < least);
            let may =
                need != Need::Reassembly || worker.slots.filling() + slots <= geometry.slots().div_ceil(2);
            if better && may && !worker.blocked && worker.slots.has_room(length) {
                best = Some((filled, at));
            }
        }
        // `later` is true if at least one worker that gets no events at present has a ring that is long enough. The
        // event can then wait for such a worker.
        let choice = if choice == WorkerChoice::TooLarge && later { WorkerChoice::Full } else { choice };
        let Some((_, at)) = best else { return choice };
        self.turn = at + 1;
        WorkerChoice::Room(at)
    }

    /// Takes slots for an event of `length` bytes in the ring of the worker that [`choose`](Self::choose) has chosen.
    pub(super) fn take(&mut self, at: usize, length: u32) -> (WorkerId, Run, u64) {
        let worker = self.all[at].as_mut().expect("it was chosen just now");
        let run = worker.slots.take(length).expect("it has room");
        (worker.id, run, worker.slots.geometry().offset(run.slot))
    }

    pub(super) fn give_back(&mut self, id: WorkerId, run: Run) {
        if let Some(worker) = self.get_mut(id) {
            worker.slots.give_back(run.slot);
        }
    }

    /// Notes that an event of `length` bytes is announced to a worker. Returns the event's sequence number and its
    /// offset in the ring.
    pub(super) fn send(
        &mut self,
        now: Time,
        id: WorkerId,
        run: Run,
        (length, tag): (u32, u32),
    ) -> Option<(u32, u64)> {
        let worker = self.get_mut(id)?;
        if worker.slots.outstanding() == 0 {
            worker.progress = now;
        }
        if worker.slots.unacknowledged() == 0 {
            worker.last_acknowledgement = now;
        }
        (worker.last_sent, worker.trial) = (now, false);
        let sequence = worker.slots.send(run.slot, tag);
        worker.sent += 1;
        worker.bytes += u64::from(length);
        Some((sequence, worker.slots.geometry().offset(run.slot)))
    }

    /// Remembers an event that was just announced to a worker, if the bridge's memory has a copy of the event. If
    /// `copied` is true, the event was copied to the ring from other memory of the bridge, so the bridge's memory has a copy. If the
    /// delivery mode of the worker is not cut-through ([`DeliveryMode::Cut`]), the bridge's memory has a copy of every
    /// event of the worker.
    pub(super) fn remember(&mut self, id: WorkerId, run: Run, event: AnnouncedEvent, copied: bool) {
        let Some(worker) = self.get_mut(id) else { return };
        let is_here = copied || worker.placing != DeliveryMode::Cut;
        let at = run.slot as usize;
        if worker.announced.len() <= at {
            worker.announced.resize(at + 1, None);
        }
        worker.announced[at] = is_here.then_some(event);
    }

    /// Returns true if any worker uses version 2 of the event ring's protocol, in which events can be delivered again.
    pub(super) fn has_redelivery(&self) -> bool {
        self.iter().any(|worker| worker.redelivery)
    }

    /// Returns true if any worker that uses version 2 of the event ring's protocol may have room for an event that is
    /// delivered again.
    pub(super) fn any_takes_redelivered(&self) -> bool {
        self.iter().any(|worker| worker.redelivery && worker.is_open() && !worker.blocked)
    }

    pub(super) fn unblock(&mut self) {
        self.all.iter_mut().flatten().for_each(|worker| worker.blocked = false);
    }

    /// Blocks all workers that may get a waiting event of `length` bytes. Until the next call of
    /// [`unblock`](Self::unblock), [`choose`](Self::choose) chooses none of these workers, so the free room in their
    /// rings is kept for the waiting event.
    pub(super) fn block(&mut self, target: EligibleWorkers, length: u32, need: Need) {
        let absent = matches!(target, EligibleWorkers::Member(_))
            && !self.iter().any(|worker| worker.is_open() && worker.may(target, need));
        let target = if absent { EligibleWorkers::Anybody } else { target };
        let its = self.all.iter_mut().flatten().filter(|worker| worker.may(target, need));
        let its = its.filter(|worker| worker.slots.geometry().slots_for(length).is_some());
        its.for_each(|worker| worker.blocked = true);
    }

    pub(super) fn all_blocked(&self) -> bool {
        self.iter().all(|worker| worker.blocked || !worker.is_open())
    }

    /// Finds out which workers are stalled. A worker is stalled if it has unreleased events and has released none of
    /// them for the time `config.stall`. A worker is also stalled if it has unacknowledged WRITEs and has acknowledged
    /// none of them for the time `config.silence`.
    pub(super) fn find_stalled(&mut self, now: Time, config: &Config) {
        for worker in self.all.iter_mut().flatten() {
            let slow = worker.slots.outstanding() > 0 && now >= worker.progress + config.stall;
            let silent =
                worker.slots.unacknowledged() > 0 && now >= worker.last_acknowledgement + config.silence;
            worker.stalled = slow || silent;
            // A worker that acknowledges WRITEs but releases no event gets one event each time the stall time has
            // passed. If stalled workers got no events, a worker that releases an event only when the next event
            // arrives would stay stalled for ever.
            worker.trial = slow && !silent && now >= worker.last_sent + config.stall;
        }
    }

    pub(super) fn fill(&self) -> f64 {
        let (used, all) = self.iter().fold((0, 0), |(used, all), worker| {
            (used + u64::from(worker.slots.in_use()), all + u64::from(worker.slots.geometry().slots()))
        });
        if all == 0 { 1.0 } else { used as f64 / all as f64 }
    }

    pub(super) fn with_events_out(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.iter().filter(|worker| worker.slots.outstanding() > 0).map(|worker| worker.id)
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = WorkerStats> + '_ {
        self.iter().map(|worker| {
            let geometry = worker.slots.geometry();
            WorkerStats {
                id: worker.id,
                name: worker.name,
                filter: worker.filter,
                placing: worker.placing,
                slots: geometry.slots(),
                slot_bytes: geometry.slot_bytes(),
                in_use: worker.slots.in_use(),
                fill: f64::from(worker.slots.in_use()) / f64::from(geometry.slots()),
                stalled: worker.stalled,
                since: worker.since,
                sent: worker.sent,
                bytes: worker.bytes,
                released: worker.released,
                outstanding: worker.slots.outstanding(),
                wrong_credits: worker.wrong_credits,
                redelivery: worker.redelivery,
            }
        })
    }
}
