//! The queue of complete events that wait for room in a ring. This module decides in which order waiting events get
//! room, and which event is lost if too many events wait.

use std::collections::HashMap;

use foldhash::quality::FixedState;

use super::{
    BackPressure, Dispatcher, EligibleWorkers, EventLossCause, Opened, State,
    worker::{Need, WorkerChoice},
};
use crate::{Time, reassembly::EventBufferId};

impl Dispatcher {
    pub(super) fn oldest_waiting(&self) -> Option<(EventBufferId, Time)> {
        let id = *self.waiting.front()?;
        match self.events[id.slot()].as_ref()?.state {
            State::Waiting { since } => Some((id, since)),
            _ => None,
        }
    }

    /// Delivers waiting events to workers that have room now, the oldest event first. If no ring has enough room for a
    /// waiting event, later events do not take the room for which this event waits. Events that are delivered again
    /// come before all waiting events, because they are older.
    pub(super) fn serve_waiting(&mut self, now: Time) {
        self.workers.unblock();
        self.serve_redelivery(now);
        let mut at = 0;
        while let Some(&id) = self.waiting.get(at) {
            let Some(event) = self.event_mut(id) else {
                self.waiting.remove(at);
                continue;
            };
            let Opened { target, length, .. } = event.opened;
            match self.workers.choose(target, length, Need::Delivery) {
                WorkerChoice::Room(worker) => {
                    self.waiting.remove(at);
                    let (worker, run, _) = self.workers.take(worker, length);
                    self.deliver(now, id, (worker, run), true);
                }
                WorkerChoice::TooLarge => {
                    self.waiting.remove(at);
                    self.drop_event(id, EventLossCause::TooLarge);
                }
                WorkerChoice::Full | WorkerChoice::Nobody => {
                    self.workers.block(target, length, Need::Delivery);
                    at += 1;
                    if self.workers.all_blocked() {
                        return;
                    }
                }
            }
        }
    }

    /// Drops waiting events above the limit of the back-pressure policy. Returns true if an event was dropped. After a
    /// drop, another waiting event may get the room that was kept for the dropped event.
    pub(super) fn shorten_queue(&mut self) -> bool {
        let most = match self.config.pressure {
            BackPressure::Hold | BackPressure::DropOldest => self.config.most_waiting as usize,
            BackPressure::DropNewest => 0,
        };
        let mut dropped = false;
        while self.waiting.len() > most {
            let target = self.most_wanted();
            let its = |&&id: &&EventBufferId| self.target(id) == target;
            let (victim, cause) = match self.config.pressure {
                BackPressure::DropOldest => (self.waiting.iter().find(its), EventLossCause::Displaced),
                BackPressure::Hold | BackPressure::DropNewest => {
                    (self.waiting.iter().rev().find(its), EventLossCause::NoCredit)
                }
            };
            let Some(&victim) = victim else { break };
            self.drop_waiting(victim, cause);
            dropped = true;
        }
        dropped
    }

    fn target(&self, id: EventBufferId) -> Option<EligibleWorkers> {
        Some(self.event(id.slot())?.opened.target)
    }

    /// Returns the most frequent value of [`EligibleWorkers`] among the waiting events.
    fn most_wanted(&self) -> Option<EligibleWorkers> {
        let mut counts = HashMap::<EligibleWorkers, usize, FixedState>::default();
        for target in self.waiting.iter().filter_map(|&id| self.target(id)) {
            *counts.entry(target).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        // Several values of `EligibleWorkers` may have the same highest count. The function then returns the value of
        // the oldest event that has one of these values.
        self.waiting.iter().filter_map(|&id| self.target(id)).find(|target| counts[target] == most)
    }

    pub(super) fn drop_waiting(&mut self, id: EventBufferId, loss: EventLossCause) {
        let taken = self.target(id).is_some_and(|target| self.workers.has_taker(target));
        self.waiting.retain(|&waiting| waiting != id);
        self.drop_event(id, if taken { loss } else { EventLossCause::NoWorker });
    }
}
