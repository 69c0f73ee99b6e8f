//! `naa ping` measures how long a call takes that computes nothing.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use mrsp::{U24, builtin, region::MAX_REGION_BYTES};
use naa_host::{Param, Session};

use crate::{peer, provider, show, signals, size};

/// Measure round trips to an accelerator
///
/// Calls the function that does nothing: a message out, computed on, a message back.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  naa ping --server 10.9.0.2\n  \
    naa ping --server 10.9.0.2 -c 100000 -s 4K --wait spin      lowest latency, takes a core\n  \
    naa ping --server 10.9.0.2 -c 0 -i 1                          once a second until Ctrl-C")]
pub(crate) struct Args {
    #[command(flatten)]
    peer: peer::Args,
    #[command(flatten)]
    waiting: peer::WaitArgs,
    /// Calls; 0: until Ctrl-C
    #[arg(short, long, default_value_t = 1000)]
    count: u64,
    /// Bytes sent with each call, and received with its answer; K, M and G are KiB, MiB and GiB; at most 2G
    #[arg(short, long, value_name = "BYTES", default_value = "64", value_parser = size)]
    size: u64,
    /// Seconds between calls
    #[arg(short, long, value_name = "SECONDS", default_value = "0", value_parser = pause)]
    interval: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The longest latency that is recorded, in nanoseconds; longer calls count as this long.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies in microseconds.
#[derive(Debug, serde::Serialize)]
struct Report {
    server: String,
    device: String,
    provider: &'static str,
    why: String,
    local: std::net::IpAddr,
    path_mtu: u32,
    size: u64,
    count: u64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = size::bytes(text).filter(|bytes| (1..=MAX_REGION_BYTES).contains(bytes));
    bytes.ok_or_else(|| "write a number of bytes from 1 to 2G, such as 4096, 64K or 1M".into())
}

fn pause(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "write a number of seconds, such as 0.5".into())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (device, server, config) = args.waiting.open(&args.peer)?;
    let size = usize::try_from(args.size)?;
    provider::report(device.why(), device.is_surprising());
    let waiting = show::waiting(format!("connecting to {server}"));
    let mut session = Session::connect(&device, server, &[Param::in_out(size)], &config)?;
    drop(waiting);
    let until = if args.count == 0 { ": Ctrl-C ends it" } else { "" };
    let waiting = show::waiting(format!("calling {server}{until}"));
    signals::on_terminate(|| {})?;
    // The histogram counts nanoseconds with three digits.
    let mut times = Histogram::<u64>::new_with_max(LONGEST, 3).context("cannot count latencies")?;
    while (args.count == 0 || times.len() < args.count) && !signals::is_ending() {
        if !times.is_empty() && !args.interval.is_zero() {
            std::thread::sleep(args.interval);
        }
        times.saturating_record(once(&mut session)?);
    }
    drop(waiting);
    let path_mtu = session.path_mtu();
    session.finalize()?;
    let us = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
    let report = Report {
        server: server.to_string(),
        device: device.describe().to_owned(),
        provider: device.provider(),
        why: device.why().to_owned(),
        local: device.address(),
        path_mtu,
        size: args.size,
        count: times.len(),
        min_us: times.min() as f64 / 1e3,
        p50_us: us(0.5),
        p90_us: us(0.9),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: times.max() as f64 / 1e3,
    };
    report.print(args.json)
}

/// Makes one call, and returns its time in nanoseconds.
fn once(session: &mut Session) -> anyhow::Result<u64> {
    let start = Instant::now();
    session.invoke(builtin::NOTHING, U24::ZERO)?;
    let _ = session.wait()?.into_result()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

impl Report {
    fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return Ok(show::line(&serde_json::to_string(self)?)?);
        }
        show::line(&format!(
            "{} calls of {} to {} from {}, path MTU {}",
            self.count,
            show::bytes(self.size),
            self.server,
            self.local,
            self.path_mtu
        ))?;
        let columns = [
            ("min", self.min_us),
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p999_us),
            ("max", self.max_us),
        ];
        let cells = columns.map(|(name, us)| format!("{name} {us:.1} us"));
        Ok(show::line(&cells.join("  "))?)
    }
}
