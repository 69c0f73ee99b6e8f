//! The counters of a worker as OpenMetrics text for Prometheus.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ejfat::reassembly::{Counters, Eviction, SegmentDropCause};
use ejfat_udp::{PortCounters, Receiver};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// The most that shown counters are old while the worker runs.
const EVERY: Duration = Duration::from_millis(100);

/// An address, and its data id if streams are told apart. An address of `None` stands for all other senders.
type Sender = (Option<IpAddr>, Option<u16>);

/// A copy of the counters. The worker's loop makes it, and scrapes read it.
#[derive(Debug, Default)]
struct Snapshot {
    total: Counters,
    /// The counters of each sender that the reassembler tells apart.
    senders: Vec<(Sender, Counters)>,
    ports: Vec<PortCounters>,
    missing: u64,
    kernel_drops: u64,
    delivered: u64,
    open: u32,
    memory: u64,
    most_memory: u64,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Arc<Snapshot>>>);

impl Shared {
    /// Returns the newest snapshot. The lock is held only briefly, so the worker, which needs it to show a new
    /// snapshot, does not wait for a scrape.
    fn latest(&self) -> Arc<Snapshot> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters as the worker updates them.
pub(super) struct Exposed {
    shared: Shared,
    next: Instant,
}

impl Exposed {
    /// Returns the counters, and the function that turns them into text.
    pub(super) fn new() -> (Self, impl Fn() -> String + Send + Sync + 'static) {
        let shared = Shared::default();
        let mut registry = Registry::with_prefix("naa_ejfat");
        registry.register_collector(Box::new(shared.clone()));
        let exposed = Self { shared, next: Instant::now() };
        let text = move || {
            let mut out = String::new();
            // Writing to a string cannot fail.
            let _ = text::encode(&mut out, &registry);
            out
        };
        (exposed, text)
    }

    pub(super) fn show(&mut self, receiver: &Receiver, delivered: u64) -> anyhow::Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + EVERY;
        let reassembler = receiver.reassembler();
        let with_segments = reassembler.senders().filter(|sender| sender.counters.segments > 0);
        let mut snapshot = Snapshot {
            total: reassembler.counters().clone(),
            kernel_drops: receiver.kernel_drops()?,
            ports: receiver.port_counters(),
            delivered,
            open: reassembler.open_events(),
            memory: reassembler.touched_memory(),
            most_memory: reassembler.config().memory,
            ..Snapshot::default()
        };
        for sender in with_segments {
            snapshot.missing += sender.streams().map(|stream| stream.missing).sum::<u64>();
            snapshot.senders.push(((sender.address, sender.data_id), sender.counters));
        }
        *self.shared.lock() = Arc::new(snapshot);
        Ok(())
    }
}

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shown = &*self.latest();
        totals(&mut encoder, shown)?;
        by_sender(&mut encoder, shown)?;
        let gauges = [
            ("open_events", "Events that are incomplete and not given up", u64::from(shown.open)),
            ("memory_bytes", "Memory that segments of events touched", shown.memory),
            ("memory_limit_bytes", "The most of it", shown.most_memory),
            ("missing_events", "Gaps in consecutive numbers, with --consecutive", shown.missing),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

fn totals(encoder: &mut DescriptorEncoder<'_>, shown: &Snapshot) -> fmt::Result {
    let total = &shown.total;
    let counters = [
        ("segments", "Datagrams received", total.segments),
        ("received_bytes", "Bytes of datagrams received", total.bytes),
        (
            "kernel_drops",
            "Datagrams that the kernel dropped at least, because the receive buffer was full; a merged batch counts once",
            shown.kernel_drops,
        ),
        ("placed_bytes", "Bytes of events received", total.placed_bytes),
        ("delivered_events", "Events handed over", shown.delivered),
    ];
    for (name, help, value) in counters {
        ConstCounter::new(value).encode(family(encoder, name, help)?)?;
    }
    let mut dropped = family(encoder, "segments_dropped", "Datagrams not used, by cause")?;
    for cause in SegmentDropCause::ALL {
        value(&mut dropped, &[("cause", cause.name())], total.dropped(cause))?;
    }
    let mut events = family(encoder, "events", "Events that were begun and ended, by how")?;
    ends(total).into_iter().try_for_each(|(end, count)| value(&mut events, &[("end", end)], count))?;
    let mut evicted = family(encoder, "evicted_events", "Events that made room for others, by the limit")?;
    Eviction::ALL
        .into_iter()
        .try_for_each(|by| value(&mut evicted, &[("by", by.name())], total.evicted(by)))?;
    let mut ports = family(encoder, "port_datagrams", "Datagrams received, by address")?;
    shown.ports.iter().try_for_each(|of| value(&mut ports, &[("address", &of.at.to_string())], of.datagrams))
}

fn by_sender(encoder: &mut DescriptorEncoder<'_>, shown: &Snapshot) -> fmt::Result {
    let senders: Vec<_> = shown.senders.iter().map(|(address, counters)| (name(address), counters)).collect();
    let mut segments = family(encoder, "sender_segments", "Datagrams received, by sender")?;
    for (sender, counters) in &senders {
        value(&mut segments, &[("sender", sender.as_str())], counters.segments)?;
    }
    let help = "Datagrams not used, by sender and cause";
    let mut dropped = family(encoder, "sender_segments_dropped", help)?;
    for (sender, counters) in &senders {
        for cause in SegmentDropCause::ALL.into_iter().filter(|&cause| counters.dropped(cause) > 0) {
            let labels = [("sender", sender.as_str()), ("cause", cause.name())];
            value(&mut dropped, &labels, counters.dropped(cause))?;
        }
    }
    let mut events = family(encoder, "sender_events", "Events that ended, by sender and how")?;
    for (sender, counters) in &senders {
        for (end, count) in ends(counters) {
            value(&mut events, &[("sender", sender.as_str()), ("end", end)], count)?;
        }
    }
    Ok(())
}

fn family<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn value<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    count: u64,
) -> fmt::Result {
    ConstCounter::new(count).encode(family.encode_family(labels)?)
}

fn ends(counters: &Counters) -> [(&'static str, u64); 4] {
    [
        ("complete", counters.complete),
        ("timed_out", counters.timed_out),
        ("evicted", counters.evicted_for_any_reason()),
        ("abandoned", counters.abandoned),
    ]
}

fn name((address, data_id): &Sender) -> String {
    match (address, data_id) {
        (None, _) => "unknown".into(),
        (Some(address), None) => address.to_string(),
        (Some(address), Some(data_id)) => format!("{address}/{data_id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer of a scrape that fails if the scrape keeps the worker from showing a new snapshot.
    struct Scraper(Shared);

    impl fmt::Write for Scraper {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            self.0.0.try_lock().map(drop).map_err(|_| fmt::Error)
        }
    }

    #[test]
    fn a_scrape_does_not_hold_up_the_worker() {
        let shared = Shared::default();
        let mut registry = Registry::with_prefix("naa_ejfat");
        registry.register_collector(Box::new(shared.clone()));
        text::encode(&mut Scraper(shared), &registry).expect("the lock is free while text is written");
    }
}
