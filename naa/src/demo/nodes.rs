//! What demonstrations of events have in common: where their processes run, and what senders and workers print.

mod environment;
mod process;

pub(super) use environment::{Environment, EnvironmentArgs, Network, Node};
pub(super) use process::{Ended, EventProcess, Output, Process};

use std::{
    collections::HashMap,
    io::{Write, stdout},
};

use serde::{Deserialize, Serialize};

use crate::show;

/// An event as its sender sent it or its worker received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EventLine {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The tick with which the event was sent; 0 from workers that do not see ticks.
    pub(super) tick: u64,
}

impl EventLine {
    pub(super) fn new(data_id: u16, event: u64, tick: u64, bytes: &[u8]) -> Self {
        let sha256 = show::hex(&naa_server::functions::sha256::compute(bytes));
        Self { data_id, event, bytes: bytes.len() as u64, sha256, tick }
    }

    /// The data id and the event number, which name the event.
    pub(super) fn key(&self) -> (u16, u64) {
        (self.data_id, self.event)
    }

    /// Whether both events have the same bytes.
    pub(super) fn has_bytes_of(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.sha256 == other.sha256
    }
}

/// Events that workers printed, each with the index of its worker, by data id and event number.
pub(super) type Came<'a> = HashMap<(u16, u64), Vec<(usize, &'a EventLine)>>;

/// `workers` has the events of each worker.
pub(super) fn came<'a>(workers: impl IntoIterator<Item = &'a Vec<EventLine>>) -> Came<'a> {
    let mut came = Came::new();
    for (worker, events) in workers.into_iter().enumerate() {
        for event in events {
            came.entry(event.key()).or_default().push((worker, event));
        }
    }
    came
}

/// The totals in the last line of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) events: u64,
    /// Segments that a sender sent or a worker received. Workers of a bridge count only events, so their other sums are 0.
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// Segments that a worker dropped. 0 for senders.
    pub(super) dropped: u64,
    pub(super) incomplete: u64,
    /// Events that a worker gave up to make room for others. 0 for senders.
    pub(super) evicted: u64,
    /// Bytes in segments of events that are not complete.
    pub(super) placed_bytes: u64,
}

/// A line that a sender or a worker prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line<S = Sums> {
    Event(EventLine),
    End(S),
}

impl<S: Serialize> Line<S> {
    pub(super) fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(out.write_all(&text)?)
    }

    /// Prints the line, which is written completely when the method returns, even if the process is killed afterwards.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        self.write(&mut out)?;
        Ok(out.flush()?)
    }
}
