//! A sender: numbered events at a steady rate to the load balancer of a reservation.

use std::{
    io::stdin,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat_udp::{Sender, SenderConfig};

use super::{Line, Sums};
use crate::{
    demo::{ejfat::events::Events, nodes::EventLine},
    ejfat::site::{AdmissionConfig, ControlPlane},
    show, signals,
};

/// Bytes. Events up to this length take several packets, so that they could be split over two workers.
const LARGEST: usize = 6000;
const SYNCS: Duration = Duration::from_millis(200);
/// How long the sender stays registered after its last event, whose packets may still be on their way.
const LATE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::lb) struct Args {
    data_id: u16,
    /// The least number of events to send.
    events: u64,
    /// Events in a second.
    rate: f64,
    seed: u64,
    #[command(flatten)]
    site: ControlPlane,
}

/// Registers as a sender, waits for a line on standard input, then sends events at a steady rate and prints a line for each. It
/// ends when it has sent enough events and standard input has ended.
pub(in crate::demo::lb) fn run(args: &Args) -> anyhow::Result<()> {
    let uri = args.site.uri()?.context("no EJFAT URI is set; `naa demo lb` starts this command with one")?;
    let admission = AdmissionConfig { source: args.data_id.into(), period: SYNCS, v6: false };
    let (to, let_in) = args.site.let_in(&uri, true, admission)?;
    // One socket, so that events arrive in the order in which they are sent.
    let config = SenderConfig { data_id: args.data_id, sockets: 1, rate: None, ..SenderConfig::new(to) };
    let mut sender = Sender::new(config)?;
    let mut events = Events::new(args.seed, args.data_id);
    show::line(&serde_json::to_string(&to)?)?;
    stdin().read_line(&mut String::new())?;
    let may_end = signals::watch_stdin()?;
    let (begin, mut event) = (Instant::now(), 0);
    while event < args.events || !may_end() {
        let due = begin + Duration::from_secs_f64(event as f64 / args.rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let entropy = events.entropy();
        let bytes = events.of_bytes(1..LARGEST);
        let tick = sender.send(event, entropy, bytes)?;
        Line::Event(EventLine::new(args.data_id, event, tick, bytes)).print()?;
        event += 1;
    }
    thread::sleep(LATE);
    let_in.end();
    Line::End(Sums { events: event, ..Sums::default() }).print()
}
