//! The load of a bridge, as it is reported to a control plane.

use ejfat::{
    bridge::{self, BackPressure, Dispatcher},
    reassembly::Reassembler,
};

/// The fill levels of a bridge, its number of workers, and its totals of events and datagrams since its start. A load
/// has the fields of the state that an EJFAT worker sends to a control plane (`SendState`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The fill level, 0 to 1: the largest of [`rings`](Self::rings), [`memory`](Self::memory) and
    /// [`waiting`](Self::waiting). When `memory` or `waiting` is 1, new events may be lost.
    pub fill: f64,
    /// The part of all workers' ring slots that is in use, 0 to 1; 1 if there is no worker.
    pub rings: f64,
    /// The part of the reassembler's memory that events in reassembly and waiting events use, 0 to 1.
    pub memory: f64,
    /// The number of complete events that wait for room, divided by the maximum number of such events, 0 to 1; 0 if the
    /// maximum is 0.
    pub waiting: f64,
    /// The number of subscribed workers.
    pub workers: u32,
    /// The number of events of which at least one segment was received, including events that are too long
    /// (`totalEventsRecv`).
    pub events: u64,
    /// The number of events that became complete (`totalEventsReassembled`).
    pub reassembled: u64,
    /// The number of events that were lost before they were complete (`totalEventsReassemblyErr`): the reassembler gave
    /// them up, or they were longer than the bridge accepts.
    pub reassembly_errors: u64,
    /// The number of events that workers released (`totalEventsDequeued`).
    pub dequeued: u64,
    /// The number of complete events that no worker got, mostly because no ring had room (`totalEventEnqueueErr`).
    pub enqueue_errors: u64,
    /// The number of bytes of the datagrams that were received (`totalBytesRecv`).
    pub bytes: u64,
    /// The number of datagrams that were received (`totalPacketsRecv`).
    pub packets: u64,
}

impl Load {
    /// Returns the load of a bridge. `too_long` is the number of events that are longer than the bridge accepts.
    pub(crate) fn of(dispatcher: &Dispatcher, reassembler: &Reassembler, too_long: u64) -> Self {
        let (events, segments) = (dispatcher.counters(), reassembler.counters());
        let rings = dispatcher.fill();
        let memory = part(reassembler.touched_memory(), reassembler.config().memory);
        let waiting = part(dispatcher.waiting() as u64, most_waiting(dispatcher.config()));
        Self {
            fill: rings.max(memory).max(waiting),
            rings,
            memory,
            waiting,
            workers: dispatcher.workers().count() as u32,
            events: events.opened + too_long,
            reassembled: segments.complete,
            reassembly_errors: events.incomplete + too_long,
            dequeued: events.released,
            enqueue_errors: events.lost_of_any_cause(),
            bytes: segments.bytes,
            packets: segments.segments,
        }
    }
}

/// Returns the maximum number of complete events that may wait for room.
fn most_waiting(config: &bridge::Config) -> u64 {
    match config.pressure {
        BackPressure::Hold | BackPressure::DropOldest => config.most_waiting.into(),
        BackPressure::DropNewest => 0,
    }
}

/// Returns `used` divided by `all`, but at most 1; 0 if `all` is 0.
fn part(used: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (used as f64 / all as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use ejfat::{
        Time,
        bridge::{Config, EligibleWorkers, Opened},
        reassembly::{self, EventKey},
        ring::{DeliveryMode, Geometry, Subscription},
        wire::ReHeader,
    };

    use super::*;

    const LENGTH: u32 = 1 << 12;

    /// Passes one event, which is a single segment, to the reassembler and the dispatcher.
    fn event(dispatcher: &mut Dispatcher, reassembler: &mut Reassembler, number: u64) {
        let header = ReHeader { data_id: 1, offset: 0, length: LENGTH, event: number };
        let segment = [&header.encode()[..], &[7; LENGTH as usize]].concat();
        let place = reassembler.handle(Time(0), None, &segment).unwrap();
        let name = EventKey { event: number, data_id: 1 };
        let target = EligibleWorkers::Anybody;
        let opened = Opened { id: place.id, name, tick: None, length: LENGTH, target };
        dispatcher.open(Time(0), 0, opened).unwrap();
        dispatcher.complete(Time(0), place.id);
        while let Some(action) = dispatcher.poll_action() {
            if let bridge::DispatchAction::Deliver { id, .. } | bridge::DispatchAction::Drop { id } = action {
                assert!(reassembler.release(id));
            }
        }
    }

    #[test]
    fn the_fill_level_is_that_of_the_fullest_part() {
        let memory = 1 << 24;
        let reassembly = reassembly::Config { memory, max_event: 1 << 16, ..reassembly::Config::default() };
        let mut reassembler = Reassembler::new(reassembly).unwrap();
        let mut dispatcher = Dispatcher::new(Config { most_waiting: 4, ..Config::default() }, 1024);
        let load = Load::of(&dispatcher, &reassembler, 0);
        assert_eq!((load.fill, load.rings, load.memory, load.workers), (1.0, 1.0, 0.0, 0), "no worker");

        let subscription = Subscription::new(Geometry::new(4, LENGTH).unwrap());
        let worker = dispatcher.subscribe(Time(0), &subscription, DeliveryMode::Store).unwrap();
        dispatcher.ready(Time(0), worker);
        assert_eq!(Load::of(&dispatcher, &reassembler, 0).fill, 0.0);
        let mut number = 0;
        let mut events = |dispatcher: &mut Dispatcher, reassembler: &mut Reassembler, count: u64| {
            for _ in 0..count {
                event(dispatcher, reassembler, number);
                number += 1;
            }
            Load::of(dispatcher, reassembler, 0)
        };
        let load = events(&mut dispatcher, &mut reassembler, 3);
        assert_eq!((load.fill, load.rings, load.waiting, load.workers), (0.75, 0.75, 0.0, 1));
        let load = events(&mut dispatcher, &mut reassembler, 3);
        assert_eq!((load.fill, load.rings, load.waiting), (1.0, 1.0, 0.5));
        assert!(load.memory > 0.0 && load.memory < 0.1, "{load:?}");
        // Three more events arrive while the ring is full and two events wait. At most four events may wait, so one
        // event is lost.
        let load = events(&mut dispatcher, &mut reassembler, 3);
        assert_eq!((load.waiting, load.events, load.reassembled, load.enqueue_errors), (1.0, 9, 9, 1));
        assert_eq!((load.dequeued, load.reassembly_errors, load.packets), (0, 0, 9));
        assert!(load.bytes > 9 * u64::from(LENGTH));

        dispatcher.look(Time(1), worker, &[1, 1, 1, 1]);
        assert_eq!(Load::of(&dispatcher, &reassembler, 0).dequeued, 4);
    }

    #[test]
    fn where_nothing_may_wait_nothing_does() {
        let config = Config { pressure: BackPressure::DropNewest, ..Config::default() };
        assert_eq!(part(0, most_waiting(&config)), 0.0);
        assert_eq!(part(5, 4), 1.0);
    }
}
