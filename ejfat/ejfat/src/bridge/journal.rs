//! What became of the events of late.

use super::{Loss, Opened, WorkerId};
use crate::Time;

/// How far an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Told to its worker.
    Sent,
    /// Known to have arrived.
    Delivered,
    Released,
    /// Its worker ended with it.
    WorkerEnded,
    Incomplete,
    Lost(Loss),
}

/// One event's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub opened: Opened,
    /// When its first segment came, in nanoseconds of UNIX time.
    pub unix: u64,
    /// The same, and that of the last one, by the dispatcher's clock.
    pub at: Time,
    pub last: Time,
    pub worker: Option<WorkerId>,
    pub sequence: Option<u32>,
    pub sent: Option<Time>,
    pub delivered: Option<Time>,
    pub released: Option<Time>,
    pub fate: Fate,
}

/// A ring of records. A tag is the low half of a record's number, which its place follows from; that of a record which was
/// overwritten finds nothing.
#[derive(Debug)]
pub(super) struct Journal {
    records: Vec<Record>,
    capacity: usize,
    written: u32,
}

impl Journal {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1).next_power_of_two() as usize;
        Self { records: Vec::new(), capacity, written: 0 }
    }

    fn add(&mut self, record: &Record) -> u32 {
        let tag = self.written;
        self.written = tag.wrapping_add(1);
        let at = tag as usize % self.capacity;
        match self.records.get_mut(at) {
            Some(place) => *place = *record,
            None => self.records.push(*record),
        }
        tag
    }

    pub(super) fn sent(&mut self, record: &Record) -> u32 {
        self.add(record)
    }

    pub(super) fn lost(&mut self, record: &Record) {
        self.add(record);
    }

    fn get(&mut self, tag: u32) -> Option<&mut Record> {
        if self.written.wrapping_sub(tag) as usize > self.capacity {
            return None;
        }
        self.records.get_mut(tag as usize % self.capacity)
    }

    pub(super) fn number(&mut self, tag: u32, sequence: u32) {
        if let Some(record) = self.get(tag) {
            record.sequence = Some(sequence);
        }
    }

    /// Nanoseconds since the first segment.
    pub(super) fn delivered(&mut self, now: Time, tag: u32) -> Option<u64> {
        let record = self.get(tag)?;
        record.delivered = Some(now);
        record.fate = Fate::Delivered;
        Some(now.0.saturating_sub(record.at.0))
    }

    /// Nanoseconds since it arrived.
    pub(super) fn released(&mut self, now: Time, tag: u32) -> Option<u64> {
        let record = self.get(tag)?;
        record.released = Some(now);
        record.fate = Fate::Released;
        Some(now.0.saturating_sub(record.delivered?.0))
    }

    pub(super) fn ended(&mut self, tag: u32) {
        if let Some(record) = self.get(tag) {
            record.fate = Fate::WorkerEnded;
        }
    }

    pub(super) fn find(&self, tick: u64) -> impl Iterator<Item = &Record> {
        let newest = (self.written as usize).checked_sub(1).map_or(0, |at| at % self.capacity);
        let (behind, before) = self.records.split_at((newest + 1).min(self.records.len()));
        let latest_first = behind.iter().rev().chain(before.iter().rev());
        latest_first.filter(move |record| record.opened.tick.unwrap_or(record.opened.name.event) == tick)
    }
}
