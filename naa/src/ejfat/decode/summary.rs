//! Reassembles the events of a capture as a worker with much memory would, and reports how each of them ended.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use anyhow::Context as _;
use ejfat::{
    Time,
    reassembly::{Config, CopyCommand, EventBufferId, EventKey, Incomplete, Reassembler, SegmentDropCause},
};
use naa_measure::TextTable;

use super::decoded_event::{DecodedEvent, EventResult, Flow, HEADER};
use crate::ejfat::capture::{CapturedSegment, Datagram, Kind};

/// The most events that are open at once.
const SLOTS: u32 = 1 << 14;
/// The most flows (sender and destination) that are told apart.
const FLOWS: u32 = 1 << 12;

pub(super) struct Summary {
    reassembler: Reassembler,
    timeout: Duration,
    records: Vec<DecodedEvent>,
    open: HashMap<EventBufferId, usize>,
    latest: HashMap<(Flow, EventKey), usize>,
    flows: HashMap<Flow, IpAddr>,
    now: Time,
    zeros: Vec<u8>,
}

impl Summary {
    pub(super) fn new(timeout: u64) -> anyhow::Result<Self> {
        let timeout = Duration::from_millis(timeout);
        let config = Config {
            slots: SLOTS,
            max_open: SLOTS,
            max_open_per_source: SLOTS,
            // The bytes of events are not stored.
            max_event: u32::MAX,
            memory: u64::MAX,
            timeout,
            lifetime: Duration::MAX,
            max_sources: FLOWS,
            remembered: 1 << 16,
            chunks: 1 << 17,
            ..Config::default()
        };
        Ok(Self {
            reassembler: Reassembler::new(config)?,
            timeout,
            records: Vec::new(),
            open: HashMap::new(),
            latest: HashMap::new(),
            flows: HashMap::new(),
            now: Time(0),
            zeros: Vec::new(),
        })
    }

    pub(super) fn see(&mut self, datagram: &Datagram<'_>, kind: &Kind) {
        let Kind::Segment(segment) = kind else { return };
        // Packets in captures of several interfaces are not quite in order of time.
        self.now = self.now.max(Time(datagram.time));
        self.give_up();
        let flow = (datagram.from.ip(), datagram.to);
        let known = self.flows.len() as u128;
        let source = *self.flows.entry(flow).or_insert_with(|| Ipv6Addr::from(known).into());
        let missing = datagram.len - datagram.bytes.len();
        let placed = if missing == 0 {
            self.reassembler.handle(self.now, Some(source), datagram.bytes)
        } else {
            // Only the length of the missing bytes matters.
            self.zeros.clear();
            self.zeros.extend_from_slice(datagram.bytes);
            self.zeros.resize(datagram.len, 0);
            self.reassembler.handle(self.now, Some(source), &self.zeros)
        };
        self.record(datagram.time, flow, segment, &placed);
    }

    fn record(
        &mut self,
        time: u64,
        flow: Flow,
        segment: &CapturedSegment,
        placed: &Result<CopyCommand, SegmentDropCause>,
    ) {
        let name = EventKey { event: segment.re.event, data_id: segment.re.data_id };
        let opened = placed.as_ref().is_ok_and(|place| place.opened);
        let latest = self.latest.get(&(flow, name)).copied().filter(|_| !opened);
        let at = latest.unwrap_or_else(|| {
            self.records.push(DecodedEvent::new(time, flow, name, segment));
            self.latest.insert((flow, name), self.records.len() - 1);
            self.records.len() - 1
        });
        let record = &mut self.records[at];
        record.segments += 1;
        record.last = record.last.max(time);
        match placed {
            Ok(place) => {
                record.add(place.offset, place.payload.len() as u32);
                self.open.insert(place.id, at);
                if place.complete {
                    record.end = EventResult::Complete;
                    record.parts.clear();
                    self.open.remove(&place.id);
                    self.reassembler.release(place.id);
                }
            }
            Err(SegmentDropCause::Duplicate) => record.duplicates += 1,
            Err(_) => record.refused += 1,
        }
    }

    fn give_up(&mut self) {
        while let Some(Incomplete { id, .. }) = self.reassembler.poll_given_up(self.now) {
            let Some(at) = self.open.remove(&id) else { continue };
            let record = &mut self.records[at];
            let stale = Time(record.last) + self.timeout <= self.now;
            record.end = if stale { EventResult::TimedOut } else { EventResult::Evicted };
        }
    }

    pub(super) fn text(self, begun: u64, json: bool) -> anyhow::Result<String> {
        if json {
            let lines: Vec<_> = self.records.iter().map(|record| record.object().to_string()).collect();
            return Ok(lines.join("\n"));
        }
        let complete = self.records.iter().filter(|record| record.end == EventResult::Complete).count();
        let rows = self.records.iter().map(|record| record.row(begun));
        let table = if self.records.is_empty() { String::new() } else { TextTable::of(HEADER, rows) + "\n" };
        let all = self.records.len();
        let incomplete = all.checked_sub(complete).context("more than all")?;
        Ok(format!("{table}{all} events: {complete} complete, {incomplete} incomplete"))
    }
}

#[cfg(test)]
mod tests;
