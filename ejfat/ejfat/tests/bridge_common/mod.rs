//! What tests of a bridge's dispatcher have in common. The tests check the actions of the dispatcher instead of
//! carrying them out.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{collections::BTreeMap, time::Duration};

use ejfat::{
    Time,
    bridge::{
        BackPressure, Config, DispatchAction, Dispatcher, EligibleWorkers, EventLocation, EventLossCause,
        Opened, WorkerId,
    },
    reassembly::{self, EventBufferId, EventKey, Reassembler},
    ring::{CreditCounts, DeliveryMode, Descriptor, Filter, Geometry, Subscription, WorkerName},
    wire::ReHeader,
};

pub(crate) const MS: u64 = 1_000_000;
/// The number of bytes of a slot in all rings of these tests.
pub(crate) const SLOT: u32 = 64;
const SLOTS: u32 = 256;
pub(crate) const ANYBODY: EligibleWorkers = EligibleWorkers::Anybody;

/// A dispatcher and the reassembler of its events, with virtual time and the credit words of all workers.
pub(crate) struct Bench {
    pub(crate) dispatcher: Dispatcher,
    reassembler: Reassembler,
    pub(crate) now: Time,
    words: BTreeMap<WorkerId, Vec<u32>>,
    events: u64,
}

/// Returns a configuration in which a complete event waits at most 100 ms for room in a ring. A worker stalls after
/// 10 ms without a release, or after 2 ms without an acknowledgement.
pub(crate) fn config(pressure: BackPressure, most_waiting: u32) -> Config {
    let (hold, stall) = (Duration::from_millis(100), Duration::from_millis(10));
    Config { pressure, most_waiting, hold, stall, silence: Duration::from_millis(2), ..Config::default() }
}

/// Returns a [`Bench`] with the back-pressure policy `hold`, in which at most eight complete events wait for room.
pub(crate) fn hold() -> Bench {
    Bench::new(config(BackPressure::Hold, 8))
}

pub(crate) fn data_ids(first: u16, last: u16) -> Filter {
    Filter { data_ids: (first, last), member: None }
}

pub(crate) fn member(number: u16) -> Filter {
    Filter { member: Some(number), ..Filter::default() }
}

impl Bench {
    pub(crate) fn new(config: Config) -> Self {
        let reassembly = reassembly::Config {
            slots: SLOTS,
            max_open: SLOTS,
            max_open_per_source: SLOTS,
            ..Default::default()
        };
        Self {
            dispatcher: Dispatcher::new(config, SLOTS),
            reassembler: Reassembler::new(reassembly).unwrap(),
            now: Time(0),
            words: BTreeMap::new(),
            events: 0,
        }
    }

    /// Adds a worker that is ready to get events.
    pub(crate) fn worker(&mut self, slots: u32, filter: Filter, placing: DeliveryMode) -> WorkerId {
        self.worker_of(false, slots, filter, placing)
    }

    /// Adds a worker that is ready to get events. `redelivery` is true if the worker uses version 2 of the ring
    /// protocol.
    pub(crate) fn worker_of(
        &mut self,
        redelivery: bool,
        slots: u32,
        filter: Filter,
        placing: DeliveryMode,
    ) -> WorkerId {
        let geometry = Geometry::new(slots, SLOT).unwrap();
        let subscription =
            Subscription { geometry, filter, name: WorkerName::from("worker").unwrap(), redelivery };
        let id = self.dispatcher.subscribe(self.now, &subscription, placing).expect("there is a place");
        self.dispatcher.ready(self.now, id);
        self.words.insert(id, vec![0; slots as usize]);
        id
    }

