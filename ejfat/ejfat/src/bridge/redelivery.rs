//! Delivers events again after their worker has ended. The events that a worker had when it ended are delivered to
//! other workers that use version 2 of the event ring's protocol.
//!
//! ```text
//! remove() ─► EndedWorker: the worker's events, the oldest first ─► room at another worker ─► Redeliver
//!                 all were delivered again, or their time is over, or too many rings are kept ─► Forget
//! ```

use std::collections::VecDeque;

use super::{
    DispatchAction, Dispatcher, EventOutcome, EventTrace, Opened, WorkerId,
    worker::{Need, SubscribedWorker, WorkerChoice},
};
use crate::{
    Time,
    ring::{Geometry, Run},
};

/// The maximum number of events that one call of [`Dispatcher::serve_redelivery`] skips because no worker can get them
/// now.
const MOST_PASSED: usize = 256;

/// An event that was announced to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedEvent {
    pub(super) opened: Opened,
    /// The time when the event's first segment arrived.
    pub(super) at: Time,
    /// The time when the event's first segment arrived, in nanoseconds of UNIX time.
    pub(super) unix: u64,
    /// The time when the event's last segment arrived.
    pub(super) last: Time,
    /// The number of workers that got this event and ended before they released it.
    pub(super) times: u32,
    pub(super) sequence: u32,
}

impl AnnouncedEvent {
    pub(super) fn trace(&self, outcome: EventOutcome) -> EventTrace {
        EventTrace {
            opened: self.opened,
            unix: self.unix,
            at: self.at,
            last: self.last,
            worker: None,
            sequence: None,
            sent: None,
            delivered: None,
            released: None,
            outcome,
        }
    }
}

/// A worker that ended, and whose ring the caller keeps.
#[derive(Debug)]
pub(super) struct EndedWorker {
    worker: WorkerId,
    geometry: Geometry,
    /// The time at which the bridge gives up the ring, even if events in the ring still wait to be delivered again.
    until: Time,
    /// The events that wait to be delivered again, each with the number of its first ring slot. The oldest event is the
    /// first.
    events: VecDeque<(u32, AnnouncedEvent)>,
}

impl EndedWorker {
    fn bytes(&self) -> u64 {
        self.geometry.ring_bytes() as u64
    }
}

impl Dispatcher {
    /// Keeps the events of an ended worker, so that they can be delivered again. Only events of which the bridge's
    /// memory has a copy are kept. The method keeps no events after [`Self::forget_all`] was called. It also keeps none
    /// if neither the ended worker nor a subscribed worker uses version 2 of the event ring's protocol.
    pub(super) fn keep(&mut self, now: Time, ended: &SubscribedWorker) {
        let mut events: Vec<_> =
            ended.announced().filter(|(_, event)| event.times < self.config.max_redeliveries).collect();
        let next = ended.slots.next_sequence();
        events.sort_unstable_by_key(|(_, event)| event.sequence.wrapping_sub(next));
        // The events of the ended worker are kept if a subscribed worker uses version 2 of the event ring's protocol,
        // because events are delivered again in this version only. If the ended worker itself used version 2 of the
        // event ring's protocol, its events are kept, too, because the ended worker may subscribe again.
        if !(ended.redelivery || self.workers.has_redelivery()) || !self.keeps {
            events.clear();
        }
        let (worker, geometry) = (ended.id(), ended.slots.geometry());
        let until = now + self.config.hold;
        let counted = |event: AnnouncedEvent| AnnouncedEvent { times: event.times + 1, ..event };
        let events = events.into_iter().map(|(slot, event)| (slot, counted(event)));
        self.ended.push_back(EndedWorker { worker, geometry, until, events: events.collect() });
    }

    /// Delivers events again to workers that have room. The events of the worker that ended first come first, and the
    /// events of one ended worker come in the order of their announcement.
    pub(super) fn serve_redelivery(&mut self, now: Time) {
        let before = self.counters.delivered_again;
        self.redeliver_all(now);
        if self.counters.delivered_again > before {
            self.forget_where(|its| its.events.is_empty());
        }
    }

