//! A sender.

use std::{
    io::{BufWriter, Write as _, stdout},
    net::SocketAddr,
};

use ejfat::segment::LbVersion;
use ejfat_udp::{Sender, SenderConfig};

use super::{Line, Sums, Ticked, Told, crowd, sha256};
use crate::demo::ejfat::events::Events;

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::ejfat) struct Args {
    to: SocketAddr,
    data_id: u16,
    events: u64,
    mtu: u16,
    lb_version: u8,
    rate: f64,
    seed: u64,
    /// Send one event of each of so many streams, all at the same time, instead of the events of one stream
    #[arg(long)]
    streams: Option<u16>,
}

/// Sends all events, and prints a line for each.
pub(in crate::demo::ejfat) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    let mut tell = |line: &Line| -> anyhow::Result<()> {
        serde_json::to_writer(&mut out, line)?;
        Ok(out.write_all(b"\n")?)
    };
    if let Some(streams) = args.streams {
        let streams = args.data_id..args.data_id.saturating_add(streams);
        let sums =
            crowd::send(args.to, streams, (args.rate * 1e9, args.seed), |told| tell(&Line::Event(told)))?;
        tell(&Line::End(sums))?;
        return Ok(out.flush()?);
    }
    let version = if args.lb_version == 3 { LbVersion::V3 } else { LbVersion::V2 };
    let (mtu, data_id, rate) = (args.mtu, args.data_id, Some(args.rate * 1e9));
    let mut sender = Sender::new(SenderConfig { mtu, data_id, rate, version, ..SenderConfig::new(args.to) })?;
    let mut events = Events::new(args.seed, data_id);
    for event in 0..args.events {
        let entropy = events.entropy();
        let bytes = events.next();
        let tick = sender.send(event, entropy, bytes)?;
        let told = Told { data_id, event, bytes: bytes.len() as u64, sha256: sha256(bytes) };
        tell(&Line::Event(Ticked { told, tick }))?;
    }
    let sent = sender.sent();
    let (events, segments, bytes) = (sent.events, sent.segments, sent.bytes);
    tell(&Line::End(Sums { events, segments, bytes, ..Sums::default() }))?;
    Ok(out.flush()?)
}
