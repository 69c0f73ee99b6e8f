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
    encoding::DescriptorEncoder,
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use crate::metrics::families::{self, counters, family, metric};

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
        let text = families::text("naa_ejfat", shared.clone());
        (Self { shared, next: Instant::now() }, text)
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
            metric(&mut encoder, name, help, gauge)?;
        }
        Ok(())
    }
}

fn totals(encoder: &mut DescriptorEncoder<'_>, shown: &Snapshot) -> fmt::Result {
    let total = &shown.total;
    for (name, help, value) in [
        ("segments", "Datagrams received", total.segments),
        ("received_bytes", "Bytes of datagrams received", total.bytes),
        (
            "kernel_drops",
            "Datagrams that the kernel dropped at least, because the receive buffer was full; a merged batch counts once",
            shown.kernel_drops,
        ),
        ("placed_bytes", "Bytes of events received", total.placed_bytes),
        ("delivered_events", "Events handed over", shown.delivered),
    ] {
        metric(encoder, name, help, ConstCounter::new(value))?;
    }
    let dropped = SegmentDropCause::ALL.map(|cause| (cause.name(), total.dropped(cause)));
    counters(encoder, "segments_dropped", "Datagrams not used, by cause", "cause", dropped)?;
    counters(encoder, "events", "Events that were begun and ended, by how", "end", ends(total))?;
    let help = "Events that made room for others, by the limit";
    let evicted = Eviction::ALL.map(|by| (by.name(), total.evicted(by)));
    counters(encoder, "evicted_events", help, "by", evicted)?;
    let ports = shown.ports.iter().map(|of| (of.at.to_string(), of.datagrams));
    counters(encoder, "port_datagrams", "Datagrams received, by address", "address", ports)
}

fn by_sender(encoder: &mut DescriptorEncoder<'_>, shown: &Snapshot) -> fmt::Result {
    let senders: Vec<_> = shown.senders.iter().map(|(address, counters)| (name(address), counters)).collect();
    let segments = senders.iter().map(|(sender, counters)| (sender, counters.segments));
    counters(encoder, "sender_segments", "Datagrams received, by sender", "sender", segments)?;
    let dropped = senders.iter().flat_map(|(sender, counters)| {
        let dropped = SegmentDropCause::ALL.map(|cause| (cause, counters.dropped(cause)));
        dropped.into_iter().filter(|(_, count)| *count > 0).map(move |(cause, count)| {
            ([("sender", sender.as_str()), ("cause", cause.name())], ConstCounter::new(count))
        })
    });
    family(encoder, "sender_segments_dropped", "Datagrams not used, by sender and cause", dropped)?;
    let events = senders.iter().flat_map(|(sender, counters)| {
        let event =
            move |(end, count)| ([("sender", sender.as_str()), ("end", end)], ConstCounter::new(count));
        ends(counters).map(event)
    });
    family(encoder, "sender_events", "Events that ended, by sender and how", events)
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
    use prometheus_client::{encoding::text, registry::Registry};

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
