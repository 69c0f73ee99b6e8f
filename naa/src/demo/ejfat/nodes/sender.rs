//! A sender.

use std::{
    io::{BufWriter, Write as _, stdout},
    net::SocketAddr,
};

use ejfat::segment::LbVersion;
use ejfat_udp::{Sender, SenderConfig};

use super::many_streams;
use crate::demo::{
    ejfat::events::Events,
    nodes::{EventLine, Line, Sums},
};

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo) struct Args {
    pub(in crate::demo) to: SocketAddr,
    pub(in crate::demo) data_id: u16,
    pub(in crate::demo) events: u64,
    pub(in crate::demo) mtu: u16,
    pub(in crate::demo) lb_version: u8,
    /// Gbit/s
    pub(in crate::demo) rate: f64,
    pub(in crate::demo) seed: u64,
    /// Send one event of each of so many streams, all at the same time, instead of the events of one stream
    #[arg(long)]
    pub(in crate::demo) streams: Option<u16>,
}

impl Args {
    /// The arguments with which this program is such a sender.
    pub(in crate::demo) fn words(&self) -> Vec<String> {
        let Self { to, data_id, events, mtu, lb_version, rate, seed, streams } = self;
        let mut words = format!("demo ejfat sender {to} {data_id} {events} {mtu} {lb_version} {rate} {seed}");
        if let Some(streams) = streams {
            words += &format!(" --streams {streams}");
        }
        words.split(' ').map(str::to_owned).collect()
    }
}

/// Sends all events, and prints a line for each.
pub(in crate::demo::ejfat) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    if let Some(streams) = args.streams {
        let streams = args.data_id..args.data_id.saturating_add(streams);
        let print = |event| Line::<Sums>::Event(event).write(&mut out);
        let sums = many_streams::send(args.to, streams, (args.rate * 1e9, args.seed), print)?;
        Line::End(sums).write(&mut out)?;
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
        Line::<Sums>::Event(EventLine::new(data_id, event, tick, bytes)).write(&mut out)?;
    }
    let sent = sender.sent();
    let (events, segments, bytes) = (sent.events, sent.segments, sent.bytes);
    Line::End(Sums { events, segments, bytes, ..Sums::default() }).write(&mut out)?;
    Ok(out.flush()?)
}
