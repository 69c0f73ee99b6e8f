//! `naa ejfat recv`.

mod report;
mod settings;

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use ejfat::listen::PortChoice;
use ejfat_udp::{Gauge, ReceivedEvent, Receiver};

use super::{
    exposed::Exposed,
    limits::Limits,
    sink::{EventSink, FolderSink, Nowhere, Pipe, Shell, StandardOutput},
    site::{self, Joined},
    status_line::StatusLine,
    values::{addresses, memory, report_buffer, report_skipped, size, wanted_seconds},
};
use crate::{metrics, show, signals};
pub(crate) use report::port;
use report::{report, summary};

/// Receive events, and write them to files, standard output, a named pipe or a command
///
/// Segments may come in any order, any number of times, with the load balancer's header or without. Events that stay
/// incomplete are counted, never written. What the command line leaves open comes from E2SAR's INI file (--ini), if there
/// is one: general: useCP; data-plane: portRange, eventTimeoutMS, rcvSocketBufSize, periodMS; pid: weight, min_factor,
/// max_factor. What else E2SAR knows is ignored, with a warning where that makes a difference.
///
/// With an EJFAT URI (--uri or EJFAT_URI) it registers as a worker at the control plane, which then lets the load balancer send
/// events to it, and reports ten times a second how full its buffers are. If the control plane cannot be reached any more, it tries
/// again, and goes on receiving meanwhile. If the reservation ended or its token was revoked, it ends with status 1. At its end by
/// Ctrl-C or --for it drains: it takes events until none is sent to it any more, then deregisters. If it ends by
/// --events, it deregisters at once.
///
/// The report counts as incomplete the events of which some segments were lost. An event of which no segment arrived is in no
/// count: it shows in the segments that the load balancer sent to this worker (`naa lb counters`) minus those that it received. What
/// the kernel dropped is a lower bound, because datagrams that the kernel merged count once.
///
/// --metrics serves counters to Prometheus: naa_ejfat_segments_total, naa_ejfat_segments_dropped_total{cause=...},
/// naa_ejfat_events_total{end=...}, the same by sender, and gauges of open events and their memory.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa ejfat recv --listen 10.9.0.2 --out events        an event is a file: events/DATA_ID-EVENT
  naa ejfat recv --listen 10.9.0.2 --events 1 --stdout > event
  naa ejfat recv --listen 10.9.0.2:10000 --ports 4 --exec 'sha256sum > sums/$EJFAT_EVENT'
  naa ejfat recv --listen 10.9.0.2 --ports 16384-32767 --behind-lb --out events
                                                       all ports of a data plane, of any number of senders
  naa ejfat recv --listen 10.9.0.2 --pipe events.fifo & analyse < events.fifo
  naa ejfat recv --listen 10.9.0.2 --ini reassembler_config.ini --metrics 9100
                                                       and: curl http://127.0.0.1:9100/metrics
  EJFAT_URI=ejfat://TOKEN@cp:19523/lb/1?data=10.9.1.1 naa ejfat recv --out events
                                                       a worker of a load balancer")]
