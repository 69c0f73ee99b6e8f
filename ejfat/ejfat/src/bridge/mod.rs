//! Events to workers: which ring each goes to, what waits, what is given up, and what became of all of them.
//!
//! ```text
//! first segment ─► open() ─► Home: a place in a worker's ring, or spill memory
//! last segment  ─► complete() ─► Action::Deliver, or it waits
//! credit words  ─► look() ─► free slots ─► Action::Move, Action::Deliver
//! worker ended  ─► remove() ─► Action::Rescue, Action::Drop, Action::Again, Action::Forget
//! time          ─► tick() ─► what waited too long, who stalls
//! ```
//!
//! The caller reassembles, and has memory: spill memory for each slot of its reassembler, and each worker's ring or its
//! twin. It carries out the [actions](Action) in order before it calls anything else here but [`Dispatcher::poll_action`].
//!
//! Every event that was opened ends in one way: delivered, incomplete, or lost by a [`Loss`]; every delivery ends with
//! credit or with its worker. An event that a worker had when it ended is delivered again to a worker that speaks version 2 of
//! the ring, if it is in memory here; it waits for such a worker for [`Config::hold`] at most. Its descriptor then says that it
//! is delivered again.

mod action;
mod again;
mod config;
mod counters;
mod histogram;
mod journal;
mod waiting;
mod worker;

use std::collections::VecDeque;

pub use action::{Action, Home, Opened, Target};
pub use config::{Config, Pressure};
pub use counters::{Counters, Loss};
pub use histogram::Histogram;
pub use journal::{Fate, Record};
pub use worker::{WorkerId, WorkerStats};

use crate::{
    Time,
    reassembly::EventId,
    ring::{Credited, Descriptor, Looked, Placing, Run, Subscription},
};
use again::{Ended, Told};
use journal::Journal;
use worker::{Choice, Need, Workers};

#[derive(Clone, Copy, Debug)]
enum State {
    /// In the ring of a worker, at this run.
    Ring(WorkerId, Run),
    Spill,
    Waiting {
        since: Time,
    },
}

#[derive(Clone, Copy, Debug)]
struct Event {
    opened: Opened,
    /// When, and in nanoseconds of UNIX time.
    at: Time,
    unix: u64,
    last: Time,
    state: State,
}

/// Gives events to workers.
#[derive(Debug)]
pub struct Dispatcher {
    config: Config,
    /// By the reassembler's slot.
    events: Vec<Option<Event>>,
    /// Complete, and not in a ring; the oldest first.
    waiting: VecDeque<EventId>,
    /// Workers that ended and whose rings are kept; the oldest first.
    ended: VecDeque<Ended>,
    /// Whether events of workers that end from now on are kept.
    keeps: bool,
    workers: Workers,
    counters: Counters,
    journal: Journal,
    actions: VecDeque<Action>,
}