    /// Opens an event that takes `slots` ring slots. `target` says which workers may get the event.
    pub(crate) fn open(
        &mut self,
        slots: u32,
        target: EligibleWorkers,
    ) -> (EventBufferId, Result<EventLocation, EventLossCause>) {
        self.events += 1;
        let name = EventKey { event: self.events, data_id: 1 };
        let length = slots * SLOT;
        let header = ReHeader { data_id: name.data_id, offset: 0, length, event: name.event };
        let segment = [&header.encode()[..], &[7]].concat();
        let id = self.reassembler.handle(self.now, None, &segment).unwrap().id;
        let opened = Opened { id, name, tick: Some(1000 + self.events), length, target };
        (id, self.dispatcher.open(self.now, 0, opened))
    }

    pub(crate) fn complete(&mut self, id: EventBufferId) -> Vec<DispatchAction> {
        self.dispatcher.complete(self.now, id);
        self.actions()
    }

    /// Opens and completes an event.
    pub(crate) fn event(
        &mut self,
        slots: u32,
        target: EligibleWorkers,
    ) -> (EventBufferId, Vec<DispatchAction>) {
        let (id, _) = self.open(slots, target);
        (id, self.complete(id))
    }

    /// Opens and completes an event that the dispatcher must deliver immediately. Returns the worker that gets the
    /// event, and the descriptor of the event.
    pub(crate) fn delivered(&mut self, slots: u32, target: EligibleWorkers) -> (WorkerId, Descriptor) {
        let (_, actions) = self.event(slots, target);
        *deliveries(&actions).last().expect("it is delivered")
    }

    /// Acknowledges the `times` oldest deliveries to a worker.
    pub(crate) fn acknowledge(&mut self, worker: WorkerId, times: u32) -> Vec<DispatchAction> {
        (0..times).for_each(|_| self.dispatcher.acknowledged(self.now, worker));
        self.actions()
    }

    /// Writes a credit word of a worker, and lets the dispatcher read the worker's credit words.
    pub(crate) fn credit(
        &mut self,
        worker: WorkerId,
        slot: u32,
        value: u32,
    ) -> (CreditCounts, Vec<DispatchAction>) {
        let words = self.words.get_mut(&worker).unwrap();
        words[slot as usize] = value;
        (self.dispatcher.look(self.now, worker, words), self.actions())
    }

    /// Acknowledges the oldest delivery to a worker, and releases the event with this descriptor.
    pub(crate) fn give_back(&mut self, worker: WorkerId, its: &Descriptor) -> Vec<DispatchAction> {
        let mut actions = self.acknowledge(worker, 1);
        let (looked, more) = self.credit(worker, its.slot, its.generation);
        assert_eq!(looked, CreditCounts { credits: 1, wrong: 0 });
        actions.extend(more);
        actions
    }

    pub(crate) fn after(&mut self, millis: u64) -> Vec<DispatchAction> {
        self.now = Time(self.now.0 + millis * MS);
        self.dispatcher.tick(self.now);
        self.actions()
    }

    pub(crate) fn remove(&mut self, worker: WorkerId) -> Vec<DispatchAction> {
        self.dispatcher.remove(self.now, worker);
        self.actions()
    }

    fn actions(&mut self) -> Vec<DispatchAction> {
        std::iter::from_fn(|| self.dispatcher.poll_action()).collect()
    }

    /// Returns, for each cause of losses, the number of events that were lost. Causes without a loss are left out.
    pub(crate) fn lost(&self) -> Vec<(EventLossCause, u64)> {
        let counters = self.dispatcher.counters();
        let all = EventLossCause::ALL.into_iter().map(|loss| (loss, counters.lost(loss)));
        all.filter(|&(_, count)| count > 0).collect()
    }
}

pub(crate) fn deliveries(actions: &[DispatchAction]) -> Vec<(WorkerId, Descriptor)> {
    let told = actions.iter().filter_map(|action| match *action {
        DispatchAction::Deliver { worker, descriptor, .. }
        | DispatchAction::Redeliver { worker, descriptor, .. } => Some((worker, descriptor)),
        _ => None,
    });
    told.collect()
}
