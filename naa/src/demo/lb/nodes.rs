//! The demonstration's processes: what they do and print, and how they are started and read.

mod child;
mod sender;
mod worker;

pub(super) use child::{Ended, Process, Sender, Worker, now};
pub(super) use sender::{Args as SenderArgs, run as send};
pub(super) use worker::{Args as WorkerArgs, QUEUE, run as work};

use std::{
    io::{Write as _, stdout},
    net::SocketAddr,
};

use serde::{Deserialize, Serialize};

/// An event as its sender or its worker tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The tick that it was sent with; 0 from workers, which do not see ticks.
    pub(super) tick: u64,
}

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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// Where a sender sends, or a worker listens.
    Ready(SocketAddr),
    Event(Told),
    End(Sums),
}

/// Prints a line. It is written completely when this returns, so it is not lost if the process is killed afterwards.
fn say(line: &Line) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut out = stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}

fn sha256(bytes: &[u8]) -> String {
    crate::show::hex(&naa_server::functions::sha256::compute(bytes))
}
