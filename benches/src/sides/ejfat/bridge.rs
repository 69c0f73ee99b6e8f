//! Measures a bridge, and the times that events take through it.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat::{
    bridge::{self, Histogram},
    listen::Listen,
    reassembly,
    ring::DeliveryMode,
};
use ejfat_bridge::{Bridge, BridgeConfig, BridgeHandle, Snapshot};
use naa_server::{Config, Server, functions};

use super::{
    BUFFER, BridgeDelivery, Figure, Load, Part, Source, Timed,
    control::{Ask, Latencies, SinkReport, answer_with},
    sink::TIMEOUT,
    source::GIB,
};
use crate::{
    side::{Effort, Measure, Work},
    sides::Running,
};

/// The number of open events, which is the default of `naa bridge`.
const OPEN: u32 = 1024;
const STREAM_SENDS: u32 = 1024;
/// The longest wait for a report of a bridge, which reports its counters ten times a second.
const FRESH: Duration = Duration::from_secs(1);
const SETTLED: Duration = Duration::from_secs(2);

/// Returns the path of the socket at which workers of this machine subscribe, for the bridge with this address.
pub(super) fn socket(bridge: SocketAddr) -> PathBuf {
    naa_files::temporary().join(format!("naa-bench-{bridge}"))
}

/// Segments come to the UDP port with the number of the TCP port that is returned, and workers to the service of that
/// number.
pub(in crate::sides) fn serve(delivery: BridgeDelivery) -> anyhow::Result<(SocketAddr, Running)> {
    let watched = Arc::<OnceLock<BridgeHandle>>::default();
    let handle = watched.clone();
    let mut before = bridge::Counters::default();
    let address = answer_with(move |ask| {
        let handle = handle.get().context("there is no bridge yet")?;
        let mut report = SinkReport::now()?;
        match ask {
            Ask::Begin(_) => before = settled(handle).events,
            Ask::Latencies => report.latencies = latencies(&fresh(handle).events, &before),
            Ask::End { .. } | Ask::To(_) | Ask::Look => {}
        }
        Ok(report)
    })?;
    let bridge = Bridge::new(config(address, delivery), std::process::id().into())?;
    watched.get_or_init(|| bridge.handle());
    let mut config = Config::new(address);
    config.stream_sends = STREAM_SENDS;
    let registry = functions::registry([Bridge::function()])?;
    let server = Server::start_with(config, registry, Some(Box::new(bridge)))?;
    Ok((address, Box::new(server)))
}

fn config(address: SocketAddr, delivery: BridgeDelivery) -> BridgeConfig {
    let dispatch = bridge::Config::default();
    let reassembly = reassembly::Config {
        slots: OPEN + dispatch.most_waiting,
        max_open: OPEN,
        max_open_per_source: OPEN / 2,
        timeout: TIMEOUT,
        ..reassembly::Config::default()
    };
    BridgeConfig {
        buffer: Some(BUFFER),
        reassembly,
        dispatch,
        placing: if delivery == BridgeDelivery::Cut { DeliveryMode::Cut } else { DeliveryMode::Store },
        local: (delivery == BridgeDelivery::Shared).then(|| socket(address)),
        ..BridgeConfig::new(vec![Listen::Port(address)])
    }
}

/// Returns the counters of the bridge.
fn fresh(handle: &BridgeHandle) -> Snapshot {
    let (old, begin) = (handle.snapshot().now, Instant::now());
    loop {
        let snapshot = handle.snapshot();
        if snapshot.now != old || begin.elapsed() > FRESH {
            return snapshot;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the counters of the bridge when no event is open or on its way.
fn settled(handle: &BridgeHandle) -> Snapshot {
    let begin = Instant::now();
    loop {
        let snapshot = fresh(handle);
        let is_busy =
            snapshot.events.open > 0 || snapshot.workers.iter().any(|worker| worker.stats.outstanding > 0);
        if !is_busy || begin.elapsed() > SETTLED {
            return snapshot;
        }
    }
}

/// Returns the times of the events that were delivered since the counters had the values `before`.
fn latencies(now: &bridge::Counters, before: &bridge::Counters) -> Option<Latencies> {
    Some(Latencies {
        since_first_segment: latency(&now.latency.since(&before.latency))?,
        since_last_segment: latency(&now.delivery.since(&before.delivery))?,
    })
}

/// Returns the p50 and the p99 in microseconds. They are as exact as the steps of the histograms.
fn latency(of: &Histogram) -> Option<[f64; 2]> {
    let micros = |part| of.quantile(part).map(|nanos| nanos as f64 / 1e3);
    Some([micros(0.5)?, micros(0.99)?])
}

/// A rate in bytes per second that each way to a worker can carry.
const RATE: f64 = GIB;
const TRIES: u32 = 3;

/// Measures the microseconds until events are delivered.
#[derive(Debug)]
pub(in crate::sides) struct Latency {
    source: Source,
    timed: Timed,
    part: Part,
}

impl Latency {
    pub(in crate::sides) fn connect(
        load: Load,
        timed: Timed,
        part: Part,
        bridge: SocketAddr,
        worker: SocketAddr,
    ) -> anyhow::Result<Self> {
        Ok(Self { source: Source::bridged(load, Figure::Bytes, bridge, worker)?, timed, part })
    }
}

impl Measure for Latency {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let rate = match self.timed {
            Timed::SinceFirst => RATE,
            Timed::SinceLast => self.source.highest(effort)? / 2.0,
        };
        let mut tries = 0;
        loop {
            tries += 1;
            self.source.settle()?;
            let trial = self.source.send(Some(rate), effort.seconds)?;
            let latencies = self.source.latencies()?.context("no event was delivered")?;
            let [p50, p99] = match self.timed {
                Timed::SinceFirst => latencies.since_first_segment,
                Timed::SinceLast => latencies.since_last_segment,
            };
            // A busy machine loses some events at any rate. The latency of the others counts nevertheless.
            if !trial.lost || tries == TRIES {
                let value = if self.part == Part::P50 { p50 } else { p99 };
                return Ok(Work { value, amount: trial.arrived * effort.seconds / GIB });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_what_came_since() {
        let mut before = Histogram::default();
        (0..1000).for_each(|_| before.add(5_000_000));
        let mut after = before.clone();
        assert_eq!(latency(&after.since(&before)), None);
        (0..1000).for_each(|n| after.add(n * 1000));
        let [p50, p99] = latency(&after.since(&before)).unwrap();
        assert!((499.0..540.0).contains(&p50) && (989.0..1065.0).contains(&p99), "{p50} {p99}");
    }
}
