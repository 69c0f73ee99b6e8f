//! The counters of a bridge as OpenMetrics text for Prometheus.

use std::fmt;

use ejfat::{
    bridge::{EventLossCause, Histogram},
    reassembly::{Eviction, SegmentDropCause},
};
use ejfat_bridge::{BridgeHandle, Snapshot, WorkerReport};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::report;
use crate::ejfat::losses;

#[derive(Debug)]
struct BridgeCollector(BridgeHandle);

/// Returns a function that makes the text with the counters at the time of a request.
pub(super) fn text(handle: BridgeHandle) -> impl Fn() -> String + Send + Sync + 'static {
    let mut registry = Registry::with_prefix("naa_bridge");
    registry.register_collector(Box::new(BridgeCollector(handle)));
    move || {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
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

fn family<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, kind)
}

fn count<const N: usize>(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    value: u64,
) -> fmt::Result {
    ConstCounter::new(value).encode(family.encode_family(labels)?)
}

fn events(encoder: &mut DescriptorEncoder<'_>, of: &Snapshot) -> fmt::Result {
    let events = &of.events;
    let mut ends = family(encoder, "events", "Events that ended, by how", MetricType::Counter)?;
    for (end, value) in [
        ("released", events.released),
        ("held_by_ended", events.held_by_ended),
        ("incomplete", events.incomplete),
    ] {
        count(&mut ends, &[("end", end)], value)?;
    }
    for cause in EventLossCause::ALL {
        count(&mut ends, &[("end", cause.name())], events.lost(cause))?;
    }
    count(&mut ends, &[("end", SegmentDropCause::TooLong.name())], of.too_long)?;
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
        ConstCounter::new(value).encode(family(encoder, name, help, MetricType::Counter)?)?;
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
        ConstGauge::new(value).encode(family(encoder, name, help, MetricType::Gauge)?)?;
    }
    Ok(())
}

fn segments(encoder: &mut DescriptorEncoder<'_>, of: &Snapshot) -> fmt::Result {
    for (name, help, value) in [
        ("segments", "Datagrams received", of.reassembly.segments),
        ("received_bytes", "Bytes of datagrams received", of.reassembly.bytes),
        ("kernel_drops", "Datagrams that the kernel dropped: the receive buffer was full", of.kernel_drops),
    ] {
        ConstCounter::new(value).encode(family(encoder, name, help, MetricType::Counter)?)?;
    }
    let status = naa_services::bridge_status(of);
    let lost = losses::datagrams(&status.reassembly.unwrap_or_default(), of.kernel_drops);
    let mut family_of_lost = family(
        encoder,
        "lost_datagrams",
        "Datagrams lost before they were part of an event",
        MetricType::Counter,
    )?;
    lost.into_iter().try_for_each(|(cause, value)| count(&mut family_of_lost, &[("cause", cause)], value))?;
    let help = "Events that made room for others, by the limit";
    let mut evicted = family(encoder, "evicted_events", help, MetricType::Counter)?;
    Eviction::ALL
        .into_iter()
        .try_for_each(|by| count(&mut evicted, &[("by", by.name())], of.reassembly.evicted(by)))?;
    let mut ports = family(encoder, "port_datagrams", "Datagrams received, by address", MetricType::Counter)?;
    for port in of.ports.iter() {
        count(&mut ports, &[("address", port.at.to_string().as_str())], port.datagrams)?;
    }
    let mut dropped =
        family(encoder, "segments_dropped", "Datagrams not used, by cause", MetricType::Counter)?;
    SegmentDropCause::ALL
        .into_iter()
        .try_for_each(|cause| count(&mut dropped, &[("cause", cause.name())], of.reassembly.dropped(cause)))
}

fn workers(encoder: &mut DescriptorEncoder<'_>, workers: &[WorkerReport]) -> fmt::Result {
    let label = |its: &WorkerReport| (its.level.worker.to_string(), its.level.name.clone());
    let mut fill = family(encoder, "worker_fill_ratio", "Part of a ring in use", MetricType::Gauge)?;
    for its in workers {
        let (number, name) = label(its);
        let labels = [("worker", number.as_str()), ("name", name.as_str())];
        ConstGauge::new(its.level.fill).encode(fill.encode_family(&labels)?)?;
    }
    for (metric, help, value) in [
        (
            "worker_sent_events",
            "Events that a worker was told of",
            (|its| its.sent) as fn(&WorkerReport) -> u64,
        ),
        ("worker_released_events", "Events that it gave back", |its| its.released),
        ("worker_wrong_credits", "Credit words of it that were none", |its| its.wrong_credits),
    ] {
        let mut family = family(encoder, metric, help, MetricType::Counter)?;
        for its in workers {
            let (number, name) = label(its);
            count(&mut family, &[("worker", number.as_str()), ("name", name.as_str())], value(its))?;
        }
    }
    Ok(())
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
