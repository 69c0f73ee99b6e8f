//! The dispatcher of a bridge. The dispatcher chooses the ring of each event, decides which events wait and which
//! events are given up, and counts all events.
//!
//! ```text
//! first segment ─► open() ─► EventLocation: a place in a worker's ring, or spill memory
//! last segment  ─► complete() ─► DispatchAction::Deliver, or the event waits
//! credit words  ─► look() ─► free slots ─► DispatchAction::Deliver
//! worker ended  ─► remove() ─► DispatchAction::Rescue, Drop, Redeliver, Forget
//! time          ─► tick() ─► expired events, stalled workers
//! ```
//!
//! The caller of the dispatcher reassembles the events. The caller of the dispatcher owns the spill memory for each
//! event buffer of the reassembler, and the ring or staging ring of each worker. The caller must carry out all
//! [actions](DispatchAction) in order before it calls any function of [`Dispatcher`] except
//! [`Dispatcher::poll_action`].
//!
//! Every event that was opened has one outcome: announced to a worker, incomplete, or lost for one cause
//! ([`EventLossCause`]). Every delivery ends when the worker releases the event, or when the worker ends. If a worker
//! ends before it releases an event, the event is delivered again if the bridge's memory has a copy of it. Only a
//! worker that uses version 2 of the event ring's protocol can get such an event. An event that must be delivered again
//! waits for another worker for at most [`Config::hold`]. A flag in the event's new descriptor shows that the event is
//! delivered again.

mod action;
mod config;
mod counters;
mod histogram;
mod redelivery;
mod trace_buffer;
mod waiting;
mod worker;

use std::collections::VecDeque;

pub use action::{DispatchAction, EligibleWorkers, EventLocation, Opened};
pub use config::{BackPressure, Config};
pub use counters::{Counters, EventLossCause};
pub use histogram::Histogram;
pub use trace_buffer::{EventOutcome, EventTrace};
pub use worker::{WorkerId, WorkerStats};

use crate::{
    Time,
    reassembly::EventBufferId,
    ring::{CreditCounts, Credited, DeliveryMode, Descriptor, Run, Subscription},
};
use redelivery::{AnnouncedEvent, EndedWorker};
use trace_buffer::TraceBuffer;
use worker::{Need, WorkerChoice, Workers};

#[derive(Clone, Copy, Debug)]
enum State {
    /// The event is in the ring of the worker, in the slots of the [`Run`].
    Ring(WorkerId, Run),
    Spill,
    Waiting {
        since: Time,
    },
}

#[derive(Clone, Copy, Debug)]
struct EventState {
    opened: Opened,
    /// The time at which the event's first segment arrived, by the dispatcher's clock.
    at: Time,
    /// The time at which the event's first segment arrived, in nanoseconds of UNIX time.
    unix: u64,
    last: Time,
    state: State,
}

/// The dispatcher of a bridge, which chooses the worker for each event and counts all events.
#[derive(Debug)]
pub struct Dispatcher {
    config: Config,
    /// The open and waiting events. The index of an event is the index of its event buffer in the reassembler.
    events: Vec<Option<EventState>>,
    /// The complete events that wait for room in a ring, with the oldest event first.
    waiting: VecDeque<EventBufferId>,
    /// The workers that ended and whose rings are kept, in the order in which the workers ended.
    ended: VecDeque<EndedWorker>,
    /// True if the dispatcher may keep the events of a worker that ends, to deliver them again.
    /// [`Dispatcher::forget_all`] sets `keeps` to false.
    keeps: bool,
    workers: Workers,
    counters: Counters,
    traces: TraceBuffer,
    actions: VecDeque<DispatchAction>,
}

impl Dispatcher {
    /// Creates a dispatcher for a reassembler with `slots` event buffers.
    pub fn new(config: Config, slots: u32) -> Self {
        Self {
            events: vec![None; slots as usize],
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            keeps: true,
            workers: Workers::new(config.max_workers),
            counters: Counters::default(),
            traces: TraceBuffer::new(config.max_traces),
            actions: VecDeque::new(),
            config,
        }
    }

