//! The processes of the demonstration: what they print, and how they are started and read.

mod bridge;
mod child;
mod worker;

pub(super) use bridge::Bridge;
pub(super) use child::{WorkerProcess, start_sender, start_streams};
pub(super) use worker::{Args as WorkerArgs, SLOTS, run as work};

use serde::{Deserialize, Serialize};

/// The first line of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The number of the worker at the bridge.
    pub(super) worker: u32,
    pub(super) placing: String,
}
