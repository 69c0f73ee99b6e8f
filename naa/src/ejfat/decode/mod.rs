//! `naa ejfat decode`.

mod decoded_event;
mod packet;
mod summary;

use std::io::{BufWriter, StdoutLock, Write, stdout};

use super::capture::{Capture, CaptureSelection, Datagram, Kind, Packets, look, parts};
use packet::Rows;
use summary::Summary;

/// Show what of EJFAT is in a capture
///
/// A line for each segment and sync message, of every UDP port, over IPv4 and IPv6: Ethernet with VLAN tags, Linux cooked,
/// raw IP, loopback. Trains of segments that the kernel handed to the capture as one packet are taken apart. Segments
/// behind a load balancer bear no mark: they are taken for such where their header makes sense, and on ports named by
/// --port always. The slot of a load balancer's calendar is made of SLOT SELECT, usually its low 9 bits, and the worker's
/// UDP port of PORT SELECT. --summary tells instead what became of each event: which a worker would have got complete,
/// how many holes the others have, and what came twice or made no sense.
///
/// Times are seconds since the first datagram. With --json each line is an object: `kind` is segment, sync, event or end;
/// `unix_ns` is a time in UNIX nanoseconds.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  tcpdump -i eth0 -w run.pcap udp port 19522
  naa ejfat decode run.pcap
  naa ejfat decode run.pcap --summary         events: complete, or with how many holes
  naa ejfat decode run.pcap --json | jq 'select(.kind == \"segment\" and .data_id == 7)'
  tcpdump -i eth0 -U -w - udp | naa ejfat decode -                      as they come

Headers alone will do (tcpdump -s 128), but not on the machine that sends: there the
kernel hands trains of segments to the capture, of which only the first header is left.")]
pub(super) struct Args {
    #[command(flatten)]
    source: CaptureSelection,
    /// A line per event instead
    #[arg(long)]
    summary: bool,
    /// An event gets no segment for so long, then it is given up; with --summary
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
}

/// Counts of datagrams by kind.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
struct DatagramCounters {
    segments: u64,
    sync: u64,
    /// Datagrams that begin like a header of EJFAT but have no valid one.
    malformed: u64,
    other: u64,
    /// Packets of the capture that held several segments.
    merged: u64,
    /// Segments that were not captured as a whole.
    cut_short: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut capture = args.source.open()?;
    let mut out = Out { to: BufWriter::new(stdout().lock()), at_once: args.source.is_stdin() };
    let mut tally = DatagramCounters::default();
    let mut rows = Rows::new(args.json);
    let mut summary = args.summary.then(|| Summary::new(args.timeout)).transpose()?;
    let any = args.source.names_ports();
    let mut begun = None;
    loop {
        let more = capture.next(|datagram| {
            let first = *begun.get_or_insert(datagram.time);
            let parts = parts(datagram, any);
            tally.merged += u64::from(parts.len() > 1);
            for part in parts {
                let kind = look(&part, any);
                tally.count(&part, &kind);
                match &mut summary {
                    Some(summary) => summary.see(&part, &kind),
                    None => out.lines(rows.lines(first, &part, &kind))?,
                }
            }
            Ok(())
        })?;
        if !more {
            break;
        }
    }
    if let Some(summary) = summary {
        out.lines(Some(summary.text(begun.unwrap_or_default(), args.json)?))?;
    }
    out.lines(Some(end(args, &capture, &tally)))?;
    Ok(out.to.flush()?)
}

struct Out<'a> {
    to: BufWriter<StdoutLock<'a>>,
    at_once: bool,
}

impl Out<'_> {
    fn lines(&mut self, lines: Option<String>) -> std::io::Result<()> {
        let Some(lines) = lines.filter(|lines| !lines.is_empty()) else { return Ok(()) };
        writeln!(self.to, "{lines}")?;
        if self.at_once { self.to.flush() } else { Ok(()) }
    }
}

impl DatagramCounters {
    fn count(&mut self, datagram: &Datagram<'_>, kind: &Kind) {
        let counter = match kind {
            Kind::Segment(_) => &mut self.segments,
            Kind::Sync(_) => &mut self.sync,
            Kind::Malformed => &mut self.malformed,
            Kind::Other => &mut self.other,
        };
        *counter += 1;
        self.cut_short += u64::from(matches!(kind, Kind::Segment(_)) && datagram.bytes.len() < datagram.len);
    }
}

fn end(args: &Args, capture: &Capture, tally: &DatagramCounters) -> String {
    let packets = capture.packets();
    if args.json {
        let mut end = serde_json::json!({ "kind": "end", "cut_off": capture.is_cut_off() });
        for part in [serde_json::to_value(packets), serde_json::to_value(tally)] {
            if let (Some(end), Ok(serde_json::Value::Object(part))) = (end.as_object_mut(), part) {
                end.extend(part);
            }
        }
        return end.to_string();
    }
    let Packets { packets, fragments, not_udp, unknown_link, left_out, .. } = packets;
    let DatagramCounters { segments, sync, malformed, other, merged, cut_short } = *tally;
    let mut text = format!("{segments} segments and {sync} sync messages in {packets} packets");
    let besides = [
        (malformed, "malformed headers"),
        (other, "other datagrams"),
        (fragments, "IP fragments, not decoded"),
        (not_udp, "packets that are not UDP"),
        (unknown_link, "packets of unknown link types"),
        (left_out, "datagrams elsewhere"),
        (merged, "packets of several segments"),
        (cut_short, "segments not captured whole"),
    ];
    for (count, what) in besides.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    if capture.is_cut_off() {
        text += "; the capture ends in the middle of a packet";
    }
    text
}