impl Dispatcher {
    /// For a reassembler with so many slots.
    pub fn new(config: Config, slots: u32) -> Self {
        Self {
            events: vec![None; slots as usize],
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            keeps: true,
            workers: Workers::new(config.max_workers),
            counters: Counters::default(),
            journal: Journal::new(config.journal),
            actions: VecDeque::new(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Another worker, if there may be one.
    pub fn subscribe(
        &mut self,
        now: Time,
        subscription: &Subscription,
        placing: Placing,
    ) -> Option<WorkerId> {
        let id = self.workers.add(now, subscription, placing)?;
        self.counters.workers += 1;
        Some(id)
    }

    /// The worker can be given events: it has its answer.
    pub fn ready(&mut self, now: Time, worker: WorkerId) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.ready = true;
        }
        self.serve_waiting(now);
    }

    /// A home for an event. Without one it is lost, and the reassembler's slot is to be released.
    pub fn open(&mut self, now: Time, unix: u64, opened: Opened) -> Result<Home, Loss> {
        // It was evicted, and nobody said so yet.
        if let Some(before) = self.event(opened.id.slot()).map(|event| event.opened.id) {
            self.gave_up(before);
        }
        self.counters.opened += 1;
        // What a header claims may take half of a ring at most.
        let (state, home) = match self.workers.choose(opened.target, opened.length, Need::Way) {
            Choice::Room(worker) => {
                let (id, run, offset) = self.workers.take(worker, opened.length);
                (State::Ring(id, run), Home::Ring { worker: id, offset })
            }
            Choice::TooLarge => return Err(self.lose(now, unix, opened, Loss::TooLarge)),
            Choice::Full | Choice::Nobody => (State::Spill, Home::Spill),
        };
        self.counters.open += 1;
        self.events[opened.id.slot()] = Some(Event { opened, at: now, unix, last: now, state });
        Ok(home)
    }

    /// Where segments of an event go that was opened.
    #[inline]
    pub fn home(&self, id: EventId) -> Option<Home> {
        let event = self.events.get(id.slot())?.as_ref().filter(|event| event.opened.id == id)?;
        Some(match event.state {
            State::Ring(worker, run) => {
                Home::Ring { worker, offset: self.workers.get(worker)?.slots.geometry().offset(run.slot) }
            }
            State::Spill | State::Waiting { .. } => Home::Spill,
        })
    }

    /// All segments of an event came.
    pub fn complete(&mut self, now: Time, id: EventId) {
        let Some(event) = self.event_mut(id) else { return };
        event.last = now;
        match event.state {
            State::Ring(worker, run) => self.deliver(now, id, (worker, run), false),
            State::Spill => {
                event.state = State::Waiting { since: now };
                self.counters.spilled += 1;
                self.waiting.push_back(id);
                self.serve_waiting(now);
                if self.shorten_queue() {
                    self.serve_waiting(now);
                }
            }
            State::Waiting { .. } => {}
        }
    }

    /// The reassembler gave an event up.
    pub fn gave_up(&mut self, id: EventId) {
        let Some(event) = self.take(id) else { return };
        if let State::Ring(worker, run) = event.state {
            self.workers.give_back(worker, run);
        }
        self.counters.incomplete += 1;
        self.journal.lost(&event.record(Fate::Incomplete));
    }

    /// Credit words of a worker, one for each of its slots.
    pub fn look(&mut self, now: Time, worker: WorkerId, words: &[u32]) -> Looked {
        let Some(its) = self.workers.get_mut(worker) else { return Looked::default() };
        let (counters, journal) = (&mut self.counters, &mut self.journal);
        let looked = its.look(now, words, |credited| {
            counters.released += 1;
            if !credited.acknowledged {
                delivered(now, credited, counters, journal);
            }
            if let Some(held) = journal.released(now, credited.tag) {
                counters.held.add(held);
            }
        });
        self.counters.wrong_credits += u64::from(looked.wrong);
        if looked.credits > 0 {
            self.serve_waiting(now);
        }
        looked
    }

    /// The oldest delivery that was not known to have arrived at a worker did.
    pub fn acknowledged(&mut self, now: Time, worker: WorkerId) {
        let Some(its) = self.workers.get_mut(worker) else { return };
        let Some(done) = its.slots.acknowledge() else { return };
        its.heard = now;
        if !done.acknowledged {
            delivered(now, done, &mut self.counters, &mut self.journal);
        } else {
            // With the credit, its slots are free.
            self.serve_waiting(now);
        }
    }

    /// A worker acknowledged a part of something.
    pub fn alive(&mut self, now: Time, worker: WorkerId) {
        if let Some(its) = self.workers.get_mut(worker) {
            its.heard = now;
        }
    }

    /// What was written to a worker piles up: it gets nothing new until it does no more.
    pub fn set_behind(&mut self, worker: WorkerId, behind: bool) {
        if let Some(its) = self.workers.get_mut(worker) {
            its.behind = behind;
        }
    }

    /// Removes a worker that ended. Carry the actions out before you release its memory. Keep its ring, or the twin of that, until
    /// [`Action::Forget`] for this worker, which comes at once or later.
    pub fn remove(&mut self, now: Time, worker: WorkerId) {
        let Some(ended) = self.workers.remove(worker) else { return };
        for (_, tag) in ended.slots.held() {
            self.counters.held_by_ended += 1;
            self.journal.ended(tag);
        }
        for at in 0..self.events.len() {
            let Some(event) = &mut self.events[at] else { continue };
            let State::Ring(its, run) = event.state else { continue };
            if its != worker {
                continue;
            }
            let (id, length) = (event.opened.id, event.opened.length);
            if ended.placing == Placing::Cut {
                self.drop_event(id, Loss::WorkerEnded);
            } else {
                event.state = State::Spill;
                let offset = ended.slots.geometry().offset(run.slot);
                self.actions.push_back(Action::Rescue { id, length, worker, offset });
            }
        }
        self.keep(now, &ended);
        self.serve_waiting(now);
        self.forget_ended(now);
    }

    /// What is due. Call it now and then: tenths of the times of [`Config`] will do.
    pub fn tick(&mut self, now: Time) {
        self.workers.find_stalled(now, &self.config);
        // Who stalled may not any more, and events that were given up left room.
        self.serve_waiting(now);
        let mut dropped = false;
        while let Some((id, since)) = self.oldest_waiting() {
            if now < since + self.config.hold {
                break;
            }
            self.drop_waiting(id, Loss::Expired);
            dropped = true;
        }
        if dropped {
            self.serve_waiting(now);
        }
        self.forget_ended(now);
    }

    fn drop_event(&mut self, id: EventId, loss: Loss) {
        if let Some(event) = self.take(id) {
            self.count_loss(loss, &event.opened);
            self.journal.lost(&event.record(Fate::Lost(loss)));
            self.actions.push_back(Action::Drop { id });
        }
    }

    /// Delivers a complete event to a worker. `moved` says that the event was in spill memory.
    fn deliver(&mut self, now: Time, id: EventId, to: (WorkerId, Run), moved: bool) {
        let Some(event) = self.take(id) else { return };
        let Some(descriptor) = self.tell(now, event.told(), to, moved) else { return };
        self.counters.sent += 1;
        self.counters.sent_bytes += u64::from(descriptor.length);
        self.actions.push_back(Action::Deliver { id, worker: to.0, descriptor });
    }

    fn tell(&mut self, now: Time, told: Told, to: (WorkerId, Run), moved: bool) -> Option<Descriptor> {
        let (worker, run) = to;
        let record = Record { worker: Some(worker), sent: Some(now), ..told.record(Fate::Sent) };
        let tag = self.journal.sent(&record);
        let Opened { name, tick, length, .. } = told.opened;
        let (sequence, offset) = self.workers.send(now, worker, run, (length, tag))?;
        self.journal.number(tag, sequence);
        self.workers.remember(worker, run, Told { sequence, ..told }, moved);
        let Run { slot, slots, generation } = run;
        let (first, assembly) = (told.unix, told.last.0.saturating_sub(told.at.0));
        let again = told.times > 0;
        Some(Descriptor {
            sequence,
            generation,
            slot,
            slots,
            offset,
            length,
            name,
            tick,
            first,
            assembly,
            again,
        })
    }

    fn event(&self, slot: usize) -> Option<&Event> {
        self.events.get(slot)?.as_ref()
    }

    fn event_mut(&mut self, id: EventId) -> Option<&mut Event> {
        self.events.get_mut(id.slot())?.as_mut().filter(|event| event.opened.id == id)
    }

    fn take(&mut self, id: EventId) -> Option<Event> {
        self.event_mut(id)?;
        self.counters.open -= 1;
        self.events[id.slot()].take()
    }

    fn lose(&mut self, now: Time, unix: u64, opened: Opened, loss: Loss) -> Loss {
        let event = Event { opened, at: now, unix, last: now, state: State::Spill };
        self.journal.lost(&event.record(Fate::Lost(loss)));
        self.count_loss(loss, &opened);
        loss
    }

    fn count_loss(&mut self, loss: Loss, of: &Opened) {
        self.counters.lost[loss as usize] += 1;
        if loss == Loss::TooLarge {
            self.counters.longest_too_large = self.counters.longest_too_large.max(of.length);
        }
    }

    /// How much of the rings of all workers is in use: 0 to 1, and 1 without workers.
    pub fn fill(&self) -> f64 {
        self.workers.fill()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Complete events that wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Workers that are there.
    pub fn workers(&self) -> impl Iterator<Item = WorkerStats<'_>> {
        self.workers.stats()
    }

    /// Those of which credit words are worth a look: events are out.
    pub fn with_events_out(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers.with_events_out()
    }

    /// What is remembered of events with a tick, or with this number where they have none; the latest first.
    pub fn trace(&self, tick: u64) -> impl Iterator<Item = &Record> {
        self.journal.find(tick)
    }
}

impl Event {
    fn told(&self) -> Told {
        let Self { opened, at, unix, last, .. } = *self;
        Told { opened, at, unix, last, times: 0, sequence: 0 }
    }

    fn record(&self, fate: Fate) -> Record {
        self.told().record(fate)
    }
}

/// A delivery is known to have arrived.
fn delivered(now: Time, done: Credited, counters: &mut Counters, journal: &mut Journal) {
    counters.delivered += 1;
    if let Some(took) = journal.delivered(now, done.tag) {
        counters.latency.add(took);
    }
}
