//! The processes of the demonstration: what they print, and how they are started and read.

mod bridge;
mod child;
mod worker;

pub(super) use bridge::Bridge;
pub(super) use child::{Ended, Sender, Worker};
pub(super) use worker::{Args as WorkerArgs, SLOTS, run as work};

use serde::{Deserialize, Serialize};

/// An event as its sender sent it or its worker received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The tick with which the event was sent.
    pub(super) tick: u64,
}

/// The last line of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) events: u64,
    /// The segments that a sender sent; 0 for workers.
    #[serde(default)]
    pub(super) segments: u64,
}

/// A line that a worker or a sender prints; senders are those of `naa demo ejfat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    Event(Told),
    End(Sums),
}

/// The first line of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The number of the worker at the bridge.
    pub(super) worker: u32,
    pub(super) placing: String,
}
