//! The counters of a bridge as OpenMetrics text for Prometheus.

use std::fmt;

use ejfat::{
    bridge::{EventLossCause, Histogram},
    reassembly::{Eviction, SegmentDropCause},
};
use ejfat_bridge::{BridgeHandle, Snapshot, WorkerReport};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::report;
use crate::{
    ejfat::losses,
    metrics::families::{self, counters, family, metric},
};

#[derive(Debug)]
struct BridgeCollector(BridgeHandle);

/// Returns a function that makes the text with the counters at the time of a request.
pub(super) fn text(handle: BridgeHandle) -> impl Fn() -> String + Send + Sync + 'static {
    families::text("naa_bridge", BridgeCollector(handle))
}

impl Collector for BridgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let of = self.0.snapshot();
        events(&mut encoder, &of)?;
        segments(&mut encoder, &of)?;
        workers(&mut encoder, &of.workers)?;
        histogram(&mut encoder, "latency", "First segment to delivered", &of.events.latency)?;
        histogram(&mut encoder, "held", "Delivered to given back", &of.events.held)
    }
}

fn events(encoder: &mut DescriptorEncoder<'_>, of: &Snapshot) -> fmt::Result {
    let events = &of.events;
    let ended = [
        ("released", events.released),
        ("held_by_ended", events.held_by_ended),
        ("incomplete", events.incomplete),
    ];
    let lost = EventLossCause::ALL.map(|cause| (cause.name(), events.lost(cause)));
    let too_long = (SegmentDropCause::TooLong.name(), of.too_long);
    let ends = ended.into_iter().chain(lost).chain([too_long]);
    counters(encoder, "events", "Events that ended, by how", "end", ends)?;
    let (lost_events, _) = report::lost(&naa_services::bridge_status(of));
    for (name, help, value) in [
        (
            "lost_events",
            "Events that no worker got, whatever the cause, or that a worker took along when it ended",
            lost_events,
        ),
        ("opened_events", "Events of which a segment came", events.opened),
        ("sent_events", "Events that workers were told of", events.sent),
        ("sent_bytes", "Their bytes", events.sent_bytes),
        (
            "delivered_again_events",
            "Deliveries to another worker of events that a worker had when it ended",
            events.delivered_again,
        ),
        ("delivered_events", "Events known to have arrived", events.delivered),
        ("wrong_credits", "Credit words that changed to what is no credit", events.wrong_credits),
        ("refused_workers", "Subscriptions that were refused", of.refused),
    ] {
        metric(encoder, name, help, ConstCounter::new(value))?;
    }
    for (name, help, value) in [
        ("open_events", "Events on their way, or waiting", events.open as f64),
        ("waiting_events", "Complete events without room", of.waiting as f64),
        (
            "waiting_again_events",
            "Events that a worker had when it ended, waiting to be delivered to another one",
            of.waiting_again as f64,
        ),
        ("fill_ratio", "Part of all rings in use", of.fill),
        ("memory_bytes", "Memory that segments touched", of.memory as f64),
    ] {
        metric(encoder, name, help, ConstGauge::new(value))?;
    }
    Ok(())
}

fn segments(encoder: &mut DescriptorEncoder<'_>, of: &Snapshot) -> fmt::Result {
    for (name, help, value) in [
        ("segments", "Datagrams received", of.reassembly.segments),
        ("received_bytes", "Bytes of datagrams received", of.reassembly.bytes),
        ("kernel_drops", "Datagrams that the kernel dropped: the receive buffer was full", of.kernel_drops),
    ] {
        metric(encoder, name, help, ConstCounter::new(value))?;
    }
    let status = naa_services::bridge_status(of);
    let lost = losses::datagrams(&status.reassembly.unwrap_or_default(), of.kernel_drops);
    let help = "Datagrams lost before they were part of an event";
    counters(encoder, "lost_datagrams", help, "cause", lost)?;
    let help = "Events that made room for others, by the limit";
    let evicted = Eviction::ALL.map(|by| (by.name(), of.reassembly.evicted(by)));
    counters(encoder, "evicted_events", help, "by", evicted)?;
    let ports = of.ports.iter().map(|port| (port.at.to_string(), port.datagrams));
    counters(encoder, "port_datagrams", "Datagrams received, by address", "address", ports)?;
    let dropped = SegmentDropCause::ALL.map(|cause| (cause.name(), of.reassembly.dropped(cause)));
    counters(encoder, "segments_dropped", "Datagrams not used, by cause", "cause", dropped)
}

fn workers(encoder: &mut DescriptorEncoder<'_>, workers: &[WorkerReport]) -> fmt::Result {
    let labels = |its: &WorkerReport| {
        [("worker", its.stats.id.number().to_string()), ("name", its.stats.name.to_string())]
    };
    let fill = workers.iter().map(|its| (labels(its), ConstGauge::new(its.stats.fill)));
    family(encoder, "worker_fill_ratio", "Part of a ring in use", fill)?;
    type Count = fn(&WorkerReport) -> u64;
    let counted: [(&str, &str, Count); 3] = [
        ("worker_sent_events", "Events that a worker was told of", |its| its.stats.sent),
        ("worker_released_events", "Events that it gave back", |its| its.stats.released),
        ("worker_wrong_credits", "Credit words of it that were none", |its| its.stats.wrong_credits),
    ];
    counted.into_iter().try_for_each(|(name, help, value)| {
        let counts = workers.iter().map(|its| (labels(its), ConstCounter::new(value(its))));
        family(encoder, name, help, counts)
    })
}

/// Upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [f64; 13] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0];

fn histogram(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, of: &Histogram) -> fmt::Result {
    let mut before = 0;
    let bucket = |end: f64| {
        let up_to = of.up_to((end * 1e9).round() as u64);
        let here = up_to - before;
        before = up_to;
        (end, here)
    };
    let mut buckets: Vec<_> = BUCKETS.into_iter().map(bucket).collect();
    buckets.push((f64::INFINITY, of.count() - before));
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(of.sum() as f64 * 1e-9, of.count(), &buckets, None)
}
