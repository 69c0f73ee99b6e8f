//! A worker: it puts events into a queue, and takes a fixed time for each event that it takes from the queue.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver as Queue},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use ejfat::{listen::Listen, reassembly::Config};
use ejfat_client::WorkerState;
use ejfat_udp::{Gauge, ReceivedEvent, Receiver, ReceiverConfig};

use super::{Line, Sums};
use crate::{
    demo::nodes::EventLine,
    ejfat::{
        limits::Limits,
        site::{self, OfIni},
        values,
    },
    show, signals,
};

/// The most events that wait in the queue. When it is full, datagrams wait in the socket's receive buffer.
pub(in crate::demo::lb) const QUEUE: usize = 2000;
/// Bytes of the socket's receive buffer: what most systems grant without privileges.
const BUFFER: usize = 4 << 20;

#[derive(Clone, Debug, clap::Args)]
pub(in crate::demo::lb) struct Args {
    listen: SocketAddr,
    /// The time that the worker takes for each event.
    microseconds: u64,
    #[command(flatten)]
    site: site::WorkerArgs,
}

/// Counts events into and out of the queue.
#[derive(Debug, Default)]
struct Levels {
    put: AtomicU64,
    taken: AtomicU64,
    /// The highest fill level that was reported, in millionths.
    most: AtomicU64,
}

impl Levels {
    fn state(&self, gauge: &Gauge) -> WorkerState {
        let mut state = site::state(gauge);
        let (put, taken) = (self.put.load(Relaxed), self.taken.load(Relaxed));
        state.totals.dequeued = taken;
        state.fill = state.fill.max(put.saturating_sub(taken) as f64 / QUEUE as f64);
        self.most.fetch_max((state.fill * 1e6) as u64, Relaxed);
        state
    }
}

/// Registers a worker, and prints a line for each event that it has finished. It ends at once when standard input ends; after a
/// signal it ends when nothing is sent to it any more.
pub(in crate::demo::lb) fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = args
        .site
        .wanted(&OfIni::default())?
        .context("no EJFAT URI is set; `naa demo lb` starts this command with one")?;
    let reassembly =
        Config { max_event: 1 << 20, memory: 256 << 20, seed: values::seed(), ..Config::default() };
    // All segments come from the load balancer's address.
    let reassembly = Limits::behind_lb().apply(reassembly, 1);
    let config = ReceiverConfig { listen: vec![Listen::Port(args.listen)], buffer: Some(BUFFER), reassembly };
    let mut receiver = Receiver::new(config)?;
    let has_ended = signals::watch_stdin()?;
    signals::on_terminate(|| {})?;
    let levels = Arc::<Levels>::default();
    let (of, gauge) = (levels.clone(), receiver.gauge()?);
    let bound = receiver.addresses();
    let mut joined = args.site.join(wanted, &OfIni::default(), &bound, move || of.state(&gauge))?;
    let at = bound.first().context("the worker listens at no address")?;
    show::line(&serde_json::to_string(at)?)?;
    let (queue, events) = mpsc::sync_channel(QUEUE);
    let (of, each) = (levels.clone(), Duration::from_micros(args.microseconds));
    let program = thread::spawn(move || take(&events, &of, each));
    let mut is_over = || has_ended() || signals::is_ending() && joined.has_left();
    while !is_over() {
        let mut gone = false;
        let deliver = |event: ReceivedEvent<'_>| {
            let line = EventLine::new(event.name.data_id, event.name.event, 0, event.bytes);
            levels.put.fetch_add(1, Relaxed);
            gone |= queue.send(line).is_err();
        };
        receiver.poll(Duration::from_millis(50), deliver, |_| ())?;
        if gone {
            break;
        }
    }
    drop(queue);
    let events = program.join().map_err(|_| anyhow!("the thread that takes events panicked"))??;
    let (counters, open) = (receiver.reassembler().counters(), receiver.reassembler().open_events());
    let told = joined.end_json();
    Line::End(Sums {
        events,
        incomplete: counters.timed_out + counters.evicted_for_any_reason() + u64::from(open),
        most_fill: levels.most.load(Relaxed) as f64 * 1e-6,
        registered_again: told["registered_again"].as_u64().unwrap_or(0),
        drained: told["drained"].as_bool(),
    })
    .print()
}

/// The program behind the queue. Returns how many events it took when the queue is closed.
fn take(events: &Queue<EventLine>, levels: &Levels, each: Duration) -> anyhow::Result<u64> {
    let (mut taken, mut done) = (0, Instant::now());
    for event in events {
        // If a sleep took too long, the next ones are shorter as long as events wait.
        done = done.max(Instant::now().checked_sub(each).unwrap_or(done)) + each;
        thread::sleep(done.saturating_duration_since(Instant::now()));
        Line::Event(event).print()?;
        levels.taken.fetch_add(1, Relaxed);
        taken += 1;
    }
    Ok(taken)
}
