//! The record of one event of a capture.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use ejfat::reassembly::EventKey;
use serde_json::{Value, json};

use super::packet::seconds;
use crate::ejfat::capture::CapturedSegment;

/// The sender's address, and the address and port to which it sent.
pub(super) type Flow = (IpAddr, SocketAddr);

/// The state of an event at the end of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventResult {
    Open,
    Complete,
    TimedOut,
    Evicted,
}

#[derive(Debug)]
pub(super) struct DecodedEvent {
    pub(super) flow: Flow,
    pub(super) name: EventKey,
    pub(super) tick: Option<u64>,
    pub(super) length: u32,
    /// All segments of the event; `duplicates` had no new bytes, and `refused` were not accepted for other reasons.
    pub(super) segments: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    pub(super) bytes: u32,
    /// The ranges of received bytes: begin and end. They are disjoint and not adjacent.
    pub(super) parts: BTreeMap<u32, u32>,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) end: EventResult,
}

/// The names of the columns of [`DecodedEvent::row`].
pub(super) const HEADER: [&str; 13] = [
    "DATA ID",
    "EVENT",
    "FROM",
    "TO",
    "LENGTH",
    "SEGMENTS",
    "BYTES",
    "HOLES",
    "DUPLICATES",
    "REFUSED",
    "BEGINS",
    "TAKES",
    "END",
];

impl DecodedEvent {
    pub(super) fn new(time: u64, flow: Flow, name: EventKey, segment: &CapturedSegment) -> Self {
        Self {
            flow,
            name,
            tick: segment.lb.map(|lb| lb.tick),
            length: segment.re.length,
            segments: 0,
            duplicates: 0,
            refused: 0,
            bytes: 0,
            parts: BTreeMap::new(),
            first: time,
            last: time,
            end: EventResult::Open,
        }
    }

    /// Adds an accepted range, which must not overlap the ranges that were accepted before.
    pub(super) fn add(&mut self, offset: u32, len: u32) {
        self.bytes += len;
        let (mut from, mut to) = (offset, offset + len);
        if let Some((&before, &end)) = self.parts.range(..=offset).next_back()
            && end == from
        {
            from = before;
        }
        if let Some(end) = self.parts.remove(&to) {
            to = end;
        }
        self.parts.insert(from, to);
    }

    pub(super) fn holes(&self) -> usize {
        if self.end == EventResult::Complete {
            return 0;
        }
        let starts = self.parts.first_key_value().is_none_or(|(&from, _)| from > 0);
        let ends = self.parts.last_key_value().is_some_and(|(_, &to)| to < self.length);
        self.parts.len().saturating_sub(1) + usize::from(starts) + usize::from(ends)
    }

    fn end(&self) -> &'static str {
        match self.end {
            EventResult::Open => "open",
            EventResult::Complete => "complete",
            EventResult::TimedOut => "timed_out",
            EventResult::Evicted => "evicted",
        }
    }

    pub(super) fn row(&self, begun: u64) -> Vec<String> {
        vec![
            self.name.data_id.to_string(),
            self.name.event.to_string(),
            self.flow.0.to_string(),
            self.flow.1.to_string(),
            self.length.to_string(),
            self.segments.to_string(),
            self.bytes.to_string(),
            self.holes().to_string(),
            self.duplicates.to_string(),
            self.refused.to_string(),
            seconds(begun, self.first),
            seconds(self.first, self.last),
            self.end().into(),
        ]
    }

    pub(super) fn object(&self) -> Value {
        json!({
            "kind": "event",
            "data_id": self.name.data_id,
            "event": self.name.event,
            "from": self.flow.0,
            "to": self.flow.1,
            "tick": self.tick,
            "length": self.length,
            "segments": self.segments,
            "bytes": self.bytes,
            "holes": self.holes(),
            "duplicates": self.duplicates,
            "refused": self.refused,
            "first_unix_ns": self.first,
            "last_unix_ns": self.last,
            "end": self.end(),
        })
    }
}