    /// Returns the limits and settings with which the dispatcher was created.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the next action that the caller must carry out, or `None` if there is none.
    pub fn poll_action(&mut self) -> Option<DispatchAction> {
        self.actions.pop_front()
    }

    /// Adds a worker that subscribes, and returns its id. Returns `None` if [`Config::max_workers`] workers are
    /// subscribed already.
    pub fn subscribe(
        &mut self,
        now: Time,
        subscription: &Subscription,
        placing: DeliveryMode,
    ) -> Option<WorkerId> {
        let id = self.workers.add(now, subscription, placing)?;
        self.counters.workers += 1;
        Some(id)
    }

    /// Notes that a worker was informed that its subscription was accepted. After this call, the worker can get events.
    pub fn ready(&mut self, now: Time, worker: WorkerId) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.ready = true;
        }
        self.serve_waiting(now);
    }

    /// Notes that the reassembler opened an event, and returns the location to which the event's segments go. If an
    /// error is returned, the event is lost, and the caller must release the reassembler's event buffer.
    ///
    /// # Errors
    /// Fails with [`EventLossCause::TooLarge`] if the event is longer than the ring of every worker that may get the
    /// event.
    pub fn open(&mut self, now: Time, unix: u64, opened: Opened) -> Result<EventLocation, EventLossCause> {
        // If an older event still has this event buffer, the reassembler evicted the older event, but the caller did
        // not call `gave_up` for it. The older event is therefore given up here.
        if let Some(before) = self.event(opened.id.slot()).map(|event| event.opened.id) {
            self.gave_up(before);
        }
        self.counters.opened += 1;
        // An incomplete event takes room in the ring for all bytes that its header claims, even if fewer bytes will
        // arrive. Incomplete events may therefore take at most half of a ring.
        let (state, location) = match self.workers.choose(opened.target, opened.length, Need::Reassembly) {
            WorkerChoice::Room(worker) => {
                let (id, run, offset) = self.workers.take(worker, opened.length);
                (State::Ring(id, run), EventLocation::Ring { worker: id, offset })
            }
            WorkerChoice::TooLarge => return Err(self.lose(now, unix, opened, EventLossCause::TooLarge)),
            WorkerChoice::Full | WorkerChoice::Nobody => (State::Spill, EventLocation::Spill),
        };
        self.counters.open += 1;
        self.events[opened.id.slot()] = Some(EventState { opened, at: now, unix, last: now, state });
        Ok(location)
    }

    /// Returns the location to which the segments of an open event go.
    #[inline]
    pub fn location(&self, id: EventBufferId) -> Option<EventLocation> {
        let event = self.events.get(id.slot())?.as_ref().filter(|event| event.opened.id == id)?;
        Some(match event.state {
            State::Ring(worker, run) => {
                let offset = self.workers.get(worker)?.slots.geometry().offset(run.slot);
                EventLocation::Ring { worker, offset }
            }
            State::Spill | State::Waiting { .. } => EventLocation::Spill,
        })
    }

    /// Notes that all segments of an event have arrived.
    pub fn complete(&mut self, now: Time, id: EventBufferId) {
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

    /// Notes that the reassembler gave up an event.
    pub fn gave_up(&mut self, id: EventBufferId) {
        let Some(event) = self.take(id) else { return };
        if let State::Ring(worker, run) = event.state {
            self.workers.give_back(worker, run);
        }
        self.counters.incomplete += 1;
        self.traces.add(&event.trace(EventOutcome::Incomplete));
    }

    /// Handles the credit words of a worker's ring. `words` has one credit word for each slot of the ring.
    pub fn look(&mut self, now: Time, worker: WorkerId, words: &[u32]) -> CreditCounts {
        let Some(its) = self.workers.get_mut(worker) else { return CreditCounts::default() };
        let (counters, traces) = (&mut self.counters, &mut self.traces);
        let looked = its.look(now, words, |credited| {
            counters.released += 1;
            if !credited.acknowledged {
                delivered(now, credited, counters, traces);
            }
            if let Some(held) = traces.released(now, credited.tag) {
                counters.held.add(held);
            }
        });
        self.counters.wrong_credits += u64::from(looked.wrong);
        if looked.credits > 0 {
            self.serve_waiting(now);
        }
        looked
    }

    /// Notes that the worker acknowledged the oldest delivery that was not acknowledged yet.
    pub fn acknowledged(&mut self, now: Time, worker: WorkerId) {
        let Some(its) = self.workers.get_mut(worker) else { return };
        let Some(done) = its.slots.acknowledge() else { return };
        its.last_acknowledgement = now;
        if !done.acknowledged {
            delivered(now, done, &mut self.counters, &mut self.traces);
        } else {
            // The release of this event arrived earlier than its acknowledgement, so only the acknowledgement freed the
            // slots of the event. Waiting events may have room now.
            self.serve_waiting(now);
        }
    }

    /// Notes that a worker acknowledged a WRITE that contains bytes of an event, but does not announce the event.
    pub fn alive(&mut self, now: Time, worker: WorkerId) {
        if let Some(its) = self.workers.get_mut(worker) {
            its.last_acknowledgement = now;
        }
    }

    /// Sets the flag `behind` of a worker. The flag is true if too many WRITEs to the worker are queued. While `behind`
    /// is true, the worker gets no new events.
    pub fn set_behind(&mut self, worker: WorkerId, behind: bool) {
        if let Some(its) = self.workers.get_mut(worker) {
            its.behind = behind;
        }
    }

    /// Removes a worker that ended. The caller must keep the worker's ring or staging ring until it carries out
    /// [`DispatchAction::Forget`] for this worker.
    pub fn remove(&mut self, now: Time, worker: WorkerId) {
        let Some(ended) = self.workers.remove(worker) else { return };
        for (_, tag) in ended.slots.held() {
            self.counters.held_by_ended += 1;
            self.traces.ended(tag);
        }
        for at in 0..self.events.len() {
            let Some(event) = &mut self.events[at] else { continue };
            let State::Ring(its, run) = event.state else { continue };
            if its != worker {
                continue;
            }
            let (id, length) = (event.opened.id, event.opened.length);
            if ended.placing == DeliveryMode::Cut {
                self.drop_event(id, EventLossCause::WorkerEnded);
            } else {
                event.state = State::Spill;
                let offset = ended.slots.geometry().offset(run.slot);
                self.actions.push_back(DispatchAction::Rescue { id, length, worker, offset });
            }
        }
        self.keep(now, &ended);
        self.serve_waiting(now);
        self.forget_ended(now);
    }

    /// Finds stalled workers. Drops each complete event that has waited for room for at least [`Config::hold`]. Gives
    /// up the kept rings of workers that ended at least [`Config::hold`] ago ([`DispatchAction::Forget`]). The caller
    /// should call this function at intervals of about a tenth of the shortest time in [`Config`].
    pub fn tick(&mut self, now: Time) {
        self.workers.find_stalled(now, &self.config);
        // Waiting events may have room now, because a worker may have stalled or recovered, or because events were
        // given up.
        self.serve_waiting(now);
        let mut dropped = false;
        while let Some((id, since)) = self.oldest_waiting() {
            if now < since + self.config.hold {
                break;
            }
            self.drop_waiting(id, EventLossCause::Expired);
            dropped = true;
        }
        if dropped {
            self.serve_waiting(now);
        }
        self.forget_ended(now);
    }

    fn drop_event(&mut self, id: EventBufferId, loss: EventLossCause) {
        if let Some(event) = self.take(id) {
            self.count_loss(loss, &event.opened);
            self.traces.add(&event.trace(EventOutcome::Lost(loss)));
            self.actions.push_back(DispatchAction::Drop { id });
        }
    }

    /// Delivers a complete event to a worker. `spilled` is true if the event is in spill memory.
    fn deliver(&mut self, now: Time, id: EventBufferId, to: (WorkerId, Run), spilled: bool) {
        let Some(event) = self.take(id) else { return };
        let Some(descriptor) = self.announce(now, event.announced(), to, spilled) else { return };
        self.counters.sent += 1;
        self.counters.sent_bytes += u64::from(descriptor.length);
        self.actions.push_back(DispatchAction::Deliver { id, worker: to.0, descriptor, spilled });
    }

    fn announce(
        &mut self,
        now: Time,
        event: AnnouncedEvent,
        to: (WorkerId, Run),
        copied: bool,
    ) -> Option<Descriptor> {
        let (worker, run) = to;
        let trace = EventTrace { worker: Some(worker), sent: Some(now), ..event.trace(EventOutcome::Sent) };
        let tag = self.traces.add(&trace);
        let Opened { name, tick, length, .. } = event.opened;
        let (sequence, offset) = self.workers.send(now, worker, run, (length, tag))?;
        self.traces.number(tag, sequence);
        self.workers.remember(worker, run, AnnouncedEvent { sequence, ..event }, copied);
        let Run { slot, slots, generation } = run;
        let (first, assembly) = (event.unix, event.last.0.saturating_sub(event.at.0));
        let delivered_again = event.times > 0;
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
            delivered_again,
        })
    }

    fn event(&self, slot: usize) -> Option<&EventState> {
        self.events.get(slot)?.as_ref()
    }

    fn event_mut(&mut self, id: EventBufferId) -> Option<&mut EventState> {
        self.events.get_mut(id.slot())?.as_mut().filter(|event| event.opened.id == id)
    }

    fn take(&mut self, id: EventBufferId) -> Option<EventState> {
        self.event_mut(id)?;
        self.counters.open -= 1;
        self.events[id.slot()].take()
    }

    fn lose(&mut self, now: Time, unix: u64, opened: Opened, loss: EventLossCause) -> EventLossCause {
        let event = EventState { opened, at: now, unix, last: now, state: State::Spill };
        self.traces.add(&event.trace(EventOutcome::Lost(loss)));
        self.count_loss(loss, &opened);
        loss
    }

    fn count_loss(&mut self, loss: EventLossCause, of: &Opened) {
        self.counters.lost[loss as usize] += 1;
        if loss == EventLossCause::TooLarge {
            self.counters.longest_too_large = self.counters.longest_too_large.max(of.length);
        }
    }

    /// Returns the number of ring slots in use, divided by the number of slots of all rings. Returns 1 if there is no
    /// worker.
    pub fn fill(&self) -> f64 {
        self.workers.fill()
    }

    /// Returns the dispatcher's counters, which count all events and workers since the dispatcher was created.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of complete events that wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the state and counters of all subscribed workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerStats> + '_ {
        self.workers.stats()
    }

    /// Returns the workers that have unreleased events. These workers may release events at any time, so the caller
    /// must read their credit words and pass the words to [`Self::look`].
    pub fn with_events_out(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers.with_events_out()
    }

    /// Returns the traces of the events whose tick is `tick`, and of the events without a tick whose event number is
    /// `tick`. The newest trace is the first.
    pub fn trace(&self, tick: u64) -> impl Iterator<Item = &EventTrace> {
        self.traces.find(tick)
    }
}

impl EventState {
    fn announced(&self) -> AnnouncedEvent {
        let Self { opened, at, unix, last, .. } = *self;
        AnnouncedEvent { opened, at, unix, last, times: 0, sequence: 0 }
    }

    fn trace(&self, outcome: EventOutcome) -> EventTrace {
        self.announced().trace(outcome)
    }
}

/// Counts an event as delivered, because it has arrived at its worker. If the event's trace still exists, also records
/// the times since the event's first and last segment.
fn delivered(now: Time, done: Credited, counters: &mut Counters, traces: &mut TraceBuffer) {
    counters.delivered += 1;
    if let Some([since_first, since_last]) = traces.delivered(now, done.tag) {
        counters.latency.add(since_first);
        counters.delivery.add(since_last);
    }
}
