//! A worker.

use std::{
    io::{BufWriter, Write as _, stdout},
    net::SocketAddr,
    time::Duration,
};

use ejfat::{listen::Listen, reassembly::Config};
use ejfat_udp::{ReceivedEvent, Receiver, ReceiverConfig};

use crate::{
    demo::nodes::{EventLine, Line, Sums},
    ejfat::{limits::Limits, values},
    signals,
};

/// The receive buffer in bytes: what most systems grant without privileges.
const BUFFER: usize = 4 << 20;

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::ejfat) struct Args {
    listen: Vec<SocketAddr>,
}

/// Receives events until standard input ends, and prints a line for each.
pub(in crate::demo::ejfat) fn run(args: &Args) -> anyhow::Result<()> {
    let reassembly =
        Config { max_event: 1 << 20, memory: 256 << 20, seed: values::seed(), ..Config::default() };
    // All segments come from the load balancer's address.
    let reassembly = Limits::behind_lb().apply(reassembly, 1);
    let listen = args.listen.iter().copied().map(Listen::Port).collect();
    let config = ReceiverConfig { listen, buffer: Some(BUFFER), reassembly };
    let mut receiver = Receiver::new(config)?;
    let has_ended = signals::watch_stdin()?;
    let mut out = BufWriter::new(stdout().lock());
    writeln!(out, "{}", serde_json::to_string(&receiver.addresses())?)?;
    out.flush()?;
    let mut problem = Ok(());
    while !has_ended() && problem.is_ok() {
        let mut told = false;
        let deliver = |event: ReceivedEvent<'_>| {
            told = true;
            let line = EventLine::new(event.name.data_id, event.name.event, 0, event.bytes);
            problem = Line::<Sums>::Event(line).write(&mut out);
        };
        receiver.poll(Duration::from_millis(100), deliver, |_| ())?;
        if !told {
            out.flush()?;
        }
    }
    problem?;
    Line::End(sums(&receiver)).write(&mut out)?;
    Ok(out.flush()?)
}

fn sums(receiver: &Receiver) -> Sums {
    let (counters, open) = (receiver.reassembler().counters(), receiver.reassembler().open_events());
    Sums {
        events: counters.complete,
        segments: counters.segments,
        bytes: counters.bytes,
        dropped: counters.dropped_of_any_cause(),
        incomplete: counters.timed_out + u64::from(open),
        evicted: counters.evicted_for_any_reason(),
        placed_bytes: counters.placed_bytes,
    }
}