    fn redeliver_all(&mut self, now: Time) {
        let mut passed = 0;
        for at in 0..self.ended.len() {
            let mut next = 0;
            while let Some(&(slot, event)) = self.ended[at].events.get(next) {
                let Opened { target, length, .. } = event.opened;
                match self.workers.choose(target, length, Need::Redelivery) {
                    WorkerChoice::Room(place) => {
                        self.ended[at].events.remove(next);
                        let (worker, run, _) = self.workers.take(place, length);
                        let (from, offset) = (self.ended[at].worker, self.ended[at].geometry.offset(slot));
                        self.redeliver(now, event, (from, offset), worker, run);
                        continue;
                    }
                    WorkerChoice::Full => self.workers.block(target, length, Need::Redelivery),
                    WorkerChoice::TooLarge | WorkerChoice::Nobody => {}
                }
                (next, passed) = (next + 1, passed + 1);
                if passed >= MOST_PASSED || !self.workers.any_takes_redelivered() {
                    return;
                }
            }
        }
    }

    fn redeliver(
        &mut self,
        now: Time,
        event: AnnouncedEvent,
        (from, offset): (WorkerId, u64),
        worker: WorkerId,
        run: Run,
    ) {
        if let Some(descriptor) = self.announce(now, event, (worker, run), true) {
            self.counters.delivered_again += 1;
            self.actions.push_back(DispatchAction::Redeliver { from, offset, worker, descriptor });
        }
    }

    /// Gives up the ring of each ended worker if no event in the ring waits to be delivered again, or if the worker
    /// ended at least [`Config::hold`](super::Config::hold) ago. Then gives up the largest kept ring again and again,
    /// until the kept rings are within two limits. One limit is the number of rings,
    /// [`Config::max_workers`](super::Config::max_workers). The other limit is the size of all kept rings together,
    /// [`Config::redelivery_bytes`](super::Config::redelivery_bytes).
    pub(super) fn forget_ended(&mut self, now: Time) {
        self.forget_where(|its| its.events.is_empty() || its.until <= now);
        let most = self.config.max_workers as usize;
        while self.ended.len() > most || self.ended_bytes() > self.config.redelivery_bytes {
            // The largest ring is given up first, so that one worker with a large ring does not displace the rings of
            // other workers. If several rings are equally large, the oldest of these rings is given up first.
            let largest = (0..self.ended.len()).rev().max_by_key(|&at| self.ended[at].bytes());
            let Some(at) = largest else { return };
            self.forget_at(at);
        }
    }

    fn ended_bytes(&self) -> u64 {
        self.ended.iter().map(EndedWorker::bytes).sum()
    }

    fn forget_where(&mut self, is_over: impl Fn(&EndedWorker) -> bool) {
        while let Some(at) = self.ended.iter().position(&is_over) {
            self.forget_at(at);
        }
    }

    fn forget_at(&mut self, at: usize) {
        if let Some(EndedWorker { worker, events, .. }) = self.ended.remove(at) {
            self.actions.push_back(DispatchAction::Forget { worker, given_up: events.len() as u32 });
        }
    }

    /// Gives up the ring of a worker that ended, because the caller needs the memory of the ring. Does nothing if the
    /// worker's ring is not kept.
    pub fn forget(&mut self, worker: WorkerId) {
        if let Some(at) = self.ended.iter().position(|its| its.worker == worker) {
            self.forget_at(at);
        }
    }

    /// Gives up the rings of all workers that ended, and keeps no rings of workers that end later. The caller must call
    /// this function when the bridge ends.
    pub fn forget_all(&mut self) {
        self.keeps = false;
        while !self.ended.is_empty() {
            self.forget_at(0);
        }
    }

    /// Returns the number of events that wait to be delivered again.
    pub fn waiting_for_redelivery(&self) -> usize {
        self.ended.iter().map(|its| its.events.len()).sum()
    }
}
