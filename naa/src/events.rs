//! `naa events`: a worker of a bridge.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use ejfat_udp::ReceivedEvent;
use naa_events::{BridgeAddress, Config, Error, Event, Filter, Geometry, Worker, WorkerCounters, WorkerName};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    Usage, bridge,
    ejfat::{
        sink::{EventSink, FolderSink, Nowhere, Pipe, Shell, StandardOutput},
        status_line::StatusLine,
        values::{seconds, size},
    },
    provider, show, signals,
};

/// Take events from a bridge, and write them to files, standard output, a named pipe or a command
///
/// The bridge puts events into memory of this program, by RDMA or, on one machine, shared; each is copied, written, and given
/// back. What is written is the copy, which the bridge cannot change. A bridge that ends is looked for.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa events 10.9.0.2 --sums --name disk1       a line for each event: its SHA-256 and name
  naa events unix:/run/naa.sock --out events    an event is a file: events/DATA_ID-EVENT
  naa events 10.9.0.2 --exec './analyse'        the event is its input, and EJFAT_EVENT names it
  naa events 10.9.0.2 --data-ids 0-7 --list     and: naa bridge trace TICK|EVENT --server 10.9.0.2
  naa events 10.9.0.2 --list --again            also events that another worker had when it ended
  naa events 10.9.0.2 --slots 16 --slot-bytes 8M -n 100 > /dev/null --stdout

Programs take events in their own memory: crate naa-events, naa_events.h, naa.events for Python.")]
pub(crate) struct Args {
    /// The bridge: ADDR[:PORT], or unix:PATH on its machine
    source: BridgeAddress,
    /// Slots of the ring that events are put into
    #[arg(long, value_name = "N", default_value_t = 64)]
    slots: u32,
    /// Bytes of a slot, a multiple of 64; an event takes as many slots as it needs. Events that are longer than all slots together are
    /// lost, and the bridge warns of them
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = size)]
    slot_bytes: u32,
    /// Shown by the bridge
    #[arg(long, value_name = "NAME", default_value = "", value_parser = name)]
    name: WorkerName,
    /// Take these data ids only, where the bridge goes by them
    #[arg(long, value_name = "FIRST[-LAST]", value_parser = data_ids)]
    data_ids: Option<(u16, u16)>,
    /// Also take events that another worker had when it ended; --list marks them with "again". Give it to every worker, also to those
    /// that may end: the bridge keeps what a worker had if that worker has this option, or if another one with it is subscribed when
    /// that worker ends. The bridge delivers such an event, if it still has its bytes, as soon as there is room and within its --hold,
    /// and delivers one event again at most twice
    #[arg(long)]
    again: bool,
    /// Be this member of the load balancer, where the bridge goes by tables
    #[arg(long, value_name = "N")]
    member: Option<u16>,
    /// Write each event to a file of this folder. It appears under its name when it is complete, and is on disk about a
    /// second later, at the latest when this command ends. Nothing is replaced: if anything has the name already, from
    /// another worker too, the event becomes NAME.2 and so on, which is counted at the end
    #[arg(short, long, value_name = "DIR", group = "where")]
    out: Option<PathBuf>,
    /// Write events to standard output, one behind the other
    #[arg(long, group = "where")]
    stdout: bool,
    /// Write events to a named pipe, one behind the other
    #[arg(long, value_name = "PATH", group = "where")]
    pipe: Option<PathBuf>,
    /// Run a shell command for each event, which is its input
    #[arg(long, value_name = "COMMAND", group = "where")]
    exec: Option<String>,
    /// Print a line for each event: SHA-256, DATA_ID-EVENT
    #[arg(long, group = "where")]
    sums: bool,
    /// Print a JSON object for each event: its names, length, when its first segment came, and its tick, which segments do not have
    /// any more when a load balancer has forwarded them
    #[arg(long, group = "where")]
    list: bool,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "N")]
    events: Option<u64>,
    /// End after so many seconds
    #[arg(short = 'd', long = "for", value_name = "SECONDS")]
    time: Option<f64>,
    /// Look for a bridge that ended for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    reconnect: f64,
    #[command(flatten)]
    provider: provider::Args,
    /// Print JSON: an object when it is subscribed, one at the end
    #[arg(long, conflicts_with_all = ["stdout", "sums", "list"])]
    json: bool,
}

fn name(text: &str) -> Result<WorkerName, String> {
    let wrong = || "a name has up to 32 printable characters of ASCII".to_owned();
    let name = WorkerName::from(text).map_err(|_| wrong())?;
    if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { Ok(name) } else { Err(wrong()) }
}

