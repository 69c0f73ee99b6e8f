//! A sender of a reservation.

use std::{
    io::stdin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat_udp::{Sender, SenderConfig};

use super::{Line, Sums, Told, say, sha256};
use crate::{
    demo::ejfat::events::Events,
    ejfat::site::{ControlPlane, Way},
    signals,
};

/// Several packets, so that an event could be split.
const LARGEST: usize = 6000;
const SYNCS: Duration = Duration::from_millis(200);
/// What was sent last is still on its way when the sender goes.
const LATE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::lb) struct Args {
    data_id: u16,
    /// At least.
    events: u64,
    /// Events in a second.
    rate: f64,
    seed: u64,
    #[command(flatten)]
    site: ControlPlane,
}

/// Is let in, waits for a line on standard input, sends events at a steady rate until standard input ends, and tells each.
pub(in crate::demo::lb) fn run(args: &Args) -> anyhow::Result<()> {
    let uri = args.site.uri()?.context("there is no EJFAT URI")?;
    let way = Way { source: args.data_id.into(), period: SYNCS, v6: false };
    let (to, let_in) = args.site.let_in(&uri, true, way)?;
    // One socket, so that what is sent later does not arrive earlier.
    let config = SenderConfig { data_id: args.data_id, sockets: 1, rate: None, ..SenderConfig::new(to) };
    let mut sender = Sender::new(config)?;
    let mut events = Events::new(args.seed, args.data_id);
    say(&Line::Ready(to))?;
    stdin().read_line(&mut String::new())?;
    let enough = Arc::new(AtomicBool::new(false));
    let end = enough.clone();
    signals::on_stdin_end(move || end.store(true, Relaxed))?;
    let (begin, mut event) = (Instant::now(), 0);
    while event < args.events || !enough.load(Relaxed) {
        let due = begin + Duration::from_secs_f64(event as f64 / args.rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let entropy = events.entropy();
        let bytes = events.of_bytes(1..LARGEST);
        let tick = sender.send(event, entropy, bytes)?;
        let (data_id, bytes, sha256) = (args.data_id, bytes.len() as u64, sha256(bytes));
        say(&Line::Event(Told { data_id, event, bytes, sha256, tick }))?;
        event += 1;
    }
    let refused = sender.wait_for_refusals(LATE)?;
    thread::sleep(LATE);
    let_in.end();
    say(&Line::End(Sums { events: event, refused, ..Sums::default() }))
}
