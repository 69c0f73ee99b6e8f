//! The trace buffer, which has the traces of the newest events.

use super::{EventLossCause, Opened, WorkerId};
use crate::Time;

/// The state or outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The event was announced to its worker.
    Sent,
    /// The event is known to have arrived at its worker.
    Delivered,
    /// The worker released the event.
    Released,
    /// The worker ended before it released the event.
    WorkerEnded,
    /// The reassembler gave the event up before the event was complete.
    Incomplete,
    /// The bridge lost the event for this cause.
    Lost(EventLossCause),
}

/// The trace of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrace {
    /// The id, event number, data id, tick and length of the event, and the workers that may get the event.
    pub opened: Opened,
    /// The time at which the event's first segment arrived, in nanoseconds of UNIX time.
    pub unix: u64,
    /// The time at which the event's first segment arrived, by the dispatcher's clock.
    pub at: Time,
    /// The time at which the event's last segment arrived, by the dispatcher's clock.
    pub last: Time,
    /// The worker to which the event was announced, or `None` if the event was announced to no worker.
    pub worker: Option<WorkerId>,
    /// The sequence number of the event in the worker's ring, or `None` if the event was announced to no worker.
    pub sequence: Option<u32>,
    /// The time at which the event was announced to the worker, or `None` if the event was announced to no worker.
    pub sent: Option<Time>,
    /// The time at which the bridge learned that the event had arrived at the worker, or `None` if the bridge has not
    /// learned of an arrival.
    pub delivered: Option<Time>,
    /// The time at which the bridge saw that the worker had released the event, or `None` if the bridge has seen no
    /// release.
    pub released: Option<Time>,
    /// The state or outcome of the event.
    pub outcome: EventOutcome,
}

/// A ring buffer of traces. Each trace has a number, the tag, and is stored at the index `tag % capacity`. A search for
/// the tag of an overwritten trace finds no trace.
#[derive(Debug)]
pub(super) struct TraceBuffer {
    traces: Vec<EventTrace>,
    capacity: usize,
    written: u32,
}

impl TraceBuffer {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1).next_power_of_two() as usize;
        Self { traces: Vec::new(), capacity, written: 0 }
    }

    pub(super) fn add(&mut self, trace: &EventTrace) -> u32 {
        let tag = self.written;
        self.written = tag.wrapping_add(1);
        let at = tag as usize % self.capacity;
        match self.traces.get_mut(at) {
            Some(place) => *place = *trace,
            None => self.traces.push(*trace),
        }
        tag
    }

    fn get(&mut self, tag: u32) -> Option<&mut EventTrace> {
        if self.written.wrapping_sub(tag) as usize > self.capacity {
            return None;
        }
        self.traces.get_mut(tag as usize % self.capacity)
    }

    pub(super) fn number(&mut self, tag: u32, sequence: u32) {
        if let Some(trace) = self.get(tag) {
            trace.sequence = Some(sequence);
        }
    }

    /// Notes that an event arrived at its worker. Returns the times since the event's first and last segment, in
    /// nanoseconds.
    pub(super) fn delivered(&mut self, now: Time, tag: u32) -> Option<[u64; 2]> {
        let trace = self.get(tag)?;
        trace.delivered = Some(now);
        trace.outcome = EventOutcome::Delivered;
        Some([trace.at, trace.last].map(|since| now.0.saturating_sub(since.0)))
    }

    /// Notes that a worker released an event. Returns the time since the event arrived at the worker, in nanoseconds.
    pub(super) fn released(&mut self, now: Time, tag: u32) -> Option<u64> {
        let trace = self.get(tag)?;
        trace.released = Some(now);
        trace.outcome = EventOutcome::Released;
        Some(now.0.saturating_sub(trace.delivered?.0))
    }

    pub(super) fn ended(&mut self, tag: u32) {
        if let Some(trace) = self.get(tag) {
            trace.outcome = EventOutcome::WorkerEnded;
        }
    }

    pub(super) fn find(&self, tick: u64) -> impl Iterator<Item = &EventTrace> {
        let newest = (self.written as usize).checked_sub(1).map_or(0, |at| at % self.capacity);
        let (behind, before) = self.traces.split_at((newest + 1).min(self.traces.len()));
        let latest_first = behind.iter().rev().chain(before.iter().rev());
        latest_first.filter(move |trace| trace.opened.tick.unwrap_or(trace.opened.name.event) == tick)
    }
}