fn data_ids(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ids = first.parse().ok().zip(last.parse().ok()).filter(|(first, last)| first <= last);
    ids.ok_or_else(|| "write a data id, such as 4, or a range, such as 0-7; they go up to 65535".into())
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let geometry = Geometry::new(self.slots, self.slot_bytes);
        let geometry = geometry.map_err(|error| Usage::error(error.to_string()))?;
        let data_ids = self.data_ids.unwrap_or((0, u16::MAX));
        let filter = Filter { data_ids, member: self.member };
        let reconnect = seconds(self.reconnect, "--reconnect")?;
        let reconnect = (!reconnect.is_zero()).then_some(reconnect);
        let provider = Some(self.provider.choice()?);
        let (name, again) = (self.name, self.again);
        Ok(Config { geometry, filter, name, again, provider, reconnect, ..Config::default() })
    }

    fn sink(&self) -> anyhow::Result<Box<dyn EventSink>> {
        Ok(match (&self.out, &self.pipe, &self.exec) {
            (Some(folder), ..) => Box::new(FolderSink::new(folder)?),
            (_, Some(path), _) => Box::new(Pipe::open(path)?),
            (_, _, Some(command)) => Box::new(Shell(command.clone())),
            _ if self.stdout => Box::new(StandardOutput),
            _ if self.sums => Box::new(Sums),
            _ => Box::new(Nowhere),
        })
    }
}

/// A sink that prints a line with the checksum of each event.
struct Sums;

impl EventSink for Sums {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> anyhow::Result<()> {
        let sum = show::hex(&Sha256::digest(event.bytes));
        Ok(show::line(&format!("{sum}  {}-{}", event.name.data_id, event.name.event))?)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let end = args.time.map(|time| seconds(time, "--for")).transpose()?;
    let config = args.config()?;
    let mut sink = args.sink()?;
    signals::on_terminate(|| {})?;
    let waiting = show::waiting(format!("subscribing at {}", args.source));
    let worker = Worker::open(&args.source, &config);
    let mut worker = worker.map_err(|error| bridge::explained(error.into()))?;
    drop(waiting);
    let quiet = args.stdout || args.sums || args.list || show::is_quiet();
    if args.json {
        let answer = worker.answer();
        let ready = json!({"event": "ready", "worker": answer.worker, "placing": answer.placing.name(),
            "why": worker.describe(), "max_event": config.geometry.ring_bytes()});
        show::line(&ready.to_string())?;
    } else {
        let most = show::bytes(config.geometry.ring_bytes() as u64);
        show::note(&format!("{}; events of up to {most} fit; Ctrl-C ends it", worker.describe()));
    }
    let (begin, mut line) = (Instant::now(), StatusLine::new(args.json || quiet));
    let (mut taken, mut bytes) = (0, Vec::new());
    let done = |taken| args.events.is_some_and(|events| taken >= events);
    let mut take = || -> anyhow::Result<()> {
        while !signals::is_ending() && !done(taken) && end.is_none_or(|end| begin.elapsed() < end) {
            if let Some(event) = next(&mut worker)? {
                taken += 1;
                if args.list {
                    show::line(&listed(&event).to_string())?;
                }
                put(&mut *sink, &event, &mut bytes)?;
            }
            line.update(|| summary(&worker.stats(), begin.elapsed()));
        }
        Ok(())
    };
    let took = take();
    drop(line);
    // Events that came before a failure are synced to disk, too.
    let finished = sink.finish();
    took.and(finished)?;
    let (stats, numbered) = (worker.stats(), sink.numbered());
    if args.json {
        let end = json!({"event": "end", "seconds": begin.elapsed().as_secs_f64(), "events": stats.events,
            "bytes": stats.bytes, "reconnects": stats.reconnects, "numbered": numbered, "again": stats.again});
        return Ok(show::line(&end.to_string())?);
    }
    show::note(&format!("{}{}", summary(&stats, begin.elapsed()), show::numbered(numbered)));
    Ok(())
}

/// Waits for the next event, but only for a tenth of a second, so that the program notices when it is to end.
fn next(worker: &mut Worker) -> Result<Option<Event>, Error> {
    worker.next_until(Some(Instant::now() + Duration::from_millis(100)))
}

/// Passes an event to a sink. Sinks get slices, and the bridge can write the ring at any time, so the event is copied to `bytes`
/// first.
fn put(sink: &mut dyn EventSink, event: &Event, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    event.copy_to(bytes);
    sink.event(&ReceivedEvent { name: event.descriptor().name, from: None, bytes })
}

fn listed(event: &Event) -> serde_json::Value {
    let its = event.descriptor();
    json!({"data_id": its.name.data_id, "event": its.name.event, "tick": its.tick, "bytes": its.length,
        "sequence": its.sequence, "first_segment_unix_ns": its.first, "assembly_ns": its.assembly,
        "again": its.delivered_again})
}

fn summary(stats: &WorkerCounters, time: Duration) -> String {
    let again = match stats.again {
        0 => String::new(),
        again => format!(", {again} of them delivered again"),
    };
    let found = match stats.reconnects {
        0 => String::new(),
        times => format!(", the bridge was lost and found {times} times"),
    };
    format!("{} events{again}, {}{found}", stats.events, show::rate(stats.bytes, time))
}
