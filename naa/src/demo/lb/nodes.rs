//! The processes, from both sides: what they say, and how they are started and heard.

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

/// An event as one of its ends has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// Which it was sent with; 0 at workers, who do not see it.
    pub(super) tick: u64,
}

/// The last line of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) events: u64,
    /// Of senders: how often a host said that nobody takes what was sent.
    #[serde(default)]
    pub(super) refused: u64,
    /// Of workers.
    #[serde(default)]
    pub(super) incomplete: u64,
    #[serde(default)]
    pub(super) most_fill: f64,
    #[serde(default)]
    pub(super) registered_again: u64,
    /// Whether it left when nothing was sent to it any more.
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

/// The whole line is out when this returns: what a process did was told, however it ends.
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
