//! A worker.

use std::{
    io::{Write as _, stdout},
    net::IpAddr,
    time::{Duration, Instant},
};

use naa_events::{BridgeAddress, Config, Event, Geometry, SessionConfig, Worker, WorkerName};
use naa_provider::ProviderChoice;

use super::Ready;
use crate::{
    demo::nodes::{EventLine, Line, Sums},
    show, signals,
};

/// The most events that the worker holds at a time.
const TOGETHER: usize = 32;
pub(in crate::demo::bridge) const SLOTS: u32 = 64;
const SLOT_BYTES: u32 = 64 << 10;
/// The exponent of the ACK time-out. Both ends give up a peer that is silent for about 1 s, so that the demonstration
/// does not wait longer.
const ACK_TIMEOUT: u8 = 15;

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::bridge) struct Args {
    source: BridgeAddress,
    #[arg(value_parser = name)]
    name: WorkerName,
    /// Its address, unless it is of the bridge's machine.
    local: Option<IpAddr>,
}

fn name(text: &str) -> Result<WorkerName, String> {
    WorkerName::from(text).map_err(|_| "a name has up to 32 bytes".into())
}

/// Takes events until standard input ends, and prints each event before it is released.
pub(in crate::demo::bridge) fn run(args: &Args) -> anyhow::Result<()> {
    let has_ended = signals::watch_stdin()?;
    let session = SessionConfig { ack_timeout: ACK_TIMEOUT, ..SessionConfig::default() };
    let config = Config {
        geometry: Geometry::new(SLOTS, SLOT_BYTES)?,
        name: args.name,
        session,
        local: args.local,
        provider: Some(ProviderChoice::Embedded),
        reconnect: None,
        ..Config::default()
    };
    let mut worker = Worker::open(&args.source, &config)?;
    let answer = worker.answer();
    let ready = Ready { worker: answer.worker, placing: answer.placing.name().to_owned() };
    show::line(&serde_json::to_string(&ready)?)?;
    let (mut events, mut copy) = (0, Vec::new());
    while !has_ended() {
        let Some(first) = worker.next_until(Some(Instant::now() + Duration::from_millis(100)))? else {
            continue;
        };
        let mut together = vec![first];
        while together.len() < TOGETHER
            && let Some(event) = worker.try_next()?
        {
            together.push(event);
        }
        print(&together, &mut copy)?;
        events += together.len() as u64;
        // Events are released in another order than they came.
        while let Some(event) = together.pop() {
            drop(event);
        }
    }
    Line::End(Sums { events, ..Sums::default() }).print()
}

/// Prints whole lines, which are written when this returns. So each released event was printed, however the process ends.
/// The digests are those of copies, because the bridge could change the ring while it is read.
fn print(events: &[Event], copy: &mut Vec<u8>) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for event in events {
        event.copy_to(copy);
        let descriptor = event.descriptor();
        let (name, tick) = (descriptor.name, descriptor.tick.unwrap_or(0));
        Line::<Sums>::Event(EventLine::new(name.data_id, name.event, tick, copy)).write(&mut lines)?;
    }
    let mut out = stdout().lock();
    out.write_all(&lines)?;
    Ok(out.flush()?)
}
