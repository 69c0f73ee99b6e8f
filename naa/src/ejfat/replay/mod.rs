//! `naa ejfat replay`.

mod fresh;
mod timing;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat_udp::{is_refusal, may_be_earlier, report_refusals, wait_for_refusals};

use super::{
    capture::{CaptureSelection, Datagram, Kind, Packets, look, parts},
    send::{LATE, check_taken},
    status_line::StatusLine,
    values::{gigabits, ip_and_port},
};
use crate::{Usage, show, signals};
use fresh::FreshTicks;
use timing::Timing;

/// The number of sockets. Flows of the capture are spread over them by their source ports.
const SOCKETS: usize = 16;
const UDP_HEADER: usize = 8;

/// Send the segments of a capture again
///
/// To a worker or a load balancer, with the capture's timing. Only EJFAT's datagrams that were captured whole are sent,
/// under this machine's address; the others are counted. Event numbers stay as they are: what a worker gets twice within
/// its time-out, under one number and tick, are duplicates to it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa ejfat replay run.pcap --to 10.9.0.2:19522               as it was
  naa ejfat replay run.pcap --to 10.9.0.2 --speed 2           to the capture's ports
  naa ejfat replay run.pcap --to 10.9.0.2 --rate 5 --repeat 100 --fresh-ticks
  naa ejfat replay run.pcap --to 10.9.0.1:19522 --sync 10.9.0.1:19531 --fresh-ticks
                          through a load balancer: its tables go by the tick of now")]
pub(super) struct Args {
    #[command(flatten)]
    source: CaptureSelection,
    /// Where to; each datagram to the port it went to, unless told
    #[arg(long, value_name = "ADDR[:PORT]")]
    to: String,
    /// Send sync messages as well, to here; else they are left out
    #[arg(long, value_name = "ADDR[:PORT]")]
    sync: Option<String>,
    /// So many times as fast as the capture; 0: as fast as it goes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    speed: f64,
    /// Gbit/s on the wire instead of the capture's timing; 0: as fast as it goes
    #[arg(long, value_name = "GBPS", value_parser = gigabits, conflicts_with = "speed")]
    rate: Option<f64>,
    /// Send all of it so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Ticks of now, in microseconds, instead of the capture's; equal ones stay equal
    #[arg(long)]
    fresh_ticks: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|&factor: &f64| factor == 0.0 || (1e-6..=1e6).contains(&factor));
    factor.ok_or_else(|| "write a factor, such as 0.5 or 10, or 0".into())
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
struct ReplayCounters {
    segments: u64,
    sync: u64,
    /// Payload bytes of UDP: EJFAT's headers and data.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
struct LeftOut {
    sync: u64,
    cut_short: u64,
    malformed: u64,
    other: u64,
}

struct Replay {
    to: (IpAddr, Option<u16>),
    sync: Option<(IpAddr, Option<u16>)>,
    sockets: Vec<UdpSocket>,
    sync_socket: Option<UdpSocket>,
    timing: Timing,
    fresh: Option<FreshTicks>,
    any: bool,
    scratch: Vec<u8>,
    sent: ReplayCounters,
    left_out: LeftOut,
    /// The number of refusals (ICMP "port unreachable") that came.
    refused: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.repeat > 1 && args.source.is_stdin() {
        return Err(Usage::error("standard input can be read once only: --repeat wants a file"));
    }
    signals::on_terminate(|| {})?;
    let mut replay = Replay::new(args)?;
    let mut line = StatusLine::new(args.json);
    let begin = Instant::now();
    let (mut packets, mut rounds) = (Packets::default(), 0);
    while rounds < args.repeat && !signals::is_ending() {
        let mut capture = args.source.open()?;
        replay.begin();
        while !signals::is_ending() && capture.next(|datagram| replay.datagram(datagram))? {
            let sent = replay.sent;
            line.update(|| {
                format!("{} segments, {}", sent.segments, show::rate(sent.bytes, begin.elapsed()))
            });
        }
        packets = capture.packets();
        rounds += 1;
    }
    drop(line);
    let time = begin.elapsed();
    if replay.refused == 0 {
        replay.refused = wait_for_refusals(replay.sockets.iter().chain(&replay.sync_socket), LATE)?;
    }
    report(args, &replay, packets, rounds, time)?;
    check_taken(&args.to, replay.refused)
}

impl Replay {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let to = ip_and_port(&args.to)?;
        let sync = args.sync.as_deref().map(ip_and_port).transpose()?;
        let timing = match args.rate {
            Some(rate) => Timing::rate(rate),
            None => Timing::Capture { speed: args.speed, first: None },
        };
        Ok(Self {
            to,
            sync,
            sockets: (0..SOCKETS).map(|_| socket(to.0)).collect::<Result<_, _>>()?,
            sync_socket: sync.map(|(ip, _)| socket(ip)).transpose()?,
            timing,
            fresh: args.fresh_ticks.then(FreshTicks::default),
            any: args.source.names_ports(),
            scratch: Vec::new(),
            sent: ReplayCounters::default(),
            left_out: LeftOut::default(),
            refused: 0,
        })
    }

