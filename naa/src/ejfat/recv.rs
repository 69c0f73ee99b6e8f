//! `naa ejfat recv`.

use std::{
    fs,
    io::{Write as _, stderr, stdout},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat::reassembly::{Cause, Config, Counters, Numbering};
use ejfat_udp::{Event, Receiver, ReceiverConfig};

use super::{
    send::{address, bytes, size},
    tell::Line,
};
use crate::{Usage, show, signals};

/// Receive events, and write them to files, standard output or a command
///
/// Segments may come in any order, any number of times, with the load balancer's header or without. Events that stay
/// incomplete are counted, never written.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa ejfat recv --listen 10.9.0.2 --out events        an event is a file: events/DATA_ID-EVENT
  naa ejfat recv --listen 10.9.0.2 --events 1 --stdout > event
  naa ejfat recv --listen 10.9.0.2:10000 --ports 4 --exec 'sha256sum > sums/$EJFAT_EVENT'")]
pub(crate) struct Args {
    /// Where segments come; port 19522 unless told, 0: any
    #[arg(long, alias = "ip", value_name = "ADDR[:PORT]")]
    listen: String,
    /// So many ports from that one on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16384))]
    ports: u16,
    /// Write each event to a file of this folder; of events with one name, further ones to NAME.2 and so on
    #[arg(short, long, value_name = "DIR", group = "where")]
    out: Option<PathBuf>,
    /// Write events to standard output, one behind the other
    #[arg(long, group = "where")]
    stdout: bool,
    /// Run a shell command for each event, which is its input; EJFAT_EVENT, EJFAT_DATA_ID and EJFAT_FROM name it. One
    /// that fails ends the worker
    #[arg(long, value_name = "COMMAND", group = "where")]
    exec: Option<String>,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "N")]
    events: Option<u64>,
    /// End after so many seconds
    #[arg(short = 'd', long = "for", value_name = "SECONDS")]
    time: Option<f64>,
    /// Give an event up when it got no segment for so long
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The longest event that is taken; K and M are KiB and MiB
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = size)]
    max_event: u32,
    /// The most memory for events; G are GiB
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = memory)]
    memory: u64,
    /// Each sender numbers its events one by one and all come here: count those of which nothing came
    #[arg(long)]
    consecutive: bool,
    /// Receive buffer of each socket
    #[arg(short, long, alias = "bufsize", value_name = "BYTES", default_value = "3M", value_parser = size)]
    buffer: u32,
    /// Print JSON: an object when it listens, one at the end
    #[arg(long)]
    json: bool,
}

fn memory(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "write a number of bytes, such as 512M or 8G".into())
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut receiver = Receiver::new(config(args)?)?;
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let addresses = receiver.addresses()?;
    let granted = receiver.buffer()? as u64;
    if granted < u64::from(args.buffer) {
        let (granted, wanted) = (show::bytes(granted), show::bytes(args.buffer.into()));
        tracing::warn!(
            "the receive buffer is {granted} instead of {wanted}: bursts may be lost; raise it with \
             `sysctl net.core.rmem_max={}`",
            args.buffer
        );
    }
    match (args.json, args.stdout) {
        (true, false) => {
            show::line(&serde_json::json!({ "event": "ready", "addresses": addresses }).to_string())?
        }
        _ => {
            let all = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            say(&format!("receiving at {all}; Ctrl-C ends it"));
        }
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = stopped.clone();
    signals::on_terminate(move || stop.store(true, Ordering::Relaxed))?;
    let end = args
        .time
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|_| Usage::error("--for wants seconds"))?;
    let begin = Instant::now();
    let mut line = Line::new(args.json || args.stdout);
    let (mut delivered, mut problem) = (0, None);
    let done = |delivered| args.events.is_some_and(|events| delivered >= events);
    while !stopped.load(Ordering::Relaxed) && !done(delivered) && end.is_none_or(|end| begin.elapsed() < end)
    {
        let deliver = |event: Event<'_>| {
            if problem.is_none() && !done(delivered) {
                problem = hand_over(args, &event).err();
                delivered += 1;
            }
        };
        receiver.poll(Duration::from_millis(100), deliver, |lost| tracing::debug!("incomplete: {lost:?}"))?;
        if let Some(problem) = problem.take() {
            return Err(problem);
        }
        line.tell(|| told(receiver.reassembler().counters(), begin.elapsed()));
    }
    drop(line);
    report(args, &receiver, delivered, begin.elapsed())
}