pub(crate) struct Args {
    /// Where segments come; ports 19522 and 16384 unless told, 0: any. With an EJFAT URI the option may be left out: then it is any
    /// port of the address from which this machine sends to the load balancer, and with --ports N any N consecutive ones
    #[arg(long, alias = "ip", value_name = "ADDR[:PORT]")]
    listen: Option<String>,
    /// So many ports from that one on, or the ports from A to B, up to 16384. Ports that are somebody else's are skipped,
    /// and named; the first of a number must be free. One thread reads all. A port costs an open file and a few KiB of
    /// the kernel's memory
    #[arg(long, value_name = "N|A-B")]
    ports: Option<PortChoice>,
    /// Settings as E2SAR's reassembler has them. The command line is stronger; a key that is unknown is an error
    #[arg(short, long, value_name = "FILE")]
    ini: Option<PathBuf>,
    /// Write each event to a file of this folder. It appears under its name when it is complete, and is on disk about a
    /// second later, at the latest when this command ends. Nothing is replaced: if anything has the name already, from
    /// another receiver too, the event becomes NAME.2 and so on, which is counted at the end
    #[arg(short, long, value_name = "DIR", group = "where")]
    out: Option<PathBuf>,
    /// Write events to standard output, one behind the other
    #[arg(long, group = "where")]
    stdout: bool,
    /// Write events to a named pipe, one behind the other; it is made unless it is there. Reception begins when somebody
    /// reads it, and waits while nobody reads on. A reader that goes away ends the worker
    #[arg(long, value_name = "PATH", group = "where")]
    pipe: Option<PathBuf>,
    /// Run a shell command for each event, which is its input; EJFAT_EVENT, EJFAT_DATA_ID and EJFAT_FROM name it. Commands run
    /// one at a time, and events wait in the receive buffer meanwhile. One that fails ends the worker with status 1: its event and
    /// those that wait are lost
    #[arg(long, value_name = "COMMAND", group = "where")]
    exec: Option<String>,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "N")]
    events: Option<u64>,
    /// End after so many seconds
    #[arg(short = 'd', long = "for", value_name = "SECONDS")]
    time: Option<f64>,
    /// Give an event up when it got no segment for so long; 500 unless told
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// The longest event that is taken; K and M are KiB and MiB
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = size)]
    max_event: u32,
    /// The most memory for events; G are GiB
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = memory)]
    memory: u64,
    #[command(flatten)]
    limits: Limits,
    /// Each sender numbers its events one by one and all come here: count those of which nothing came
    #[arg(long)]
    consecutive: bool,
    /// Receive buffer of each socket; 3M unless told
    #[arg(short, long, alias = "bufsize", value_name = "BYTES", value_parser = size)]
    buffer: Option<u32>,
    /// Serve counters at http://ADDR:PORT/metrics, to anybody who can reach it; a port alone is loopback's
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Print JSON: an object when it listens, one at the end
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Control plane")]
    site: site::WorkerArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (config, of_ini) = settings::config(args)?;
    let wanted = args.site.wanted(&of_ini)?;
    let end = args.time.map(|time| wanted_seconds(time, "--for")).transpose()?;
    // Opening a pipe waits for a reader, so no event is received before there is one.
    let mut sink = sink(args)?;
    let buffer = config.buffer.unwrap_or_default() as u64;
    let mut receiver = Receiver::new(config)?;
    report_skipped(receiver.skipped());
    report_buffer(receiver.buffer()? as u64, buffer);
    let mut exposed = expose(args)?;
    signals::on_terminate(|| {})?;
    let gauge = wanted.is_some().then(|| receiver.gauge()).transpose()?;
    let join = |(wanted, gauge): (_, Gauge)| {
        args.site.join(wanted, &of_ini, &receiver.addresses(), move || site::state(&gauge))
    };
    let mut joined = wanted.zip(gauge).map(join).transpose()?;
    ready(args, &receiver, joined.as_ref(), exposed.as_ref().map(|(_, at)| *at))?;
    if args.out.is_none() && args.pipe.is_none() && args.exec.is_none() && !args.stdout {
        show::note("events are counted and thrown away; give --out, --pipe, --exec or --stdout to keep them");
    }
    let begin = Instant::now();
    let mut line = StatusLine::new(args.json || args.stdout);
    let (mut delivered, mut problem, mut over) = (0, None, None);
    let mut undelivered = 0;
    let done = |delivered| args.events.is_some_and(|events| delivered >= events);
    while !done(delivered) {
        let is_over = signals::is_ending() || end.is_some_and(|end| begin.elapsed() >= end);
        // A registered worker goes on receiving until nothing is sent to it any more.
        if is_over && joined.as_mut().is_none_or(Joined::has_left) {
            break;
        }
        over = joined.as_mut().and_then(Joined::is_over);
        if over.is_some() {
            break;
        }
        let goes_on = || joined.is_some() || !signals::is_ending();
        let deliver = |event: ReceivedEvent<'_>| {
            if problem.is_some() {
                undelivered += 1;
            } else if !done(delivered) && goes_on() {
                problem = sink.event(&event).err();
                delivered += u64::from(problem.is_none());
                undelivered += u64::from(problem.is_some());
            }
        };
        receiver.poll(Duration::from_millis(100), deliver, |lost| tracing::debug!("incomplete: {lost:?}"))?;
        if problem.is_some() {
            break;
        }
        if let Some((exposed, _)) = &mut exposed {
            exposed.show(&receiver, delivered)?;
        }
        line.update(|| summary(receiver.reassembler().counters(), begin.elapsed()));
    }
    if over.is_none() && !done(delivered) {
        // The drain may end before the program notices that the reservation ended.
        over = joined.as_ref().and_then(Joined::ended);
    }
    drop(line);
    // Events that came before a failure are synced to disk, too.
    let finished = sink.finish();
    if let Some(problem) = problem {
        let (took, lost) = (show::count(delivered, "event"), show::count(undelivered, "event"));
        show::note(&format!(
            "{took} delivered before the failure, {lost} not delivered, {} open",
            receiver.reassembler().open_events()
        ));
        return Err(problem);
    }
    finished?;
    let worker = joined.as_ref().map(Joined::end_json);
    drop(joined);
    report(args, &receiver, (delivered, sink.numbered()), worker, begin.elapsed())?;
    over.map_or(Ok(()), |why| Err(anyhow::anyhow!("{why}")))
}

fn sink(args: &Args) -> anyhow::Result<Box<dyn EventSink>> {
    Ok(match (&args.out, &args.pipe, &args.exec) {
        (Some(folder), ..) => Box::new(FolderSink::new(folder)?),
        (_, Some(path), _) => {
            show::note(&format!("waiting for a reader of {}", path.display()));
            Box::new(Pipe::open(path)?)
        }
        (_, _, Some(command)) => Box::new(Shell(command.clone())),
        _ if args.stdout => Box::new(StandardOutput),
        _ => Box::new(Nowhere),
    })
}

fn expose(args: &Args) -> anyhow::Result<Option<(Exposed, SocketAddr)>> {
    let Some(address) = args.metrics else { return Ok(None) };
    let (exposed, text) = Exposed::new();
    Ok(Some((exposed, metrics::serve(address, text)?)))
}

fn ready(
    args: &Args,
    receiver: &Receiver,
    joined: Option<&Joined>,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    if args.json && !args.stdout {
        let (at, skipped) = (receiver.addresses(), receiver.skipped());
        let mut ready = serde_json::json!({ "event": "ready", "addresses": at, "skipped": skipped });
        if let Some(at) = metrics {
            ready["metrics"] = at.to_string().into();
        }
        if let Some(joined) = joined {
            ready["registered"] = joined.json();
        }
        return Ok(show::line(&ready.to_string())?);
    }
    let all = addresses(&receiver.addresses());
    let metrics = metrics.map_or(String::new(), |at| format!(", metrics at http://{at}/metrics"));
    let worker = joined.map_or(String::new(), |joined| format!(", {}", joined.line()));
    show::note(&format!("receiving at {all}{worker}{metrics}; Ctrl-C ends it"));
    Ok(())
}