    /// Prepares for sending the capture from its beginning.
    fn begin(&mut self) {
        self.timing.begin();
        if let Some(fresh) = &mut self.fresh {
            fresh.begin();
        }
    }

    fn datagram(&mut self, datagram: &Datagram<'_>) -> anyhow::Result<()> {
        parts(datagram, self.any).try_for_each(|part| self.part(&part))
    }

    fn part(&mut self, part: &Datagram<'_>) -> anyhow::Result<()> {
        let kind = look(part, self.any);
        match &kind {
            Kind::Malformed => self.left_out.malformed += 1,
            Kind::Other => self.left_out.other += 1,
            _ if part.bytes.len() < part.len => self.left_out.cut_short += 1,
            Kind::Sync(_) if self.sync.is_none() => self.left_out.sync += 1,
            Kind::Segment(_) | Kind::Sync(_) => self.send(part, &kind)?,
        }
        Ok(())
    }

    fn send(&mut self, part: &Datagram<'_>, kind: &Kind) -> anyhow::Result<()> {
        let ip_header = if self.to.0.is_ipv4() { 20 } else { 40 };
        if !self.timing.wait(part.time, part.len + UDP_HEADER + ip_header) {
            return Ok(());
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(part.bytes);
        if let Some(fresh) = &mut self.fresh {
            fresh.rewrite(kind, &mut self.scratch);
        }
        let is_sync = matches!(kind, Kind::Sync(_));
        let ((ip, port), socket) = match (is_sync, self.sync, &self.sync_socket) {
            (true, Some(to), Some(socket)) => (to, socket),
            _ => (self.to, &self.sockets[usize::from(part.from.port()) % SOCKETS]),
        };
        let to = SocketAddr::new(ip, port.unwrap_or(part.to.port()));
        let len = self.scratch.len();
        let mut sent = socket.send_to(&self.scratch, to);
        if sent.as_ref().is_err_and(may_be_earlier) {
            self.refused += u64::from(sent.as_ref().is_err_and(is_refusal));
            sent = socket.send_to(&self.scratch, to);
        }
        match sent {
            Err(error) if is_refusal(&error) => self.refused += 1,
            sent => drop(sent.with_context(|| format!("cannot send {len} bytes to {to}"))?),
        }
        if is_sync {
            self.sent.sync += 1;
        } else {
            self.sent.segments += 1;
            self.sent.bytes += len as u64;
        }
        Ok(())
    }
}

fn socket(to: IpAddr) -> anyhow::Result<UdpSocket> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let open = || {
        let socket = UdpSocket::bind((any, 0))?;
        report_refusals(&socket)?;
        Ok::<_, std::io::Error>(socket)
    };
    open().context("cannot open a UDP socket")
}

fn report(args: &Args, replay: &Replay, packets: Packets, rounds: u64, time: Duration) -> anyhow::Result<()> {
    let Replay { sent, left_out, .. } = replay;
    let ReplayCounters { segments, sync, bytes } = *sent;
    if args.json {
        let seconds = time.as_secs_f64();
        let report = serde_json::json!({
            "to": args.to,
            "rounds": rounds,
            "segments": segments,
            "sync": sync,
            "bytes": bytes,
            "seconds": seconds,
            "gbits_per_second": bytes as f64 * 8e-9 / seconds.max(1e-9),
            "refused": replay.refused,
            "left_out": left_out,
            "capture": packets,
        });
        return Ok(show::line(&report.to_string())?);
    }
    let mut text = format!(
        "{segments} segments to {}: {}, {}; {sync} sync messages",
        args.to,
        show::bytes(bytes),
        show::rate(bytes, time)
    );
    let causes = [
        (left_out.sync, "sync messages, for want of --sync"),
        (left_out.cut_short, "not captured whole"),
        (left_out.malformed, "malformed"),
        (left_out.other, "not EJFAT's"),
        (packets.fragments * rounds, "IP fragments"),
    ];
    let causes: Vec<_> = causes.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
    if !causes.is_empty() {
        text += &format!("; left out: {}", causes.join(", "));
    }
    Ok(show::line(&text)?)
}