fn config(args: &Args) -> anyhow::Result<ReceiverConfig> {
    if u64::from(args.max_event) > args.memory {
        return Err(Usage::error("--max-event is more than --memory: such an event could never be complete"));
    }
    let first = address(&args.listen)?;
    let port = |n: u16| match first.port() {
        0 => Some(0),
        port => port.checked_add(n),
    };
    let listen = (0..args.ports).map(|n| port(n).map(|port| SocketAddr::new(first.ip(), port)));
    let listen: Option<Vec<_>> = listen.collect();
    let listen = listen.ok_or_else(|| Usage::error("there are not so many ports"))?;
    let numbering = if args.consecutive { Numbering::Consecutive } else { Numbering::Sparse };
    let reassembly = Config {
        max_event: args.max_event,
        memory: args.memory,
        timeout: Duration::from_millis(args.timeout),
        numbering,
        seed: seed(),
        ..Config::default()
    };
    Ok(ReceiverConfig { listen, buffer: Some(args.buffer as usize), by_source: true, reassembly })
}

/// From the system, by way of the standard library's hash tables.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

fn hand_over(args: &Args, event: &Event<'_>) -> anyhow::Result<()> {
    let name = format!("{}-{}", event.name.data_id, event.name.event);
    if let Some(folder) = &args.out {
        return write(folder, &name, event.bytes);
    }
    if args.stdout {
        let mut out = stdout().lock();
        return Ok(out.write_all(event.bytes).and_then(|()| out.flush())?);
    }
    let Some(command) = &args.exec else { return Ok(()) };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::piped());
    shell
        .env("EJFAT_EVENT", event.name.event.to_string())
        .env("EJFAT_DATA_ID", event.name.data_id.to_string());
    shell.env("EJFAT_FROM", event.from.map(|from| from.to_string()).unwrap_or_default());
    let mut child = shell.spawn().context("cannot run sh")?;
    let mut input = child.stdin.take().context("sh has no standard input")?;
    match input.write_all(event.bytes) {
        // It wants to read no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to the command")?,
    }
    drop(input);
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "the command for event {name} ended with {status}");
    Ok(())
}

/// Under its name when all of it is written. Events of one name, of several senders or of one that was started again,
/// get names of their own: none replaces another.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let partial = folder.join(format!(".{name}.part"));
    let mut path = folder.join(name);
    for n in 2.. {
        if !path.exists() {
            break;
        }
        path = folder.join(format!("{name}.{n}"));
    }
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, &path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn told(counters: &Counters, time: Duration) -> String {
    let lost = counters.timed_out + counters.evicted;
    let (rate, dropped) = (show::rate(counters.placed_bytes, time), counters.dropped_of_any_cause());
    format!("{} events, {lost} incomplete, {dropped} segments dropped, {rate}", counters.complete)
}

/// To standard error, whether anybody reads it or not.
fn say(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

fn report(args: &Args, receiver: &Receiver, delivered: u64, time: Duration) -> anyhow::Result<()> {
    let reassembler = receiver.reassembler();
    let counters = reassembler.counters();
    let missing: u64 = reassembler
        .sources()
        .flat_map(|source| source.streams().map(|s| s.missing).collect::<Vec<_>>())
        .sum();
    let dropped = Cause::ALL.map(|cause| (cause.name(), counters.dropped(cause)));
    if args.json && !args.stdout {
        let dropped: serde_json::Map<_, _> =
            dropped.map(|(name, n)| (name.to_owned(), n.into())).into_iter().collect();
        let report = serde_json::json!({
            "event": "end",
            "seconds": time.as_secs_f64(),
            "segments": counters.segments,
            "bytes": counters.bytes,
            "placed_bytes": counters.placed_bytes,
            "events": delivered,
            "timed_out": counters.timed_out,
            "evicted": counters.evicted,
            "open": reassembler.open_events(),
            "missing": args.consecutive.then_some(missing),
            "dropped": dropped,
        });
        return Ok(show::line(&report.to_string())?);
    }
    let causes =
        dropped.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let missing = if args.consecutive { format!(", {missing} of which nothing came") } else { String::new() };
    let (told, open) = (told(counters, time), reassembler.open_events());
    say(&format!("{told}{causes}, {open} still incomplete{missing}"));
    Ok(())
}
