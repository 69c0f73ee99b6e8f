//! The demonstration's processes: what they do and print, and how they are started and read.

mod child;
mod sender;
mod worker;

pub(super) use child::{WorkerProcess, kill, now, start_ready, start_sender};
pub(super) use sender::{Args as SenderArgs, run as send};
pub(super) use worker::{Args as WorkerArgs, QUEUE, run as work};

use serde::{Deserialize, Serialize};

use crate::demo::nodes;

pub(super) type Ended = nodes::Ended<Sums>;
pub(super) type EventProcess = nodes::EventProcess<Sums>;
type Line = nodes::Line<Sums>;

/// The totals in the last line of a process. Senders tell only `events`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) events: u64,
    /// Events that timed out, were evicted, or were still open at the end.
    #[serde(default)]
    pub(super) incomplete: u64,
    /// The highest fill level that the worker reported, 0 to 1.
    #[serde(default)]
    pub(super) most_fill: f64,
    /// How often the worker had to register again.
    #[serde(default)]
    pub(super) registered_again: u64,
    /// Whether the worker left when nothing was sent to it any more; `None` if it was not told to leave.
    #[serde(default)]
    pub(super) drained: Option<bool>,
}
